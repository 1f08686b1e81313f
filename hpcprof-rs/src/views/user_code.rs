//! The cost of the user's own procedures, and of their callers. Cost in the system's code counts for the
//! user's procedure that called it.

use crate::model::code::Code;
use crate::model::hash::FastMap;
use crate::model::tree::{Label, Tree, TreeNode};
use hpc_formats::structure::Origin;

/// Arranges a folded tree: a root is a procedure of the user's, and below it are the procedures that call it.
/// A root has values of its own where none does. Cost outside of the user's code is left out.
pub fn arrange(tree: &Tree, code: &Code) -> Tree {
    let is_user = |node: &TreeNode| {
        // A loop or a line is of the procedure around it.
        let is_inside = matches!(node.label, Label::Loop(_) | Label::Line(_));
        let own = node.label.code(code).filter(|_| !is_inside);
        own.is_some_and(|own| own.origin == Origin::User && own.module.is_some())
    };
    let mut out = Tree::new(tree.exclusive.metrics());
    let mut index: FastMap<(Option<u32>, Label), u32> = FastMap::default();
    // The nearest user context at or above each context.
    let mut nearest: Vec<Option<u32>> = Vec::with_capacity(tree.nodes.len());
    for (id, node) in (0..).zip(&tree.nodes) {
        let outer = node.parent.and_then(|p| nearest[p as usize]);
        nearest.push(if is_user(node) { Some(id) } else { outer });
        let values = tree.exclusive.of(id);
        let Some(context) = nearest[id as usize].filter(|_| values.iter().any(|v| *v != 0)) else {
            continue;
        };
        let mut child = |parent: Option<u32>, label: Label| {
            let add = || out.push(TreeNode::new(parent, label));
            *index.entry((parent, label)).or_insert_with(add)
        };
        let root = child(None, procedure(tree, code, context));
        let at = match caller(tree, code, &nearest, context) {
            Some(caller) => child(Some(root), caller),
            None => root,
        };
        out.exclusive.add(at, values);
    }
    out
}

/// The procedure of a context; of a parallel loop its entry.
fn procedure(tree: &Tree, code: &Code, context: u32) -> Label {
    match tree.nodes[context as usize].label {
        Label::ParallelLoop(l) => Label::Procedure(code.parallel_loop(l).entry),
        label => label.merged(),
    }
}

/// The procedure of the nearest user context above `context` that is another procedure.
fn caller(tree: &Tree, code: &Code, nearest: &[Option<u32>], context: u32) -> Option<Label> {
    let own = procedure(tree, code, context);
    let mut at = tree.nodes[context as usize].parent;
    while let Some(id) = at.and_then(|id| nearest[id as usize]) {
        let other = procedure(tree, code, id);
        if other != own {
            return Some(other);
        }
        at = tree.nodes[id as usize].parent;
    }
    None
}
