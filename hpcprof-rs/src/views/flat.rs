//! The flat view: load module, source file, procedure, and lines where they are kept; without
//! any calling context. A procedure's inclusive value counts its own code only, so that
//! modules, files and procedures add up.

use crate::model::hash::FastMap;
use crate::model::symbols::Kind;
use crate::views::load::Database;
use crate::views::tree::{Call, Label, Tree, View, ViewNode};

/// Arranges a tree of contexts.
pub fn arrange(tree: &Tree, database: &Database) -> View {
    let mut view = View::new("flat", tree.totals());
    let mut index: FastMap<(Option<u32>, Label), u32> = FastMap::default();
    for (position, node) in tree.nodes.iter().enumerate() {
        let values = tree.values(position as u32);
        if values.iter().all(|v| *v == 0) {
            continue;
        }
        let row = &database.procedures[node.procedure as usize];
        let kind = match node.kind {
            Kind::Partial => Kind::Partial.name(),
            Kind::Loop => Kind::Loop.name(),
            Kind::Inlined => Kind::Inlined.name(),
            _ => Kind::Procedure.name(),
        };
        let mut path = vec![
            (Label::Module(row.module), "module"),
            (Label::File(row.declared.map(|d| d.0)), "file"),
            (Label::Procedure(node.procedure), kind),
        ];
        if let (Kind::Line, Some(place)) = (node.kind, node.place) {
            path.push((Label::Line(place), Kind::Line.name()));
        }
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
