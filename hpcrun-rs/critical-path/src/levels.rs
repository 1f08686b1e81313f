//! What a thread has done at each length of its strand, before it is among the program's [`Levels`].

use hpc_formats::critical_path::{Levels, Steps};

/// Buckets of which a thread has steps that others do not see yet.
const RECENT: usize = 16;
/// The number of no bucket.
const NONE: u64 = u64::MAX;

/// What a thread has done, that is not among the program's [`Levels`] yet.
#[derive(Debug)]
pub(crate) struct Recent {
    shift: u32,
    /// Steps by the number of their bucket; a bucket's place is its number modulo [`RECENT`].
    buckets: [(u64, Steps); RECENT],
}

impl Recent {
    pub(crate) fn new(finest: u64) -> Self {
        Recent { shift: Levels::new(finest).shift, buckets: [(NONE, Steps { up: 0, lengths: 0 }); RECENT] }
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
            let steps = core::mem::take(steps);
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
