//! Cuts a view by depth and by threshold. What is cut off from below a node becomes one node
//! that says how many contexts it stands for, so that no cost disappears.

use crate::views::load::Sort;
use crate::views::tree::{Call, Label, View, ViewNode};

/// Where to cut.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Limits {
    /// Levels to keep; `None` keeps all.
    pub depth: Option<usize>,
    /// Least percentage of the total of the metric sorted by.
    pub threshold: Option<f64>,
}

/// A copy of `view` without what the limits cut off.
pub fn prune(view: &View, limits: Limits, sort: Sort) -> View {
    if limits == Limits::default() {
        return view.clone();
    }
    let sort = sort.or_effort(&view.totals);
    let share = limits.threshold.unwrap_or(0.0) / 100.0;
    let least = sort.of(&view.totals) as f64 * share;
    let keeps = |node: u32| sort.of(view.inclusive_of(node)) as f64 >= least;
    let subtree = subtree_sizes(view);
    let mut out = View::new(view.name, view.totals.clone());
    // (siblings in the view, their parent in the result, their level)
    let mut work: Vec<(Vec<u32>, Option<u32>, usize)> = vec![(view.roots.clone(), None, 1)];
    while let Some((siblings, parent, level)) = work.pop() {
        let mut cut = Vec::new();
        for node in siblings {
            if limits.depth.is_some_and(|d| level > d) || !keeps(node) {
                cut.push(node);
                continue;
            }
            let source = &view.nodes[node as usize];
            let id = out.push(ViewNode {
                parent,
                children: Vec::new(),
                ..source.clone()
            });
            out.add_inclusive(id, view.inclusive_of(node));
            out.add_exclusive(id, view.exclusive_of(node));
            work.push((source.children.clone(), Some(id), level + 1));
        }
        if !cut.is_empty() {
            add_cut(view, &mut out, parent, &cut, &subtree);
        }
    }
    out
}

/// The number of nodes and the sum of exclusive values at and below each node.
struct Subtree {
    nodes: Vec<u64>,
    exclusive: Vec<i64>,
}

fn subtree_sizes(view: &View) -> Subtree {
    let n = view.metrics;
    let mut nodes = vec![1_u64; view.nodes.len()];
    let mut exclusive = view.exclusive.clone();
    for node in (0..view.nodes.len()).rev() {
        if let Some(parent) = view.nodes[node].parent {
            let parent = parent as usize;
            nodes[parent] += nodes[node];
            for metric in 0..n {
                let value = exclusive[node * n + metric];
                let slot = &mut exclusive[parent * n + metric];
                *slot = slot.saturating_add(value);
            }
        }
    }
    Subtree { nodes, exclusive }
}

fn add_cut(view: &View, out: &mut View, parent: Option<u32>, cut: &[u32], subtree: &Subtree) {
    let count = cut.iter().map(|c| subtree.nodes[*c as usize]).sum();
    let id = out.push(ViewNode {
        parent,
        children: Vec::new(),
        kind: "pruned",
        label: Label::Pruned(count),
        call: Call::Unknown,
        recursion: 1,
    });
    for node in cut {
        out.add_inclusive(id, view.inclusive_of(*node));
        let start = *node as usize * view.metrics;
        out.add_exclusive(id, &subtree.exclusive[start..start + view.metrics]);
    }
}
