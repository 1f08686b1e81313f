//! Third pass, part two: adds every recorded value to its context in both projections, work
//! split into useful work and overhead.

use crate::model::contexts::{Amount, Context, ContextTree};
use crate::model::experiment::{DAMAGED_PROFILE, Experiment};
use crate::model::loops::SplitCounts;
use crate::model::runtimes::Runtime;
use crate::model::symbols::{Kind, Line};
use crate::model::warnings::Warnings;
use crate::passes::code::FrameTable;
use crate::passes::load_map::LoadMap;
use crate::passes::loops::{self, LoopFinder, Site};
use crate::passes::paths::{
    PartialCause, PathResolver, PathState, ProcessFrames, Projections, partial,
};
use crate::passes::{loop_names, missing, summarise};
use crate::sources::measurements::{Measurements, ProcessInput};
use hpc_formats::profile::{Profile, Record};
use std::collections::{BTreeMap, BTreeSet};

/// More time than any record can hold: larger values are damage.
const MAX_NANOSECONDS: f64 = (1_u64 << 53) as f64;

/// Adds all processes to the experiment.
pub fn project(
    measurements: &Measurements,
    maps: &[LoadMap],
    table: &FrameTable,
    experiment: &mut Experiment,
    warnings: &mut Warnings,
) {
    let mut finder = LoopFinder::default();
    let mut sites = Vec::new();
    for (index, (process, map)) in measurements.processes.iter().zip(maps).enumerate() {
        summarise::process(index, process, experiment, warnings);
        let frames = process_frames(map, table);
        project_process(index, process, &frames, &mut finder, experiment, warnings);
        sites.extend(process_sites(process, &frames));
    }
    experiment.loops = finder.loops;
    experiment.missing = missing::find(&experiment.processes, &experiment.threads);
    experiment.unprofiled = missing::unprofiled(experiment.processes.iter());
    let (symbols, logical) = (&experiment.symbols, &experiment.logical);
    loops::attach(&sites, &mut experiment.loops, symbols, logical);
    loop_names::name(&mut experiment.loops, symbols, logical);
    let categories: BTreeSet<String> = experiment
        .logical
        .values
        .keys()
        .filter_map(|(_, amount)| match amount {
            Amount::Overhead(category) => Some(experiment.symbols.text(*category).to_owned()),
            _ => None,
        })
        .collect();
    experiment.categories = categories.into_iter().collect();
}

fn process_frames(map: &LoadMap, table: &FrameTable) -> ProcessFrames {
    map.addresses
        .iter()
        .filter_map(|address| {
            let module = map.module(*address)?;
            Some((address.0, *table.get(&(module, address.offset()))?))
        })
        .collect()
}

/// What was counted at the places where a process's tasks are split.
fn process_sites<'a>(
    process: &'a ProcessInput,
    frames: &'a ProcessFrames,
) -> impl Iterator<Item = Site> + 'a {
    let counted = process.process.iter().flat_map(|file| &file.sites);
    counted.filter_map(|site| {
        Some(Site {
            frame: *frames.get(&site.place.0)?,
            counts: SplitCounts {
                splits: site.splits,
                steals: site.steals,
                stolen_ns: site.stolen_ns,
            },
        })
    })
}

fn project_process(
    process_index: usize,
    process: &ProcessInput,
    frames: &ProcessFrames,
    finder: &mut LoopFinder,
    experiment: &mut Experiment,
    warnings: &mut Warnings,
) {
    let profiles: Vec<(u32, Profile<'_>)> = process
        .threads
        .iter()
        .filter_map(|(ordinal, thread)| Some((*ordinal, thread.profile().ok()?)))
        .collect();
    let ordinals: Vec<u32> = profiles.iter().map(|p| p.0).collect();
    let mut resolver = PathResolver::new(profiles, frames);
    for (index, ordinal) in ordinals.iter().enumerate() {
        let thread = &process.threads[ordinal];
        let mut summary = summarise::thread(process_index, thread);
        let tally = project_thread(
            &mut resolver,
            index,
            process_index,
            finder,
            experiment,
            &mut summary,
        );
        summary.samples = tally.samples;
        summary.spawnerless = tally.spawnerless;
        experiment.threads.push(summary);
        let profile = &resolver.profiles()[index];
        let gone = profile.header.samples.saturating_sub(tally.samples);
        if tally.unreadable > 0 || profile.missing_records > 0 || gone > 1 {
            *experiment
                .losses
                .entry((process_index, DAMAGED_PROFILE.to_owned()))
                .or_insert(0) += gone;
            warnings.add(format!(
                "{}: damaged ({} of {} records unreadable, {gone} of {} samples lost), the rest is kept: run again if it matters",
                thread.path.display(),
                tally.unreadable as u64 + profile.missing_records,
                profile.header.records,
                profile.header.samples,
            ));
        }
    }
}

/// What came out of one profile.
#[derive(Default)]
struct Tally {
    samples: u64,
    /// Of them, those in tasks whose spawner is not known, by runtime.
    spawnerless: BTreeMap<Runtime, u64>,
    unreadable: usize,
}

fn project_thread(
    resolver: &mut PathResolver<'_>,
    thread: usize,
    process_index: usize,
    finder: &mut LoopFinder,
    experiment: &mut Experiment,
    summary: &mut crate::model::experiment::ThreadSummary,
) -> Tally {
    let mut tally = Tally::default();
    let period = resolver.profiles()[thread].header.period_ns as f64;
    for index in 0..resolver.profiles()[thread].len() {
        let record = resolver.profiles()[thread].record(index);
        let Some(Record::Metric {
            owner,
            samples,
            work,
            idleness,
        }) = record
        else {
            tally.unreadable += usize::from(record.is_none());
            continue;
        };
        let (work, idleness) = (work as f64 * period, (idleness * period).round());
        if work > MAX_NANOSECONDS || idleness > MAX_NANOSECONDS {
            tally.unreadable += 1;
            continue;
        }
        tally.samples = tally.samples.saturating_add(samples);
        let mut out = Projections {
            symbols: &mut experiment.symbols,
            logical: &mut experiment.logical,
            physical: &mut experiment.physical,
            loops: finder,
        };
        let mut state = resolver.state(thread, owner, &mut out);
        if state.logical.is_none() || state.physical.is_none() {
            state = partial(PartialCause::EmptyPath, &mut out);
        }
        if let Some(cause) = state.partial {
            let key = (process_index, cause.name().to_owned());
            let count = experiment.losses.entry(key).or_insert(0);
            *count = count.saturating_add(samples);
        }
        if let Some(runtime) = state.spawnerless {
            let count = tally.spawnerless.entry(runtime).or_insert(0);
            *count = count.saturating_add(samples);
        }
        credit(experiment, summary, &state, work as i64, idleness as i64);
    }
    tally
}

/// Adds the values of one record to its contexts and to its thread.
fn credit(
    experiment: &mut Experiment,
    summary: &mut crate::model::experiment::ThreadSummary,
    state: &PathState,
    work: i64,
    idleness: i64,
) {
    let amount = state.tag.map_or(Amount::Work, Amount::Overhead);
    let projections = [
        (&mut experiment.logical, state.logical, state.logical_line),
        (
            &mut experiment.physical,
            state.physical,
            state.physical_line,
        ),
    ];
    for (tree, context, line) in projections {
        let Some(context) = context else { continue };
        let leaf = line_context(tree, context, line);
        tree.add(leaf, amount, work);
        tree.add(leaf, Amount::Idleness, idleness);
    }
    let mut add = |name: &str, value: i64| {
        if value != 0 {
            let slot = summary.totals.entry(name.to_owned()).or_insert(0);
            *slot = slot.saturating_add(value);
        }
    };
    match state.tag {
        None => add("work", work),
        Some(category) => {
            add("overhead", work);
            add(
                &format!("overhead:{}", experiment.symbols.text(category)),
                work,
            );
        }
    }
    add("idleness", idleness);
}

/// The context of a line within its scope; the scope itself where no line is known.
fn line_context(
    tree: &mut ContextTree,
    scope: crate::model::contexts::ContextIndex,
    line: Option<Line>,
) -> crate::model::contexts::ContextIndex {
    let Some(line) = line else { return scope };
    let procedure = tree.contexts[scope.0 as usize].procedure;
    tree.child(Context {
        parent: Some(scope),
        kind: Kind::Line,
        procedure,
        line: Some(line),
        call: None,
        column: 0,
        support: false,
    })
}
