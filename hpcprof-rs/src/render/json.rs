//! Prints a view as JSON, schema `hpcprof-rs/view/1` (FORMATS.md).
//!
//! Amounts are seconds with all nine decimals that they have; an expression's values are numbers or null. The
//! printer does not recurse, so the reader alone limits the depth of a tree.

use crate::catalogue::Catalogue;
use crate::catalogue::metrics::{EFFORT, MetricSelector, WORK, sum};
use crate::catalogue::spreads::Spread;
use crate::catalogue::statistics::Statistics;
use crate::metrics::expression::Expression;
use crate::metrics::unit::Unit;
use crate::model::code::{Code, ParallelLoop};
use crate::model::metrics::{FIXED, Metric, ZEROED};
use crate::model::tree::SourceLocation;
use crate::render::names;
use crate::render::numbers::exact_seconds;
use crate::views::fold::FoldOptions;
use crate::views::view::{View, ViewKind};
use hpc_formats::json::{OrNull, Text, array, map, members, object};
use hpc_formats::profile::Aggregation;
use std::fmt::Write as _;
use std::io::{self, Write};

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
    2 + 2 * view.preorder().map(|(_, depth)| depth + 1).max().unwrap_or(0)
}

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

/// The members that tell a process.
pub(super) fn process(run: &str, host: &str, pid: u32, program: &str) -> String {
    let (run, host, program) = (Text(run), Text(host), Text(program));
    members!("run": run, "host": host, "pid": pid, "program": program)
}

/// Ends a number of nested nodes.
fn close(nodes: usize, text: &mut String) {
    text.extend(std::iter::repeat_n("]}", nodes));
}

fn string(text: &str) -> String {
    Text(text).to_string()
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

    fn names(&self) -> String {
        let derived = self.derived.iter().map(|(key, _)| key);
        array(self.keys.iter().map(|(key, _)| key).chain(derived))
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
            object!(
                "name": key, "unit": Text(&unit.to_string()), "aggregation": Text(aggregation.name()),
                "description": Text(description)
            )
        };
        let described = |key: &str, m: &Metric| row(key, m.unit.into(), m.aggregation, &m.description);
        let metrics = self.keys.iter();
        let metrics = metrics.map(|(key, metric)| described(key, &catalogue.metrics[*metric]));
        let zeroed = is_tracked.then(|| {
            let description = "the span of the critical path if the procedure took no time";
            row(&string(ZEROED), Unit::SECONDS, Aggregation::None, description)
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
        format!(",\"metric_table\":{}", array(rows))
    }
}

/// What the view shows as part of something else.
fn folded(view: &View, options: FoldOptions) -> String {
    let runtime = options.folds_runtime();
    let parts = [
        ("runtime", runtime),
        ("parallel-loop", runtime),
        ("line", !options.lines),
        ("loop", view.kind == ViewKind::BottomUp),
        ("system-inlined", !options.std_inlined),
        ("recursion", options.recursion),
        ("start-up", options.start_up),
    ];
    let parts = parts.iter().filter(|(_, is_folded)| *is_folded);
    array(parts.map(|(name, _)| Text(name)))
}

fn head(view: &View, options: FoldOptions, columns: &Columns<'_>, text: &mut String) {
    let run = &columns.catalogue.statistics;
    let members = members!(
        "schema": Text(SCHEMA), "view": Text(view.kind.name()),
        "projection": Text(options.projection.name()), "unit": Text("seconds"),
        "program": Text(&run.program), "cores": run.cores, "threads": run.threads,
        "wall_seconds": exact_seconds(run.wall_ns), "period_seconds": exact_seconds(run.period_ns),
        "folded": folded(view, options), "metrics": columns.names()
    );
    let _ = write!(text, "{{{members}{},\"totals\":", columns.table());
    columns.amounts(&view.totals, text);
    let _ = write!(text, ",\"quality\":{}", quality(run));
}

fn quality(run: &Statistics) -> String {
    let lost_seconds = run.lost_ns.iter().map(|(cause, ns)| (cause, exact_seconds(*ns)));
    let missing = run.missing.iter().map(|(what, ns)| {
        let seconds = exact_seconds(*ns);
        object!("what": Text(what), "seconds": seconds)
    });
    let unprofiled = run.unprofiled.iter().map(|row| {
        let (program, reason) = (Text(&row.program), Text(&row.reason));
        object!("program": program, "reason": reason, "times": row.times)
    });
    object!(
        "samples": run.samples, "rooted": run.rooted, "lost": map(&run.lost),
        "rooted_seconds": exact_seconds(run.rooted_ns), "lost_seconds": map(lost_seconds),
        "missing": array(missing), "unprofiled": array(unprofiled),
        "spawnerless": sum(run.unknown_caller_samples.values().copied()),
        "spawnerless_by": map(&run.unknown_caller_samples), "cpu_seconds": exact_seconds(run.cpu_ns),
        "spinning_seconds": exact_seconds(run.spinning_ns),
        "estimated_wait_seconds": exact_seconds(run.estimated_wait_ns),
        "unattributed_wait_seconds": exact_seconds(run.wait_ns),
        "unknown_lock_wait_seconds": exact_seconds(run.unknown_lock_wait_ns),
        "run_delay_seconds": exact_seconds(run.run_delay_ns)
    )
}

fn node(view: &View, columns: &Columns<'_>, id: u32, form: Form, text: &mut String) {
    let catalogue = columns.catalogue;
    let (node, code) = (view.node(id), &catalogue.code);
    let (file, line) = location(code, node.label.location(code));
    let (call_file, call_line) = location(code, node.call.location());
    text.push('{');
    if form == Form::Flat {
        let _ = write!(text, "\"id\":{id},\"parent\":{},", OrNull(node.parent));
    }
    let _ = write!(
        text,
        "\"kind\":{},\"name\":{},\"module\":{},\"file\":{file},\"line\":{line},\
         \"call_file\":{call_file},\"call_line\":{call_line},\"inclusive\":",
        string(node.label.kind().name()),
        string(&names::label(code, node.label)),
        OrNull(node.label.module(code).map(string)),
    );
    columns.amounts(view.inclusive.of(id), text);
    if let Some(zeroed) = catalogue.zeroed_span(node.label) {
        // It is one more of the inclusive values.
        text.pop();
        let _ = write!(text, ",{}:{}}}", string(ZEROED), exact_seconds(zeroed));
    }
    if let Some(row) = node.label.parallel_loop(code) {
        let _ = write!(text, ",\"parallel_loop\":{}", parallel_loop(row, code));
    }
    text.push_str(",\"exclusive\":");
    columns.amounts(view.exclusive.of(id), text);
    if let Some(spread) = &view.spreads[id as usize] {
        let values = view.inclusive.of(id);
        let _ = write!(text, ",\"statistics\":{}", statistics(spread, columns, values));
    }
    text.push_str(match form {
        Form::Nested => ",\"children\":[",
        Form::Flat => "}",
    });
}

fn statistics(spread: &Spread, columns: &Columns<'_>, values: &[i64]) -> String {
    let errors = columns.catalogue.errors();
    let error = |metric: usize| errors.of(metric, values).map(|sampled| sampled.error / 1e9);
    let named = (0..).zip(FIXED).map(|(metric, name)| (name, OrNull(error(metric))));
    let effort = errors.of_effort(values).error / 1e9;
    let all = map(named.chain([(EFFORT, OrNull(Some(effort)))]));
    let work = object!(
        "threads": spread.threads, "sum": exact_seconds(spread.sum), "min": exact_seconds(spread.least),
        "max": exact_seconds(spread.most), "sigma": (spread.sigma / 1e9),
        "imbalance": OrNull(spread.imbalance()), "standard_error": OrNull(error(WORK))
    );
    object!("work": work, "standard_errors": all)
}

fn parallel_loop(row: &ParallelLoop, code: &Code) -> String {
    let seconds = |ns: Option<i64>| OrNull(ns.map(exact_seconds));
    object!(
        "entry": Text(&code.procedure(row.entry).name), "splits": OrNull(row.counts.map(|c| c.splits)),
        "steals": OrNull(row.counts.map(|c| c.steals)),
        "stolen_seconds": seconds(row.counts.map(|c| c.stolen_ns)),
        "mean_task_seconds": seconds(row.mean_task_ns()),
        "mean_stolen_task_seconds": seconds(row.mean_stolen_ns()), "shared_by": row.shared_by
    )
}

fn location(code: &Code, at: Option<SourceLocation>) -> (OrNull<Text<'_>>, OrNull<u32>) {
    let file = at.map(|at| Text(code.file(at.file)));
    let line = at.map(|at| at.line).filter(|line| *line > 0);
    (OrNull(file), OrNull(line))
}
