//! The flat view: load module, source file, procedure, loops, and lines where they are kept; without
//! any calling context. A procedure's inclusive value counts its own code only, so that
//! modules, files and procedures add up.

use crate::model::hash::FastMap;
use crate::model::symbols::Kind;
use crate::views::load::Database;
use crate::views::tree::{Call, Label, Tree, View, ViewNode};

/// Module, file, procedure, loops from the outside in, line: labels with kinds.
fn path(tree: &Tree, database: &Database, node: u32) -> Vec<(Label, &'static str)> {
    let leaf = &tree.nodes[node as usize];
    let mut loops = Vec::new();
    let mut owner = leaf;
    let mut scope = match leaf.kind {
        Kind::Line => leaf.parent,
        _ => Some(node),
    };
    while let Some(around) = scope.map(|s| &tree.nodes[s as usize]) {
        owner = around;
        if around.kind != Kind::Loop {
            break;
        }
        loops.push((Label::Procedure(around.procedure), Kind::Loop.name()));
        scope = around.parent;
    }
    let row = &database.procedures[owner.procedure as usize];
    let kind = match owner.kind {
        Kind::Partial => Kind::Partial.name(),
        Kind::Inlined => Kind::Inlined.name(),
        Kind::ParallelLoop => Kind::ParallelLoop.name(),
        _ => Kind::Procedure.name(),
    };
    let (at, label) = match (owner.kind, owner.parallel_loop) {
        (Kind::ParallelLoop, Some(index)) => (
            database.loops[index as usize].call,
            Label::ParallelLoop(index),
        ),
        _ => (row.declared, Label::Procedure(owner.procedure)),
    };
    let mut path = vec![
        (Label::Module(row.module), "module"),
        (Label::File(at.map(|d| d.0)), "file"),
        (label, kind),
    ];
    path.extend(loops.into_iter().rev());
    if let (Kind::Line, Some(place)) = (leaf.kind, leaf.place) {
        path.push((Label::Line(place), Kind::Line.name()));
    }
    path
}

/// Arranges a tree of contexts.
pub fn arrange(tree: &Tree, database: &Database) -> View {
    let mut view = View::new("flat", tree.totals());
    let mut index: FastMap<(Option<u32>, Label), u32> = FastMap::default();
    for position in 0..tree.nodes.len() as u32 {
        let values = tree.values(position);
        if values.iter().all(|v| *v == 0) {
            continue;
        }
        let path = path(tree, database, position);
        let mut at = None;
        for (label, kind) in path {
            let key = (at, label.clone());
            let id = match index.get(&key) {
                Some(id) => *id,
                None => {
                    let id = view.push(ViewNode {
                        parent: at,
                        children: Vec::new(),
                        kind,
                        label,
                        call: Call::Unknown,
                        recursion: 1,
                    });
                    index.insert(key, id);
                    id
                }
            };
            if kind == Kind::Procedure.name() {
                view.nodes[id as usize].kind = kind;
            }
            view.add_inclusive(id, values);
            at = Some(id);
        }
        if let Some(leaf) = at {
            view.add_exclusive(leaf, values);
        }
    }
    view
}
