//! Prints a view as comma-separated values (RFC 4180): one row per node, parents first, amounts
//! in seconds.

use crate::error::one_line;
use crate::views::json::{seconds, where_is};
use crate::views::load::Database;
use crate::views::loops;
use crate::views::names;
use crate::views::tree::{Call, View, ViewNode};
use std::io::{self, Write};

/// Prints `view` to `out`. `parent` is the `id` of another row, empty for roots.
pub fn print(view: &View, database: &Database, out: &mut impl Write) -> io::Result<()> {
    write(view, database, &mut csv::Writer::from_writer(out)).map_err(|e| match e.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    })
}

fn write<W: Write>(view: &View, database: &Database, out: &mut csv::Writer<W>) -> csv::Result<()> {
    let before = "id,parent,depth,kind,name,module,file,line,call_file,call_line";
    let mut header: Vec<String> = before.split(',').map(str::to_owned).collect();
    for suffix in ["inclusive", "exclusive"] {
        let metrics = database.metrics.iter();
        header.extend(metrics.map(|metric| format!("{} ({suffix})", one_line(metric))));
    }
    header.extend(["splits", "steals", "stolen", "mean_task", "shared_by"].map(str::to_owned));
    out.write_record(header)?;
    let mut stack: Vec<(u32, usize)> = view.roots.iter().rev().map(|r| (*r, 1)).collect();
    while let Some((id, depth)) = stack.pop() {
        let node = &view.nodes[id as usize];
        stack.extend(node.children.iter().rev().map(|c| (*c, depth + 1)));
        let (module, place) = where_is(node, database);
        let call = match node.call {
            Call::Unique(place) => Some(place),
            _ => None,
        };
        out.write_field(id.to_string())?;
        out.write_field(node.parent.map_or(String::new(), |p| p.to_string()))?;
        out.write_field(depth.to_string())?;
        out.write_field(node.kind)?;
        out.write_field(names::shown(database, &node.label))?;
        out.write_field(one_line(module.unwrap_or_default()))?;
        for place in [place, call] {
            let line = place.filter(|p| p.1 > 0);
            out.write_field(
                place.map_or(String::new(), |p| one_line(&database.files[p.0 as usize])),
            )?;
            out.write_field(line.map_or(String::new(), |p| p.1.to_string()))?;
        }
        for value in [view.inclusive_of(id), view.exclusive_of(id)].concat() {
            out.write_field(seconds(value))?;
        }
        out.write_record(loop_columns(node, database))?;
    }
    out.flush()?;
    Ok(())
}

/// Counts of a parallel loop, times in seconds; empty for other nodes and where there are none.
fn loop_columns(node: &ViewNode, database: &Database) -> [String; 5] {
    let known = loops::of(&node.label, database);
    let counts = known.and_then(|row| row.counts.map(|c| (row, c)));
    counts.map_or(Default::default(), |(row, (splits, steals, stolen))| {
        [
            splits.to_string(),
            steals.to_string(),
            seconds(stolen),
            loops::mean_task_ns(row).map_or(String::new(), seconds),
            row.shared_by.to_string(),
        ]
    })
}
