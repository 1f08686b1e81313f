//! The command line: options, their help, and nothing else.

use crate::catalogue::metrics::EFFORT;
use crate::checks::report::CheckFormat;
use crate::exports;
use crate::render::numbers::percentage;
use crate::views::diff::METRICS;
use crate::views::fold::FoldOptions;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  hpcprof-rs hpcrun-app-measurements
      builds hpcrun-app-database and prints the first screen
  hpcprof-rs bottom-up hpcrun-app-database --metric idleness
      shows where idleness is charged, and through which callers
  hpcprof-rs top-down hpcrun-app-database --format json > app.json
      writes every calling context for scripts";

const VIEW_EXAMPLES: &str = "\
Examples:
  hpcprof-rs top-down hpcrun-app-database
      the tree of calling contexts, stolen tasks under their spawners
  hpcprof-rs bottom-up --metric overhead --threshold 5
      the newest database here: who pays at least 5 % of overhead
  hpcprof-rs top-down hpcrun-app-database --format folded --metric idleness
      stacks for a flame graph of idleness";

const EXPORT_EXAMPLES: &str = "\
Examples:
  hpcprof-rs export hpcrun-app-database --format flamegraph -o app.svg
      a picture of where work is, for any browser
  hpcprof-rs export hpcrun-app-database --format pprof -o app.pb.gz
      all metrics, for `go tool pprof app.pb.gz`
  hpcprof-rs export --format folded --metric idleness -o -
      the newest database here, on standard output";

const THREADS_EXAMPLES: &str = "\
Examples:
  hpcprof-rs threads hpcrun-app-database
      what each thread did, and how evenly
  hpcprof-rs threads --context app::solve --metric idleness
      the newest database here: each thread's share of a procedure with all that it calls
  hpcprof-rs threads hpcrun-app-database --format csv > threads.csv
      all threads and their statistics for scripts";

const REGIONS_EXAMPLES: &str = "\
Examples:
  hpcprof-rs regions hpcrun-app-database
      what each parallel region costs beside its work, and from which size it pays
  hpcprof-rs regions --executions solve=2741 --workers asleep
      the newest database here: with the start-up of a region that ran 2741 times
  hpcprof-rs regions hpcrun-app-database --serial serial-database --format json
      serial times from a run on one worker, for scripts";

const DIFF_EXAMPLES: &str = "\
Examples:
  hpcprof-rs diff old-database new-database
      which contexts got slower or faster, each with the error of the difference
  hpcprof-rs diff old-database new-database --format json > diff.json
      all that differs, for scripts

A context is the same in both if the procedures of yours that lead to it have the same names, wherever
their lines moved and however they were inlined. Give databases of several runs (hpcprof-rs RUN1 RUN2 -o DB)
to tell small differences from those between runs.";

const SWEEP_EXAMPLES: &str = "\
Examples:
  hpcprof-rs sweep 1-database 2-database 4-database
      speed-up, and where it is lost; `hpcrun-rs sweep` measures, builds and prints them at once
  hpcprof-rs sweep hpcrun-app-sweep/1 hpcrun-app-sweep/2
      the databases of such a sweep
  hpcprof-rs sweep 1-database 2-database --format json > sweep.json
      the same for scripts";

const ADVISE_EXAMPLES: &str = "\
Examples:
  hpcprof-rs advise app-database
      what limits each context, what to do about it, and what that gains at most
  hpcprof-rs advise
      the same for the newest database here
  hpcprof-rs advise app-database --format json > advice.json
      the same for scripts";

const CHECK_EXAMPLES: &str = "\
Examples:
  hpcprof-rs check app-database idleness/effort<=0.2
      fails if more than a fifth of the effort is idleness, beyond chance
  hpcprof-rs check new-database work@app::solve<=1.05*baseline --baseline old-database
      fails if a procedure has more than 5 % more work than in the other database
  hpcprof-rs check app-database work/(16*max(span,work/16))>=0.7 --format github
      what 16 cores could gain at most, of a run with --critical-path; for annotations

METRIC@PROCEDURE is a metric in a procedure with all that it calls, span and wall are those of the run. A name
with other characters is in quotes, a number has the unit of what stands before it. A run that others slowed
down, that lacks seconds or has too few samples gives no answer: it neither holds nor fails.

Exit status: 0 all hold, 1 one fails, 2 an answer is withheld, 125 when the check itself fails.";

const PAGE_EXAMPLES: &str = "\
Examples:
  hpcprof-rs view hpcrun-app-database -o app.html
      one page to look at, search and send; it needs no network
  hpcprof-rs view old-database new-database -o diff.html
      the same of the new one, with what differs from the old one in colour";

const TERMINAL_EXAMPLES: &str = "\
Examples:
  hpcprof-rs tui hpcrun-app-database
      the tree of calling contexts, its source and all reports, also over ssh; ? explains the keys
  hpcprof-rs tui
      the same of the newest database here";

const PATH_EXAMPLES: &str = "\
Examples:
  hpcprof-rs critical-path hpcrun-app-database
      what no number of workers can make shorter, and what would
  hpcprof-rs critical-path --workers 16 --rows 40
      the newest database here: more of the path, with predictions for 16 workers
  hpcprof-rs critical-path --faster parse=2
      what the span would be if a procedure took half its time
  hpcprof-rs critical-path hpcrun-app-database --format json > path.json
      every subpath for scripts";

/// Merges measurements into a database and prints views of it
///
/// Merges all threads and processes that hpcrun-rs measured, attributes work, idleness and
/// overhead to source code, writes a database that can be moved and kept, and prints a first
/// screen. With no argument it takes the newest hpcrun-*-measurements (or database) of the
/// current directory.
#[derive(Debug, Parser)]
#[command(
    name = "hpcprof-rs",
    version,
    after_long_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct Cli {
    /// View to print, of a database that exists
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What to build
    #[command(flatten)]
    pub build: BuildArgs,
}

/// The views.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Calling contexts from the program's entry to the callees
    #[command(after_long_help = VIEW_EXAMPLES)]
    TopDown(ViewArgs),
    /// Procedures by their own cost, then their callers
    #[command(after_long_help = VIEW_EXAMPLES)]
    BottomUp(ViewArgs),
    /// Modules, files and procedures without calling contexts
    #[command(after_long_help = VIEW_EXAMPLES)]
    Flat(ViewArgs),
    /// What each thread did, with the imbalance over threads and processes
    #[command(after_long_help = THREADS_EXAMPLES)]
    Threads(ThreadsArgs),
    /// What each parallel region costs beside its work, and whether it should be parallel
    #[command(after_long_help = REGIONS_EXAMPLES)]
    Regions(RegionsArgs),
    /// The longest chain of work over all threads, and what shortening it would gain
    #[command(after_long_help = PATH_EXAMPLES)]
    CriticalPath(PathArgs),
    /// What differs between two databases, and what of it is more than chance
    #[command(after_long_help = DIFF_EXAMPLES)]
    Diff(DiffArgs),
    /// What is worth doing, and the most that it gains
    #[command(after_long_help = ADVISE_EXAMPLES)]
    Advise(AdviseArgs),
    /// Whether conditions over metrics hold, beyond chance: for CI
    #[command(after_long_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Writes a page to look at: icicle, trees, source, threads, regions, critical path
    #[command(after_long_help = PAGE_EXAMPLES)]
    View(PageArgs),
    /// Shows the reports in the terminal: trees that expand, search, source, threads, critical path
    #[command(after_long_help = TERMINAL_EXAMPLES)]
    Tui(TerminalArgs),
    /// Why a program does not scale: from databases on several numbers of workers
    #[command(after_long_help = SWEEP_EXAMPLES)]
    Sweep(SweepArgs),
    /// Writes the calling contexts in another profiler's format
    #[command(after_long_help = EXPORT_EXAMPLES)]
    Export(exports::Request),
}

/// Options of a build.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// Measurement directories, merged into one database; or one database, to see its first screen
    #[arg(value_name = "MEASUREMENTS")]
    pub measurements: Vec<PathBuf>,
    /// Database directory to write [default: hpcrun-PROGRAM-database, -2, -3 …]
    #[arg(short, long, value_name = "DATABASE")]
    pub output: Option<PathBuf>,
    /// Replace the database that -o names
    #[arg(long)]
    pub force: bool,
    /// File with further rules that give code an overhead category
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Threads that analyse load modules and merge profiles [default: one for each core]
    #[arg(short = 'j', long, value_name = "N")]
    pub threads: Option<usize>,
    /// The directories are parts of one job (ranks, hosts) that ran together, whatever their clocks say
    #[arg(long)]
    pub job: bool,
    /// Neither read nor write the cache of analysed load modules (hpcrun-rs/structure in
    /// $XDG_CACHE_HOME or ~/.cache)
    #[arg(long)]
    pub no_cache: bool,
    /// Say of each load module whether it was analysed or taken from the cache
    #[arg(short, long)]
    pub verbose: bool,
    /// Idleness is high from this percentage of a context's effort
    #[arg(long, value_name = "PERCENT", default_value_t = 20.0, value_parser = percentage)]
    pub idleness_threshold: f64,
    /// Overhead is high from this percentage of a context's effort
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, value_parser = percentage)]
    pub overhead_threshold: f64,
}

/// What to show in the terminal.
#[derive(Debug, Args)]
pub struct TerminalArgs {
    /// Database directory [default: the newest hpcrun-*-database here]
    #[arg(value_name = "DATABASE")]
    pub database: Option<PathBuf>,
}

/// Output formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// A tree to read
    Text,
    /// Every context, for scripts
    Json,
    /// One row per context
    Csv,
    /// Stacks with microseconds, for flame graphs
    Folded,
}

/// Options of a view.
#[derive(Debug, Args)]
pub struct ViewArgs {
    /// Database directory [default: the newest hpcrun-*-database here]
    #[arg(value_name = "DATABASE")]
    pub database: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// With --format json: one array of nodes that name their parents, for readers that refuse deep nesting
    #[arg(long)]
    pub flat: bool,
    /// Metric to sort by: effort, work, idleness, overhead, overhead:CATEGORY, samples, or an expression
    /// [default: effort; folded: work]
    ///
    /// An expression such as 'idleness/(work+idleness)' has names, numbers, + - * /, parentheses,
    /// min(a, b) and max(a, b). It becomes a column, as does a metric that is no part of effort. Each
    /// context's value follows from its own sums; after a division by zero it is -. A name with other
    /// characters is in quotes: "work/'L1 misses'".
    #[arg(long, value_name = "METRIC")]
    pub metric: Option<String>,
    /// Show how the work of each row is spread over threads (logical projection, text or JSON)
    #[arg(long)]
    pub statistics: bool,
    #[command(flatten)]
    pub fold: FoldOptions,
    /// Show each level of a recursion (text; the other formats always do)
    #[arg(long)]
    pub no_fold_recursion: bool,
    /// Levels to show [default: 6 for bottom-up as text, else all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub depth: Option<u32>,
    /// Least percentage of the metric sorted by to show a context [default: text 1, bottom-up 2; else 0]
    ///
    /// A percentage of effort if the metric does not add up, as a quotient; of the largest absolute value
    /// if some are negative.
    #[arg(long, value_name = "PERCENT", value_parser = percentage)]
    pub threshold: Option<f64>,
    /// Most nodes, the largest ones, beside those that stand for what is left out
    #[arg(long, value_name = "N")]
    pub rows: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum TableFormat {
    /// To read
    Text,
    /// Everything, for scripts
    Json,
    /// One row per thread, then the statistics
    Csv,
}

/// Options of the table of threads.
#[derive(Debug, Args)]
pub struct ThreadsArgs {
    /// Database directory [default: the newest hpcrun-*-database here]
    #[arg(value_name = "DATABASE")]
    pub database: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = TableFormat::Text)]
    pub format: TableFormat,
    /// Metric to sort by: effort, work, idleness, overhead, overhead:CATEGORY, samples, or an expression
    /// [default: effort]
    #[arg(long, value_name = "METRIC")]
    pub metric: Option<String>,
    /// Only what threads did in a procedure and in all that it calls: its name or the end of it, as
    /// `top-down` has it, or the key of a context
    #[arg(long, value_name = "KEY|PROCEDURE")]
    pub context: Option<String>,
    /// Threads that are listed; text has one row for what is left [default: text 30, else all]
    #[arg(long, value_name = "N")]
    pub rows: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ReportFormat {
    /// To read
    Text,
    /// Everything, for scripts
    Json,
}

/// What the workers do when a region begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Workers {
    /// They have just ended the region before
    Awake,
    /// They sleep
    Asleep,
}

/// Options of the regions.
#[derive(Debug, Args)]
pub struct RegionsArgs {
    /// Database directory [default: the newest hpcrun-*-database here]
    #[arg(value_name = "DATABASE")]
    pub database: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub format: ReportFormat,
    /// Start-up overheads, by `hpcrun-rs calibrate` [default: those of the run's host in the user's cache]
    #[arg(long, value_name = "FILE")]
    pub calibration: Option<PathBuf>,
    /// How often a region was executed, by its name or the end of it, if that was not counted
    #[arg(long, value_name = "NAME=COUNT", value_parser = execution)]
    pub executions: Vec<(String, u64)>,
    /// Database of a run on one worker, for serial times
    #[arg(long, value_name = "DATABASE")]
    pub serial: Option<PathBuf>,
    /// The size that a region has in this run or, after a colon, in another database's: two or more of them
    /// tell the least size that pays
    #[arg(long, value_name = "NAME=SIZE[:DATABASE]", value_parser = size)]
    pub size: Vec<(String, u64, Option<PathBuf>)>,
    /// What the workers do when a region begins
    #[arg(long, value_enum, default_value_t = Workers::Awake)]
    pub workers: Workers,
}

/// Formats of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DiffFormat {
    /// What is more than chance, to read
    Text,
    /// All that differs, for scripts
    Json,
    /// A row for each context
    Csv,
    /// A flame graph of B, in red what takes longer than in A, in blue what takes less
    Svg,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SweepFormat {
    /// To read
    Text,
    /// Everything, for scripts
    Json,
    /// A bar for each number of workers
    Svg,
}

/// Options of a comparison.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// Database directory to compare with
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// Database directory whose differences are shown
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = DiffFormat::Text)]
    pub format: DiffFormat,
    /// Metric that text and the picture show
    #[arg(long, value_name = "METRIC", default_value = EFFORT, value_parser = METRICS)]
    pub metric: String,
    /// Least percentage of the effort of a context, in one of both
    #[arg(long, value_name = "PERCENT", default_value_t = 0.1, value_parser = percentage)]
    pub threshold: f64,
    /// Contexts that are listed, those that differ most [default: text 40, else all]
    #[arg(long, value_name = "N")]
    pub rows: Option<usize>,
}

/// Options of advice.
#[derive(Debug, Args)]
pub struct AdviseArgs {
    /// Database directory [default: the newest hpcrun-*-database here]
    #[arg(value_name = "DATABASE")]
    pub database: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub format: ReportFormat,
}

/// Options of the page.
#[derive(Debug, Args)]
pub struct PageArgs {
    /// Database directories: one, or an older and a newer one [default: the newest hpcrun-*-database here]
    #[arg(value_name = "DATABASE", num_args = 0..=2)]
    pub databases: Vec<PathBuf>,
    /// HTML file to write; - is standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Leave out the text of source files
    #[arg(long)]
    pub no_source: bool,
}

/// Options of a sweep.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// Databases of one program, each with --cores of its workers, the fewest workers first
    #[arg(value_name = "DATABASE", required = true, num_args = 2..)]
    pub databases: Vec<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = SweepFormat::Text)]
    pub format: SweepFormat,
}

/// Options of a check.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Database directory
    #[arg(value_name = "DATABASE")]
    pub database: PathBuf,
    /// Conditions: LEFT <= RIGHT (or >=), expressions over metrics
    #[arg(value_name = "CONDITION", required = true)]
    pub conditions: Vec<String>,
    /// Database whose left side is the `baseline` of a condition
    #[arg(long, value_name = "DATABASE")]
    pub baseline: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
    pub format: CheckFormat,
}

/// Options of a critical path.
#[derive(Debug, Args)]
pub struct PathArgs {
    /// Database directory [default: the newest hpcrun-*-database here]
    #[arg(value_name = "DATABASE")]
    pub database: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub format: ReportFormat,
    /// Process to show [default: the one with the longest path]
    #[arg(long, value_name = "PID")]
    pub process: Option<u32>,
    /// Workers for which procedures' gains are predicted [default: the process's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub workers: Option<u32>,
    /// What the span and the time would be if a procedure, or marked code, was so many times as fast:
    /// exactly, where `hpcrun-rs --faster` asked for the factor, else within bounds
    #[arg(long, value_name = "PROCEDURE=FACTOR", value_parser = hpc_formats::critical_path::faster)]
    pub faster: Vec<(String, f64)>,
    /// How the path has grown while the program ran, and by what; for `hpcrun-rs --critical-path=every:1s`
    #[arg(long)]
    pub over_time: bool,
    /// Subpaths that are listed, the longest ones, and in JSON of each other list as many [default: text 20,
    /// which sums up shorter ones, else all]
    #[arg(long, value_name = "N")]
    pub rows: Option<usize>,
}

fn size(text: &str) -> Result<(String, u64, Option<PathBuf>), String> {
    let (size, database) = match text.find('=').and_then(|at| Some(at + text[at..].find(':')?)) {
        Some(colon) => (&text[..colon], Some(PathBuf::from(&text[colon + 1..]))),
        None => (text, None),
    };
    let (name, size) = execution(size).map_err(|_| "not NAME=SIZE or NAME=SIZE:DATABASE".to_owned())?;
    Ok((name, size, database))
}

fn execution(text: &str) -> Result<(String, u64), String> {
    let (name, count) = text.rsplit_once('=').ok_or("not NAME=COUNT")?;
    let count = count.parse().ok().filter(|count| *count > 0);
    Ok((name.to_owned(), count.ok_or("COUNT is not a number from 1")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent_and_its_examples_parse() {
        Cli::command().debug_assert();
        let examples = [
            EXAMPLES,
            VIEW_EXAMPLES,
            EXPORT_EXAMPLES,
            THREADS_EXAMPLES,
            PATH_EXAMPLES,
            REGIONS_EXAMPLES,
            CHECK_EXAMPLES,
            ADVISE_EXAMPLES,
            SWEEP_EXAMPLES,
        ];
        for line in examples.iter().flat_map(|text| text.lines()) {
            let words = line.trim().split(" > ").next().unwrap_or_default();
            if let Some(rest) = words.strip_prefix("hpcprof-rs ") {
                let all = std::iter::once("hpcprof-rs").chain(rest.split_whitespace());
                assert!(Cli::try_parse_from(all).is_ok(), "{line}");
            }
        }
        let shown = examples.map(|text| text.matches("\n  hpcprof-rs ").count());
        assert!(shown.iter().all(|examples| (3..=4).contains(examples)), "{shown:?}");
    }
}
