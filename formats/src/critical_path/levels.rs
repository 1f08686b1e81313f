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

use super::{Level, WORKERS};
use std::collections::BTreeMap;

/// Buckets at most. A length beyond makes each of them twice as wide.
const BUCKETS: usize = 1 << 16;
/// Those of a process that others of its job are joined with, at most.
const OF_RANK: usize = 1 << 12;
/// A bucket is at most two to the power of so many nanoseconds wide.
const WIDEST: u32 = 47;
/// More cores than predictions have are one case.
const MOST_CORES: u64 = WORKERS[WORKERS.len() - 1] as u64 + 1;

/// Steps within a bucket. What is too large for a number is right again where work is computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Steps {
    /// Those up, less those down.
    pub up: i64,
    /// The sum of the lengths of those up, less that of those down.
    pub lengths: i64,
}

impl Steps {
    pub fn up(at: u64) -> Steps {
        Steps { up: 1, lengths: at as i64 }
    }

    pub fn down(at: u64) -> Steps {
        Steps { up: -1, lengths: -(at as i64) }
    }

    pub fn add(&mut self, other: Steps) {
        self.up = self.up.wrapping_add(other.up);
        self.lengths = self.lengths.wrapping_add(other.lengths);
    }
}

/// The levels of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Levels {
    /// A bucket has two to the power of so many nanoseconds.
    pub shift: u32,
    pub(super) buckets: Vec<Steps>,
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

    pub fn step(&mut self, at: u64, steps: Steps) {
        while at >> self.shift >= BUCKETS as u64 {
            self.widen();
        }
        let bucket = (at >> self.shift) as usize;
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, Steps::default());
        }
        self.buckets[bucket].add(steps);
    }

    #[cold]
    fn widen(&mut self) {
        for old in 0..self.buckets.len() {
            let steps = core::mem::take(&mut self.buckets[old]);
            self.buckets[old / 2].add(steps);
        }
        self.buckets.truncate(self.buckets.len().div_ceil(2));
        self.shift += 1;
    }

    /// What a file of a process has of them, for [`Self::join`]: fewer buckets.
    pub fn of_rank(&self) -> Levels {
        let mut levels = self.clone();
        while levels.buckets.len() > OF_RANK {
            levels.widen();
        }
        levels
    }

    /// Another process of the job does this at the same lengths.
    pub fn join(&mut self, mut other: Levels) {
        let shift = self.shift.max(other.shift);
        for levels in [&mut *self, &mut other] {
            (levels.shift..shift).for_each(|_| levels.widen());
        }
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), Steps::default());
        self.buckets.iter_mut().zip(other.buckets).for_each(|(own, steps)| own.add(steps));
    }

    /// Of a file: whether its numbers are possible.
    pub(super) fn is_sound(&self) -> bool {
        self.shift <= WIDEST && self.buckets.len() <= OF_RANK
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
            level.work = level.work.saturating_add(work);
        }
        levels.retain(|_, level| (level.time | level.work) > 0);
        levels.into_values().collect()
    }
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
}
