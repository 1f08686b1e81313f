//! The one line above a bottom-up view: which of the user's own procedures a metric sits in,
//! and who calls them. Cost in the system's code counts for the user's procedure that called it.

use crate::error::one_line;
use crate::model::hash::FastMap;
use crate::views::load::{Database, Sort};
use crate::views::names;
use crate::views::tree::{Label, Tree};
use hpc_formats::structure::Origin;

/// Procedures named in the line, at most: fewer where their names do not fit.
const PROCEDURES: usize = 3;
/// Least share of the metric's total to be named, percent.
const LEAST_PERCENT: f64 = 2.0;

/// Characters that are left of a name that is cut to make room.
const LEAST_NAME: usize = 12;

/// The line for a folded tree, in at most `width` characters; `None` when no procedure of the user's stands
/// out.
pub fn headline(tree: &Tree, database: &Database, sort: Sort, width: usize) -> Option<String> {
    let total = sort.of(&tree.totals());
    if total <= 0 {
        return None;
    }
    let is_user = |node: u32| {
        let row = &database.procedures[tree.nodes[node as usize].procedure as usize];
        row.origin == Origin::User && row.module.is_some()
    };
    // The nearest user context at or above each context.
    let mut nearest: Vec<Option<u32>> = Vec::with_capacity(tree.nodes.len());
    let mut sums: FastMap<(u32, Option<u32>), i64> = FastMap::default();
    for id in 0..tree.nodes.len() as u32 {
        let above = tree.nodes[id as usize].parent;
        let outer = above.and_then(|p| nearest[p as usize]);
        let here = if is_user(id) { Some(id) } else { outer };
        nearest.push(here);
        let value = sort.of(tree.values(id));
        let Some(context) = here.filter(|_| value > 0) else {
            continue;
        };
        let procedure = tree.nodes[context as usize].procedure;
        let sum = sums
            .entry((procedure, caller(tree, &nearest, context)))
            .or_insert(0);
        *sum = sum.saturating_add(value);
    }
    let mut sorted: Vec<((u32, Option<u32>), i64)> = sums.into_iter().collect();
    sorted.sort_by_key(|((procedure, caller), sum)| (std::cmp::Reverse(*sum), *procedure, *caller));
    let percent = |sum: i64| sum as f64 * 100.0 / total as f64;
    sorted.retain(|(_, sum)| percent(*sum) >= LEAST_PERCENT);
    sorted.truncate(PROCEDURES);
    let metric = match sort {
        Sort::Effort => "effort",
        Sort::Metric(m) => &database.metrics[m],
    };
    // So many procedures, with names of so many characters at most.
    let line = |procedures: usize, most: usize| {
        let name = |p: u32| names::middle(&names::shown(database, &Label::Procedure(p)), most);
        let parts = sorted
            .iter()
            .take(procedures)
            .map(|((procedure, caller), sum)| {
                let from = caller.map_or(String::new(), |c| format!(" called from {}", name(c)));
                format!("{}{from} {:.1} %", name(*procedure), percent(*sum))
            });
        let parts: Vec<String> = parts.collect();
        format!("{} is in {}", one_line(metric), parts.join("; "))
    };
    let fits = |procedures, most| line(procedures, most).chars().count() <= width;
    let procedures = (2..=PROCEDURES).rev().find(|n| fits(*n, width));
    let procedures = procedures.unwrap_or(1);
    let most = (LEAST_NAME..=width).rev().find(|n| fits(procedures, *n));
    let shown = line(procedures, most.unwrap_or(LEAST_NAME));
    (!sorted.is_empty()).then(|| names::middle(&shown, width))
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
