//! Carries out commands: `build` makes a database, `show` prints a view of one, `exports` writes other
//! profilers' formats.

use crate::advice::advise;
use crate::advice::critical_path::remarks;
use crate::advice::efficiency::Thresholds;
use crate::advice::first_screen;
use crate::advice::headline::headline;
use crate::advice::quality;
use crate::build::build;
use crate::catalogue::metrics::{MetricSelector, WORK};
use crate::catalogue::{Catalogue, Projection};
use crate::checks;
use crate::checks::answer::{Answer, Outcome, answer};
use crate::cli::{
    BuildArgs, CheckArgs, Cli, Command, DiffArgs, DiffFormat, Format, PageArgs, PathArgs, RegionsArgs,
    ReportFormat, SweepFormat, TableFormat, ThreadsArgs, ViewArgs, Workers,
};
use crate::error::{Error, Result};
use crate::exports::{self, flamegraph};
use crate::metrics::expression::Expression;
use crate::model::advice::tested;
use crate::model::critical_path::Procedure;
use crate::model::metrics::Metric;
use crate::model::tree::Tree;
use crate::model::warnings::Warnings;
use crate::page::Page;
use crate::regions::{find, overheads, print, whole::Whole};
use crate::render::critical_path::PathView;
use crate::render::diff::Comparison;
use crate::render::json::Form;
use crate::render::over_time;
use crate::render::style::Style;
use crate::render::threads::Threads;
use crate::render::{csv, folded, json, names, text};
use crate::schema;
use crate::sources::newest;
use crate::sweep::{self, print::Sweep};
use crate::terminal;
use crate::views;
use crate::views::critical_path::{bound, find_procedure};
use crate::views::diff::METRICS;
use crate::views::fold::{FoldOptions, Folded, fold};
use crate::views::prune::{Limits, prune};
use crate::views::view::{View, ViewKind};
use crate::views::{bottom_up, flat, threads, top_down, user_code};
use clap::{CommandFactory as _, Parser as _};
use hpc_formats::message;
use start_up::calibration::{self, Calibration, State};
use std::ffi::OsStr;
use std::io::IsTerminal as _;
use std::io::Write;
use std::path::Path;

/// Carries out a command line; output goes to `out` in the given style, warnings to standard
/// error.
pub fn run(cli: Cli, style: Style, out: &mut impl Write) -> Result<()> {
    match cli.command {
        None => build_and_show(&cli.build, style, out),
        Some(Command::TopDown(args)) => show(&args, ViewKind::TopDown, style, out),
        Some(Command::BottomUp(args)) => show(&args, ViewKind::BottomUp, style, out),
        Some(Command::Flat(args)) => show(&args, ViewKind::Flat, style, out),
        Some(Command::Threads(args)) => threads(&args, style, out),
        Some(Command::Regions(args)) => regions(&args, style, out),
        Some(Command::CriticalPath(args)) => critical_path(&args, style, out),
        Some(Command::Diff(args)) => diff(&args, style, out),
        Some(Command::Advise(args)) => {
            let catalogue = open(args.database.as_deref())?;
            advise::print(&catalogue, args.format == ReportFormat::Json, style, out)
        }
        Some(Command::Check(args)) => check(&args, out),
        Some(Command::View(args)) => page(&args, out),
        Some(Command::Tui(args)) => {
            let catalogue = open(args.database.as_deref())?;
            terminal::show(&catalogue, &|words, width| printed(&catalogue, words, width))
        }
        Some(Command::Sweep(args)) => {
            let databases = args.databases.iter().map(|path| Catalogue::open(path));
            let databases: Vec<Catalogue> = databases.collect::<Result<_>>()?;
            let steps = sweep::sweep(&databases)?;
            let sweep = Sweep { steps: &steps, databases: &databases };
            match args.format {
                SweepFormat::Text => sweep.text(style, out),
                SweepFormat::Json => sweep.json(out),
                SweepFormat::Svg => sweep.picture(out),
            }
            .map_err(Error::output)
        }
        Some(Command::Export(args)) => export(args, out),
    }
}

/// What a command prints of a database on a screen without colours; no words print the first screen.
fn printed(catalogue: &Catalogue, words: &[&str], width: usize) -> Result<String> {
    let own = ["hpcprof-rs"].iter().chain(words.first()).map(OsStr::new);
    let words = words.iter().skip(1).map(OsStr::new);
    let line = own.chain([catalogue.path.as_os_str()]).chain(words);
    let cli = Cli::try_parse_from(line).map_err(|error| Error::Usage(error.to_string()))?;
    let mut text = Vec::new();
    run(cli, Style { width, line: width, colour: false }, &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn build_and_show(args: &BuildArgs, style: Style, out: &mut impl Write) -> Result<()> {
    let thresholds = Thresholds { idleness: args.idleness_threshold, overhead: args.overhead_threshold };
    let inputs = match args.measurements.as_slice() {
        [] => vec![newest::run_directory(Path::new("."))?],
        given => given.to_vec(),
    };
    if let Some(command) = inputs.iter().find_map(|path| meant(path)) {
        return Err(Error::Usage(command));
    }
    let path = match inputs.as_slice() {
        [one] if args.output.is_none() && one.join(schema::FILE_NAME).is_file() => one.clone(),
        _ => {
            let mut warnings = Warnings::default();
            let path = build(&inputs, args, &mut warnings);
            let width = if std::io::stderr().is_terminal() { style.line } else { usize::MAX };
            for line in warnings.lines() {
                let line = format!("hpcprof-rs: warning: {line}");
                message!("{}", names::wrap(&line, width).join("\n"));
            }
            for line in warnings.details().filter(|_| args.verbose) {
                message!("hpcprof-rs: {line}");
            }
            path?
        }
    };
    first_screen::print(&Catalogue::open(&path)?, thresholds, style, out)
}

/// What a path that does not exist is meant for, if it is nearly a command.
fn meant(path: &Path) -> Option<String> {
    let text = path.to_str().filter(|_| !path.exists())?;
    let commands = Cli::command();
    let mut names = commands.get_subcommands().map(clap::Command::get_name);
    let name = names.find(|name| strsim::damerau_levenshtein(name, text) <= 2)?;
    Some(format!("no such directory: {text}; did you mean `hpcprof-rs {name}`?"))
}

fn export(args: exports::Request, out: &mut impl Write) -> Result<()> {
    exports::export(&open(args.database.as_deref())?, &args, out)
}

fn page(args: &PageArgs, out: &mut impl Write) -> Result<()> {
    let databases: Vec<Catalogue> = match args.databases.as_slice() {
        [] => vec![open(None)?],
        // The newer one is shown.
        given => given.iter().rev().map(|path| Catalogue::open(path)).collect::<Result<_>>()?,
    };
    let path = &databases[0].path;
    let plain = Style { width: 100, line: usize::MAX, colour: false };
    // What a database cannot tell has no place on the page.
    let report = |command: &str| {
        let of = ["hpcprof-rs".as_ref(), OsStr::new(command), path.as_os_str(), "--format=json".as_ref()];
        let mut json = Vec::new();
        run(Cli::try_parse_from(of).ok()?, plain, &mut json).ok()?;
        serde_json::from_slice(&json).ok()
    };
    let mut summary = Vec::new();
    let thresholds = Thresholds::default();
    first_screen::print(&databases[0], thresholds, plain, &mut summary)?;
    let summary = String::from_utf8_lossy(&summary).into_owned();
    let commands =
        [("advice", "advise"), ("threads", "threads"), ("regions", "regions"), ("path", "critical-path")];
    let reports = commands.into_iter().filter_map(|(name, command)| Some((name, report(command)?)));
    let reports = [("summary", summary.into())].into_iter().chain(reports).collect();
    let page = Page { databases: &databases, reports, no_source: args.no_source };
    crate::page::write(page, &args.output, out)
}

fn threads(args: &ThreadsArgs, style: Style, out: &mut impl Write) -> Result<()> {
    let catalogue = open(args.database.as_deref())?;
    let asked = args.metric.as_deref();
    let asked = asked.map(|text| catalogue.metric(text)).transpose()?;
    let metric = asked.as_ref().map_or(MetricSelector::Effort, |m| column(&catalogue, m, Metric::is_effort));
    let context = args.context.as_deref();
    let context = context.map(|text| catalogue.find_contexts(text)).transpose()?;
    let rows = match &context {
        Some(contexts) => catalogue.threads_in(contexts)?,
        None => catalogue.threads()?,
    };
    let mut table = threads::arrange(rows, metric, context.is_none(), catalogue.statistics.takers);
    let most = args.rows.filter(|_| args.format != TableFormat::Text);
    let more = table.threads.len().saturating_sub(most.unwrap_or(usize::MAX));
    table.threads.truncate(table.threads.len() - more);
    hint_more(args.format, more);
    let threads = Threads {
        table: &table,
        catalogue: &catalogue,
        metric,
        context: context.as_ref().map(|c| c.name.as_str()),
        more,
    };
    match args.format {
        TableFormat::Text => threads.text(args.rows.unwrap_or(30), style, out),
        TableFormat::Json => threads.json(out),
        TableFormat::Csv => threads.csv(out),
    }
    .map_err(Error::output)
}

fn diff(args: &DiffArgs, style: Style, out: &mut impl Write) -> Result<()> {
    let databases = [Catalogue::open(&args.a)?, Catalogue::open(&args.b)?];
    let databases = databases.each_ref();
    let advice = tested(databases[0].advice()?, &databases[1].advice()?);
    let walls = databases.map(|of| quality::wall_of_run(&of.statistics));
    let others = databases.map(|of| of.statistics.others_ns() as f64 / of.statistics.runs.max(1) as f64);
    let mut diff = views::diff::diff(databases, args.threshold)?;
    let is_listed = matches!(args.format, DiffFormat::Json | DiffFormat::Csv);
    let more = match args.rows.filter(|_| is_listed) {
        Some(rows) => {
            [&mut diff.nodes, &mut diff.procedures].map(|nodes| views::diff::keep_largest(nodes, rows))
        }
        None => [0; 2],
    };
    if args.format == DiffFormat::Csv {
        hint_more(TableFormat::Csv, more[0]);
    }
    let comparison = Comparison { diff: &diff, databases, walls, others, advice: &advice, more };
    let metric = METRICS.iter().position(|name| *name == args.metric).unwrap_or(0);
    match args.format {
        DiffFormat::Text => comparison.text(metric, args.rows.unwrap_or(40), style, out),
        DiffFormat::Json => comparison.json(out),
        DiffFormat::Csv => comparison.csv(out),
        DiffFormat::Svg => flamegraph::difference(&diff, databases, metric, out),
    }
    .map_err(Error::output)
}

/// Says that rows are left out where the format has no place for it.
fn hint_more(format: TableFormat, more: usize) {
    if more > 0 && format == TableFormat::Csv {
        message!("hpcprof-rs: hint: {more} more rows: a larger --rows has them");
    }
}

fn check(args: &CheckArgs, out: &mut impl Write) -> Result<()> {
    let database = Catalogue::open(&args.database)?;
    let baseline = args.baseline.as_deref().map(Catalogue::open).transpose()?;
    let answers = args.conditions.iter().map(|text| answer(text, &database, baseline.as_ref()));
    let answers: Vec<Answer> = answers.collect::<Result<_>>()?;
    checks::report::print(&answers, args.format, out).map_err(Error::output)?;
    let worst = answers.iter().map(|of| of.outcome).max().unwrap_or(Outcome::Holds);
    match worst.told().1 {
        0 => Ok(()),
        status => out.flush().map_err(Error::output).and(Err(Error::NotHeld { status })),
    }
}

fn regions(args: &RegionsArgs, style: Style, out: &mut impl Write) -> Result<()> {
    let catalogue = open(args.database.as_deref())?;
    let find = |of: &Catalogue| {
        let sizes: Vec<String> = of.statistics.sizes.iter().map(u32::to_string).collect();
        if sizes.len() > 1 {
            // What p cores could have gained is nothing that runs on others tell.
            let problem = format!("has runs on {} cores", sizes.join(" and "));
            let remedy = "build a database of those on one number of cores each (-o)";
            return Err(Error::input(&of.path, problem, remedy));
        }
        find::find(of)
    };
    let regions = find(&catalogue)?;
    let serial = args.serial.as_deref().map(|path| find(&Catalogue::open(path)?));
    let sizes = args.size.iter().map(|(name, size, path)| {
        let other = path.as_deref().map(|path| find(&Catalogue::open(path)?));
        Ok((name.clone(), *size, other.transpose()?))
    });
    let (calibration, no_calibration) = match calibration_of(&catalogue, args.calibration.as_deref())? {
        Ok(calibration) => (Some(calibration), None),
        Err(problem) => (None, Some(problem)),
    };
    let known = overheads::Known {
        calibration,
        state: Some(match args.workers {
            Workers::Awake => State::Awake,
            Workers::Asleep => State::Asleep,
        }),
        executions: args.executions.clone(),
        serial: serial.transpose()?,
        sizes: sizes.collect::<Result<_>>()?,
    };
    let (cores, wait) = (catalogue.statistics.cores, catalogue.statistics.wait_ns);
    let assessed = overheads::assess(&regions, cores, wait, &known)?;
    let whole = Whole::predict((&regions, &assessed), cores, wait, &known);
    let report = print::Report {
        assessed: &assessed,
        whole: whole.as_ref(),
        catalogue: &catalogue,
        regions: &regions,
        known: &known,
        no_calibration: no_calibration.as_deref(),
    };
    match args.format {
        ReportFormat::Text => report.text(style, out),
        ReportFormat::Json => report.json(out),
    }
    .map_err(Error::output)
}

/// The calibration that is named, else that of the run's host, or why there is none.
fn calibration_of(
    catalogue: &Catalogue,
    named: Option<&Path>,
) -> Result<std::result::Result<Calibration, String>> {
    let path = match (named, catalogue.statistics.hosts.as_slice()) {
        (Some(path), _) => path.to_owned(),
        (None, [host]) => match calibration::file(host).filter(|file| file.is_file()) {
            Some(file) => file,
            None => {
                return Ok(Err(format!("run `hpcrun-rs calibrate` on {host}, or give --calibration FILE")));
            }
        },
        (None, hosts) => {
            let problem = format!("the run has {} hosts; give --calibration FILE", hosts.len());
            return Ok(Err(problem));
        }
    };
    let text = std::fs::read_to_string(&path).map_err(Error::io("read", &path))?;
    let calibration = Calibration::parse(&text).map_err(|problem| {
        let problem = format!("is no calibration: {problem}");
        Error::input(&path, problem, "write one with `hpcrun-rs calibrate`")
    });
    calibration.map(Ok)
}

fn critical_path(args: &PathArgs, style: Style, out: &mut impl Write) -> Result<()> {
    let catalogue = open(args.database.as_deref())?;
    let mut processes = catalogue.tracked_processes()?;
    if processes.is_empty() {
        let remedy = "measure with `hpcrun-rs --critical-path PROGRAM`";
        return Err(Error::input(&catalogue.path, "has no critical path", remedy));
    }
    let is_asked = |pid: u32| args.process.is_none_or(|asked| asked == pid);
    let Some(shown) = processes.iter().position(|p| is_asked(p.pid)) else {
        let pids: Vec<String> = processes.iter().map(|p| p.pid.to_string()).collect();
        return Err(Error::Usage(format!(
            "no such process has a critical path; --process takes {}",
            pids.join(", ")
        )));
    };
    let process = processes.remove(shown);
    let path = catalogue.critical_path(&process)?;
    let faster = args.faster.iter().map(|(name, factor)| Ok((find_procedure(&path, name)?, *factor)));
    let faster: Vec<(&Procedure, f64)> = faster.collect::<Result<_>>()?;
    let view = PathView {
        path: &path,
        process: &process,
        others: &processes,
        workers: args.workers.unwrap_or(process.cores),
        faster: &faster,
    };
    let remarks = remarks(&path, view.workers, process.threads);
    match args.format {
        ReportFormat::Text if args.over_time => over_time::text(&view, style, out),
        ReportFormat::Text => view.text(&remarks, args.rows.unwrap_or(20), style, out),
        ReportFormat::Json => {
            let mut path = path.clone();
            let more = bound(&mut path, args.rows.unwrap_or(usize::MAX));
            PathView { path: &path, ..view }.json(&remarks, &more, out)
        }
    }
    .map_err(Error::output)
}

/// What views sort by. They have columns of the metrics that are known; anything else is one of its own.
fn column<'a>(
    catalogue: &Catalogue,
    expression: &'a Expression,
    is_known: fn(&Metric) -> bool,
) -> MetricSelector<'a> {
    match MetricSelector::from(expression) {
        MetricSelector::Metric(m) if !is_known(&catalogue.metrics[m]) => MetricSelector::Derived(expression),
        metric => metric,
    }
}

/// Opens a database; the newest one here if none is named.
fn open(database: Option<&Path>) -> Result<Catalogue> {
    match database {
        Some(path) => Catalogue::open(path),
        None => Catalogue::open(&newest::database_directory(Path::new("."))?),
    }
}

fn show(args: &ViewArgs, kind: ViewKind, style: Style, out: &mut impl Write) -> Result<()> {
    let catalogue = open(args.database.as_deref())?;
    if args.flat && args.format != Format::Json {
        let problem = "--flat is a form of JSON: give --format json, too";
        return Err(Error::Usage(problem.to_owned()));
    }
    let is_text = args.format == Format::Text;
    let asked = args.metric.as_deref();
    let asked = asked.map(|text| catalogue.metric(text)).transpose()?;
    let metric = match &asked {
        Some(expression) => column(&catalogue, expression, Metric::is_shown),
        None if args.format == Format::Folded => MetricSelector::Metric(WORK),
        None => MetricSelector::Effort,
    };
    let options = FoldOptions {
        recursion: (is_text || args.statistics) && !args.no_fold_recursion,
        start_up: is_text || args.statistics,
        ..args.fold
    };
    if args.statistics {
        let problem = match (args.format, options.projection) {
            (Format::Text | Format::Json, Projection::Logical) => None,
            (_, Projection::Logical) => Some("as text and JSON only: give --format json"),
            (_, Projection::Physical) => Some("by logical context only: leave --projection out"),
        };
        if let Some(problem) = problem {
            return Err(Error::Usage(format!("--statistics are known {problem}")));
        }
    }
    // Unless told otherwise text shows enough to see where a metric is, on few screens.
    let (depth, threshold) = match kind {
        _ if !is_text => (None, None),
        ViewKind::BottomUp => (Some(6), Some(2.0)),
        ViewKind::TopDown | ViewKind::Flat => (None, Some(1.0)),
    };
    let depth = args.depth.map(|d| d as usize).or(depth);
    let limits = Limits { depth, threshold: args.threshold.or(threshold) };
    let is_lazy = is_text && kind == ViewKind::TopDown && options == FoldOptions::STORED;
    let (mut view, tree) = match is_lazy && metric.or_effort(&catalogue.totals()?).is_amount() {
        true => (top_down::read(&catalogue, limits, metric, args.statistics)?, None),
        false => {
            let (view, tree) = whole_view(args, &catalogue, kind, options, (limits, metric))?;
            (view, Some(tree).filter(|_| is_text && kind == ViewKind::BottomUp))
        }
    };
    view.sort(metric);
    let view = prune(view, limits, args.rows, metric);
    match args.format {
        Format::Text => {
            let metric_of = (metric, view.totals.as_slice());
            let user_code = tree.map(|tree| user_code::arrange(&tree, &catalogue.code));
            let line = user_code.and_then(|code| headline(&code, &catalogue, metric_of, style.width));
            text::print(&view, &catalogue, metric, line.as_deref(), style, out)
        }
        Format::Json if args.flat => json::print(&view, &catalogue, metric, options, Form::Flat, out),
        Format::Json => {
            let levels = json::levels(&view);
            if levels > json::MANY_LEVELS {
                message!(
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

/// The view of all contexts, and their folded tree.
fn whole_view(
    args: &ViewArgs,
    catalogue: &Catalogue,
    kind: ViewKind,
    options: FoldOptions,
    (limits, metric): (Limits, MetricSelector<'_>),
) -> Result<(View, Tree)> {
    let Folded { tree, of } = match options == FoldOptions::STORED && !args.statistics {
        true => Folded { tree: catalogue.folded()?, of: Vec::new() },
        false => fold(&catalogue.contexts(options.projection)?, &catalogue.code, options),
    };
    if args.format == Format::Folded {
        let contexts = 0..tree.nodes.len() as u32;
        metric.check_stackable(contexts.map(|context| tree.exclusive.of(context)))?;
    }
    let (mut view, nodes) = match kind {
        ViewKind::TopDown => top_down::arrange(&tree),
        ViewKind::BottomUp => bottom_up::arrange(&tree, limits, metric),
        ViewKind::Flat => flat::arrange(&tree, &catalogue.code),
    };
    if args.statistics {
        let node = |folded: &Option<u32>| nodes[(*folded)? as usize];
        let nodes: Vec<Option<u32>> = of.iter().map(node).collect();
        let parents: Vec<Option<u32>> = view.nodes.iter().map(|n| n.parent).collect();
        let spreads = catalogue.work_spreads(&nodes, &parents)?;
        view.spreads = spreads;
    }
    Ok((view, tree))
}
