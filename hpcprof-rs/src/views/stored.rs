//! The views that a database stores, so that text opens without reading all contexts: the bottom-up view
//! without small nodes, the flat view, and the cost of the user's procedures with their callers.

use crate::catalogue::metrics::{MetricSelector, effort};
use crate::model::code::Code;
use crate::model::metrics::first_square;
use crate::model::tree::Tree;
use crate::views::prune::Limits;
use crate::views::view::ViewKind;
use crate::views::{bottom_up, flat, user_code};

/// Nodes below this share of all metrics are left out of the bottom-up view, percent.
const LEAST: f64 = 0.1;

/// The stored views of a folded tree, with their names.
pub fn summaries(tree: &Tree, code: &Code) -> [(&'static str, Tree); 3] {
    let totals = tree.exclusive.totals();
    let is_share = |part: i64, whole: i64| whole > 0 && part as f64 >= whole as f64 * (LEAST / 100.0);
    let keeps = |values: &[i64]| {
        let mut metrics = values.iter().zip(&totals).take(first_square(totals.len()));
        is_share(effort(values), effort(&totals)) || metrics.any(|(part, whole)| is_share(*part, *whole))
    };
    let (callers, _) = bottom_up::summarise(tree, Some(bottom_up::STORED_DEPTH), keeps);
    [
        (ViewKind::BottomUp.name(), callers),
        (ViewKind::Flat.name(), flat::places(tree)),
        (user_code::NAME, user_code::arrange(tree, code)),
    ]
}

/// Whether a view that is sorted by a metric is pruned by amounts that are stored: they add up, and none is
/// negative.
pub fn can_prune_by(metric: MetricSelector<'_>, totals: &[i64]) -> bool {
    let derived = metric.or_effort(totals).derived();
    derived.is_none_or(|expression| expression.variable().is_some())
}

/// Whether all that the limits leave of the bottom-up view is stored.
pub fn has_all(limits: Limits, metric: MetricSelector<'_>, totals: &[i64]) -> bool {
    let total = metric.or_effort(totals).value(totals);
    can_prune_by(metric, totals)
        && limits.threshold.is_some_and(|threshold| threshold >= LEAST)
        && total.is_some_and(|total| total > 0.0)
}
