//! The flat view: load module, source file, procedure, loops, and lines where they are kept. It has no
//! calling contexts. A procedure's inclusive value counts its own code only, so that modules, files and
//! procedures add up.

use crate::model::code::Code;
use crate::model::hash::FastMap;
use crate::model::tree::{Label, Tree, TreeNode};
use crate::views::view::{View, ViewKind};

/// Arranges a tree of contexts; says of each context with values which node has them.
pub fn arrange(tree: &Tree, code: &Code) -> (View, Vec<Option<u32>>) {
    let mut out = Tree::new(tree.exclusive.metrics());
    let mut nodes = vec![None; tree.nodes.len()];
    let mut index: FastMap<(Option<u32>, Label), u32> = FastMap::default();
    for context in 0..tree.nodes.len() as u32 {
        let values = tree.exclusive.of(context);
        if values.iter().all(|v| *v == 0) {
            continue;
        }
        let mut at = None;
        for label in path(tree, code, context) {
            let add = || out.push(TreeNode::new(at, label));
            let id = *index.entry((at, label.merged())).or_insert_with(add);
            if let Label::Procedure(_) = label {
                out.nodes[id as usize].label = label;
            }
            at = Some(id);
        }
        if let Some(leaf) = at {
            out.exclusive.add(leaf, values);
        }
        nodes[context as usize] = at;
    }
    (View::of(ViewKind::Flat, &out), nodes)
}

/// Module, file, procedure, loops from the outside in, line.
fn path(tree: &Tree, code: &Code, context: u32) -> Vec<Label> {
    let leaf = &tree.nodes[context as usize];
    let line = Some(leaf.label).filter(|label| matches!(label, Label::Line(_)));
    let mut path = Vec::from_iter(line);
    let mut next = leaf.parent.filter(|_| line.is_some()).or(Some(context));
    while let Some(scope) = next {
        let node = &tree.nodes[scope as usize];
        path.push(node.label);
        next = node.parent.filter(|_| node.label.is_loop());
    }
    let outermost = path.last().copied().unwrap_or(leaf.label);
    path.push(Label::File(outermost.location(code).map(|location| location.file)));
    path.push(Label::Module(outermost.code(code).and_then(|own| own.module)));
    path.reverse();
    path
}
