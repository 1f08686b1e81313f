//! The one line above a bottom-up view: which of the user's own procedures a metric sits in,
//! and who calls them.

use crate::catalogue::Catalogue;
use crate::catalogue::metrics::{EFFORT, MetricSelector};
use crate::error::one_line;
use crate::model::tree::Label;
use crate::model::tree::Tree;
use crate::render::names;
use std::cmp::Reverse;

/// Most procedures that the line names; fewer where their names do not fit.
const PROCEDURES: usize = 3;
/// Least share of the metric's total to be named, percent.
const LEAST_PERCENT: f64 = 2.0;
/// Characters that are left of a name that is cut to make room.
const LEAST_NAME: usize = 12;

/// The line for the [user's code](crate::views::user_code), in at most `width` characters; `None` when no
/// procedure of the user's stands out.
pub fn headline(
    user_code: &Tree,
    catalogue: &Catalogue,
    (metric, totals): (MetricSelector<'_>, &[i64]),
    width: usize,
) -> Option<String> {
    let name = match metric {
        MetricSelector::Effort => EFFORT,
        MetricSelector::Metric(m) => &catalogue.metrics[m].name,
        // It may not add up, and parts of it may be negative.
        MetricSelector::Derived(_) => return None,
    };
    let total = metric.of(totals);
    let percent = |sum: i64| sum as f64 * 100.0 / total as f64;
    let pairs = (0..).zip(&user_code.nodes).map(|(id, node)| {
        let own = node.label.procedure().unwrap_or(0);
        let called = node.parent.and_then(|root| user_code.nodes[root as usize].label.procedure());
        let pair = called.map_or((own, None), |procedure| (procedure, Some(own)));
        (pair, metric.of(user_code.exclusive.of(id)))
    });
    let mut sorted: Vec<((u32, Option<u32>), i64)> = pairs.collect();
    sorted.retain(|(_, sum)| total > 0 && percent(*sum) >= LEAST_PERCENT);
    sorted.sort_by_key(|((procedure, caller), sum)| (Reverse(*sum), *procedure, *caller));
    sorted.truncate(PROCEDURES);
    if sorted.is_empty() {
        return None;
    }
    // The line with a number of procedures, whose names have at most `most` characters.
    let line = |procedures: usize, most: usize| {
        let procedure_name = |p| names::middle(&names::shown(&catalogue.code, Label::Procedure(p)), most);
        let parts = sorted[..sorted.len().min(procedures)].iter();
        let parts = parts.map(|((procedure, caller), sum)| {
            let from = caller.map_or(String::new(), |c| format!(" called from {}", procedure_name(c)));
            format!("{}{from} {:.1} %", procedure_name(*procedure), percent(*sum))
        });
        let parts: Vec<String> = parts.collect();
        format!("{} is in {}", one_line(name), parts.join("; "))
    };
    let fits = |procedures, most| line(procedures, most).chars().count() <= width;
    let procedures = (2..=PROCEDURES).rev().find(|n| fits(*n, width));
    let procedures = procedures.unwrap_or(1);
    let most = (LEAST_NAME..=width).rev().find(|n| fits(procedures, *n));
    Some(names::middle(&line(procedures, most.unwrap_or(LEAST_NAME)), width))
}
