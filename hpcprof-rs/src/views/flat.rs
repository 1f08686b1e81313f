//! The flat view: load module, source file, procedure, loops, and lines where they are kept. It has no
//! calling contexts. A procedure's inclusive value counts its own code only, so that modules, files and
//! procedures add up.

use crate::model::code::Code;
use crate::model::hash::FastMap;
use crate::model::symbols::Kind;
use crate::model::tree::Tree;
use crate::views::view::{Label, View, ViewNode};

/// Arranges a tree of contexts.
pub fn arrange(tree: &Tree, code: &Code) -> View {
    let mut view = View::new("flat", tree.exclusive.totals());
    let mut index: FastMap<(Option<u32>, Label), u32> = FastMap::default();
    for context in 0..tree.nodes.len() as u32 {
        let values = tree.exclusive.of(context);
        if values.iter().all(|v| *v == 0) {
            continue;
        }
        let mut at = None;
        for (label, kind) in path(tree, code, context) {
            let add = || view.push(ViewNode::new(at, kind, label));
            let id = *index.entry((at, label)).or_insert_with(add);
            if kind == Kind::Procedure.name() {
                view.nodes[id as usize].kind = kind;
            }
            view.inclusive.add(id, values);
            at = Some(id);
        }
        if let Some(leaf) = at {
            view.exclusive.add(leaf, values);
        }
    }
    view
}

/// Module, file, procedure, loops from the outside in, line: labels with kinds.
fn path(tree: &Tree, code: &Code, context: u32) -> Vec<(Label, &'static str)> {
    let leaf = &tree.nodes[context as usize];
    let mut loops = Vec::new();
    let mut owner = leaf;
    let mut scope = match leaf.kind {
        Kind::Line => leaf.parent,
        _ => Some(context),
    };
    while let Some(around) = scope.map(|s| &tree.nodes[s as usize]) {
        owner = around;
        if around.kind != Kind::Loop {
            break;
        }
        loops.push((Label::Procedure(around.procedure), Kind::Loop.name()));
        scope = around.parent;
    }
    let kind = match owner.kind {
        Kind::Partial | Kind::Inlined | Kind::ParallelLoop => owner.kind,
        _ => Kind::Procedure,
    };
    let label = match kind {
        Kind::ParallelLoop => Label::of(owner),
        _ => Label::Procedure(owner.procedure),
    };
    let file = label.location(code).map(|location| location.file);
    let mut path = vec![
        (
            Label::Module(code.procedure(owner.procedure).module),
            "module",
        ),
        (Label::File(file), "file"),
        (label, kind.name()),
    ];
    path.extend(loops.into_iter().rev());
    if let (Kind::Line, Some(location)) = (leaf.kind, leaf.location) {
        path.push((Label::Line(location), Kind::Line.name()));
    }
    path
}
