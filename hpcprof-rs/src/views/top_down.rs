//! The top-down view: from the program's entry to the callees.

use crate::catalogue::Catalogue;
use crate::catalogue::folded::FoldedContext;
use crate::catalogue::metrics::MetricSelector;
use crate::error::Result;
use crate::model::tree::{Label, Tree, TreeNode};
use crate::views::prune::Limits;
use crate::views::view::{View, ViewKind, largest_first};

/// Arranges a tree of contexts; says of each context which node has its values.
pub fn arrange(tree: &Tree) -> (View, Vec<Option<u32>>) {
    (View::of(ViewKind::TopDown, tree), (0..tree.nodes.len() as u32).map(Some).collect())
}

/// Reads as much of the folded tree of a database as the limits leave: the same view as that of the whole
/// tree, sorted and pruned. No part of what it is pruned by is negative.
pub fn read(
    catalogue: &Catalogue,
    limits: Limits,
    metric: MetricSelector<'_>,
    has_spreads: bool,
) -> Result<View> {
    let totals = catalogue.totals()?;
    let pruned_by = metric.or_effort(&totals);
    let share = limits.threshold.unwrap_or(0.0) / 100.0;
    let least = pruned_by.of(&totals) as f64 * share;
    let mut view = View::new(ViewKind::TopDown, totals);
    let mut work: Vec<(Option<FoldedContext>, Option<u32>, usize)> = vec![(None, None, 1)];
    while let Some((caller, parent, level)) = work.pop() {
        let mut callees = catalogue.callees(caller.as_ref())?;
        callees.sort_by(|a, b| largest_first(metric, &a.inclusive, &b.inclusive));
        let is_kept = |c: &FoldedContext| {
            let is_shown = limits.depth.is_none_or(|depth| level <= depth);
            is_shown && pruned_by.of(&c.inclusive) as f64 >= least
        };
        let (kept, cut): (Vec<_>, Vec<_>) = callees.into_iter().partition(is_kept);
        for context in kept {
            let id = view.push(TreeNode { parent, ..context.node });
            view.inclusive.add(id, &context.inclusive);
            view.exclusive.add(id, &context.exclusive);
            if has_spreads {
                view.spreads[id as usize] = catalogue.work_spread(&context)?;
            }
            work.push((Some(context), Some(id), level + 1));
        }
        if !cut.is_empty() {
            let contexts = cut.iter().map(FoldedContext::contexts).sum();
            let id = view.push(TreeNode::new(parent, Label::Pruned(contexts)));
            for context in &cut {
                view.inclusive.add(id, &context.inclusive);
                view.exclusive.add(id, &context.inclusive);
            }
        }
    }
    Ok(view)
}
