//! Adds up the values of all threads by final context, and gives each thread's values to a sink.
//!
//! A part of the work is a number of consecutive threads of one run, so parts depend on the measurements
//! alone. Amounts are integers, so their sums do not depend on which worker had which part.

use crate::error::{Error, Result};
use crate::model::hash::FastMap;
use crate::model::metrics::{IDLENESS, OVERHEAD, WORK};
use crate::model::tree::{Tree, Values};
use crate::passes::merge::number::Numbered;
use crate::passes::merge::reduce::Merged;
use crate::passes::merge::shard::FIRST_OTHER;
use crate::passes::merge::spool::Entry;
use crate::passes::parallel;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Entries of a part, at least, if its run has as many.
const PART: usize = 1 << 22;

/// A value of one thread.
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
    /// Begins a part of a run.
    fn begin(&self, run: usize, part: usize) -> Result<Self::Part>;
    /// Takes a thread's values, by metric and context.
    fn add(&self, part: &mut Self::Part, thread: u32, values: &[ThreadValue]) -> Result<()>;
    /// Ends a part.
    fn end(&self, part: Self::Part) -> Result<()>;
    /// Takes the sums over a run: of the logical projection, and of the physical one where that differs.
    fn run(&self, run: usize, logical: &Values, physical: Option<&Values>) -> Result<()>;
}

/// The metrics of the database, as entries have them.
#[derive(Debug)]
pub struct Layout {
    /// The metric of each overhead category, by the id of its text.
    pub categories: FastMap<u32, usize>,
    /// Position of the number of samples; the other metrics follow.
    pub samples: usize,
    /// How many metrics there are.
    pub metrics: usize,
    /// The metrics whose spread over threads is wanted, in order.
    pub spread: Vec<usize>,
}

impl Layout {
    fn each(&self, entry: &Entry, mut add: impl FnMut(usize, i64)) {
        let amount = |index: usize| i64::try_from(entry.amounts[index]).unwrap_or(i64::MAX);
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
}

/// The contexts of the logical projection as the folded tree has them.
#[derive(Clone, Copy, Debug)]
pub struct Folded<'a> {
    /// The folded tree.
    pub tree: &'a Tree,
    /// The folded context of each context that has values.
    pub of: &'a [Option<u32>],
}

/// How the inclusive values of threads are spread in one context.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spread {
    squares: [u64; 2],
    /// Least amount of a thread that has any.
    pub least: i64,
    /// Largest amount.
    pub most: i64,
    /// Threads that have any.
    pub threads: u32,
}

impl Spread {
    fn add(&mut self, amount: i64) {
        let square = u128::from(amount.unsigned_abs()).pow(2);
        self.merge(&Spread {
            squares: [square as u64, (square >> 64) as u64],
            least: amount,
            most: amount,
            threads: 1,
        });
    }

    fn merge(&mut self, other: &Spread) {
        if other.threads == 0 {
            return;
        }
        let sum = self.sum_of_squares().saturating_add(other.sum_of_squares());
        *self = Spread {
            squares: [sum as u64, (sum >> 64) as u64],
            least: match self.threads {
                0 => other.least,
                _ => self.least.min(other.least),
            },
            most: self.most.max(other.most),
            threads: self.threads + other.threads,
        };
    }

    fn sum_of_squares(&self) -> u128 {
        u128::from(self.squares[0]) | u128::from(self.squares[1]) << 64
    }

    /// Standard deviation, given the sum over all threads.
    pub fn sigma(&self, sum: i64) -> f64 {
        let n = f64::from(self.threads.max(1));
        let mean = sum as f64 / n;
        (self.sum_of_squares() as f64 / n - mean * mean)
            .max(0.0)
            .sqrt()
    }
}

/// Contexts whose spreads workers change together.
const STRIPE: usize = 256;

/// Spreads by folded context and metric, while workers add to them.
struct SharedSpreads {
    metrics: Vec<usize>,
    stripes: Vec<Mutex<Box<[Spread]>>>,
}

impl SharedSpreads {
    fn new(contexts: usize, metrics: &[usize]) -> SharedSpreads {
        let stripe = || Mutex::new(vec![Spread::default(); STRIPE * metrics.len()].into());
        SharedSpreads {
            metrics: metrics.to_vec(),
            stripes: (0..contexts.div_ceil(STRIPE)).map(|_| stripe()).collect(),
        }
    }

    /// Which of its metrics one is.
    fn slot(&self, metric: usize) -> Option<usize> {
        self.metrics.iter().position(|m| *m == metric)
    }

    /// Adds the amounts of one thread for the metric of a slot, by folded context.
    fn add(&self, slot: usize, amounts: impl Iterator<Item = (u32, i64)>) {
        let mut locked = None;
        for (context, amount) in amounts {
            let (stripe, place) = (context as usize / STRIPE, context as usize % STRIPE);
            if locked.as_ref().is_none_or(|(known, _)| *known != stripe) {
                drop(locked.take());
                // Nothing panics while it is held.
                let guard = self.stripes[stripe]
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                locked = Some((stripe, guard));
            }
            if let Some((_, spreads)) = &mut locked {
                spreads[place * self.metrics.len() + slot].add(amount);
            }
        }
    }

    fn finish(self) -> Spreads {
        let stripes = self.stripes.into_iter();
        let own = |stripe: Mutex<_>| stripe.into_inner().unwrap_or_else(PoisonError::into_inner);
        Spreads {
            metrics: self.metrics,
            stripes: stripes.map(own).collect(),
        }
    }
}

/// Spreads by folded context and metric.
#[derive(Debug)]
pub struct Spreads {
    metrics: Vec<usize>,
    stripes: Vec<Box<[Spread]>>,
}

impl Spreads {
    /// The spread of a metric in a folded context, if it was wanted.
    pub fn of(&self, context: u32, metric: usize) -> Option<&Spread> {
        let slot = self.metrics.iter().position(|m| *m == metric)?;
        let (stripe, place) = (context as usize / STRIPE, context as usize % STRIPE);
        Some(&self.stripes[stripe][place * self.metrics.len() + slot])
    }
}

/// Sums over all threads.
#[derive(Debug)]
pub struct Sums {
    /// Exclusive values of the logical projection.
    pub logical: Values,
    /// The same of the physical projection, where it differs.
    pub physical: Option<Values>,
    /// How the values of threads are spread, by folded context.
    pub spreads: Spreads,
}

/// Adds up all values. `runs` has the run of each process.
pub fn add_up<S: Sink>(
    merged: &Merged,
    runs: &[usize],
    numbered: &Numbered,
    layout: &Layout,
    folded: Folded<'_>,
    (threads, sink): (usize, &S),
) -> Result<Sums> {
    let work = Work {
        merged,
        numbered,
        layout,
        folded,
        sink,
        spreads: SharedSpreads::new(folded.tree.nodes.len(), &layout.spread),
    };
    let mut all: Option<Adder> = None;
    let mut begin = 0;
    // Threads are sorted by process, and processes by run.
    let run_of = |thread: usize| runs[merged.threads[thread].1.summary.process];
    while begin < merged.threads.len() {
        let run = run_of(begin);
        let end = (begin..merged.threads.len()).find(|t| run_of(*t) != run);
        let parts = parts(merged, begin, end.unwrap_or(merged.threads.len()));
        let adders = parallel::for_each(
            &parts,
            threads,
            || Ok(Adder::new(&work)),
            |adder: &mut Result<Adder>, index, (from, to)| {
                let added = match adder {
                    Ok(known) => known.add_part(&work, (run, index), *from..*to),
                    Err(_) => return,
                };
                if let Err(error) = added {
                    *adder = Err(error);
                }
            },
        );
        let mut sums: Option<Adder> = None;
        for adder in adders {
            let adder = adder?;
            match &mut sums {
                None => sums = Some(adder),
                Some(known) => known.merge(&adder),
            }
        }
        if let Some(sums) = sums {
            sink.run(run, &sums.logical, sums.physical.as_ref())?;
            match &mut all {
                None => all = Some(sums),
                Some(known) => known.merge(&sums),
            }
        }
        begin = parts.last().map_or(merged.threads.len(), |part| part.1);
    }
    let all = all.unwrap_or_else(|| Adder::new(&work));
    Ok(Sums {
        logical: all.logical,
        physical: all.physical,
        spreads: work.spreads.finish(),
    })
}

/// Consecutive threads, by their values.
fn parts(merged: &Merged, begin: usize, end: usize) -> Vec<(usize, usize)> {
    let mut parts = Vec::new();
    let (mut from, mut entries) = (begin, 0);
    for thread in begin..end {
        entries += merged.threads[thread].1.values.entries;
        if entries >= PART || thread + 1 == end {
            parts.push((from, thread + 1));
            (from, entries) = (thread + 1, 0);
        }
    }
    parts
}

struct Work<'a, S> {
    merged: &'a Merged,
    numbered: &'a Numbered,
    layout: &'a Layout,
    folded: Folded<'a>,
    sink: &'a S,
    spreads: SharedSpreads,
}

/// The sums of one worker.
struct Adder {
    logical: Values,
    physical: Option<Values>,
    values: Vec<ThreadValue>,
    buffer: Vec<u8>,
    /// The inclusive values of one thread, by folded context.
    inclusive: Vec<i64>,
    /// Whether `inclusive` has a value.
    is_touched: Vec<bool>,
    touched: Vec<u32>,
}

impl Adder {
    fn new<S>(work: &Work<'_, S>) -> Adder {
        let metrics = work.layout.metrics;
        let nodes = work.folded.tree.nodes.len();
        let values = |tree: &Tree| Values::of_nodes(metrics, tree.nodes.len());
        Adder {
            logical: values(&work.numbered.logical.tree),
            physical: work.numbered.physical.as_ref().map(|p| values(&p.tree)),
            values: Vec::new(),
            buffer: Vec::new(),
            inclusive: vec![0; nodes],
            is_touched: vec![false; nodes],
            touched: Vec::new(),
        }
    }

    fn merge(&mut self, other: &Adder) {
        self.logical.add_values(&other.logical);
        if let (Some(own), Some(other)) = (&mut self.physical, &other.physical) {
            own.add_values(other);
        }
    }

    fn add_part<S: Sink>(
        &mut self,
        work: &Work<'_, S>,
        (run, index): (usize, usize),
        threads: std::ops::Range<usize>,
    ) -> Result<()> {
        let mut part = work.sink.begin(run, index)?;
        for thread in threads {
            self.read(work, thread)?;
            work.sink.add(&mut part, thread as u32, &self.values)?;
            self.add_spreads(work.folded, &work.spreads);
        }
        work.sink.end(part)
    }

    /// Reads the values of a thread, and adds them to the sums.
    fn read<S>(&mut self, work: &Work<'_, S>, thread: usize) -> Result<()> {
        let (worker, known) = &work.merged.threads[thread];
        let spooled = &work.merged.spooled[*worker];
        let numbered = work.numbered;
        let amounts = FIRST_OTHER + work.layout.metrics - work.layout.samples - 1;
        let Adder {
            logical,
            physical,
            values,
            buffer,
            ..
        } = self;
        values.clear();
        let each = |entry: &Entry| {
            let final_of = |context: u32| spooled.contexts[context as usize] as usize;
            let context = numbered.logical.of[final_of(entry.logical)];
            let machine = numbered
                .physical
                .as_ref()
                .map(|numbers| numbers.of[final_of(entry.physical)]);
            work.layout.each(entry, |metric, amount| {
                if amount == 0 {
                    return;
                }
                logical.add_one(context, metric, amount);
                if let (Some(values), Some(context)) = (physical.as_mut(), machine) {
                    values.add_one(context, metric, amount);
                }
                values.push(ThreadValue {
                    metric: metric as u32,
                    context,
                    amount,
                });
            });
        };
        let read = spooled.spool.read(known.values, amounts, buffer, each);
        read.map_err(Error::io(
            "read values from",
            Path::new("the temporary file"),
        ))?;
        values.sort_unstable();
        values.dedup_by(|next, kept| {
            let is_same = (next.metric, next.context) == (kept.metric, kept.context);
            if is_same {
                kept.amount = kept.amount.saturating_add(next.amount);
            }
            is_same
        });
        Ok(())
    }

    /// Adds the inclusive values of the thread that was read last.
    fn add_spreads(&mut self, folded: Folded<'_>, spreads: &SharedSpreads) {
        let all = std::mem::take(&mut self.values);
        for values in all.chunk_by(|a, b| a.metric == b.metric) {
            let Some(slot) = spreads.slot(values[0].metric as usize) else {
                continue;
            };
            for value in values {
                let Some(node) = folded.of[value.context as usize] else {
                    continue;
                };
                let sum = &mut self.inclusive[node as usize];
                *sum = sum.saturating_add(value.amount);
                let mut next = Some(node);
                while let Some(at) = next.filter(|at| !self.is_touched[*at as usize]) {
                    self.is_touched[at as usize] = true;
                    self.touched.push(at);
                    next = folded.tree.nodes[at as usize].parent;
                }
            }
            // From the leaves to the roots: a parent comes before its children.
            let nodes = self.is_touched.len();
            if self.touched.len() > nodes / 16 {
                let is_touched = &self.is_touched;
                self.touched.clear();
                self.touched
                    .extend((0..nodes as u32).filter(|at| is_touched[*at as usize]));
            } else {
                self.touched.sort_unstable();
            }
            for at in self.touched.iter().rev() {
                let amount = self.inclusive[*at as usize];
                if let Some(parent) = folded.tree.nodes[*at as usize].parent {
                    let sum = &mut self.inclusive[parent as usize];
                    *sum = sum.saturating_add(amount);
                }
            }
            let inclusive = &self.inclusive;
            let amounts = self.touched.iter().map(|at| (*at, inclusive[*at as usize]));
            spreads.add(slot, amounts);
            for at in &self.touched {
                self.inclusive[*at as usize] = 0;
                self.is_touched[*at as usize] = false;
            }
            self.touched.clear();
        }
        self.values = all;
    }
}
