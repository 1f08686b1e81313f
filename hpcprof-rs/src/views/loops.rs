//! What the views say of a parallel loop's tasks.
//!
//! Counts are those of the places in the code where the loop's tasks are split, over all contexts and
//! threads: a loop that is run from several callers has the same counts in each of its nodes, and
//! loops that share machine code share them (`shared_by`).

use crate::views::json::{seconds, string};
use crate::views::load::{Database, LoopRow};
use crate::views::tree::Label;

/// The loop that a label names.
pub fn of<'a>(label: &Label, database: &'a Database) -> Option<&'a LoopRow> {
    match label {
        Label::ParallelLoop(index) => database.loops.get(*index as usize),
        _ => None,
    }
}

/// Work and overhead of a loop by the number of its splits: each adds one task. Nanoseconds.
pub fn mean_task_ns(row: &LoopRow) -> Option<i64> {
    let (splits, _, _) = row.counts?;
    (splits > 0).then(|| row.task_ns / splits)
}

/// Time in a stolen task, tasks split off it excluded where they were stolen in turn.
/// Nanoseconds.
pub fn mean_stolen_ns(row: &LoopRow) -> Option<i64> {
    let (_, steals, stolen_ns) = row.counts?;
    (steals > 0).then(|| stolen_ns / steals)
}

/// ` · splits 1,234`, ` · steals 56`, ` · mean task 1.2 ms`: the parts of a line, or none.
pub fn summary(row: &LoopRow) -> Vec<String> {
    let Some((splits, steals, _)) = row.counts else {
        return Vec::new();
    };
    let mut parts = Vec::new();
    if splits > 0 {
        parts.push(format!(" · splits {}", grouped(splits)));
    }
    parts.push(format!(" · steals {}", grouped(steals)));
    if let Some(mean) = mean_task_ns(row) {
        parts.push(format!(" · mean task {}", duration(mean)));
    } else if let Some(mean) = mean_stolen_ns(row) {
        parts.push(format!(" · mean stolen task {}", duration(mean)));
    }
    match row.shared_by {
        0 | 1 => {}
        2 => parts.push(" (with another loop of the same types)".to_owned()),
        n => parts.push(format!(" (with {} loops of the same types)", n - 1)),
    }
    parts
}

/// The fields of the JSON object `parallel_loop`.
pub fn json(row: &LoopRow, database: &Database) -> String {
    let number = |n: Option<i64>| n.map_or("null".to_owned(), |n| n.to_string());
    let time = |n: Option<i64>| n.map_or("null".to_owned(), seconds);
    format!(
        "{{\"entry\":{},\"splits\":{},\"steals\":{},\"stolen_seconds\":{},\
         \"mean_task_seconds\":{},\"mean_stolen_task_seconds\":{},\"shared_by\":{}}}",
        string(&database.procedures[row.entry as usize].name),
        number(row.counts.map(|c| c.0)),
        number(row.counts.map(|c| c.1)),
        time(row.counts.map(|c| c.2)),
        time(mean_task_ns(row)),
        time(mean_stolen_ns(row)),
        row.shared_by,
    )
}

/// A number with its thousands apart.
fn grouped(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A time with two digits that matter and its unit.
fn duration(nanoseconds: i64) -> String {
    let value = nanoseconds.max(0) as f64;
    let (value, unit) = match value {
        v if v >= 1e9 => (v / 1e9, "s"),
        v if v >= 1e6 => (v / 1e6, "ms"),
        v if v >= 1e3 => (v / 1e3, "us"),
        v => (v, "ns"),
    };
    match value {
        v if v >= 10.0 => format!("{v:.0} {unit}"),
        v => format!("{v:.1} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(counts: Option<(i64, i64, i64)>, shared_by: u32) -> LoopRow {
        LoopRow {
            name: String::new(),
            entry: 0,
            call: None,
            counts,
            shared_by,
            task_ns: 1_480_800_000,
        }
    }

    #[test]
    fn a_loop_is_summed_up_in_a_line() {
        assert_eq!(
            summary(&row(Some((1234, 56, 1)), 1)).concat(),
            " · splits 1,234 · steals 56 · mean task 1.2 ms"
        );
        assert_eq!(
            summary(&row(Some((0, 4, 80_000)), 3)).concat(),
            " · steals 4 · mean stolen task 20 us (with 2 loops of the same types)"
        );
        assert_eq!(summary(&row(None, 1)), Vec::<String>::new());
        assert_eq!(grouped(1_000_000), "1,000,000");
        assert_eq!(grouped(7), "7");
    }
}
