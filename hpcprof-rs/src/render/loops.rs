//! What text says of a parallel loop's tasks.
//!
//! Counts are those of the places in the code where the loop's tasks are split, over all contexts and
//! threads. A loop that is run from several callers has the same counts in each of its nodes, and
//! loops that share machine code share them (`shared_by`).

use crate::model::code::ParallelLoop;
use crate::render::numbers::{duration, grouped};

/// ` · splits 1,234`, ` · steals 56`, ` · mean task 1.2 ms`: the parts of a line, or none.
pub fn summary(row: &ParallelLoop) -> Vec<String> {
    let Some(counts) = row.counts else {
        return Vec::new();
    };
    let mut parts = Vec::new();
    if counts.splits > 0 {
        parts.push(format!(" · splits {}", grouped(counts.splits)));
    }
    if counts.splits == 0 && counts.executions > 0 {
        parts.push(format!(" · executions {}", grouped(counts.executions)));
    }
    if counts.steals > 0 {
        parts.push(format!(" · steals {}", grouped(counts.steals)));
    }
    if let Some(mean) = row.mean_task_ns() {
        parts.push(format!(" · mean task {}", duration(mean)));
    } else if let Some(mean) = row.mean_stolen_ns() {
        parts.push(format!(" · mean stolen task {}", duration(mean)));
    }
    match row.shared_by {
        0 | 1 => {}
        2 => parts.push(" (with another loop of the same types)".to_owned()),
        n => parts.push(format!(" (with {} loops of the same types)", n - 1)),
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::code::SplitCounts;

    #[test]
    fn a_loop_is_summed_up_in_a_line() {
        let summary = |counts: Option<(i64, i64, i64)>, shared_by| {
            let counts = counts.map(|(splits, steals, stolen_ns)| SplitCounts {
                splits,
                steals,
                stolen_ns,
                ..SplitCounts::default()
            });
            let row = ParallelLoop {
                quoted: false,
                name: String::new(),
                entry: 0,
                call: None,
                counts,
                shared_by,
                task_ns: 1_480_800_000,
            };
            summary(&row).concat()
        };
        assert_eq!(summary(Some((1234, 56, 1)), 1), " · splits 1,234 · steals 56 · mean task 1.2 ms");
        assert_eq!(
            summary(Some((0, 4, 80_000)), 3),
            " · steals 4 · mean stolen task 20 us (with 2 loops of the same types)"
        );
        assert_eq!(summary(None, 1), "");
    }
}
