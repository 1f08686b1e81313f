//! Prints how a critical path has grown: the share of each interval's growth that procedures had, as text.

use crate::model::critical_path::CriticalPath;
use crate::render::critical_path::{PathView, Scale, name_in};
use crate::render::style::Style;
use crate::render::table::Table;
use crate::views::critical_path::{Interval, intervals, parts};
use std::io::{self, Write};

/// Procedures that have a column.
const PROCEDURES: usize = 5;
/// Intervals that are listed: more are joined.
const ROWS: usize = 24;

/// Prints the series of a path, of which procedures with the largest gains have columns.
pub fn text(view: &PathView<'_>, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let path: &CriticalPath = view.path;
    let shown: Vec<_> = parts(path).into_iter().take(PROCEDURES).map(|p| &p.name).collect();
    let intervals = intervals(path, &shown, ROWS);
    if intervals.len() < 2 {
        let text = "the path is known at its end alone: measure with `hpcrun-rs --critical-path=every:1s`";
        return writeln!(out, "{text}");
    }
    let (wall, scale) = (Scale::of(path.wall), Scale::of(path.span));
    let letters: Vec<String> =
        (b'A'..).take(shown.len()).map(|letter| char::from(letter).to_string()).collect();
    let titles = [format!("until {}", wall.unit()), format!("path {}", scale.unit())];
    let fixed = titles.iter().map(|title| (title, 11));
    let columns: Vec<(&String, usize)> = fixed.chain(letters.iter().map(|letter| (letter, 7))).collect();
    let mut table = Table::begin(out, style, &columns, "share of what the path has grown by")?;
    for Interval { until, grown, shares, is_other } in &intervals {
        let mark = match (is_other, grown, shares.iter().sum::<f64>() > 0.0) {
            (true, ..) => "another path: its whole length",
            (_, 0, _) => "threads told nothing: none ended or met another",
            (_, _, false) => "by what is not known: threads tell it later",
            _ => "",
        };
        let shares = shares.iter().map(|share| format!("{:.0} %", share * 100.0));
        let cells = [wall.number(*until), scale.number(*grown)].into_iter().chain(shares);
        table.row(cells, |_| mark.to_owned())?;
    }
    writeln!(out)?;
    for (letter, known) in letters.iter().zip(&shown) {
        writeln!(out, "{letter}  {}", name_in(&known.place))?;
    }
    Ok(())
}
