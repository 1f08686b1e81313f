//! Cuts a view by depth and by threshold. What is cut off below a node becomes one node
//! that says how many contexts it stands for, so that no cost disappears.

use crate::catalogue::metrics::MetricSelector;
use crate::model::tree::{Label, TreeNode};
use crate::views::view::View;

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Limits {
    /// Levels to keep; `None` keeps all.
    pub depth: Option<usize>,
    /// Least percentage of the metric sorted by, or of effort ([`MetricSelector::or_effort`]).
    pub threshold: Option<f64>,
}

/// `view` without what the limits cut off, and with at most so many of its largest nodes beside what stands
/// for others.
pub fn prune(view: View, limits: Limits, rows: Option<usize>, metric: MetricSelector<'_>) -> View {
    if limits == Limits::default() && rows.is_none() {
        return view;
    }
    let metric = metric.or_effort(&view.totals);
    let share = limits.threshold.unwrap_or(0.0) / 100.0;
    let size = |values: &[i64]| metric.value(values).map_or(0.0, f64::abs);
    let amounts: Vec<f64> = (0..view.nodes.len() as u32).map(|node| size(view.inclusive.of(node))).collect();
    // The total, unless parts of it are negative.
    let least = amounts.iter().copied().fold(size(&view.totals), f64::max) * share;
    let mut is_row = vec![true; amounts.len()];
    if let Some(rows) = rows {
        let mut largest: Vec<u32> = (0..view.nodes.len() as u32).collect();
        // A parent comes before what is as large below it.
        largest.sort_by(|a, b| amounts[*b as usize].total_cmp(&amounts[*a as usize]));
        largest.iter().skip(rows).for_each(|node| is_row[*node as usize] = false);
    }
    // What is left out already stays so.
    let is_whole = |node: u32| !view.node(node).label.is_pruned();
    let keeps = |node: u32| is_whole(node) && is_row[node as usize] && amounts[node as usize] >= least;
    let sizes = subtree_sizes(&view);
    let exclusive = view.exclusive.inclusive(view.nodes.iter().map(|n| n.parent));
    let mut out = View::new(view.kind, view.totals.clone());
    // (siblings in the view, their parent in the result, their level)
    let mut work: Vec<(&[u32], Option<u32>, usize)> = vec![(&view.roots, None, 1)];
    while let Some((siblings, parent, level)) = work.pop() {
        let is_kept = |node: &u32| limits.depth.is_none_or(|d| level <= d) && keeps(*node);
        let (kept, cut): (Vec<u32>, Vec<u32>) = siblings.iter().copied().partition(is_kept);
        for node in kept {
            let id = out.push(TreeNode { parent, ..*view.node(node) });
            out.spreads[id as usize] = view.spreads[node as usize];
            out.inclusive.add(id, view.inclusive.of(node));
            out.exclusive.add(id, view.exclusive.of(node));
            work.push((&view.children[node as usize], Some(id), level + 1));
        }
        if !cut.is_empty() {
            let contexts = cut.iter().map(|node| sizes[*node as usize]).sum();
            let id = out.push(TreeNode::new(parent, Label::Pruned(contexts)));
            // It has the exclusive values of all that is cut.
            for node in cut {
                out.inclusive.add(id, view.inclusive.of(node));
                out.exclusive.add(id, exclusive.of(node));
            }
        }
    }
    out
}

/// The number of nodes at and below each node.
fn subtree_sizes(view: &View) -> Vec<u32> {
    let own = view.nodes.iter().map(|node| match node.label {
        Label::Pruned(nodes) => nodes,
        _ => 1,
    });
    let mut sizes: Vec<u32> = own.collect();
    for (id, node) in view.nodes.iter().enumerate().rev() {
        if let Some(parent) = node.parent {
            sizes[parent as usize] += sizes[id];
        }
    }
    sizes
}
