//! Adds up the values of all threads by final context, and gives each thread's values to a sink.
//!
//! A part of the work is a number of consecutive threads of one run, so parts depend on the measurements
//! alone. Amounts are integers, so their sums do not depend on which worker had which part.

use crate::error::Result;
use crate::model::hash::FastMap;
use crate::model::metrics::{FIXED, IDLENESS, OVERHEAD, WORK, first_square};
use crate::model::spread::Spread;
use crate::model::statistics::signed;
use crate::model::tree::Values;
use crate::passes::merge::number::{Numbered, Numbers};
use crate::passes::merge::reduce::Merged;
use crate::passes::merge::shard::{FIRST_OTHER, MergedThread};
use crate::passes::merge::spool::Entry;
use hpcstruct_rs::parallel;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Entries of a part, at least, if its run has as many: few enough that workers end at the same time.
const PART: usize = 1 << 19;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ThreadValue {
    /// Position of the metric.
    pub metric: u32,
    /// Context of the logical projection.
    pub context: u32,
    /// Exclusive amount.
    pub amount: i64,
}

/// Where values go while they are added up.
pub trait Sink: Sync {
    /// What one part is written to.
    type Part;
    fn begin(&self, run: usize, part: usize) -> Result<Self::Part>;
    /// Takes a thread's values, by metric and context.
    fn add(&self, part: &mut Self::Part, thread: u32, values: &[ThreadValue]) -> Result<()>;
    fn end(&self, part: Self::Part) -> Result<()>;
    /// Takes the sums over a run.
    fn run(&self, run: usize, sums: &Sums) -> Result<()>;
}

/// The metrics of the database, as entries have them.
#[derive(Debug)]
pub struct Layout {
    /// The metric of each overhead category, by the id of its text.
    pub categories: FastMap<u32, usize>,
    /// Position of the number of samples; the other metrics follow, then the sums of squares.
    pub samples: usize,
    pub metrics: usize,
    /// The metrics whose spread over threads is wanted, in order.
    pub spread: Vec<usize>,
}

impl Layout {
    fn each(&self, entry: &Entry, mut add: impl FnMut(usize, i64)) {
        let amount = |index: usize| signed(entry.amounts[index]);
        match entry.tag.checked_sub(1) {
            None => add(WORK, amount(1)),
            Some(category) => {
                add(OVERHEAD, amount(1));
                if let Some(metric) = self.categories.get(&category) {
                    add(*metric, amount(1));
                }
            }
        }
        add(IDLENESS, amount(2));
        add(self.samples, amount(0));
        for index in FIRST_OTHER..entry.amounts.len() {
            add(self.samples + 1 + index - FIRST_OTHER, amount(index));
        }
    }

    /// Calls `add` with each sum of squares.
    fn each_square(&self, entry: &Entry, mut add: impl FnMut(usize, i64)) {
        let amount = |index: usize| signed(entry.amounts[index]);
        let first = first_square(self.metrics);
        add(first + if entry.tag == 0 { WORK } else { OVERHEAD }, amount(3));
        add(first + IDLENESS, amount(4));
        add(first + FIXED.len(), amount(5));
    }
}

/// The contexts of the logical projection as the folded tree has them.
#[derive(Clone, Copy, Debug)]
pub struct Folded<'a> {
    /// The parents of its contexts, which are in preorder.
    pub parents: &'a [Option<u32>],
    /// The folded context of each context that has values.
    pub of: &'a [Option<u32>],
}

/// Nodes whose elements workers change together.
const STRIPE: usize = 256;

/// A number of elements for each node, while workers change them.
struct Shared<'a, T> {
    width: usize,
    stripes: Vec<Mutex<&'a mut [T]>>,
}

impl<'a, T> Shared<'a, T> {
    fn new(all: &'a mut [T], width: usize) -> Shared<'a, T> {
        let stripes = all.chunks_mut((STRIPE * width).max(1));
        Shared { width, stripes: stripes.map(Mutex::new).collect() }
    }

    fn cursor(&self) -> Cursor<'_, 'a, T> {
        Cursor { shared: self, stripe: usize::MAX, elements: None }
    }
}

/// A worker's access to one stripe after the other.
struct Cursor<'s, 'a, T> {
    shared: &'s Shared<'a, T>,
    stripe: usize,
    elements: Option<MutexGuard<'s, &'a mut [T]>>,
}

impl<T> Cursor<'_, '_, T> {
    fn at(&mut self, node: u32) -> &mut [T] {
        let Shared { width, stripes } = self.shared;
        let (stripe, place) = (node as usize / STRIPE, node as usize % STRIPE * width);
        if self.stripe != stripe {
            // First lets go of the one before.
            self.elements = None;
            // Nothing panics while it is held.
            let locked = stripes[stripe].lock().unwrap_or_else(PoisonError::into_inner);
            (self.stripe, self.elements) = (stripe, Some(locked));
        }
        match &mut self.elements {
            Some(elements) => &mut elements[place..place + width],
            None => &mut [],
        }
    }
}

/// Spreads by folded context and metric.
#[derive(Debug)]
pub struct Spreads {
    metrics: Vec<usize>,
    all: Vec<Spread>,
}

impl Spreads {
    fn new(contexts: usize, metrics: &[usize]) -> Spreads {
        Spreads { metrics: metrics.to_vec(), all: vec![Spread::default(); contexts * metrics.len()] }
    }

    /// The spread of a metric in a folded context, if it was wanted.
    pub fn of(&self, context: u32, metric: usize) -> Option<&Spread> {
        let slot = self.metrics.iter().position(|m| *m == metric)?;
        Some(&self.all[context as usize * self.metrics.len() + slot])
    }
}

/// Sums over threads.
#[derive(Debug)]
pub struct Sums {
    /// Exclusive values of the logical projection.
    pub logical: Values,
    /// The same of the physical projection, where it differs.
    pub physical: Option<Values>,
}

impl Sums {
    fn new<S>(inputs: &Inputs<'_, S>) -> Sums {
        let numbered = inputs.numbered;
        let values = |of: &Numbers| Values::of_nodes(inputs.layout.metrics, of.len() as usize);
        Sums { logical: values(&numbered.logical), physical: numbered.physical.as_ref().map(values) }
    }

    fn add(&mut self, other: &Sums) {
        self.logical.add_values(&other.logical);
        if let (Some(own), Some(other)) = (&mut self.physical, &other.physical) {
            own.add_values(other);
        }
    }
}

/// What is added up, and where it goes.
pub struct Inputs<'a, S> {
    pub merged: Merged,
    /// The run of each process.
    pub runs: &'a [usize],
    pub numbered: &'a Numbered,
    pub layout: &'a Layout,
    pub folded: Folded<'a>,
    /// What takes the values and the sums of each run.
    pub sink: &'a S,
    pub threads: usize,
}

/// What all values add up to.
#[derive(Debug)]
pub struct Added<R> {
    /// What a worker made beside.
    pub made: R,
    /// The last run with its sums, which the sink is still to get.
    pub last: Option<(usize, Sums)>,
    /// The sums of all runs, where there are several.
    pub all: Option<Sums>,
    pub spreads: Spreads,
}

/// Adds up all values. A worker calls `first` before it takes its part in the last run. The sink gets the
/// sums of all runs but the last.
pub fn add_up<S: Sink, R>(inputs: Inputs<'_, S>, first: impl FnOnce() -> Result<R>) -> Result<Added<R>> {
    let mut spreads = Spreads::new(inputs.folded.parents.len(), &inputs.layout.spread);
    // Threads are sorted by process, and processes by run.
    let run_of = |thread: &(usize, MergedThread)| inputs.runs[thread.1.summary.process];
    let is_one_run = |a: &_, b: &_| run_of(a) == run_of(b);
    let runs: Vec<_> = inputs.merged.threads.chunk_by(is_one_run).collect();
    let Some((last_run, earlier)) = runs.split_last() else {
        return Ok(Added { made: first()?, last: None, all: Some(Sums::new(&inputs)), spreads });
    };
    let mut all: Option<Sums> = None;
    let mut begin = 0;
    for own in earlier {
        let (run, end) = (run_of(&own[0]), begin + own.len());
        let ((), sums) = add_run(&inputs, &mut spreads, run, begin..end, || Ok(()))?;
        inputs.sink.run(run, &sums)?;
        match &mut all {
            None => all = Some(sums),
            Some(known) => known.add(&sums),
        }
        begin = end;
    }
    let (run, end) = (run_of(&last_run[0]), begin + last_run.len());
    let (made, sums) = add_run(&inputs, &mut spreads, run, begin..end, first)?;
    if let Some(known) = &mut all {
        known.add(&sums);
    }
    Ok(Added { made, last: Some((run, sums)), all, spreads })
}

/// Adds up the values of the threads of a run, while one worker begins with `first`.
fn add_run<S: Sink, R>(
    inputs: &Inputs<'_, S>,
    spreads: &mut Spreads,
    run: usize,
    threads: Range<usize>,
    first: impl FnOnce() -> Result<R>,
) -> Result<(R, Sums)> {
    let metrics = inputs.layout.metrics;
    let mut sums = Sums::new(inputs);
    let physical = sums.physical.as_mut();
    let work = Work {
        inputs,
        logical: Shared::new(sums.logical.all_mut(), metrics),
        physical: physical.map(|values| Shared::new(values.all_mut(), metrics)),
        spreads: Shared::new(&mut spreads.all, inputs.layout.spread.len()),
    };
    let (made, adders) = parallel::for_each_after(
        first,
        &parts(&inputs.merged, threads),
        inputs.threads,
        || Ok(Adder::default()),
        |adder: &mut Result<Adder>, index, threads| {
            let Ok(known) = adder else { return };
            let added = known.add_part(&work, (run, index), threads.clone());
            if let Err(error) = added {
                *adder = Err(error);
            }
        },
    );
    adders.into_iter().try_for_each(|adder| adder.map(drop))?;
    Ok((made?, sums))
}

/// Consecutive threads, by their values.
fn parts(merged: &Merged, threads: Range<usize>) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let (mut from, mut entries) = (threads.start, 0);
    for thread in threads.clone() {
        entries += merged.threads[thread].1.values.entries;
        if entries >= PART || thread + 1 == threads.end {
            parts.push(from..thread + 1);
            (from, entries) = (thread + 1, 0);
        }
    }
    parts
}

struct Work<'a, S> {
    inputs: &'a Inputs<'a, S>,
    logical: Shared<'a, i64>,
    physical: Option<Shared<'a, i64>>,
    spreads: Shared<'a, Spread>,
}

#[derive(Default)]
struct Adder {
    values: Vec<ThreadValue>,
    buffer: Vec<u8>,
    /// The values of one thread and metric by folded context.
    exclusive: Vec<(u32, i64)>,
}

impl Adder {
    fn add_part<S: Sink>(
        &mut self,
        work: &Work<'_, S>,
        (run, index): (usize, usize),
        threads: Range<usize>,
    ) -> Result<()> {
        let sink = work.inputs.sink;
        let mut part = sink.begin(run, index)?;
        for thread in threads {
            self.read(work, thread)?;
            sink.add(&mut part, thread as u32, &self.values)?;
            self.add_spreads(work);
        }
        sink.end(part)
    }

    /// Reads the values of a thread, and adds them to the sums.
    fn read<S>(&mut self, work: &Work<'_, S>, thread: usize) -> Result<()> {
        let Inputs { merged, layout, .. } = work.inputs;
        let (worker, known) = &merged.threads[thread];
        let spooled = &merged.spooled[*worker];
        let amounts = FIRST_OTHER + first_square(layout.metrics) - layout.samples - 1;
        let Adder { values, buffer, .. } = self;
        values.clear();
        let mut machine = work.physical.as_ref().map(Shared::cursor);
        let mut sums = work.logical.cursor();
        let each = |entry: &Entry| {
            let context = spooled.contexts[entry.logical as usize];
            let mut machine = match (&mut machine, &spooled.physical) {
                (Some(sums), Some(contexts)) => Some(sums.at(contexts[entry.physical as usize])),
                _ => None,
            };
            layout.each(entry, |metric, amount| {
                if amount == 0 {
                    return;
                }
                if let Some(sums) = &mut machine {
                    sums[metric] = sums[metric].saturating_add(amount);
                }
                values.push(ThreadValue { metric: metric as u32, context, amount });
            });
            // Squares are of no use by thread.
            let logical = sums.at(context);
            layout.each_square(entry, |metric, amount| {
                for sums in [Some(&mut *logical), machine.as_deref_mut()].into_iter().flatten() {
                    sums[metric] = sums[metric].saturating_add(amount);
                }
            });
        };
        spooled.spool.read(known.values, amounts, buffer, each)?;
        values.sort_unstable();
        values.dedup_by(|next, kept| {
            let is_same = (next.metric, next.context) == (kept.metric, kept.context);
            if is_same {
                kept.amount = kept.amount.saturating_add(next.amount);
            }
            is_same
        });
        for value in values {
            let sum = &mut sums.at(value.context)[value.metric as usize];
            *sum = sum.saturating_add(value.amount);
        }
        Ok(())
    }

    /// Adds the inclusive values of the thread that was read last.
    fn add_spreads<S>(&mut self, work: &Work<'_, S>) {
        let Inputs { folded, layout, .. } = work.inputs;
        let Adder { values, exclusive, .. } = self;
        for values in values.chunk_by(|a, b| a.metric == b.metric) {
            let metric = values[0].metric as usize;
            let Some(slot) = layout.spread.iter().position(|m| *m == metric) else {
                continue;
            };
            exclusive.clear();
            let target = |v: &ThreadValue| Some((folded.of[v.context as usize]?, v.amount));
            exclusive.extend(values.iter().filter_map(target));
            exclusive.sort_unstable();
            let mut spreads = work.spreads.cursor();
            let add = |node, sum| spreads.at(node)[slot].add(sum);
            inclusive(folded.parents, exclusive, add);
        }
    }
}

/// Calls `each` with the inclusive amount of each node of a tree in preorder that has one. `exclusive` has
/// nodes with their amounts, sorted.
fn inclusive(parents: &[Option<u32>], exclusive: &[(u32, i64)], mut each: impl FnMut(u32, i64)) {
    // The nodes from a root to the last one met, with what is known of their amounts.
    let mut open: Vec<(u32, i64)> = Vec::new();
    // Closes the nodes after one, which do not contain it; all of them, if there is none.
    let mut close = |open: &mut Vec<(u32, i64)>, after: Option<u32>| {
        while let Some((node, sum)) = open.last().copied().filter(|top| Some(top.0) > after) {
            open.pop();
            each(node, sum);
            if let Some((_, above)) = open.last_mut() {
                *above = above.saturating_add(sum);
            }
        }
    };
    let mut path = Vec::new();
    for (node, amount) in exclusive {
        let mut next = Some(*node);
        close(&mut open, next);
        while let Some(at) = next.filter(|at| open.last().is_none_or(|top| top.0 != *at)) {
            path.push((at, 0));
            next = parents[at as usize];
            close(&mut open, next);
        }
        open.extend(path.drain(..).rev());
        if let Some((_, sum)) = open.last_mut() {
            *sum = sum.saturating_add(*amount);
        }
    }
    close(&mut open, None);
}
