//! Wires the pipelines by plain calls: [`build`] makes a database, `show` prints a view of one.

use crate::advice::efficiency::Thresholds;
use crate::advice::first_screen;
use crate::advice::headline::headline;
use crate::catalogue::Catalogue;
use crate::catalogue::metrics::{MetricSelector, WORK};
use crate::catalogue::tree::Tree;
use crate::cli::{BuildArgs, Cli, Command, Format, ViewArgs};
use crate::error::{Error, Result, one_line};
use crate::metrics::unit::Unit;
use crate::model::experiment::Experiment;
use crate::model::warnings::Warnings;
use crate::passes::{attribute, code, load_map};
use crate::render::json::Form;
use crate::render::style::Style;
use crate::render::{csv, folded, json, text};
use crate::schema;
use crate::sinks::database;
use crate::sinks::staged_directory::StagedDirectory;
use crate::sources::analyser::Analyser;
use crate::sources::measurements::{self, Measurements};
use crate::sources::newest;
use crate::sources::structures::StructureLibrary;
use crate::views::fold::{FoldOptions, fold};
use crate::views::prune::{Limits, prune};
use crate::views::{bottom_up, flat, top_down};
use hpc_formats::process;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Carries out a command line; output goes to `out` in the given style, warnings to standard
/// error.
pub fn run(cli: Cli, style: Style, out: &mut impl Write) -> Result<()> {
    match cli.command {
        None => build_and_show(&cli.build, style, out),
        Some(Command::TopDown(args)) => show(&args, ViewKind::TopDown, style, out),
        Some(Command::BottomUp(args)) => show(&args, ViewKind::BottomUp, style, out),
        Some(Command::Flat(args)) => show(&args, ViewKind::Flat, style, out),
    }
}

fn build_and_show(args: &BuildArgs, style: Style, out: &mut impl Write) -> Result<()> {
    let thresholds = Thresholds {
        idleness: args.idleness_threshold,
        overhead: args.overhead_threshold,
    };
    let inputs = match args.measurements.as_slice() {
        [] => vec![newest::run_directory(Path::new("."))?],
        given => given.to_vec(),
    };
    let path = match inputs.as_slice() {
        [one] if one.join(schema::FILE_NAME).is_file() => one.clone(),
        _ => {
            let mut warnings = Warnings::default();
            let path = build(&inputs, args, &mut warnings);
            for line in warnings.lines() {
                eprintln!("hpcprof-rs: warning: {line}");
            }
            path?
        }
    };
    first_screen::print(&Catalogue::open(&path)?, thresholds, style, out)
}

/// Builds a database from measurement directories; returns its path.
pub fn build(inputs: &[PathBuf], args: &BuildArgs, warnings: &mut Warnings) -> Result<PathBuf> {
    let analyser = Analyser::new(args.rules.as_deref(), args.threads, !args.no_cache)?;
    let measurements = measurements::read(inputs, warnings)?;
    let directory = match &args.output {
        Some(target) => StagedDirectory::prepare(target, args.force)?,
        None => StagedDirectory::of_program(Path::new(""), &program_name(&measurements))?,
    };

    let mut experiment = Experiment::default();
    let (maps, sampled) = load_map::collect(&measurements, &mut experiment.symbols, warnings);
    let mut library = StructureLibrary::open(inputs, analyser, warnings);
    let frames = code::resolve(&sampled, &mut library, &mut experiment.symbols, warnings);
    if args.verbose {
        for line in library.log() {
            eprintln!("hpcprof-rs: {}", one_line(line));
        }
    }
    attribute::attribute(&measurements, &maps, &frames, &mut experiment, warnings);
    if experiment.missing.is_empty() && experiment.threads.iter().all(|t| t.samples == 0) {
        warnings.add(
            "no samples were taken: measure a longer run, or at a higher rate (-e cpu-time@1000)",
        );
    }
    database::write(&experiment, warnings, &directory)?;
    directory.publish()
}

/// The program's name for the default database directory: as in the measurement directory's
/// name, else the executable's.
fn program_name(measurements: &Measurements) -> String {
    let directory = measurements
        .directories
        .first()
        .and_then(|d| d.canonicalize().ok())
        .and_then(|d| Some(d.file_name()?.to_string_lossy().into_owned()));
    if let Some(name) = directory.as_deref().and_then(newest::program_of_directory) {
        return name.to_owned();
    }
    let executable = measurements
        .processes
        .iter()
        .filter_map(|p| p.process.as_ref())
        .map(|p| p.start.executable.as_str())
        .find(|e| !e.is_empty());
    executable
        .map_or("unknown", process::program_name)
        .to_owned()
}

/// The views that `show` prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ViewKind {
    /// See [`top_down`].
    TopDown,
    /// See [`bottom_up`].
    BottomUp,
    /// See [`flat`].
    Flat,
}

/// What text shows unless told otherwise: enough to see where a metric is, on few screens.
fn text_limits(kind: ViewKind) -> Limits {
    match kind {
        ViewKind::BottomUp => Limits {
            depth: Some(6),
            threshold: Some(2.0),
        },
        ViewKind::TopDown | ViewKind::Flat => Limits {
            depth: None,
            threshold: Some(1.0),
        },
    }
}

fn show(args: &ViewArgs, kind: ViewKind, style: Style, out: &mut impl Write) -> Result<()> {
    let path = match &args.database {
        Some(path) => path.clone(),
        None => newest::database_directory(Path::new("."))?,
    };
    let catalogue = Catalogue::open(&path)?;
    if args.flat && args.format != Format::Json {
        let problem = "--flat is a form of JSON: give --format json, too";
        return Err(Error::Usage(problem.to_owned()));
    }
    let is_text = args.format == Format::Text;
    let asked = args.metric.as_deref();
    let asked = asked.map(|text| catalogue.metric(text)).transpose()?;
    let metric = match &asked {
        Some(expression) => MetricSelector::from(expression),
        None if args.format == Format::Folded => MetricSelector::Metric(WORK),
        None => MetricSelector::Effort,
    };
    let options = FoldOptions {
        projection: args.projection,
        lines: args.lines,
        // Callers are procedures.
        loops: kind != ViewKind::BottomUp,
        std_inlined: args.std_inlined,
        runtime_frames: args.runtime_frames,
        recursion: is_text && !args.no_fold_recursion,
        start_up: is_text,
    };
    let tree = fold(
        &catalogue.contexts(args.projection)?,
        &catalogue.code,
        options,
    );
    if args.format == Format::Folded {
        refuse_to_stack(metric, &tree)?;
    }
    let default = match args.format {
        Format::Text => text_limits(kind),
        _ => Limits::default(),
    };
    let limits = Limits {
        depth: args.depth.map(|d| d as usize).or(default.depth),
        threshold: args.threshold.or(default.threshold),
    };
    let mut view = match kind {
        ViewKind::TopDown => top_down::arrange(&tree),
        ViewKind::BottomUp => bottom_up::arrange(&tree, limits.depth),
        ViewKind::Flat => flat::arrange(&tree, &catalogue.code),
    };
    view.sort(metric);
    let view = prune(view, limits, metric);
    match args.format {
        Format::Text => {
            let headline = match kind {
                ViewKind::BottomUp => headline(&tree, &catalogue, metric, style.width),
                ViewKind::TopDown | ViewKind::Flat => None,
            };
            text::print(&view, &catalogue, metric, headline.as_deref(), style, out)
        }
        Format::Json if args.flat => {
            json::print(&view, &catalogue, metric, options, Form::Flat, out)
        },
        Format::Json => {
            let levels = json::levels(&view);
            if levels > json::MANY_LEVELS {
                eprintln!(
                    "hpcprof-rs: hint: this JSON is nested {levels} levels deep, which many readers \
                     refuse; --flat writes nodes with the ids of their parents"
                );
            }
            json::print(&view, &catalogue, metric, options, Form::Nested, out)
        }
        Format::Csv => csv::print(&view, &catalogue, metric, out),
        Format::Folded => folded::print(&view, &catalogue.code, metric, out),
    }
    .map_err(Error::output)
}

/// Stacks show parts of a whole: all of them of one sign, adding up to it, in a unit of time.
fn refuse_to_stack(metric: MetricSelector<'_>, tree: &Tree) -> Result<()> {
    let Some(expression) = metric.derived() else {
        return Ok(());
    };
    let nodes = 0..tree.nodes.len() as u32;
    let mut values = nodes.filter_map(|node| metric.value(tree.exclusive.of(node)));
    let problem = if !expression.adds_up() {
        "does not add up"
    } else if expression.unit() != Unit::SECONDS {
        "is no time"
    } else if values.any(|value| value < 0.0) {
        "is negative in some contexts"
    } else {
        return Ok(());
    };
    Err(Error::Usage(format!(
        "`{}` {problem}, so folded stacks cannot show it: give another --metric or --format",
        expression.text()
    )))
}
