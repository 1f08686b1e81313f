//! A flame graph as SVG, of one database or of what differs in two, drawn by the crate inferno. inferno
//! takes whole lines of folded stacks, so those
//! lines are all that is held in memory: contexts that are too narrow to be drawn are left out before.

use crate::catalogue::Catalogue;
use crate::catalogue::metrics::{EFFORT, MetricSelector, effort};
use crate::exports::stacks::Stacks;
use crate::exports::{Selection, folded};
use crate::metrics::unit;
use crate::render::names;
use crate::render::numbers::seconds;
use crate::views::diff::{Diff, METRICS, Node};
use hpc_formats::profile::Unit;
use inferno::flamegraph::color::{MultiPalette, Palette};
use inferno::flamegraph::{Options, from_lines};
use std::io::{self, Write};

/// Width of the narrowest context that is drawn, percent of the picture: about a pixel.
pub(super) const NARROWEST_PERCENT: f64 = 0.1;

pub(super) fn write(stacks: &Stacks<'_>, selection: Selection<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut text = Vec::new();
    folded::write(stacks, selection, &mut text)?;
    let text = String::from_utf8_lossy(&text);
    let total = selection.metric.of(&stacks.totals);
    let (name, unit) = match selection.metric {
        MetricSelector::Effort => (EFFORT, Unit::Seconds),
        MetricSelector::Metric(index) => {
            let metric = &stacks.metrics[index];
            (metric.name.as_str(), metric.unit)
        }
        MetricSelector::Derived(expression) => {
            let unit = match expression.unit() {
                unit::Unit::SECONDS => Unit::Seconds,
                unit::Unit::BYTES => Unit::Bytes,
                _ => Unit::Count,
            };
            (expression.text(), unit)
        }
    };
    let mut options = options(stacks.program());
    let amount = match unit {
        Unit::Seconds => {
            (options.count_name, options.factor) = ("us".to_owned(), 1e-3);
            let whole = seconds(effort(&stacks.totals));
            format!("{name} {} s of {whole} s effort", seconds(total))
        }
        Unit::Count | Unit::Ratio | Unit::SquareSeconds => format!("{total} {name}"),
        Unit::Bytes => {
            options.count_name = "bytes".to_owned();
            format!("{name} {total} bytes")
        }
    };
    options.subtitle = Some(amount);
    options.colors = Palette::Multi(MultiPalette::Rust);
    // Lines are in the order of a walk already, and this is inferno's way to keep an order.
    options.flame_chart = true;
    from_lines(&mut options, text.lines().rev(), out)
}

fn options(title: String) -> Options<'static> {
    let mut options = Options::default();
    options.title = title;
    options.name_type = "Context:".to_owned();
    // The same profile is the same picture.
    options.deterministic = true;
    options.min_width = 0.0;
    options
}

/// Draws a metric of the second database, coloured by what it has more or less than the first.
pub fn difference(
    diff: &Diff,
    databases: [&Catalogue; 2],
    metric: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    // What each context has beside those below it; a sum of all may be a little less than its parts.
    let values = |node: &Node| node.compared.values.map(|values| values[metric]);
    let mut own: Vec<[f64; 2]> = diff.nodes.iter().map(values).collect();
    let mut stacks: Vec<String> = Vec::with_capacity(own.len());
    for node in &diff.nodes {
        let name = folded::frame(&names::label(&databases[node.names].code, node.label));
        match node.parent {
            Some(parent) => {
                let below = values(node);
                (0..2).for_each(|side| own[parent][side] -= below[side]);
                stacks.push(format!("{};{name}", stacks[parent]));
            }
            None => stacks.push(name),
        }
    }
    let lines = stacks.iter().zip(own).filter_map(|(stack, own)| {
        let [a, b] = own.map(|time| time.max(0.0).round() as u64);
        (a + b > 0).then(|| format!("{stack} {a} {b}"))
    });
    let lines: Vec<String> = lines.collect();
    let mut options = options(databases[1].statistics.program.clone());
    let [a, b] = diff.total.values.map(|values| seconds(values[metric].round() as i64));
    options.subtitle =
        Some(format!("{} of a run: {b} s, before {a} s; red: more than before, blue: less", METRICS[metric]));
    (options.count_name, options.factor) = ("us".to_owned(), 1e-3);
    from_lines(&mut options, lines.iter().map(String::as_str), out)
}
