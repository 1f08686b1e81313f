//! Third pass, part two: one worker's part of the merge. It follows the paths of one thread after the other
//! into a tree of its own, and spools the thread's values.

use crate::model::contexts::ContextTree;
use crate::model::experiment::{Loss, ThreadSummary};
use crate::model::metrics::{CATEGORY_PREFIX, ON_PATH};
use crate::model::symbols::Symbols;
use crate::passes::merge::paths::{Anchored, PathResolver, PathState, ProcessFrames, Projections};
use crate::passes::merge::spool::{Entry, Range, Spool};
use crate::passes::merge::steps::Steps;
use crate::passes::parallel_loops::recognise::LoopFinder;
use crate::passes::summarise;
use crate::sources::measurements::{Measurements, ThreadInput};
use hpc_formats::profile::{
    EFFORT_SQUARES, Header, IDLENESS, IDLENESS_SQUARES, Profile, Record, SAMPLES, Unit, VALUES_PER_RECORD,
    WORK, WORK_SQUARES,
};
use std::collections::BTreeMap;
use std::io;

/// Name of the loss of samples that a damaged profile does not have any more.
const DAMAGED_PROFILE: &str = "damaged-profile";
/// More base units than any record can hold: larger amounts are damage.
const MAX_AMOUNT: f64 = (1_u64 << 53) as f64;
/// Amounts of an entry before those of other metrics: samples, work, idleness, and the squares of work,
/// idleness and both together.
pub const FIRST_OTHER: usize = 6;

/// What all workers share.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    pub measurements: &'a Measurements,
    /// The frames of each process's code addresses.
    pub frames: &'a [ProcessFrames],
    pub symbols: &'a Symbols,
    /// Names of metrics beside samples, work and idleness, sorted.
    pub others: &'a [String],
}

/// The trees of one worker, and in the end of all.
#[derive(Debug, Default)]
pub struct Trees {
    /// Contexts of both projections.
    pub contexts: ContextTree,
    pub loops: LoopFinder,
}

/// What became of one thread.
#[derive(Debug)]
pub struct MergedThread {
    /// Its position among the profiles.
    pub index: usize,
    pub summary: ThreadSummary,
    /// Lost and partial samples by cause.
    pub losses: BTreeMap<&'static str, Loss>,
    pub damage: Option<String>,
    /// The records that its trace names, and their logical contexts by the worker's index.
    pub traced: Vec<(u32, u32)>,
    /// Where its values are in the worker's spool.
    pub values: Range,
}

impl MergedThread {
    /// So many samples are damaged.
    fn lose(&mut self, samples: u64) {
        let nanoseconds = samples.saturating_mul(self.summary.distance_ns);
        self.losses.insert(DAMAGED_PROFILE, Loss { samples, nanoseconds });
    }
}

#[derive(Debug)]
pub struct Shard {
    trees: Trees,
    spool: Spool,
    threads: Vec<MergedThread>,
    /// Contexts of other threads, of the process with this index.
    anchored: (usize, Anchored),
    steps: Steps,
    buffer: Vec<u8>,
}

/// What a worker leaves behind: its trees, the values of its threads, and these.
pub type Finished = (Trees, Spool, Vec<MergedThread>);

impl Shard {
    pub fn finish(mut self) -> io::Result<Finished> {
        self.spool.flush()?;
        Ok((self.trees, self.spool, self.threads))
    }

    pub fn new(spool: Spool) -> Shard {
        Shard {
            trees: Trees::default(),
            spool,
            threads: Vec::new(),
            anchored: (usize::MAX, Anchored::default()),
            steps: Steps::default(),
            buffer: Vec::new(),
        }
    }

    /// Adds the thread at position `index` among the profiles.
    pub fn add(
        &mut self,
        inputs: Inputs<'_>,
        index: usize,
        process: usize,
        thread: &ThreadInput,
    ) -> io::Result<()> {
        if self.anchored.0 != process {
            self.anchored = (process, Anchored::default());
        }
        let mut merged = MergedThread {
            index,
            summary: summarise::thread(process, thread),
            losses: BTreeMap::new(),
            damage: None,
            traced: Vec::new(),
            values: self.spool.begin(),
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        match thread.read(&mut buffer) {
            Ok(profile) => self.add_profile(inputs, &profile, thread, &mut merged)?,
            Err(problem) => {
                merged.lose(thread.header.samples);
                merged.damage = Some(format!(
                    "{}: {problem}; this thread's samples are lost, all others are kept: run again for \
                     them",
                    thread.path.display()
                ));
            }
        }
        self.buffer = buffer;
        self.threads.push(merged);
        Ok(())
    }

    fn add_profile(
        &mut self,
        inputs: Inputs<'_>,
        profile: &Profile<'_>,
        thread: &ThreadInput,
        merged: &mut MergedThread,
    ) -> io::Result<()> {
        let process = merged.summary.process;
        let mut out = Projections {
            symbols: inputs.symbols,
            contexts: &mut self.trees.contexts,
            loops: &mut self.trees.loops,
        };
        let roles = roles(&profile.header, inputs.others);
        let has_squares = profile.header.metrics.iter().any(|m| m.name == EFFORT_SQUARES);
        let measured = &inputs.measurements.processes[process];
        let frames = &inputs.frames[process];
        let mut resolver =
            PathResolver::new(profile, measured, frames, (&mut self.anchored.1, &mut self.steps));
        let mut unreadable = 0_u64;
        let mut add = |owner: u32, entry: &mut Entry| {
            if entry.amounts.iter().all(|amount| *amount == 0) {
                return Ok(());
            }
            if !has_squares {
                add_squares(&mut entry.amounts);
            }
            let mut state = resolver.state(owner, &mut out);
            let mut leaf = resolver.leaf(state, &mut out);
            if leaf.is_none() {
                state = resolver.empty(&mut out);
                leaf = resolver.leaf(state, &mut out);
            }
            let Some([logical, physical]) = leaf else {
                return Ok(());
            };
            let labels = resolver.labels(state);
            count(merged, labels, &entry.amounts, inputs);
            (entry.logical, entry.physical) = (logical.0, physical.0);
            entry.tag = labels.tag.map_or(0, |tag| tag.0 + 1);
            self.spool.push(&mut merged.values, entry)
        };
        let mut entry = Entry::default();
        let begin = |entry: &mut Entry| {
            entry.amounts.clear();
            entry.amounts.resize(FIRST_OTHER + inputs.others.len(), 0);
        };
        begin(&mut entry);
        // Whose values the entry has: the groups of a record follow each other.
        let mut open = None;
        for index in 0..profile.len() {
            let record = profile.record(index);
            let Some(Record::Metric { owner, group, values }) = record else {
                unreadable += u64::from(record.is_none());
                continue;
            };
            if let Some(before) = open.replace(owner).filter(|o| *o != owner || group == 0) {
                add(before, &mut entry)?;
                begin(&mut entry);
            }
            if !read_amounts(profile, &roles, (group, values), &mut entry.amounts) {
                unreadable += 1;
            }
        }
        if let Some(last) = open {
            add(last, &mut entry)?;
        }
        let on_path = inputs.others.iter().position(|name| name == ON_PATH);
        for sample in measured.on_path(thread.header.thread) {
            begin(&mut entry);
            if let Some(metric) = on_path {
                entry.amounts[FIRST_OTHER + metric] = sample.time;
            }
            add(sample.record, &mut entry)?;
        }
        for record in measured.traced(thread.header.thread) {
            let state = resolver.state(*record, &mut out);
            let leaf = resolver.leaf(state, &mut out);
            let empty = resolver.empty(&mut out);
            if let Some([logical, _]) = leaf.or_else(|| resolver.leaf(empty, &mut out)) {
                merged.traced.push((*record, logical.0));
            }
        }
        let header = &profile.header;
        let gone = header.samples.saturating_sub(merged.summary.samples);
        // The file may have ended before the end that its header promises.
        let missing = header.records.saturating_sub(profile.len() as u64);
        if unreadable > 0 || missing > 0 || gone > 1 {
            if gone > 0 {
                merged.lose(gone);
            }
            merged.damage = Some(format!(
                "{}: damaged ({} of {} records unreadable, {gone} of {} samples lost), the rest is kept: \
                 run again if it matters",
                thread.path.display(),
                unreadable + missing,
                header.records,
                header.samples,
            ));
        }
        Ok(())
    }
}

/// For each value of the groups of a profile's metric records its position in an entry, where the database
/// has the metric.
fn roles(header: &Header, others: &[String]) -> Vec<Option<usize>> {
    let role = |name: &str| match name {
        SAMPLES => Some(0),
        WORK => Some(1),
        IDLENESS => Some(2),
        WORK_SQUARES => Some(3),
        IDLENESS_SQUARES => Some(4),
        EFFORT_SQUARES => Some(5),
        other => {
            let index = others.binary_search_by(|known| known.as_str().cmp(other));
            index.ok().map(|index| FIRST_OTHER + index)
        }
    };
    header.metrics.iter().map(|m| role(&m.name)).collect()
}

/// Adds the sums of squares that a profile lacks, as if all samples of a record had the same value.
fn add_squares(amounts: &mut [u64]) {
    let (samples, work, idleness) = (amounts[0].max(1) as f64, amounts[1], amounts[2]);
    let effort = work.saturating_add(idleness);
    for (square, sum) in amounts[3..].iter_mut().zip([work, idleness, effort]) {
        *square = (sum as f64 / 1e3 * (sum as f64 / 1e3) / samples).round() as u64;
    }
}

/// Reads the amounts of one metric record. False, and none is read, if one of them is impossible.
fn read_amounts(
    profile: &Profile<'_>,
    roles: &[Option<usize>],
    (group, values): (u32, [u64; VALUES_PER_RECORD]),
    amounts: &mut [u64],
) -> bool {
    let first = group as usize * VALUES_PER_RECORD;
    let metrics = profile.header.metrics.iter().enumerate().skip(first);
    let read = metrics.zip(values).map(|((index, metric), word)| {
        (roles[index], metric.amount(word).round(), metric.unit == Unit::SquareSeconds)
    });
    if read.clone().any(|(_, amount, is_square)| amount > MAX_AMOUNT && !is_square) {
        return false;
    }
    for (role, amount, _) in read {
        if let Some(at) = role {
            amounts[at] = amount.min(MAX_AMOUNT) as u64;
        }
    }
    true
}

/// Adds the values of one record to the totals of its thread.
fn count(merged: &mut MergedThread, labels: &PathState, amounts: &[u64], inputs: Inputs<'_>) {
    let (samples, work, idleness) = (amounts[0], amounts[1], amounts[2]);
    let summary = &mut merged.summary;
    summary.samples = summary.samples.saturating_add(samples);
    if let Some(cause) = labels.partial {
        let lost = Loss { samples, nanoseconds: work };
        merged.losses.entry(cause.name()).or_default().add(lost);
    }
    if let Some(runtime) = labels.unknown_caller {
        let known: &mut u64 = summary.unknown_caller_samples.entry(runtime).or_default();
        *known = known.saturating_add(samples);
    }
    summary.add("idleness", idleness as i64);
    match labels.tag {
        None => summary.add("work", work as i64),
        Some(category) => {
            summary.add("overhead", work as i64);
            let category = inputs.symbols.text(category);
            summary.add(&format!("{CATEGORY_PREFIX}{category}"), work as i64);
        }
    }
    for (name, amount) in inputs.others.iter().zip(&amounts[FIRST_OTHER..]) {
        summary.add(name, *amount as i64);
    }
}
