//! The cost of the user's own procedures, and of their callers. Cost in the system's code counts for the
//! user's procedure that called it.

use crate::model::code::Code;
use crate::model::hash::FastMap;
use crate::model::symbols::Kind;
use crate::model::tree::{Call, Tree, TreeNode};
use hpc_formats::structure::Origin;

/// Name of what is stored.
pub const NAME: &str = "user-code";

/// Arranges a folded tree: a root is a procedure of the user's, and below it are the procedures that call it.
/// A root has values of its own where none does. Cost outside of the user's code is left out.
pub fn arrange(tree: &Tree, code: &Code) -> Tree {
    let is_user = |node: &TreeNode| {
        let row = code.procedure(node.procedure);
        // A loop or a line is of the procedure around it.
        let is_inside = matches!(node.kind, Kind::Loop | Kind::Line) && node.parent.is_some();
        !is_inside && row.origin == Origin::User && row.module.is_some()
    };
    let mut out = Tree::new(tree.exclusive.metrics());
    let mut index: FastMap<(Option<u32>, u32), u32> = FastMap::default();
    // The nearest user context at or above each context.
    let mut nearest: Vec<Option<u32>> = Vec::with_capacity(tree.nodes.len());
    for (id, node) in (0..).zip(&tree.nodes) {
        let outer = node.parent.and_then(|p| nearest[p as usize]);
        nearest.push(if is_user(node) { Some(id) } else { outer });
        let values = tree.exclusive.of(id);
        let Some(context) = nearest[id as usize].filter(|_| values.iter().any(|v| *v != 0)) else {
            continue;
        };
        let procedure = tree.nodes[context as usize].procedure;
        let mut child = |parent: Option<u32>, procedure: u32| {
            let add = || {
                out.push(TreeNode {
                    parent,
                    kind: Kind::Procedure,
                    procedure,
                    location: None,
                    call: Call::Unknown,
                    is_runtime: false,
                    parallel_loop: None,
                    recursion: 1,
                })
            };
            *index.entry((parent, procedure)).or_insert_with(add)
        };
        let root = child(None, procedure);
        let at = match caller(tree, &nearest, context) {
            Some(caller) => child(Some(root), caller),
            None => root,
        };
        out.exclusive.add(at, values);
    }
    out
}

/// The procedure of the nearest user context above `context` that is another procedure.
fn caller(tree: &Tree, nearest: &[Option<u32>], context: u32) -> Option<u32> {
    let procedure = tree.nodes[context as usize].procedure;
    let mut at = tree.nodes[context as usize].parent;
    while let Some(id) = at.and_then(|id| nearest[id as usize]) {
        let other = tree.nodes[id as usize].procedure;
        if other != procedure {
            return Some(other);
        }
        at = tree.nodes[id as usize].parent;
    }
    None
}
