//! The top-down view: from the program's entry to the callees.

use crate::model::symbols::Kind;
use crate::views::tree::{Label, Tree, TreeNode, View, ViewNode};

/// What a context is called.
pub fn label(node: &TreeNode) -> Label {
    match (node.kind, node.place, node.parallel_loop) {
        (Kind::Line, Some(place), _) => Label::Line(place),
        (Kind::ParallelLoop, _, Some(index)) => Label::ParallelLoop(index),
        _ => Label::Procedure(node.procedure),
    }
}

/// Arranges a tree of contexts.
pub fn arrange(tree: &Tree) -> View {
    let mut view = View::new("top-down", tree.totals());
    for node in &tree.nodes {
        view.push(ViewNode {
            parent: node.parent,
            children: Vec::new(),
            kind: node.kind.name(),
            label: label(node),
            call: node.call,
            recursion: node.recursion,
        });
    }
    view.inclusive = tree.inclusive();
    view.exclusive.clone_from(&tree.exclusive);
    view
}
