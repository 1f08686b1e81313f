//! Exports calling contexts in the formats of other profilers: the table of formats, and the call that
//! writes one. A format is a file with a function `write` and its rows here; [`stacks`] has what all of them
//! read. A file is written while the contexts are walked, so there is no second copy of them in memory.

pub mod flamegraph;
mod folded;
mod parquet;
mod perfetto;
mod pprof;
pub mod stacks;
pub(crate) mod target;

use crate::catalogue::metrics::{MetricSelector, WORK};
use crate::catalogue::{Catalogue, Projection};
use crate::error::{Error, Result};
use crate::exports::stacks::Stacks;
use crate::render::numbers::percentage;
use crate::timeline::Timeline;
use crate::timeline::slack::Near;
use crate::views::fold::FoldOptions;
use clap::{Args, ValueEnum};
use std::io::Write;
use std::path::PathBuf;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// Folded stacks of one metric, a line each
    Folded,
    /// A flame graph of one metric (SVG), for any browser
    Flamegraph,
    /// For `go tool pprof`, speedscope.app and others: one sample type for each metric
    Pprof,
    /// For ui.perfetto.dev, of a run with --trace: what each thread did when, and how many worked where
    Perfetto,
    /// One table of all contexts, for DuckDB, ClickHouse, pandas: two columns for each metric
    Parquet,
}

/// The amounts that a format for one metric shows.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Selection<'a> {
    metric: MetricSelector<'a>,
    /// Least inclusive amount of a context that is shown; less is its caller's.
    least: i64,
}

/// What to export, and where to: the options of the command.
#[derive(Debug, Args)]
pub struct Request {
    /// Database directory [default: the newest hpcrun-*-database here]
    #[arg(value_name = "DATABASE")]
    pub database: Option<PathBuf>,
    /// Format
    #[arg(long, value_enum, value_name = "NAME")]
    pub format: Format,
    /// File to write; - is standard output
    #[arg(short, long, value_name = "PATH")]
    pub output: PathBuf,
    /// Metric that folded and flamegraph show: effort, work, idleness, overhead, overhead:CATEGORY, samples,
    /// or a sum of metrics [default: work]
    #[arg(long, value_name = "METRIC")]
    pub metric: Option<String>,
    #[command(flatten)]
    pub fold: FoldOptions,
    /// Least percentage of the metric for a context of folded and flamegraph; less is its caller's
    /// [default: flamegraph 0.1, folded 0]
    #[arg(long, value_name = "PERCENT", value_parser = percentage)]
    pub threshold: Option<f64>,
    /// Reduce perfetto to what is on the critical path, or in a chain of work that is at most so many percent
    /// shorter; threads beside it are left out
    #[arg(long, value_name = "PERCENT", value_parser = percentage)]
    pub slack: Option<f64>,
}

/// Writes a file; `out` is standard output.
pub fn export(catalogue: &Catalogue, request: &Request, out: &mut dyn Write) -> Result<()> {
    let format = request.format;
    let asked = request.metric.as_deref();
    let asked = asked.map(|text| catalogue.metric(text)).transpose()?;
    let work = MetricSelector::Metric(WORK);
    let metric = asked.as_ref().map_or(work, MetricSelector::from);
    // Others hold all metrics.
    let is_whole = !matches!(format, Format::Folded | Format::Flamegraph);
    let perfetto = format == Format::Perfetto;
    let given = [
        ("--metric", request.metric.is_some() && is_whole, "folded or --format flamegraph"),
        ("--threshold", request.threshold.is_some() && is_whole, "folded or --format flamegraph"),
        ("--slack", request.slack.is_some() && !perfetto, "perfetto"),
    ];
    if let Some((option, _, formats)) = given.iter().find(|(_, is_wrong, _)| *is_wrong) {
        return Err(Error::Usage(format!(
            "this format holds all in full: leave {option} out, or give --format {formats}"
        )));
    }
    if perfetto {
        if request.fold.projection == Projection::Physical {
            let problem = "Perfetto is shown the logical contexts: leave --projection physical out";
            return Err(Error::Usage(problem.to_owned()));
        }
        let (slices, edges) = (perfetto::slices(catalogue)?, catalogue.edges()?);
        if request.slack.is_some() && edges.is_empty() {
            let problem = "--slack needs the critical path: measure with `hpcrun-rs --trace --critical-path`";
            return Err(Error::Usage(problem.to_owned()));
        }
        let near = request.slack.map(|percent| Near::new(&slices, &edges, percent / 100.0));
        let mut timeline = Timeline::read(catalogue, request.fold)?;
        return target::write(&request.output, out, |out| {
            perfetto::write(&mut timeline, (&slices, &edges), near.as_ref(), out)
        });
    }
    let stacks = Stacks::read(
        catalogue,
        FoldOptions {
            // Of each frame. Elsewhere lines are frames, on request.
            lines: request.fold.lines || format == Format::Pprof,
            call_lines: format == Format::Pprof,
            ..request.fold
        },
    )?;
    metric.check_stackable(stacks.contexts().map(|context| stacks.own(context)))?;
    let total = metric.of(&stacks.totals);
    if format == Format::Flamegraph && total == 0 {
        return Err(Error::Usage(format!(
            "nothing was recorded for the metric `{}`, so its flame graph is empty: choose another --metric",
            request.metric.as_deref().unwrap_or("work")
        )));
    }
    let threshold = request.threshold.unwrap_or(match format {
        Format::Flamegraph => flamegraph::NARROWEST_PERCENT,
        _ => 0.0,
    });
    let selection = Selection { metric, least: (total as f64 * threshold / 100.0).ceil() as i64 };
    target::write(&request.output, out, |out| match format {
        Format::Folded => folded::write(&stacks, selection, out),
        Format::Flamegraph => flamegraph::write(&stacks, selection, out),
        Format::Pprof => pprof::write(&stacks, out),
        Format::Parquet => parquet::write(&stacks, out),
        Format::Perfetto => unreachable!("it has no stacks, and was written above"),
    })
}

/// The program that made a file.
const CREATOR: &str = concat!("hpcprof-rs ", env!("CARGO_PKG_VERSION"));
