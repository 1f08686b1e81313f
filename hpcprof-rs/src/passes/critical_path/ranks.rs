//! Joins the critical paths of the processes of a job, which exchange messages, into one.
//!
//! The path of the process whose end is the latest is followed backwards: where it begins in another process,
//! it goes on with what that process has exported. Each process's part of it, in segments, samples and marked
//! procedures, takes the place of the process's own path; when the places have names, the parts are put
//! together in their order.

use super::{join_starts, sort_procedures};
use crate::model::critical_path::{CriticalPath, Procedure, Segment};
use crate::model::hash::FastMap;
use crate::model::warnings::Warnings;
use crate::sources::measurements::ProcessInput;
use hpc_formats::critical_path::{
    self as file, Edge, Levels, OnPath, Place, ProcedureName, Rank, RankShare, Site,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A job whose processes' paths are one.
#[derive(Debug, PartialEq, Eq)]
pub struct Job {
    /// The process whose end is the latest, by index.
    last: usize,
    /// All of them, by rank.
    processes: BTreeMap<u32, usize>,
    /// The process of each segment of the path.
    order: Vec<usize>,
    /// Every rank has left its path.
    is_whole: bool,
}

/// A process's part of the path.
#[derive(Default)]
struct Part {
    segments: Vec<file::Segment<Site>>,
    /// Samples by profile and record.
    on_path: BTreeMap<(u32, u32), u64>,
    /// Times in marked procedures by their numbers in messages.
    marks: HashMap<u64, u64>,
}

impl Part {
    fn add_mark(&mut self, key: u64, time: u64) {
        let sum = self.marks.entry(key).or_default();
        *sum = sum.saturating_add(time);
    }
}

/// Finds the jobs, and gives each process its part of its job's path.
pub fn join(processes: &mut [ProcessInput], warnings: &mut Warnings) -> Vec<Job> {
    let mut jobs: BTreeMap<(usize, u64), BTreeMap<u32, usize>> = BTreeMap::new();
    for (index, process) in processes.iter().enumerate() {
        if let Some((_, rank)) = of(process) {
            let job = jobs.entry((process.directory, rank.job)).or_default();
            job.entry(rank.rank).or_insert(index);
        }
    }
    let joined = jobs.into_values().filter_map(|job| {
        let last = job.values().copied();
        let last = last.max_by_key(|index| (of(&processes[*index]).map(|(path, _)| path.span), *index));
        Some(join_one(processes, job, last?, warnings))
    });
    joined.collect()
}

/// The path of a process that belongs to a job.
fn of(process: &ProcessInput) -> Option<(&file::CriticalPath, &Rank<Site>)> {
    let path = process.critical_path.as_ref()?;
    Some((path, path.rank.as_ref()?))
}

fn join_one(
    processes: &mut [ProcessInput],
    job: BTreeMap<u32, usize>,
    last: usize,
    warnings: &mut Warnings,
) -> Job {
    let mut parts: BTreeMap<usize, Part> = job.values().map(|p| (*p, Part::default())).collect();
    let order = follow(processes, &job, last, &mut parts);
    let savings = savings(processes, &job, last);
    let (span, ranks) = of(&processes[last]).map_or((0, 0), |(path, rank)| (path.span, rank.ranks));
    for (index, part) in parts {
        let Some(path) = &mut processes[index].critical_path else {
            continue;
        };
        let on_path = part.on_path.into_iter();
        path.on_path = on_path.map(|((profile, record), time)| OnPath { profile, record, time }).collect();
        path.segments = part.segments;
        path.count_beside(file::SHORT);
        if index != last {
            path.near.clear();
        }
        let Some(rank) = &path.rank else { continue };
        // What a message has named, with its own number here.
        path.procedures.retain(|p| matches!(p.name, ProcedureName::Mark(_)));
        let keys: HashMap<&ProcedureName, u64> = rank.names.iter().map(|(k, n)| (n, *k)).collect();
        let without = |key: u64| span - savings.get(&key).map_or(0, |saving| span.min(*saving));
        for procedure in &mut path.procedures {
            let key = keys.get(&procedure.name).copied().unwrap_or(0);
            procedure.zeroed_span = without(key);
            procedure.on_path = part.marks.get(&key).copied().unwrap_or(0);
        }
        let functions = rank.names.iter();
        let functions = functions
            .filter(|(key, name)| matches!(name, ProcedureName::Function(..)) && savings.contains_key(key));
        path.procedures.extend(functions.map(|(key, name)| file::Procedure {
            name: name.clone(),
            work: 0,
            on_path: 0,
            zeroed_span: without(*key),
            faster_span: span,
        }));
    }
    let mut levels = Levels::default();
    for (rank, index) in &job {
        processes[*index].rank = Some(*rank);
        let part = processes[*index].critical_path.as_mut().and_then(|path| path.rank.take());
        part.into_iter().for_each(|part| levels.join(part.levels));
    }
    if let Some(path) = &mut processes[last].critical_path {
        path.levels = levels.of(span);
    }
    let missing: Vec<String> =
        (0..ranks.min(1 << 20)).filter(|rank| !job.contains_key(rank)).map(|rank| rank.to_string()).collect();
    if !missing.is_empty() {
        warnings.add(format!(
            "of {ranks} ranks, {} left no critical path: {}; the path goes only through the others: see how \
             they ended",
            missing.len(),
            missing.join(", ")
        ));
    }
    Job { last, processes: job, order, is_whole: missing.is_empty() }
}

/// Follows the path backwards, and gives the parts to their processes. Returns the process of each segment.
fn follow(
    processes: &[ProcessInput],
    job: &BTreeMap<u32, usize>,
    last: usize,
    parts: &mut BTreeMap<usize, Part>,
) -> Vec<usize> {
    // From the end, each piece with its process.
    let mut pieces: Vec<(usize, Vec<file::Segment<Site>>)> = Vec::new();
    let mut at = last;
    let Some((path, rank)) = of(&processes[at]) else {
        return Vec::new();
    };
    let mut segments = path.segments.clone();
    let part = parts.entry(at).or_default();
    add_samples(part, path.on_path.iter());
    let keys: HashMap<&ProcedureName, u64> = rank.names.iter().map(|(k, n)| (n, *k)).collect();
    for procedure in path.procedures.iter().filter(|p| p.on_path > 0) {
        if let Some(key) = keys.get(&procedure.name) {
            part.add_mark(*key, procedure.on_path);
        }
    }
    // A damaged file might lead in a circle.
    let exports = job.values().filter_map(|p| Some(of(&processes[*p])?.1.exports.len()));
    for _ in 0..=exports.sum() {
        let Some(Site::Remote { rank, export }) = segments.first().map(|s| s.begin.clone()) else {
            break;
        };
        let before = segments.remove(0);
        pieces.push((at, std::mem::take(&mut segments)));
        let from = job.get(&rank).and_then(|process| {
            let (_, rank) = of(&processes[*process])?;
            let export = rank.exports.get(export.wrapping_sub(rank.first) as usize)?;
            (export.length == before.time).then_some((*process, rank, export))
        });
        let Some((process, rank, export)) = from else {
            // It was forgotten there to bound the memory, or the process has left nothing.
            segments.push(file::Segment { begin: Site::Unknown, edge: Edge::Folded, thread: None, ..before });
            break;
        };
        at = process;
        segments.push(export.last.clone());
        let mut earlier = export.before;
        while let Some((before, segment)) = earlier.map(|index| &rank.segments[index as usize]) {
            segments.push(segment.clone());
            earlier = *before;
        }
        segments.reverse();
        let part = parts.entry(at).or_default();
        let mut contexts = export.contexts;
        while let Some((before, times)) = contexts.map(|index| &rank.contexts[index as usize]) {
            add_samples(part, times.iter());
            contexts = *before;
        }
        for (key, time) in &export.marks {
            part.add_mark(*key, *time);
        }
    }
    pieces.push((at, segments));
    let mut order = Vec::new();
    for (process, segments) in pieces.into_iter().rev() {
        order.extend(segments.iter().map(|_| process));
        parts.entry(process).or_default().segments.extend(segments);
    }
    order
}

fn add_samples<'a>(part: &mut Part, samples: impl Iterator<Item = &'a OnPath>) {
    for sample in samples {
        let time = part.on_path.entry((sample.profile, sample.record)).or_default();
        *time = time.saturating_add(sample.time);
    }
}

/// What zeroing each procedure saves when all processes' ends count, by its number in messages.
fn savings(processes: &[ProcessInput], job: &BTreeMap<u32, usize>, last: usize) -> HashMap<u64, u64> {
    let of = |index: usize| of(&processes[index]);
    let Some((longest, rank)) = of(last) else {
        return HashMap::new();
    };
    let mut savings: HashMap<u64, u64> = rank.savings.iter().copied().collect();
    for (path, rank) in job.values().filter(|p| **p != last).filter_map(|p| of(*p)) {
        let gap = longest.span - path.span;
        let others: HashMap<u64, u64> = rank.savings.iter().copied().collect();
        for (key, saving) in &mut savings {
            let other = others.get(key).copied().unwrap_or(0);
            *saving = (*saving).min(gap.saturating_add(other));
        }
    }
    savings.retain(|_, saving| *saving > 0);
    savings
}

/// Puts the parts of each job together, whose places have names now.
pub fn assemble(jobs: &[Job], paths: Vec<(usize, CriticalPath)>) -> Vec<(usize, CriticalPath)> {
    let mut paths: BTreeMap<usize, CriticalPath> = paths.into_iter().collect();
    for job in jobs {
        let parts = job.processes.iter();
        let parts = parts.filter_map(|(rank, index)| Some((*index, (*rank, paths.remove(index)?))));
        let parts: BTreeMap<usize, (u32, CriticalPath)> = parts.collect();
        if let Some(joined) = assemble_one(job, &parts) {
            paths.insert(job.last, joined);
        }
    }
    paths.into_iter().collect()
}

fn assemble_one(job: &Job, parts: &BTreeMap<usize, (u32, CriticalPath)>) -> Option<CriticalPath> {
    let mut joined = parts.get(&job.last)?.1.clone();
    let mut next: BTreeMap<usize, usize> = BTreeMap::new();
    let mut shares: BTreeMap<u32, RankShare> = BTreeMap::new();
    joined.segments.clear();
    joined.starts = parts.values().flat_map(|(_, part)| part.starts.iter().cloned()).collect();
    join_starts(&mut joined.starts);
    joined.series.clear();
    for process in &job.order {
        let (rank, part) = parts.get(process)?;
        let at = next.entry(*process).or_default();
        let segment = part.segments.get(*at)?;
        *at += 1;
        let share = shares.entry(*rank).or_default();
        share.on_path = share.on_path.saturating_add(segment.time);
        joined.segments.push(Segment { rank: Some(*rank), ..segment.clone() });
    }
    let mut procedures: FastMap<Arc<Place>, Procedure> = FastMap::default();
    let mut lost: BTreeMap<String, u64> = BTreeMap::new();
    joined.work = 0;
    joined.complete = job.is_whole;
    let quality = &mut joined.quality;
    (quality.resyncs, quality.grains) = (0, 0);
    (quality.exact_edges, quality.woken_edges) = (0, 0);
    for (rank, part) in parts.values() {
        let share = shares.entry(*rank).or_default();
        (share.rank, share.work) = (*rank, part.work);
        joined.work = joined.work.saturating_add(part.work);
        joined.wall = joined.wall.max(part.wall);
        joined.burdened_span = joined.burdened_span.max(part.burdened_span);
        joined.span_at_least = joined.span_at_least.max(part.span_at_least);
        joined.complete &= part.complete;
        quality.resyncs = quality.resyncs.saturating_add(part.quality.resyncs);
        quality.exact_edges = quality.exact_edges.saturating_add(part.quality.exact_edges);
        quality.woken_edges = quality.woken_edges.saturating_add(part.quality.woken_edges);
        quality.grains = quality.grains.saturating_add(part.quality.grains);
        for (cause, edges) in &part.quality.lost_edges {
            let sum = lost.entry(cause.clone()).or_default();
            *sum = sum.saturating_add(*edges);
        }
        for procedure in &part.procedures {
            let sum = procedures.entry(Arc::clone(&procedure.name.place)).or_insert_with(|| Procedure {
                work: 0,
                on_path: 0,
                ..procedure.clone()
            });
            sum.work = sum.work.saturating_add(procedure.work);
            sum.on_path = sum.on_path.saturating_add(procedure.on_path);
            sum.zeroed_span = sum.zeroed_span.min(procedure.zeroed_span);
            sum.faster_span = sum.faster_span.min(procedure.faster_span);
        }
    }
    quality.lost_edges = lost.into_iter().collect();
    joined.procedures = procedures.into_values().collect();
    sort_procedures(&mut joined.procedures);
    joined.ranks = shares.into_values().collect();
    Some(joined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hpc_formats::critical_path::{Export, Procedure as Measured};

    fn segment(begin: Site, edge: Edge, time: u64) -> file::Segment<Site> {
        let thread = (edge != Edge::Message || !matches!(begin, Site::Remote { .. })).then_some(0);
        let end = Site::Unknown;
        file::Segment { begin, end, edge, rank: None, thread, time, count: 1 }
    }

    fn process(rank: u32, span: u64, segments: Vec<file::Segment<Site>>, part: Rank<Site>) -> ProcessInput {
        let path = file::CriticalPath {
            span,
            segments,
            procedures: vec![Measured {
                name: ProcedureName::Mark("f".to_owned()),
                work: 40,
                on_path: 5,
                zeroed_span: 0,
                faster_span: 0,
            }],
            rank: Some(Rank {
                job: 1,
                rank,
                ranks: 3,
                names: vec![(7, ProcedureName::Mark("f".to_owned()))],
                ..part
            }),
            ..file::CriticalPath::default()
        };
        ProcessInput {
            directory: 0,
            run: 0,
            pid: rank,
            start_monotonic_ns: 1,
            process: None,
            critical_path: Some(path),
            rank: None,
            trace: None,
            threads: BTreeMap::new(),
        }
    }

    fn remote(rank: u32, export: u32, time: u64) -> file::Segment<Site> {
        segment(Site::Remote { rank, export }, Edge::Message, time)
    }

    /// In buckets of so many nanoseconds.
    fn levels(width: u64, from: u64, to: u64) -> Levels {
        let mut levels = Levels::new(width);
        levels.add(from, to);
        levels
    }

    fn sender() -> ProcessInput {
        let on_path = |time| OnPath { profile: 1, record: 2, time };
        let export = |length, time, before| Export {
            length,
            last: segment(Site::Unknown, Edge::Message, time),
            before,
            contexts: Some(1),
            marks: vec![(7, 30)],
        };
        let part = Rank {
            savings: vec![(7, 10)],
            first: 4,
            segments: vec![
                (None, segment(Site::Unknown, Edge::Start, 20)),
                (Some(0), segment(Site::Unknown, Edge::Barrier, 9)),
            ],
            contexts: vec![(None, vec![on_path(3)]), (Some(0), vec![on_path(4)])],
            exports: vec![export(25, 5, Some(0)), export(50, 21, Some(1))],
            levels: levels(1, 0, 60),
            ..Rank::default()
        };
        process(0, 60, vec![segment(Site::Unknown, Edge::Start, 60)], part)
    }

    fn receiver(export: u32, time: u64) -> ProcessInput {
        let levels = levels(4, time, time + 20);
        let part = Rank { savings: vec![(7, 35)], levels, ..Rank::default() };
        process(2, time + 20, vec![remote(0, export, time), segment(Site::Unknown, Edge::Message, 20)], part)
    }

    #[test]
    fn the_path_goes_on_where_it_came_from() {
        let mut processes = [sender(), receiver(5, 50)];
        let mut warnings = Warnings::default();
        let jobs = join(&mut processes, &mut warnings);
        assert_eq!(jobs[0].order, [0, 0, 0, 1]);
        assert!(!jobs[0].is_whole, "rank 1 is missing");
        let [sender, receiver] = processes.map(|p| p.critical_path.expect("it has one"));
        let times = |path: &file::CriticalPath| path.segments.iter().map(|s| s.time).collect::<Vec<_>>();
        assert_eq!((times(&sender), times(&receiver)), (vec![20, 9, 21], vec![20]));
        assert_eq!(sender.on_path, [OnPath { profile: 1, record: 2, time: 7 }]);
        // Without the procedure the sender's end counts, too: 70 - min(35, 70 - 60 + 10).
        let times = |path: &file::CriticalPath| (path.procedures[0].on_path, path.procedures[0].zeroed_span);
        assert_eq!((times(&sender), times(&receiver)), ((30, 50), (5, 50)));
        let levels = receiver.levels.iter().map(|l| (l.cores, l.time, l.work));
        assert_eq!(Vec::from_iter(levels), [(1, 62, 64), (2, 8, 16)], "from 50 to 60 there are two");
    }

    #[test]
    fn what_is_not_known_any_more_is_folded() {
        for (export, time) in [(3, 50), (9, 50), (5, 49)] {
            let mut processes = [sender(), receiver(export, time)];
            let jobs = join(&mut processes, &mut Warnings::default());
            assert_eq!(jobs[0].order, [1, 1], "export {export}");
            let path = processes[1].critical_path.as_ref().expect("it has one");
            assert_eq!((path.segments[0].edge, path.segments[0].time), (Edge::Folded, time));
        }
    }
}
