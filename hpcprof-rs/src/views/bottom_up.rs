//! The bottom-up view: from where cost arises to the callers through which it came.
//!
//! A root is a procedure with the exclusive cost of all its instances. Below it are its callers,
//! each with the share of that cost that came through it, and nothing of its own.

use crate::model::hash::FastMap;
use crate::model::symbols::Kind;
use crate::views::top_down::label;
use crate::views::tree::{Label, Tree, TreeNode, View, ViewNode};

/// Arranges a tree of contexts. Callers further than `depth` from their root are left out when
/// it is given: what they hold stays visible in the caller before them.
pub fn arrange(tree: &Tree, depth: Option<usize>) -> View {
    let mut view = View::new("bottom-up", tree.totals());
    let mut index: FastMap<(Option<u32>, Kind, Label), u32> = FastMap::default();
    for start in 0..tree.nodes.len() as u32 {
        let values = tree.values(start);
        if values.iter().all(|v| *v == 0) {
            continue;
        }
        let mut below = None;
        let mut next = Some(start);
        let mut level = 1;
        while let Some(id) = next {
            let node = &tree.nodes[id as usize];
            let at = child(&mut view, &mut index, below, node);
            view.add_inclusive(at, values);
            if below.is_none() {
                view.add_exclusive(at, values);
            }
            if depth.is_some_and(|d| level >= d) {
                break;
            }
            below = Some(at);
            level += 1;
            next = node.parent;
        }
    }
    view
}

fn child(
    view: &mut View,
    index: &mut FastMap<(Option<u32>, Kind, Label), u32>,
    below: Option<u32>,
    node: &TreeNode,
) -> u32 {
    let merged = match node.kind {
        Kind::Inlined => Kind::Procedure,
        kind => kind,
    };
    let key = (below, merged, label(node));
    if let Some(id) = index.get(&key) {
        let known = &mut view.nodes[*id as usize];
        known.call = known.call.join(node.call);
        known.recursion = known.recursion.max(node.recursion);
        if node.kind == Kind::Procedure {
            known.kind = Kind::Procedure.name();
        }
        return *id;
    }
    let id = view.push(ViewNode {
        parent: below,
        children: Vec::new(),
        kind: node.kind.name(),
        label: label(node),
        call: node.call,
        recursion: node.recursion,
    });
    index.insert(key, id);
    id
}
