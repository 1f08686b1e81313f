//! The one line above a bottom-up view: which of the user's own procedures a metric sits in,
//! and who calls them. Cost in the system's code counts for the user's procedure that called it.

use crate::catalogue::Catalogue;
use crate::catalogue::metrics::{EFFORT, MetricSelector};
use crate::error::one_line;
use crate::model::hash::FastMap;
use crate::model::tree::Tree;
use crate::render::names;
use crate::views::view::Label;
use hpc_formats::structure::Origin;
use std::cmp::Reverse;

/// Most procedures that the line names; fewer where their names do not fit.
const PROCEDURES: usize = 3;
/// Least share of the metric's total to be named, percent.
const LEAST_PERCENT: f64 = 2.0;
/// Characters that are left of a name that is cut to make room.
const LEAST_NAME: usize = 12;

/// The line for a folded tree, in at most `width` characters; `None` when no procedure of the user's stands
/// out.
pub fn headline(
    tree: &Tree,
    catalogue: &Catalogue,
    metric: MetricSelector<'_>,
    width: usize,
) -> Option<String> {
    let name = match metric {
        MetricSelector::Effort => EFFORT,
        MetricSelector::Metric(m) => &catalogue.metrics[m].name,
        // It may not add up, and parts of it may be negative.
        MetricSelector::Derived(_) => return None,
    };
    let total = metric.of(&tree.exclusive.totals());
    let percent = |sum: i64| sum as f64 * 100.0 / total as f64;
    let mut sorted: Vec<_> = sums(tree, catalogue, metric).into_iter().collect();
    sorted.retain(|(_, sum)| total > 0 && percent(*sum) >= LEAST_PERCENT);
    sorted.sort_by_key(|((procedure, caller), sum)| (Reverse(*sum), *procedure, *caller));
    sorted.truncate(PROCEDURES);
    if sorted.is_empty() {
        return None;
    }
    // The line with a number of procedures, whose names have at most `most` characters.
    let line = |procedures: usize, most: usize| {
        let procedure_name =
            |p| names::middle(&names::shown(&catalogue.code, Label::Procedure(p)), most);
        let parts = sorted[..sorted.len().min(procedures)].iter();
        let parts = parts.map(|((procedure, caller), sum)| {
            let from = caller.map_or(String::new(), |c| {
                format!(" called from {}", procedure_name(c))
            });
            format!(
                "{}{from} {:.1} %",
                procedure_name(*procedure),
                percent(*sum)
            )
        });
        let parts: Vec<String> = parts.collect();
        format!("{} is in {}", one_line(name), parts.join("; "))
    };
    let fits = |procedures, most| line(procedures, most).chars().count() <= width;
    let procedures = (2..=PROCEDURES).rev().find(|n| fits(*n, width));
    let procedures = procedures.unwrap_or(1);
    let most = (LEAST_NAME..=width).rev().find(|n| fits(procedures, *n));
    Some(names::middle(
        &line(procedures, most.unwrap_or(LEAST_NAME)),
        width,
    ))
}

/// The metric by the user's procedure that it sits in, and the caller of that.
fn sums(
    tree: &Tree,
    catalogue: &Catalogue,
    metric: MetricSelector<'_>,
) -> FastMap<(u32, Option<u32>), i64> {
    let is_user = |procedure: u32| {
        let row = catalogue.code.procedure(procedure);
        row.origin == Origin::User && row.module.is_some()
    };
    // The nearest user context at or above each context.
    let mut nearest: Vec<Option<u32>> = Vec::with_capacity(tree.nodes.len());
    let mut sums: FastMap<(u32, Option<u32>), i64> = FastMap::default();
    for (id, node) in (0..).zip(&tree.nodes) {
        let outer = node.parent.and_then(|p| nearest[p as usize]);
        let here = if is_user(node.procedure) {
            Some(id)
        } else {
            outer
        };
        nearest.push(here);
        let value = metric.of(tree.exclusive.of(id));
        if let Some(context) = here.filter(|_| value > 0) {
            let procedure = tree.nodes[context as usize].procedure;
            let key = (procedure, caller(tree, &nearest, context));
            let sum = sums.entry(key).or_insert(0);
            *sum = sum.saturating_add(value);
        }
    }
    sums
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
