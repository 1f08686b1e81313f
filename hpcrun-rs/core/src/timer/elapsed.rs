//! How much time of a thread's clock went by from sample to sample.
//!
//! One duty: to know it without asking the kernel each time. The clock of a thread's CPU time is a system call, 2 to 3 us
//! where the caches are cold; the real time is read without one. A timer of CPU time does not fire early, and
//! no more CPU time than real time goes by: so when the real time since the last sample is the distance that the
//! timer was set to, or little more, the CPU time is between the two, and the real time is taken for it. Otherwise, and at every
//! [`RECKONED`]th sample in any case, the clock is asked, which corrects what was taken too much.
//!
//! Async-signal-safe.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};

/// At most so many samples in a row are reckoned.
const RECKONED: u32 = 7;
/// A sample is on time that is late by this part of its distance.
const ON_TIME: u64 = 16;

/// The state of one thread; touched by that thread alone.
#[derive(Debug)]
pub(super) struct Elapsed {
    /// The clock that the timer goes by.
    clock: AtomicI32,
    /// Its time at the last sample, nanoseconds.
    last: AtomicU64,
    /// Real time at the last sample, nanoseconds.
    real: AtomicU64,
    /// What the timer is set to, nanoseconds; 0: the clock is asked at every sample.
    distance: AtomicU64,
    /// Samples since the clock was asked.
    reckoned: AtomicU32,
}

impl Elapsed {
    pub(super) const fn new() -> Elapsed {
        Elapsed {
            clock: AtomicI32::new(libc::CLOCK_THREAD_CPUTIME_ID),
            last: AtomicU64::new(0),
            real: AtomicU64::new(0),
            distance: AtomicU64::new(0),
            reckoned: AtomicU32::new(0),
        }
    }

    /// Time begins to count.
    pub(super) fn begin(&self, clock: libc::clockid_t) {
        self.clock.store(clock, Relaxed);
        self.last.store(time_of(clock), Relaxed);
        self.real.store(time_of(libc::CLOCK_MONOTONIC), Relaxed);
        self.distance.store(0, Relaxed);
        self.reckoned.store(0, Relaxed);
    }

    /// The timer fires so many nanoseconds after each sample, to well within the part that counts as on time.
    #[inline]
    pub(super) fn expect(&self, distance: u64) {
        self.distance.store(distance, Relaxed);
    }

    /// Nanoseconds since the last sample, or since the beginning. Negative: too much was said before.
    #[inline]
    pub(super) fn since(&self) -> i64 {
        let clock = self.clock.load(Relaxed);
        self.since_by(|| time_of(libc::CLOCK_MONOTONIC), || time_of(clock))
    }

    #[inline]
    fn since_by(&self, real: impl FnOnce() -> u64, clock: impl FnOnce() -> u64) -> i64 {
        let last = self.last.load(Relaxed);
        let distance = self.distance.load(Relaxed);
        if distance != 0 {
            let real = real();
            let waited = real.wrapping_sub(self.real.load(Relaxed));
            self.real.store(real, Relaxed);
            let reckoned = self.reckoned.load(Relaxed);
            if reckoned < RECKONED && waited <= distance.wrapping_add(distance / ON_TIME) {
                self.reckoned.store(reckoned + 1, Relaxed);
                self.last.store(last.wrapping_add(waited), Relaxed);
                return waited as i64;
            }
            self.reckoned.store(0, Relaxed);
        }
        let now = clock();
        self.last.store(now, Relaxed);
        now.wrapping_sub(last) as i64
    }
}

/// A clock's time, nanoseconds.
#[inline]
pub(super) fn time_of(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is ours. The clocks that are asked for are always there.
    unsafe { libc::clock_gettime(clock, &mut t) };
    (t.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(t.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A thread whose clock and the real one stand at zero.
    fn fresh(distance: u64) -> Elapsed {
        let elapsed = Elapsed::new();
        elapsed.expect(distance);
        elapsed
    }

    #[test]
    fn samples_on_time_are_reckoned_and_the_clock_asked_now_and_then() {
        let elapsed = fresh(MS);
        let (mut real, mut asked, mut sum) = (0, 0, 0);
        for _ in 0..80 {
            // A fiftieth of the time the thread did not have.
            real += MS + MS / 50;
            let cpu = real / 51 * 50;
            sum += elapsed.since_by(
                || real,
                || {
                    asked += 1;
                    cpu
                },
            );
        }
        assert_eq!(asked, 10);
        assert_eq!(sum, (real / 51 * 50) as i64, "the last was asked for");
    }

    #[test]
    fn the_clock_is_asked_when_a_sample_is_late() {
        let elapsed = fresh(MS);
        assert_eq!(elapsed.since_by(|| 2 * MS, || MS), MS as i64);
        // Late in CPU time too: a long system call.
        assert_eq!(elapsed.since_by(|| 52 * MS, || 51 * MS), 50 * MS as i64);
        assert_eq!(elapsed.since_by(|| 53 * MS, || unreachable!()), MS as i64);
    }

    #[test]
    fn without_a_distance_the_clock_is_asked_always() {
        let elapsed = fresh(0);
        for sample in 1..20 {
            assert_eq!(
                elapsed.since_by(|| unreachable!(), || sample * MS),
                MS as i64
            );
        }
    }

    #[test]
    fn the_clocks_of_the_system_agree_on_a_thread_that_runs() {
        let elapsed = Elapsed::new();
        elapsed.begin(libc::CLOCK_THREAD_CPUTIME_ID);
        let start = time_of(libc::CLOCK_THREAD_CPUTIME_ID);
        let mut sum = 0;
        for turn in 1..50 {
            while time_of(libc::CLOCK_THREAD_CPUTIME_ID) - start < turn * MS {}
            elapsed.expect(MS);
            sum += elapsed.since();
        }
        // Asked at every eighth sample at least: what was taken too much is a sixteenth of seven.
        assert!((sum - 49 * MS as i64).abs() < MS as i64, "{sum}");
    }
}
