//! Prints a view as JSON, schema `hpcprof-rs/view/1` (FORMATS.md).
//!
//! Amounts are seconds with all nine decimals that they have; an expression's values are numbers or null. The
//! printer does not recurse, so
//! the depth of a tree is limited by the reader only.

use crate::catalogue::Catalogue;
use crate::catalogue::metrics::{MetricSelector, sum};
use crate::catalogue::spreads::Spread;
use crate::catalogue::statistics::Statistics;
use crate::metrics::expression::Expression;
use crate::metrics::unit::Unit;
use crate::model::code::{Code, ParallelLoop};
use crate::model::metrics::{Metric, ZEROED, standard_error};
use crate::model::tree::SourceLocation;
use crate::render::names;
use crate::render::numbers::exact_seconds;
use crate::views::bottom_up;
use crate::views::fold::FoldOptions;
use crate::views::view::View;
use hpc_formats::json::Text;
use hpc_formats::profile::Aggregation;
use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::io::{self, Write};

/// Version of the JSON of a view.
const SCHEMA: &str = "hpcprof-rs/view/1";

/// How nodes are arranged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A node has its children, from `roots` on.
    Nested,
    /// All `nodes` are in one array, parents first, with the ids of their parents.
    Flat,
}

/// Many readers refuse JSON that is nested deeper.
pub const MANY_LEVELS: usize = 400;

/// How deep the nested form of a view is: the document, and an array and an object for each level of the
/// view.
pub fn levels(view: &View) -> usize {
    2 + 2 * view
        .preorder()
        .map(|(_, depth)| depth + 1)
        .max()
        .unwrap_or(0)
}

/// Prints `view` to `out`.
pub fn print(
    view: &View,
    catalogue: &Catalogue,
    metric: MetricSelector<'_>,
    options: FoldOptions,
    form: Form,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut text = String::with_capacity(1 << 16);
    let columns = Columns::new(catalogue, metric);
    head(view, options, &columns, &mut text);
    text.push_str(match form {
        Form::Nested => ",\n\"roots\":[",
        Form::Flat => ",\n\"nodes\":[",
    });
    // Nodes whose children are being printed.
    let mut open = 0;
    for (position, (id, depth)) in view.preorder().enumerate() {
        let follows_another = match form {
            Form::Nested => depth < open,
            Form::Flat => position > 0,
        };
        if form == Form::Nested {
            close(open - depth, &mut text);
            open = depth + 1;
        }
        if follows_another {
            text.push_str(",\n");
        }
        node(view, &columns, id, form, &mut text);
        if text.len() > 1 << 16 {
            out.write_all(text.as_bytes())?;
            text.clear();
        }
    }
    close(open, &mut text);
    text.push_str("]}\n");
    out.write_all(text.as_bytes())
}

/// Ends a number of nested nodes.
fn close(nodes: usize, text: &mut String) {
    text.extend(std::iter::repeat_n("]}", nodes));
}

/// A JSON string, in which whatever would steer a terminal is escaped.
pub(super) fn string(text: &str) -> String {
    Text(text).to_string()
}

fn or_null(value: Option<impl Display>) -> String {
    value.map_or("null".to_owned(), |v| v.to_string())
}

/// The values that a node has.
struct Columns<'a> {
    catalogue: &'a Catalogue,
    /// The metrics' names as JSON, and their positions.
    keys: Vec<(String, usize)>,
    metric: MetricSelector<'a>,
    /// The expression sorted by, with its name as JSON.
    derived: Option<(String, &'a Expression)>,
}

impl<'a> Columns<'a> {
    fn new(catalogue: &'a Catalogue, metric: MetricSelector<'a>) -> Self {
        let expression = metric.derived();
        Columns {
            catalogue,
            keys: {
                let metrics = catalogue.shown_metrics();
                metrics.map(|(at, m)| (string(&m.name), at)).collect()
            },
            metric,
            derived: expression.map(|expression| (string(expression.text()), expression)),
        }
    }

    /// All names, as the elements of an array.
    fn names(&self) -> String {
        let derived = self.derived.iter().map(|(key, _)| key.as_str());
        let keys = self.keys.iter().map(|(key, _)| key.as_str()).chain(derived);
        keys.collect::<Vec<_>>().join(",")
    }

    /// The values of all metrics, and of the expression.
    fn amounts(&self, values: &[i64], text: &mut String) {
        text.push('{');
        for (index, (key, metric)) in self.keys.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let _ = write!(text, "{comma}{key}:{}", exact_seconds(values[*metric]));
        }
        if let Some((key, _)) = &self.derived {
            let value = serde_json::Value::from(self.metric.value(values));
            let _ = write!(text, ",{key}:{value}");
        }
        text.push('}');
    }

    /// What the metrics are, where they do not all have the view's unit.
    fn table(&self) -> String {
        let catalogue = self.catalogue;
        let is_tracked = catalogue.is_tracked();
        if self.derived.is_none() && !is_tracked {
            return String::new();
        }
        let row = |key: &str, unit: Unit, aggregation: Aggregation, description: &str| {
            let (unit, description) = (string(&unit.to_string()), string(description));
            let aggregation = aggregation.name();
            format!(
                "{{\"name\":{key},\"unit\":{unit},\"aggregation\":\"{aggregation}\",\
                 \"description\":{description}}}"
            )
        };
        let described =
            |key: &str, m: &Metric| row(key, m.unit.into(), m.aggregation, &m.description);
        let metrics = self.keys.iter();
        let metrics = metrics.map(|(key, metric)| described(key, &catalogue.metrics[*metric]));
        let zeroed = is_tracked.then(|| {
            let description = "the span of the critical path if the procedure took no time";
            row(
                &string(ZEROED),
                Unit::SECONDS,
                Aggregation::None,
                description,
            )
        });
        let own = |(key, expression): &(String, &Expression)| match expression
            .variable()
            .and_then(|v| v.checked_sub(1))
        {
            Some(metric) => described(key, &catalogue.metrics[metric]),
            None => {
                let aggregation = match expression.adds_up() {
                    true => Aggregation::Sum,
                    false => Aggregation::None,
                };
                let description = "computed for each context from its sums of other metrics";
                row(key, expression.unit(), aggregation, description)
            }
        };
        let rows = metrics.chain(zeroed).chain(self.derived.as_ref().map(own));
        let rows: Vec<String> = rows.collect();
        format!(",\"metric_table\":[{}]", rows.join(","))
    }
}

/// What the view shows as part of something else.
fn folded(view: &View, options: FoldOptions) -> String {
    let runtime = options.folds_runtime();
    let parts = [
        ("runtime", runtime),
        ("parallel-loop", runtime),
        ("line", !options.lines),
        ("loop", view.name == bottom_up::NAME),
        ("system-inlined", !options.std_inlined),
        ("recursion", options.recursion),
        ("start-up", options.start_up),
    ];
    let parts = parts.iter().filter(|(_, is_folded)| *is_folded);
    parts
        .map(|(name, _)| string(name))
        .collect::<Vec<_>>()
        .join(",")
}

fn head(view: &View, options: FoldOptions, columns: &Columns<'_>, text: &mut String) {
    let run = &columns.catalogue.statistics;
    let _ = write!(
        text,
        "{{\"schema\":{},\"view\":{},\"projection\":{},\"unit\":\"seconds\",\"program\":{},\
         \"cores\":{},\"threads\":{},\"wall_seconds\":{},\"period_seconds\":{},\"folded\":[{}],\
         \"metrics\":[{}]{},\"totals\":",
        string(SCHEMA),
        string(view.name),
        string(options.projection.name()),
        string(&run.program),
        run.cores,
        run.threads,
        exact_seconds(run.wall_ns),
        exact_seconds(run.period_ns),
        folded(view, options),
        columns.names(),
        columns.table(),
    );
    columns.amounts(&view.totals, text);
    let _ = write!(text, ",\"quality\":{}", quality(run));
}

fn quality(run: &Statistics) -> String {
    let counts = |counts: &BTreeMap<String, i64>| {
        let counts = counts.iter().map(|(key, n)| format!("{}:{n}", string(key)));
        counts.collect::<Vec<_>>().join(",")
    };
    let missing = run.missing.iter().map(|(what, ns)| {
        let (what, seconds) = (string(what), exact_seconds(*ns));
        format!("{{\"what\":{what},\"seconds\":{seconds}}}")
    });
    let unprofiled = run.unprofiled.iter().map(|row| {
        let (program, reason) = (string(&row.program), string(&row.reason));
        let times = row.times;
        format!("{{\"program\":{program},\"reason\":{reason},\"times\":{times}}}")
    });
    format!(
        "{{\"samples\":{},\"rooted\":{},\"lost\":{{{}}},\"missing\":[{}],\"unprofiled\":[{}],\
         \"spawnerless\":{},\"spawnerless_by\":{{{}}},\"cpu_seconds\":{},\"spinning_seconds\":{},\
         \"estimated_wait_seconds\":{},\"unattributed_wait_seconds\":{},\"unknown_lock_wait_seconds\":{}}}",
        run.samples,
        run.rooted,
        counts(&run.lost),
        missing.collect::<Vec<_>>().join(","),
        unprofiled.collect::<Vec<_>>().join(","),
        sum(run.unknown_caller_samples.values().copied()),
        counts(&run.unknown_caller_samples),
        exact_seconds(run.cpu_ns),
        exact_seconds(run.spinning_ns),
        exact_seconds(run.estimated_wait_ns),
        exact_seconds(run.wait_ns),
        exact_seconds(run.unknown_lock_wait_ns),
    )
}

fn node(view: &View, columns: &Columns<'_>, id: u32, form: Form, text: &mut String) {
    let catalogue = columns.catalogue;
    let (node, code) = (view.node(id), &catalogue.code);
    let (file, line) = location(code, node.label.location(code));
    let (call_file, call_line) = location(code, node.call.location());
    text.push('{');
    if form == Form::Flat {
        let _ = write!(text, "\"id\":{id},\"parent\":{},", or_null(node.parent));
    }
    let _ = write!(
        text,
        "\"kind\":{},\"name\":{},\"module\":{},\"file\":{file},\"line\":{line},\
         \"call_file\":{call_file},\"call_line\":{call_line},\"inclusive\":",
        string(node.kind),
        string(&names::label(code, node.label)),
        or_null(node.label.module(code).map(string)),
    );
    columns.amounts(view.inclusive.of(id), text);
    if let Some(zeroed) = node.label.zeroed_span(catalogue) {
        // It is one more of the inclusive values.
        text.pop();
        let _ = write!(text, ",{}:{}}}", string(ZEROED), exact_seconds(zeroed));
    }
    if let Some(row) = node.label.parallel_loop(code) {
        let _ = write!(text, ",\"parallel_loop\":{}", parallel_loop(row, code));
    }
    text.push_str(",\"exclusive\":");
    columns.amounts(view.exclusive.of(id), text);
    if let Some(spread) = &node.spread {
        let samples = columns.catalogue.samples(view.inclusive.of(id));
        let _ = write!(text, ",\"statistics\":{}", statistics(spread, samples));
    }
    text.push_str(match form {
        Form::Nested => ",\"children\":[",
        Form::Flat => "}",
    });
}

fn statistics(spread: &Spread, samples: i64) -> String {
    format!(
        "{{\"work\":{{\"threads\":{},\"sum\":{},\"min\":{},\"max\":{},\"sigma\":{},\"imbalance\":{},\
         \"standard_error\":{}}}}}",
        spread.threads,
        exact_seconds(spread.sum),
        exact_seconds(spread.least),
        exact_seconds(spread.most),
        spread.sigma / 1e9,
        or_null(spread.imbalance()),
        standard_error(spread.sum as f64, samples) / 1e9,
    )
}

fn parallel_loop(row: &ParallelLoop, code: &Code) -> String {
    let seconds = |ns: Option<i64>| or_null(ns.map(exact_seconds));
    format!(
        "{{\"entry\":{},\"splits\":{},\"steals\":{},\"stolen_seconds\":{},\
         \"mean_task_seconds\":{},\"mean_stolen_task_seconds\":{},\"shared_by\":{}}}",
        string(&code.procedure(row.entry).name),
        or_null(row.counts.map(|c| c.splits)),
        or_null(row.counts.map(|c| c.steals)),
        seconds(row.counts.map(|c| c.stolen_ns)),
        seconds(row.mean_task_ns()),
        seconds(row.mean_stolen_ns()),
        row.shared_by,
    )
}

/// File and line.
fn location(code: &Code, at: Option<SourceLocation>) -> (String, String) {
    let file = at.map(|at| string(code.file(at.file)));
    let line = at.map(|at| at.line).filter(|line| *line > 0);
    (or_null(file), or_null(line))
}
