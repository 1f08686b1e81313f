//! Prints a view as comma-separated values (RFC 4180): one row per node, parents first, amounts
//! in seconds. An expression's value is in its unit, or empty where it is undefined.

use crate::catalogue::Catalogue;
use crate::catalogue::metrics::MetricSelector;
use crate::error::one_line;
use crate::metrics::expression::Expression;
use crate::render::names;
use crate::render::numbers::exact_seconds;
use crate::views::view::View;
use std::io::{self, Write};

/// Prints `view` to `out`. `parent` is the `id` of another row, empty for roots.
pub fn print(
    view: &View,
    catalogue: &Catalogue,
    metric: MetricSelector<'_>,
    out: &mut impl Write,
) -> io::Result<()> {
    write_to(out, |out| write(view, catalogue, metric, out))
}

pub(super) fn write_to<W: Write>(
    out: W,
    write: impl FnOnce(&mut csv::Writer<W>) -> csv::Result<()>,
) -> io::Result<()> {
    let written = write(&mut csv::Writer::from_writer(out));
    written.map_err(|error| match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    })
}

fn write<W: Write>(
    view: &View,
    catalogue: &Catalogue,
    metric: MetricSelector<'_>,
    out: &mut csv::Writer<W>,
) -> csv::Result<()> {
    for name in "id,parent,depth,kind,name,module,file,line,call_file,call_line".split(',') {
        out.write_field(name)?;
    }
    let metrics = || catalogue.shown_metrics();
    for suffix in ["inclusive", "exclusive"] {
        let names = metrics().map(|(_, m)| m.name.as_str());
        for name in names.chain(metric.derived().map(Expression::text)) {
            out.write_field(format!("{} ({suffix})", one_line(name)))?;
        }
    }
    out.write_record(["splits", "steals", "stolen", "mean_task", "shared_by"])?;
    let code = &catalogue.code;
    let number = |n: Option<u32>| n.map_or(String::new(), |n| n.to_string());
    for (id, depth) in view.preorder() {
        let node = view.node(id);
        out.write_field(id.to_string())?;
        out.write_field(number(node.parent))?;
        out.write_field((depth + 1).to_string())?;
        out.write_field(node.label.kind().name())?;
        out.write_field(names::shown(code, node.label))?;
        out.write_field(one_line(node.label.module(code).unwrap_or_default()))?;
        for location in [node.label.location(code), node.call.location()] {
            let file = location.map_or("", |at| code.file(at.file));
            out.write_field(one_line(file))?;
            out.write_field(number(location.map(|at| at.line).filter(|line| *line > 0)))?;
        }
        for values in [view.inclusive.of(id), view.exclusive.of(id)] {
            for (metric, _) in metrics() {
                out.write_field(exact_seconds(values[metric]))?;
            }
            if metric.derived().is_some() {
                let value = metric.value(values);
                out.write_field(value.map_or(String::new(), |v| v.to_string()))?;
            }
        }
        let counted = node.label.parallel_loop(code);
        let counted = counted.and_then(|row| row.counts.map(|counts| (row, counts)));
        // Empty for other nodes, and for loops without counts.
        out.write_record(counted.map_or(Default::default(), |(row, counts)| {
            [
                counts.splits.to_string(),
                counts.steals.to_string(),
                exact_seconds(counts.stolen_ns),
                row.mean_task_ns().map_or(String::new(), exact_seconds),
                row.shared_by.to_string(),
            ]
        }))?;
    }
    out.flush()?;
    Ok(())
}
