//! A flame graph as SVG, drawn by the crate inferno. inferno takes whole lines of folded stacks, so those
//! lines are all that is held in memory: contexts that are too narrow to be drawn are left out before.

use crate::catalogue::metrics::{EFFORT, MetricSelector, effort};
use crate::exports::stacks::Stacks;
use crate::exports::{Selection, folded};
use crate::metrics::unit;
use crate::render::numbers::seconds;
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
    let mut options = Options::default();
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
    options.title = stacks.program();
    options.subtitle = Some(amount);
    options.name_type = "Context:".to_owned();
    options.colors = Palette::Multi(MultiPalette::Rust);
    // The same profile is the same picture.
    options.deterministic = true;
    options.min_width = 0.0;
    // Lines are in the order of a walk already, and this is inferno's way to keep an order.
    options.flame_chart = true;
    from_lines(&mut options, text.lines().rev(), out)
}
