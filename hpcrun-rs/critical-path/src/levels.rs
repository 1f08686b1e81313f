//! How much a program does at each moment of its ideal execution.
//!
//! One duty: on as many cores as it can use, a program does at the time t what its strands do while they are
//! t long (Oyama et al.: a length is the earliest time). Where k strands are active for a time t, P cores
//! take ceil(k / P) t, if each strand is done by one of them, and one level after the other: so Brent bounds
//! the time of a computation in *The Parallel Evaluation of General Arithmetic Expressions* (Journal of the
//! ACM 21(2), 1974).
//!
//! Activity from one length to another is a step up at the first and a step down at the second. The work in a
//! bucket of lengths follows from the number of steps up to it, and from the sum of the lengths of its own.
//! Two buckets add up to one of twice the width without an error, so the buckets can be as many for any span.
//! In a bucket, numbers of strands next to its mean number count.

use std::collections::BTreeMap;

use hpc_formats::critical_path::{Level, WORKERS};

/// Buckets at most. A length beyond makes each of them twice as wide.
const BUCKETS: usize = 1 << 16;
/// Buckets of which a thread has steps that others do not see yet.
const RECENT: usize = 16;
/// The number of no bucket.
const NONE: u64 = u64::MAX;
/// More cores than predictions have are one case.
const MOST_CORES: u64 = WORKERS[WORKERS.len() - 1] as u64 + 1;

/// Steps within a bucket. What is too large for a number is right again where work is computed.
#[derive(Debug, Clone, Copy, Default)]
struct Steps {
    /// Those up, less those down.
    up: i64,
    /// The sum of the lengths of those up, less that of those down.
    lengths: i64,
}

impl Steps {
    const NO: Steps = Steps { up: 0, lengths: 0 };

    fn up(at: u64) -> Steps {
        Steps { up: 1, lengths: at as i64 }
    }

    fn down(at: u64) -> Steps {
        Steps { up: -1, lengths: -(at as i64) }
    }

    fn add(&mut self, other: Steps) {
        self.up = self.up.wrapping_add(other.up);
        self.lengths = self.lengths.wrapping_add(other.lengths);
    }
}

/// The levels of a program.
#[derive(Debug)]
pub struct Levels {
    /// A bucket has two to the power of so many nanoseconds.
    shift: u32,
    buckets: Vec<Steps>,
}

impl Levels {
    /// Of a program without activity. `finest`: a level of less than so many nanoseconds is not told from
    /// others.
    pub fn new(finest: u64) -> Self {
        Levels { shift: finest.max(1).ilog2(), buckets: Vec::new() }
    }

    /// A strand was active from one length to another.
    pub fn add(&mut self, from: u64, to: u64) {
        self.step(from, Steps::up(from));
        self.step(to, Steps::down(to));
    }

    fn step(&mut self, at: u64, steps: Steps) {
        while at >> self.shift >= BUCKETS as u64 {
            self.widen();
        }
        let bucket = (at >> self.shift) as usize;
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, Steps::NO);
        }
        self.buckets[bucket].add(steps);
    }

    #[cold]
    fn widen(&mut self) {
        for old in 0..self.buckets.len() {
            let steps = core::mem::replace(&mut self.buckets[old], Steps::NO);
            self.buckets[old / 2].add(steps);
        }
        self.buckets.truncate(self.buckets.len().div_ceil(2));
        self.shift += 1;
    }

    /// The levels of a program with this span, those for the same number of cores as one.
    pub fn of(&self, span: u64) -> Vec<Level> {
        let width = 1_i64 << self.shift;
        let mut levels: BTreeMap<u32, Level> = BTreeMap::new();
        let (mut up, mut begin) = (0_i64, 0_u64);
        for steps in &self.buckets {
            let end = begin + width as u64;
            let own = steps.up.wrapping_mul(end as i64);
            let own = own.wrapping_sub(steps.lengths);
            let work = up.wrapping_mul(width).wrapping_add(own).max(0) as u64;
            up = up.wrapping_add(steps.up);
            let time = end.min(span).saturating_sub(begin);
            begin = end;
            // Something is active at each length up to the span.
            let cores = work.checked_div(time);
            let cores = cores.map_or(MOST_CORES, |cores| cores.clamp(1, MOST_CORES));
            let level = levels.entry(cores as u32).or_default();
            level.cores = cores as u32;
            level.time += time;
            level.work += work;
        }
        levels.retain(|_, level| level.time + level.work > 0);
        levels.into_values().collect()
    }
}

/// What a thread has done, that is not among the program's [`Levels`] yet.
#[derive(Debug)]
pub(crate) struct Recent {
    shift: u32,
    /// Steps by the number of their bucket; a bucket's place is its number modulo [`RECENT`].
    buckets: [(u64, Steps); RECENT],
}

impl Recent {
    pub(crate) fn new(finest: u64) -> Self {
        Recent { shift: Levels::new(finest).shift, buckets: [(NONE, Steps::NO); RECENT] }
    }

    /// The thread's strand was active from one length to another. `false`: there is no room; see
    /// [`move_to`](Self::move_to).
    #[inline]
    pub(crate) fn add(&mut self, from: u64, to: u64) -> bool {
        let (first, last) = (from >> self.shift, to >> self.shift);
        let bucket = &mut self.buckets[first as usize % RECENT];
        if first == last && bucket.0 == first {
            // A step up and one down.
            bucket.1.lengths = bucket.1.lengths.wrapping_sub((to - from) as i64);
            return true;
        }
        self.add_steps(from, to)
    }

    #[cold]
    fn add_steps(&mut self, from: u64, to: u64) -> bool {
        let [first, last] = [from, to].map(|at| at >> self.shift);
        let is_free = |bucket: u64| [bucket, NONE].contains(&self.buckets[place(bucket)].0);
        let collide = first != last && place(first) == place(last);
        if collide || !is_free(first) || !is_free(last) {
            return false;
        }
        for (bucket, steps) in [(first, Steps::up(from)), (last, Steps::down(to))] {
            let known = &mut self.buckets[place(bucket)];
            known.0 = bucket;
            known.1.add(steps);
        }
        true
    }

    /// All of it becomes a part of the program's levels. They have a step down for each step up afterwards.
    pub(crate) fn move_to(&mut self, levels: &mut Levels) {
        for (bucket, steps) in &mut self.buckets {
            let bucket = core::mem::replace(bucket, NONE);
            let steps = core::mem::replace(steps, Steps::NO);
            if bucket != NONE {
                levels.step(bucket << self.shift, steps);
            }
        }
        // Not narrower than those of the program, so that each lies within one of them.
        self.shift = levels.shift;
    }
}

fn place(bucket: u64) -> usize {
    bucket as usize % RECENT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(cores: u32, time: u64, work: u64) -> Level {
        Level { cores, time, work }
    }

    #[test]
    fn levels_have_their_work() {
        let mut levels = Levels::new(1);
        assert_eq!(levels.of(0), []);
        levels.add(0, 10);
        levels.add(4, 10);
        levels.add(5, 7);
        assert_eq!(levels.of(10), [level(1, 4, 4), level(2, 4, 8), level(3, 2, 6)]);
        // What comes after the span has only work.
        assert_eq!(levels.of(4), [level(1, 4, 4), level(1025, 0, 14)]);
    }

    /// What is told apart is as wide as a bucket; sums stay exact.
    #[test]
    fn long_spans_have_wide_buckets() {
        let mut levels = Levels::new(1);
        let end = (BUCKETS as u64) << 6;
        levels.add(0, 1 << 20);
        for part in 0..end / 100 {
            levels.add(part * 100, part * 100 + 100);
        }
        assert_eq!(levels.shift, 6);
        assert_eq!(
            levels.of(end),
            [level(1, end - (1 << 20), end / 100 * 100 - (1 << 20)), level(2, 1 << 20, 2 << 20)]
        );
    }

    /// Random activity by way of a thread and at once: the same levels.
    #[test]
    fn threads_keep_nothing_back() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 20) % bound
        };
        let (mut expected, mut found) = (Levels::new(16), Levels::new(16));
        let mut threads = [Recent::new(16), Recent::new(16)];
        let (mut at, mut moved) = (0, 0);
        for n in 0..100_000 {
            // Mostly forwards, sometimes to an earlier length.
            let from = at - next(at.min(500) + 1);
            at = from + next(if n % 10 == 0 { 5000 } else { 300 });
            expected.add(from, at);
            let thread = &mut threads[n % 2];
            if !thread.add(from, at) {
                moved += 1;
                thread.move_to(&mut found);
                found.add(from, at);
            }
        }
        threads.iter_mut().for_each(|thread| thread.move_to(&mut found));
        assert!((1000..50_000).contains(&moved), "{moved}");
        assert!(expected.shift > 4);
        assert_eq!(found.of(at), expected.of(at));
    }
}
