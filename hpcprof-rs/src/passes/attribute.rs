//! Third pass, part two: attributes every recorded value to its context in both projections. Work is
//! split into useful work and overhead.

use crate::model::contexts::{Context, ContextIndex, ContextTree, MetricKey};
use crate::model::experiment::{Experiment, ThreadSummary};
use crate::model::loops::SplitCounts;
use crate::model::metrics::CATEGORY_PREFIX;
use crate::model::symbols::{Kind, Line};
use crate::model::warnings::Warnings;
use crate::passes::code::FrameTable;
use crate::passes::load_map::LoadMap;
use crate::passes::parallel_loops::counts::{self, Site};
use crate::passes::parallel_loops::names;
use crate::passes::parallel_loops::recognise::LoopFinder;
use crate::passes::paths::{
    PartialCause, PathResolver, PathState, ProcessFrames, Projections, partial,
};
use crate::passes::{missing, summarise};
use crate::sources::measurements::{Measurements, ProcessInput};
use hpc_formats::profile::{Profile, Record};
use std::collections::BTreeSet;

/// Name of the loss of samples that a damaged profile does not have any more.
const DAMAGED_PROFILE: &str = "damaged-profile";
/// More nanoseconds than any record can hold: larger values are damage.
const MAX_NANOSECONDS: f64 = (1_u64 << 53) as f64;

/// Adds all processes to the experiment.
pub fn attribute(
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
        attribute_process(index, process, &frames, &mut finder, experiment, warnings);
        sites.extend(process_sites(process, &frames));
    }
    experiment.loops = finder.loops;
    experiment.missing = missing::find(&experiment.processes, &experiment.threads);
    experiment.unprofiled = missing::unprofiled(experiment.processes.iter());
    let (symbols, logical) = (&experiment.symbols, &experiment.logical);
    counts::attach(&sites, &mut experiment.loops, symbols, logical);
    names::name(&mut experiment.loops, symbols, logical);
    let keys = logical.exclusive_values.keys();
    let categories: BTreeSet<&str> = keys
        .filter_map(|(_, key)| match key {
            MetricKey::Overhead(category) => Some(symbols.text(*category)),
            MetricKey::Work | MetricKey::Idleness => None,
        })
        .collect();
    experiment.categories = categories.into_iter().map(str::to_owned).collect();
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

fn attribute_process(
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
        let unreadable = attribute_thread(&mut resolver, index, finder, experiment, &mut summary);
        let profile = &resolver.profiles()[index];
        let gone = profile.header.samples.saturating_sub(summary.samples);
        experiment.threads.push(summary);
        if unreadable > 0 || profile.missing_records > 0 || gone > 1 {
            experiment.add_loss(process_index, DAMAGED_PROFILE, gone);
            warnings.add(format!(
                "{}: damaged ({} of {} records unreadable, {gone} of {} samples lost), the rest is kept: \
                 run again if it matters",
                thread.path.display(),
                unreadable + profile.missing_records,
                profile.header.records,
                profile.header.samples,
            ));
        }
    }
}

/// Attributes the values of one profile; returns how many records are unreadable.
fn attribute_thread(
    resolver: &mut PathResolver<'_>,
    thread: usize,
    finder: &mut LoopFinder,
    experiment: &mut Experiment,
    summary: &mut ThreadSummary,
) -> u64 {
    let mut unreadable = 0;
    let metrics = resolver.profiles()[thread].header.metrics.clone();
    let amount = |at: usize, word| metrics.get(at).map_or(0.0, |metric| metric.amount(word));
    for index in 0..resolver.profiles()[thread].len() {
        let record = resolver.profiles()[thread].record(index);
        let Some(Record::Metric {
            owner,
            group: 0,
            values: [samples, work, idleness],
        }) = record
        else {
            unreadable += u64::from(record.is_none());
            continue;
        };
        let (work, idleness) = (amount(1, work), amount(2, idleness).round());
        if work > MAX_NANOSECONDS || idleness > MAX_NANOSECONDS {
            unreadable += 1;
            continue;
        }
        summary.samples = summary.samples.saturating_add(samples);
        let mut out = Projections {
            symbols: &mut experiment.symbols,
            logical: &mut experiment.logical,
            physical: &mut experiment.physical,
            loops: finder,
        };
        let mut state = resolver.state(thread, owner, &mut out);
        if state.logical.context.is_none() || state.physical.context.is_none() {
            state = partial(PartialCause::EmptyPath, &mut out);
        }
        if let Some(cause) = state.partial {
            experiment.add_loss(summary.process, cause.name(), samples);
        }
        if let Some(runtime) = state.unknown_caller {
            let count: &mut u64 = summary.unknown_caller_samples.entry(runtime).or_default();
            *count = count.saturating_add(samples);
        }
        attribute_record(experiment, summary, &state, work as i64, idleness as i64);
    }
    unreadable
}

/// Adds the values of one record to its contexts and to its thread.
fn attribute_record(
    experiment: &mut Experiment,
    summary: &mut ThreadSummary,
    state: &PathState,
    work: i64,
    idleness: i64,
) {
    let key = state.tag.map_or(MetricKey::Work, MetricKey::Overhead);
    for (tree, innermost) in [
        (&mut experiment.logical, state.logical),
        (&mut experiment.physical, state.physical),
    ] {
        let Some(context) = innermost.context else {
            continue;
        };
        let leaf = line_context(tree, context, innermost.line);
        tree.add(leaf, key, work);
        tree.add(leaf, MetricKey::Idleness, idleness);
    }
    summary.add("idleness", idleness);
    match state.tag {
        None => summary.add("work", work),
        Some(category) => {
            let category = experiment.symbols.text(category);
            summary.add("overhead", work);
            summary.add(&format!("{CATEGORY_PREFIX}{category}"), work);
        }
    }
}

/// The context of a line within its scope; the scope itself where no line is known.
fn line_context(tree: &mut ContextTree, scope: ContextIndex, line: Option<Line>) -> ContextIndex {
    if line.is_none() {
        return scope;
    }
    let procedure = tree.contexts[scope.0 as usize].procedure;
    tree.child(Context {
        parent: Some(scope),
        kind: Kind::Line,
        procedure,
        line,
        call: None,
        column: 0,
        is_runtime: false,
    })
}
