//! The top-down view: from the program's entry to the callees.

use crate::model::tree::Tree;
use crate::views::view::{View, ViewNode};

/// Arranges a tree of contexts.
pub fn arrange(tree: &Tree) -> View {
    let mut view = View::new("top-down", tree.exclusive.totals());
    for node in &tree.nodes {
        view.push(ViewNode::of(node, node.parent));
    }
    view.inclusive = tree.inclusive();
    view.exclusive.clone_from(&tree.exclusive);
    view
}
