//! Builds a database: wires sources, passes and sinks by plain calls.

use crate::advice::efficiency::Thresholds;
use crate::advice::findings::findings;
use crate::advice::first_screen::stored_view;
use crate::catalogue;
use crate::cli::BuildArgs;
use crate::error::{Result, one_line};
use crate::model::code::SplitCounts;
use crate::model::experiment::Experiment;
use crate::model::keys;
use crate::model::metrics::{self, CATEGORY_PREFIX, Metric, ON_PATH};
use crate::model::statistics::signed;
use crate::model::symbols::Symbols;
use crate::model::tree::Values;
use crate::model::warnings::Warnings;
use crate::passes::code::FrameTable;
use crate::passes::load_map::LoadMap;
use crate::passes::merge::number;
use crate::passes::merge::paths::{ProcessFrames, add_partial_roots};
use crate::passes::merge::reduce::{self, Merged};
use crate::passes::merge::shard::Inputs;
use crate::passes::merge::values::{self, Added, Layout, Sink as _};
use crate::passes::parallel_loops::counts::{self, Site};
use crate::passes::parallel_loops::{names, openmp};
use crate::passes::traces::{self, Named};
use crate::passes::{code, critical_path, edges, load_map, missing, runs, summarise};
use crate::sinks::columns::{ColumnFiles, Own, Projection};
use crate::sinks::database::{self, Catalogue};
use crate::sinks::scopes::Scopes;
use crate::sinks::staged_directory::StagedDirectory;
use crate::sources::analyser::Analyser;
use crate::sources::measurements::{self, Measurements, ProcessInput};
use crate::sources::newest;
use crate::sources::structures::StructureLibrary;
use crate::views::fold::{self, FoldOptions, Folded, fold_contexts};
use hpc_formats::address::CodeAddress;
use hpc_formats::message;
use hpc_formats::process::{self, DirectiveKind};
use hpc_formats::profile::{
    Aggregation, EFFORT_SQUARES, IDLENESS, IDLENESS_SQUARES, LOCK_WAIT, LONG_POLL, MPI_WAIT,
    OVERSUBSCRIPTION, SAMPLES, STANDSTILL, Unit, WORK, WORK_SQUARES,
};
use hpcstruct_rs::{Progress, parallel};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Builds a database from measurement directories; returns its path.
pub fn build(inputs: &[PathBuf], args: &BuildArgs, warnings: &mut Warnings) -> Result<PathBuf> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.unwrap_or_else(cores);
    let analyser = Analyser::new(args.rules.as_deref(), threads, !args.no_cache)?;
    let mut measurements = measurements::read(inputs, warnings)?;
    let jobs = critical_path::ranks::join(&mut measurements.processes, warnings);
    let directory = match &args.output {
        Some(target) => StagedDirectory::prepare(target, args.force)?,
        None => StagedDirectory::of_program(Path::new(""), &program_name(&measurements))?,
    };

    let mut symbols = Symbols::default();
    let (maps, sampled) = load_map::collect(&measurements, threads, &mut symbols, warnings);
    let mut library = StructureLibrary::open(inputs, analyser, warnings);
    let mut table = code::resolve(&sampled, &mut library, &mut symbols, warnings);
    for (process, map) in measurements.processes.iter().zip(&maps) {
        openmp::mark(directives(process), map, &mut table, &mut symbols);
    }
    if args.verbose {
        for line in library.log() {
            message!("hpcprof-rs: {}", one_line(line));
        }
    }
    openmp::warn(measurements.processes.iter().flat_map(directives), warnings);
    drop((sampled, library));
    add_partial_roots(&mut symbols);

    let frames: Vec<ProcessFrames> = maps.iter().map(|map| process_frames(map, &table)).collect();
    drop((maps, table));
    let others = other_metrics(&measurements, warnings);
    let names: Vec<String> = others.iter().map(|m| m.name.clone()).collect();
    let inputs = Inputs { measurements: &measurements, frames: &frames, symbols: &symbols, others: &names };
    let progress = Progress::default();
    let sizes = measurements.profiles().map(|(_, thread)| thread.size());
    progress.begin(sizes.sum::<usize>() as u64);
    let mut merged = progress.watch("merging", || {
        reduce::merge(inputs, threads, directory.path(), |bytes| progress.add(bytes as u64))
    })?;

    let mut experiment = summarise(&measurements, &mut merged, warnings);
    let of = (&merged, &*names);
    let paths = critical_path::resolve(&measurements, &frames, &symbols, of, warnings)?;
    experiment.critical_paths = critical_path::ranks::assemble(&jobs, paths);
    runs::find(&measurements, args.job, &mut experiment, warnings);
    if experiment.missing.is_empty() && experiment.threads.iter().all(|t| t.samples == 0) {
        warnings.add("no samples were taken: measure a longer run, or at a higher rate (-e cpu-time@1000)");
    }
    let sites = measurements.processes.iter().zip(&frames);
    let sites: Vec<Site> = sites.flat_map(|(p, frames)| process_sites(p, frames, &symbols)).collect();
    let known = (&symbols, &*sites, &*others);
    write(&measurements, experiment, merged, known, warnings, (threads, &directory))?;
    let thresholds = Thresholds { idleness: args.idleness_threshold, overhead: args.overhead_threshold };
    let catalogue = catalogue::Catalogue::open(directory.path())?;
    let advice = findings(&stored_view(&catalogue)?, &catalogue, thresholds)?;
    drop(catalogue);
    database::add_advice(&directory, &advice)?;
    directory.publish()
}

/// Numbers contexts, adds up their values and writes everything.
fn write(
    measurements: &Measurements,
    mut experiment: Experiment,
    mut merged: Merged,
    (symbols, sites, others): (&Symbols, &[Site], &[Metric]),
    warnings: &Warnings,
    (threads, directory): (usize, &StagedDirectory),
) -> Result<()> {
    let loops = &mut merged.trees.loops.loops;
    let groups = counts::attach(sites, loops, symbols);
    names::name(loops, symbols, &merged.trees.contexts);
    let categories: Vec<String> = categories(&experiment);
    experiment.metrics = metrics::all(&categories, others);
    let layout = layout(&experiment.metrics, symbols);
    let trees = std::mem::take(&mut merged.trees);
    let mut numbered = number::number(symbols, &trees.contexts, &trees.loops.loops);
    drop(trees);
    let physical_of = numbered.physical.as_mut().map(|p| std::mem::take(&mut p.of));
    let logical_of = std::mem::take(&mut numbered.logical.of);
    merged.number(&logical_of, physical_of.as_deref());
    drop((logical_of, physical_of));
    let traced = Named::new(&merged);
    experiment.code = std::mem::take(&mut numbered.code);
    let logical = &numbered.logical;
    let physical = numbered.physical.as_ref();
    experiment.logical_contexts = logical.len();
    experiment.physical_contexts = physical.map(|contexts| contexts.len());
    let (experiment, code) = (&experiment, &experiment.code);
    let has_values = |context: u32| logical.sampled[context as usize];
    let name = || {
        let mut scopes = Scopes::default();
        let mut of = |contexts| Projection { contexts, scopes: scopes.add(code, contexts.nodes()).collect() };
        let projections = (of(logical), physical.map(of));
        (keys::contexts(logical.nodes(), code), projections, scopes)
    };
    let contexts = (logical.len(), |number| logical.node(number));
    let fold = || fold_contexts(contexts, has_values, code, FoldOptions::STORED);
    let (named, folded) = parallel::both(threads, name, fold);
    let (keys, (logical_projection, physical_projection), mut scopes) = named;
    let Folded { tree: folded, of } = folded;
    let folded_scopes: Vec<u32> = scopes.add(code, folded.iter().copied()).collect();
    let parents: Vec<_> = folded.iter().map(|node| node.parent).collect();
    let columns = ColumnFiles {
        directory: directory.path(),
        experiment,
        logical: logical_projection,
        own: Own { folded: &of, keys },
        physical: physical_projection,
        traced: measurements.traced_runs(),
        files: Mutex::default(),
    };
    let runs: Vec<usize> = experiment.processes.iter().map(|p| p.run).collect();
    let inputs = values::Inputs {
        merged,
        runs: &runs,
        numbered: &numbered,
        layout: &layout,
        folded: values::Folded { parents: &parents, of: &of },
        sink: &columns,
        threads,
    };
    let Added { made: catalogue, last, all, spreads } = values::add_up(inputs, || {
        Catalogue::begin(experiment, (&folded, &folded_scopes), &scopes, warnings, directory)
    })?;
    let mut loops = code.loops.clone();
    let mut exclusive = Values::default();
    if let Some(sums) = all.as_ref().or(last.as_ref().map(|(_, sums)| sums)) {
        counts::add_task_times(&groups, &numbered.loops, &mut loops, (logical, &sums.logical));
        exclusive = fold::sums(parents.len(), &of, &sums.logical);
    }
    drop(all);
    let add_runs = || {
        if let Some((run, sums)) = last {
            columns.run(run, &sums)?;
        }
        for run in (0..columns.traced.len()).filter(|run| columns.traced[*run]) {
            let end_of = |process: usize| experiment.processes[process].end_ns;
            columns.write_trace(run, |add| traced.each((measurements, run), end_of, add))?;
            let edges = edges::of(measurements, run)?;
            if !edges.is_empty() {
                columns.write_edges((run, traces::begin(measurements, run)), &edges)?;
            }
        }
        Ok(columns.files.into_inner())
    };
    let add_values = || catalogue.write_values(&parents, &exclusive, &spreads);
    let (files, added) = parallel::both(threads, add_runs, add_values);
    added?;
    let mut files = files?.unwrap_or_else(PoisonError::into_inner);
    files.sort();
    catalogue.end(&loops, &files)
}

/// The overhead categories that occur, sorted.
fn categories(experiment: &Experiment) -> Vec<String> {
    let totals = experiment.threads.iter().flat_map(|t| t.totals.keys());
    let names = totals.filter_map(|name| name.strip_prefix(CATEGORY_PREFIX));
    let names: BTreeSet<String> = names.map(str::to_owned).collect();
    names.into_iter().collect()
}

fn layout(metrics: &[Metric], symbols: &Symbols) -> Layout {
    let position = |name: &str| metrics.iter().position(|m| m.name == name);
    let categories = metrics.iter().enumerate().filter_map(|(index, metric)| {
        let category = metric.name.strip_prefix(CATEGORY_PREFIX)?;
        Some((symbols.find_text(category)?.0, index))
    });
    Layout {
        categories: categories.collect(),
        samples: position(SAMPLES).unwrap_or(metrics.len()),
        metrics: metrics.len(),
        spread: (0..metrics.len())
            .filter(|m| metrics[*m].part_of.is_none() && metrics[*m].name != SAMPLES)
            .filter(|m| !metrics[*m].is_square())
            .collect(),
    }
}

/// Metrics of the profiles beside samples, work and idleness, by name. Only what adds up belongs to contexts.
fn other_metrics(measurements: &Measurements, warnings: &mut Warnings) -> Vec<Metric> {
    let known = measurements.profiles().flat_map(|(_, thread)| &thread.header.metrics);
    let own = [SAMPLES, WORK, IDLENESS, WORK_SQUARES, IDLENESS_SQUARES, EFFORT_SQUARES];
    let known = known.filter(|m| !own.contains(&m.name.as_str()));
    let mut others: BTreeMap<&str, Metric> = BTreeMap::new();
    for metric in known {
        if metric.aggregation != Aggregation::Sum {
            warnings.add(format!("metric `{}` does not add up over samples; it is left out", metric.name));
            continue;
        }
        others.entry(&metric.name).or_insert_with(|| {
            let description = match metric.name.as_str() {
                LOCK_WAIT => "time that others waited for a lock that the context held".to_owned(),
                MPI_WAIT => "time that the rank waited in calls of MPI".to_owned(),
                OVERSUBSCRIPTION => "time that threads were ready to run and had no core".to_owned(),
                STANDSTILL => "time that threads waited while nobody worked".to_owned(),
                LONG_POLL => "polls of 10 ms or more, by who has spawned their task".to_owned(),
                name => format!("{name} at samples of threads that work"),
            };
            Metric::sum(metric.name.clone(), metric.unit, None, description)
        });
    }
    let mut processes = measurements.processes.iter();
    if processes.any(|p| p.critical_path.is_some()) {
        let description = "CPU time of samples on the critical path of their process";
        let on_path = Metric::sum(ON_PATH.to_owned(), Unit::Seconds, None, description.to_owned());
        others.insert(ON_PATH, on_path);
    }
    others.into_values().collect()
}

/// Summaries of processes and threads, and what is lost or missing.
fn summarise(measurements: &Measurements, merged: &mut Merged, warnings: &mut Warnings) -> Experiment {
    let mut experiment = Experiment::default();
    let mut threads = merged.threads.iter_mut().map(|(_, thread)| thread).peekable();
    for (index, process) in measurements.processes.iter().enumerate() {
        summarise::process(index, process, &mut experiment, warnings);
        while let Some(thread) = threads.next_if(|t| t.summary.process == index) {
            for (cause, loss) in &thread.losses {
                experiment.add_loss(index, cause, *loss);
            }
            if let Some(damage) = thread.damage.take() {
                warnings.add(damage);
            }
            experiment.threads.push(thread.summary.clone());
        }
    }
    experiment.missing = missing::find(&experiment.processes, &experiment.threads);
    experiment.unprofiled = missing::unprofiled(experiment.processes.iter());
    experiment
}

fn process_frames(map: &LoadMap, table: &FrameTable) -> ProcessFrames {
    let frame =
        |address: &hpc_formats::address::CodeAddress| Some((address.0, *table.get(&map.place(*address)?)?));
    map.addresses.iter().filter_map(frame).collect()
}

/// What was counted at a process's directives.
fn directives(process: &ProcessInput) -> impl Iterator<Item = &process::Directive> {
    process.process.iter().flat_map(|file| &file.directives)
}

/// What was counted at the places where a process's tasks are split.
fn process_sites<'a>(
    process: &'a ProcessInput,
    frames: &'a ProcessFrames,
    symbols: &'a Symbols,
) -> impl Iterator<Item = Site> + 'a {
    let site = move |place: CodeAddress, counts| Some(Site { frame: *frames.get(&place.0)?, counts });
    let sites = process.process.iter().flat_map(|file| &file.sites);
    let of_runtimes = sites.filter_map(move |found| {
        let counts = SplitCounts {
            splits: signed(found.splits),
            steals: signed(found.steals),
            stolen_ns: signed(found.stolen_ns),
            executions: signed(found.executions),
            outside: if found.splits == 0 { signed(found.executions) } else { 0 },
            ..SplitCounts::default()
        };
        site(found.place, counts)
    });
    let of_directives = directives(process).filter_map(move |found| {
        let executions = signed(found.executions);
        let (chunks, iterations) = (signed(found.chunks), signed(found.iterations));
        let none = SplitCounts::default();
        let all = SplitCounts { executions, outside: executions, chunks, iterations, ..none };
        let splits = SplitCounts { splits: executions, ..none };
        match found.kind {
            DirectiveKind::TbbAlgorithm => site(found.place, all),
            DirectiveKind::TbbTask => site(found.place, splits),
            _ => site(found.place, all).filter(|s| symbols.frame(s.frame).directive.is_some()),
        }
    });
    of_runtimes.chain(of_directives)
}

/// The program's name for the default database directory: as in the measurement directory's
/// name, else what the user typed, else the executable's.
fn program_name(measurements: &Measurements) -> String {
    let directory = measurements
        .directories
        .first()
        .and_then(|d| d.canonicalize().ok())
        .and_then(|d| Some(d.file_name()?.to_string_lossy().into_owned()));
    if let Some(name) = directory.as_deref().and_then(newest::program_of_directory) {
        return name.to_owned();
    }
    let typed = measurements.commands.iter().filter_map(|words| words.first());
    let starts = measurements.processes.iter().filter_map(|p| p.process.as_ref());
    let executables = starts.map(|p| &p.start.executable);
    let executable = typed.chain(executables).map(String::as_str).find(|e| !e.is_empty());
    executable.map_or("unknown", process::program_name).to_owned()
}
