//! The bottom-up view: from where cost arises to the callers through which it came.
//!
//! A root is a procedure with the exclusive cost of all its instances. Below it are its callers,
//! each with the share of that cost that came through it, and no exclusive cost.

use crate::model::hash::FastMap;
use crate::model::symbols::Kind;
use crate::model::tree::{Tree, TreeNode};
use crate::views::view::{Label, View, ViewNode};

/// Arranges a tree of contexts. With a `depth`, callers further from their root are left out:
/// their cost stays visible in the caller before them.
pub fn arrange(tree: &Tree, depth: Option<usize>) -> View {
    let mut view = View::new("bottom-up", tree.exclusive.totals());
    let mut index = Index::default();
    for start in 0..tree.nodes.len() as u32 {
        let values = tree.exclusive.of(start);
        if values.iter().all(|v| *v == 0) {
            continue;
        }
        let callers = std::iter::successors(Some(start), |id| tree.nodes[*id as usize].parent);
        let mut below = None;
        for id in callers.take(depth.unwrap_or(usize::MAX)) {
            let node = child(&mut view, &mut index, below, &tree.nodes[id as usize]);
            view.inclusive.add(node, values);
            if below.is_none() {
                view.exclusive.add(node, values);
            }
            below = Some(node);
        }
    }
    view
}

type Index = FastMap<(Option<u32>, Kind, Label), u32>;

fn child(view: &mut View, index: &mut Index, below: Option<u32>, context: &TreeNode) -> u32 {
    let merged = match context.kind {
        Kind::Inlined => Kind::Procedure,
        kind => kind,
    };
    let key = (below, merged, Label::of(context));
    if let Some(id) = index.get(&key) {
        let known = &mut view.nodes[*id as usize];
        known.call = known.call.join(context.call);
        known.recursion = known.recursion.max(context.recursion);
        if context.kind == Kind::Procedure {
            known.kind = Kind::Procedure.name();
        }
        return *id;
    }
    let id = view.push(ViewNode::of(context, below));
    index.insert(key, id);
    id
}
