//! How much time of a thread's clock went by from sample to sample.
//!
//! One duty: to know it without asking the kernel each time. The clock of a thread's CPU time is a system call, 2 to 3 us
//! where the caches are cold, and the real clock's code and data are cold then, too; the processor's counter is one
//! instruction. A timer of CPU time does not fire early, and no more CPU time than real time goes by: so when the real time since the
//! last sample, as the counter has it, is about the distance that the timer was set to, the CPU time is too, and the real time is
//! taken for it. Otherwise, and after [`RECKONED`] samples in any case, the clocks are asked, which corrects what was
//! taken too much, and tells how fast the counter is. A counter that jumps, or changes its speed, disagrees with the
//! distance, so that the clocks are asked.
//!
//! Async-signal-safe.

use crate::arch::counter;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};

/// At most so many samples in a row are reckoned.
const RECKONED: u32 = 15;
/// A sample is on time that is off by this part of its distance.
const ON_TIME: u64 = 16;
/// Nanoseconds between two looks at both the real clock and the counter that tell the counter's speed: shorter ones
/// are not exact enough, and in longer ones the multiplication might overflow.
const SPEED_FROM: std::ops::Range<u64> = 50_000..4_000_000_000;

/// The state of one thread; touched by that thread alone.
#[derive(Debug)]
pub(super) struct InterpolatedClock {
    /// The clock that the timer goes by.
    clock: AtomicI32,
    /// Its time at the last sample, nanoseconds.
    last: AtomicU64,
    /// What the timer is set to, nanoseconds; 0: the clock is asked at every sample.
    distance: AtomicU64,
    /// Samples since the clocks were asked.
    reckoned: AtomicU32,
    /// Real time at the last sample, nanoseconds; 0: not known.
    real: AtomicU64,
    /// The counter at the last sample.
    counter: AtomicU64,
    /// Both when the clocks were asked.
    asked_real: AtomicU64,
    asked_counter: AtomicU64,
    /// Nanoseconds in a count, 32 bits of them behind the point; 0: not known.
    speed: AtomicU64,
}

impl InterpolatedClock {
    pub(super) const fn new() -> InterpolatedClock {
        InterpolatedClock {
            clock: AtomicI32::new(libc::CLOCK_THREAD_CPUTIME_ID),
            last: AtomicU64::new(0),
            distance: AtomicU64::new(0),
            reckoned: AtomicU32::new(0),
            real: AtomicU64::new(0),
            counter: AtomicU64::new(0),
            asked_real: AtomicU64::new(0),
            asked_counter: AtomicU64::new(0),
            speed: AtomicU64::new(0),
        }
    }

    /// Time begins to count.
    pub(super) fn begin(&self, clock: libc::clockid_t) {
        self.clock.store(clock, Relaxed);
        self.last.store(time_of(clock), Relaxed);
        self.distance.store(0, Relaxed);
        self.reckoned.store(0, Relaxed);
        self.real.store(0, Relaxed);
        self.asked_real
            .store(time_of(libc::CLOCK_MONOTONIC), Relaxed);
        self.asked_counter.store(counter(), Relaxed);
        self.speed.store(0, Relaxed);
    }

    /// The timer fires so many nanoseconds after each sample, to well within the part that counts as on time.
    #[inline]
    pub(super) fn expect(&self, distance: u64) {
        self.distance.store(distance, Relaxed);
    }

    /// Nanoseconds since the last sample, or since the beginning. Negative: too much was said before.
    #[inline]
    pub(super) fn since(&self) -> i64 {
        self.since_by(counter, time_of)
    }

    /// The monotonic clock at the last sample, nanoseconds, if it was looked at.
    #[inline]
    pub(super) fn real(&self) -> Option<u64> {
        Some(self.real.load(Relaxed)).filter(|real| *real != 0)
    }

    #[inline]
    fn since_by(&self, counter: impl Fn() -> u64, time_of: impl Fn(libc::clockid_t) -> u64) -> i64 {
        let last = self.last.load(Relaxed);
        let distance = self.distance.load(Relaxed);
        let reckoned = self.reckoned.load(Relaxed);
        if distance != 0 {
            let now = counter();
            let waited = self.nanoseconds(now.wrapping_sub(self.counter.load(Relaxed)));
            self.counter.store(now, Relaxed);
            if reckoned < RECKONED && waited.abs_diff(distance) <= distance / ON_TIME {
                self.reckoned.store(reckoned + 1, Relaxed);
                self.last.store(last.wrapping_add(waited), Relaxed);
                let real = self.real.load(Relaxed);
                self.real.store(real.wrapping_add(waited), Relaxed);
                return waited as i64;
            }
            self.ask_real(now, time_of(libc::CLOCK_MONOTONIC));
        }
        self.reckoned.store(0, Relaxed);
        let now = time_of(self.clock.load(Relaxed));
        self.last.store(now, Relaxed);
        now.wrapping_sub(last) as i64
    }

    /// Nanoseconds of so many counts; far too many where that is not known.
    #[inline]
    fn nanoseconds(&self, counts: u64) -> u64 {
        let speed = self.speed.load(Relaxed);
        if speed == 0 {
            return u64::MAX;
        }
        let nanoseconds = (u128::from(counts) * u128::from(speed)) >> 32;
        u64::try_from(nanoseconds).unwrap_or(u64::MAX)
    }

    /// The real clock was looked at, and the counter just before it.
    #[inline]
    fn ask_real(&self, counter: u64, real: u64) {
        let nanoseconds = real.wrapping_sub(self.asked_real.load(Relaxed));
        let counts = counter.wrapping_sub(self.asked_counter.load(Relaxed));
        if SPEED_FROM.contains(&nanoseconds) {
            let speed = (nanoseconds << 32).checked_div(counts).unwrap_or(0);
            self.speed.store(speed, Relaxed);
        }
        self.asked_real.store(real, Relaxed);
        self.asked_counter.store(counter, Relaxed);
        self.real.store(real, Relaxed);
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
    use std::cell::Cell;

    const MS: u64 = 1_000_000;
    /// Counts in 5 nanoseconds.
    const SPEED: u64 = 12;

    /// A machine whose clocks stand at zero, and a thread on it.
    #[derive(Default)]
    struct Machine {
        real: Cell<u64>,
        cpu: Cell<u64>,
        /// How far the counter has jumped.
        jumped: Cell<u64>,
        asked: Cell<u32>,
    }

    impl Machine {
        fn fresh(distance: u64) -> (Machine, InterpolatedClock) {
            let elapsed = InterpolatedClock::new();
            elapsed.expect(distance);
            (Machine::default(), elapsed)
        }

        /// The time goes by, of both clocks, and there is a sample.
        fn sample(&self, elapsed: &InterpolatedClock, real: u64, cpu: u64) -> i64 {
            self.real.set(self.real.get() + real);
            self.cpu.set(self.cpu.get() + cpu);
            let counter = || self.real.get() / 5 * SPEED + self.jumped.get();
            elapsed.since_by(counter, |clock| match clock {
                libc::CLOCK_MONOTONIC => self.real.get(),
                _ => {
                    self.asked.set(self.asked.get() + 1);
                    self.cpu.get()
                }
            })
        }
    }

    #[test]
    fn samples_on_time_are_reckoned_and_the_clock_asked_now_and_then() {
        let (machine, elapsed) = Machine::fresh(MS);
        let mut sum = 0;
        for _ in 0..161 {
            // A fiftieth of the time the thread did not have.
            sum += machine.sample(&elapsed, MS + MS / 50, MS);
            let real = elapsed.real().unwrap();
            assert!(real.abs_diff(machine.real.get()) < 100, "{real}");
        }
        assert_eq!(machine.asked.get(), 11, "the first and every sixteenth");
        assert_eq!(sum, 161 * MS as i64, "the last was asked for");
    }

    #[test]
    fn the_clock_is_asked_when_a_sample_is_late() {
        let (machine, elapsed) = Machine::fresh(MS);
        assert_eq!(machine.sample(&elapsed, MS, MS), MS as i64);
        assert_eq!(machine.sample(&elapsed, 2 * MS, MS), MS as i64);
        // Late in CPU time too: a long system call.
        assert_eq!(machine.sample(&elapsed, 50 * MS, 50 * MS), 50 * MS as i64);
        assert_eq!(machine.asked.get(), 3);
        let reckoned = machine.sample(&elapsed, MS, MS);
        assert!(reckoned.abs_diff(MS as i64) < 10, "{reckoned}");
        assert_eq!(machine.asked.get(), 3);
    }

    /// Once in a while, at another speed, and at every sample.
    #[test]
    fn a_counter_that_cannot_be_relied_on_changes_nothing() {
        for jumps in [1, 7, 40] {
            let (machine, elapsed) = Machine::fresh(MS);
            let mut sum = 0;
            for turn in 0..161 {
                if turn % jumps == 0 {
                    machine
                        .jumped
                        .set(machine.jumped.get() ^ (turn << 40 | 0x1_0000_0000));
                }
                sum += machine.sample(&elapsed, MS, MS);
            }
            assert!((sum - 161 * MS as i64).abs() < 1_000, "{jumps}: {sum}");
            assert!(machine.asked.get() > 11);
        }
    }

    #[test]
    fn without_a_distance_the_clock_is_asked_always() {
        let (machine, elapsed) = Machine::fresh(0);
        for sample in 1..20 {
            assert_eq!(machine.sample(&elapsed, 5 * MS, MS), MS as i64);
            assert_eq!(machine.asked.get(), sample);
        }
        assert_eq!(elapsed.real(), None);
    }

    #[test]
    fn the_clocks_of_the_system_agree_on_a_thread_that_runs() {
        let elapsed = InterpolatedClock::new();
        elapsed.begin(libc::CLOCK_THREAD_CPUTIME_ID);
        let start = time_of(libc::CLOCK_THREAD_CPUTIME_ID);
        let mut sum = 0;
        for turn in 1..50 {
            while time_of(libc::CLOCK_THREAD_CPUTIME_ID) - start < turn * MS {}
            elapsed.expect(MS);
            sum += elapsed.since();
        }
        // Asked at every sixteenth sample at least: what was taken too much is a sixteenth of fifteen.
        assert!((sum - 49 * MS as i64).abs() < MS as i64, "{sum}");
    }
}
