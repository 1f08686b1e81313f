//! Interpolated clock: the time of a thread's clock between samples, mostly without a system call.
//!
//! Reading the CPU clock of a thread is a system call, which takes 2 to 3 us with cold caches. The code and
//! data of the real-time clock are cold then as well. The cycle counter takes one instruction.
//!
//! A CPU timer does not fire early, and CPU time does not advance faster than real time. So if the real time
//! since the last sample, by the counter, is about the distance that the timer was set to, the CPU time is
//! about the same, and the real time is used for it. Otherwise, and after [`MAX_INTERPOLATED`] samples in any
//! case, the clocks are read. This corrects the sum and calibrates the counter. A counter that jumps or
//! changes its speed disagrees with the distance, so that the clocks are read.
//!
//! Async-signal-safe.

use crate::arch::counter;
use crate::system::clock as time_of;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};

const MAX_INTERPOLATED: u32 = 15;
/// A sample is on time if it is off by at most this part of its distance.
const ON_TIME: u64 = 16;
/// Nanoseconds between two readings that calibrate the counter. Shorter intervals are inexact; in longer ones
/// the shift may overflow.
const SPEED_FROM: std::ops::Range<u64> = 50_000..4_000_000_000;

/// The clocks at a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Nanoseconds of the thread's clock since the last sample, or since the beginning. Negative if earlier
    /// results were too large.
    pub(super) since: i64,
    /// The monotonic clock, nanoseconds.
    pub(super) now: u64,
}

/// The clock of one thread, used only by that thread.
#[derive(Default)]
pub(super) struct InterpolatedClock {
    clock: AtomicI32,
    /// The clock at the last sample, nanoseconds.
    last: AtomicU64,
    /// The distance that the timer is set to, nanoseconds; 0: the clock is read at every sample.
    distance: AtomicU64,
    /// Interpolated samples since the clocks were read.
    interpolated: AtomicU32,
    /// Monotonic clock at the last sample with a distance, nanoseconds.
    real: AtomicU64,
    /// The cycle counter at the last sample.
    counter: AtomicU64,
    /// Monotonic clock and cycle counter when they were last read together.
    read_real: AtomicU64,
    read_counter: AtomicU64,
    /// Nanoseconds per count, as a fixed-point number with 32 fractional bits; 0 if unknown.
    speed: AtomicU64,
}

impl InterpolatedClock {
    pub(super) fn begin(&self, clock: libc::clockid_t) {
        self.clock.store(clock, Relaxed);
        self.last.store(time_of(clock), Relaxed);
        self.distance.store(0, Relaxed);
        self.interpolated.store(0, Relaxed);
        self.real.store(0, Relaxed);
        self.read_real.store(time_of(libc::CLOCK_MONOTONIC), Relaxed);
        self.read_counter.store(counter(), Relaxed);
        self.speed.store(0, Relaxed);
    }

    #[inline]
    pub(super) fn is_of_cpu(&self) -> bool {
        self.clock.load(Relaxed) == libc::CLOCK_THREAD_CPUTIME_ID
    }

    /// The thread's clock at the last sample, nanoseconds.
    pub(super) fn last_sample(&self) -> u64 {
        self.last.load(Relaxed)
    }

    /// Nanoseconds of the thread's clock since the last sample.
    pub(super) fn since_sample(&self) -> u64 {
        time_of(self.clock.load(Relaxed)).saturating_sub(self.last_sample())
    }

    /// Sets the distance of the timer, in nanoseconds. It must be exact to within the part that counts as on
    /// time.
    #[inline]
    pub(super) fn expect(&self, distance: u64) {
        self.distance.store(distance, Relaxed);
    }

    #[inline]
    pub(super) fn read(&self) -> Reading {
        self.read_by(counter, time_of)
    }

    #[inline]
    fn read_by(&self, counter: impl Fn() -> u64, time_of: impl Fn(libc::clockid_t) -> u64) -> Reading {
        let last = self.last.load(Relaxed);
        let distance = self.distance.load(Relaxed);
        let interpolated = self.interpolated.load(Relaxed);
        let real = if distance == 0 {
            time_of(libc::CLOCK_MONOTONIC)
        } else {
            let now = counter();
            let waited = self.nanoseconds(now.wrapping_sub(self.counter.load(Relaxed)));
            self.counter.store(now, Relaxed);
            if interpolated < MAX_INTERPOLATED && waited.abs_diff(distance) <= distance / ON_TIME {
                self.interpolated.store(interpolated + 1, Relaxed);
                self.last.store(last.wrapping_add(waited), Relaxed);
                let real = self.real.load(Relaxed).wrapping_add(waited);
                self.real.store(real, Relaxed);
                return Reading { since: waited as i64, now: real };
            }
            let real = time_of(libc::CLOCK_MONOTONIC);
            self.calibrate(now, real);
            real
        };
        self.interpolated.store(0, Relaxed);
        let now = time_of(self.clock.load(Relaxed));
        self.last.store(now, Relaxed);
        Reading { since: now.wrapping_sub(last) as i64, now: real }
    }

    /// Converts counts to nanoseconds; the maximum if the speed is unknown.
    #[inline]
    fn nanoseconds(&self, counts: u64) -> u64 {
        let speed = self.speed.load(Relaxed);
        if speed == 0 {
            return u64::MAX;
        }
        let nanoseconds = (u128::from(counts) * u128::from(speed)) >> 32;
        u64::try_from(nanoseconds).unwrap_or(u64::MAX)
    }

    /// Records a reading of the monotonic clock, and of the counter just before it.
    #[inline]
    fn calibrate(&self, counter: u64, real: u64) {
        let nanoseconds = real.wrapping_sub(self.read_real.load(Relaxed));
        let counts = counter.wrapping_sub(self.read_counter.load(Relaxed));
        if SPEED_FROM.contains(&nanoseconds) {
            let speed = (nanoseconds << 32).checked_div(counts).unwrap_or(0);
            self.speed.store(speed, Relaxed);
        }
        self.read_real.store(real, Relaxed);
        self.read_counter.store(counter, Relaxed);
        self.real.store(real, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const MS: u64 = 1_000_000;
    /// Counts in 5 nanoseconds.
    const SPEED: u64 = 12;

    /// Simulated clocks that start at zero, and a thread.
    #[derive(Default)]
    struct Machine {
        real: Cell<u64>,
        cpu: Cell<u64>,
        /// How far the counter has jumped.
        jumped: Cell<u64>,
        reads: Cell<u32>,
    }

    impl Machine {
        fn fresh(distance: u64) -> (Machine, InterpolatedClock) {
            let interpolated = InterpolatedClock::default();
            interpolated.expect(distance);
            (Machine::default(), interpolated)
        }

        /// Advances both clocks, and takes a sample.
        fn sample(&self, interpolated: &InterpolatedClock, real: u64, cpu: u64) -> i64 {
            self.read(interpolated, real, cpu).since
        }

        fn read(&self, interpolated: &InterpolatedClock, real: u64, cpu: u64) -> Reading {
            self.real.set(self.real.get() + real);
            self.cpu.set(self.cpu.get() + cpu);
            let counter = || self.real.get() / 5 * SPEED + self.jumped.get();
            interpolated.read_by(counter, |clock| match clock {
                libc::CLOCK_MONOTONIC => self.real.get(),
                _ => {
                    self.reads.set(self.reads.get() + 1);
                    self.cpu.get()
                }
            })
        }
    }

    #[test]
    fn samples_on_time_are_interpolated_and_the_clock_is_read_now_and_then() {
        let (machine, interpolated) = Machine::fresh(MS);
        let mut sum = 0;
        for _ in 0..161 {
            // The thread was off its core for a fiftieth of the time.
            let reading = machine.read(&interpolated, MS + MS / 50, MS);
            sum += reading.since;
            assert!(reading.now.abs_diff(machine.real.get()) < 100, "{reading:?}");
        }
        assert_eq!(machine.reads.get(), 11, "the first and every sixteenth");
        assert_eq!(sum, 161 * MS as i64, "the last sample reads the clock");
    }

    #[test]
    fn the_clock_is_read_when_a_sample_is_late() {
        let (machine, interpolated) = Machine::fresh(MS);
        assert_eq!(machine.sample(&interpolated, MS, MS), MS as i64);
        assert_eq!(machine.sample(&interpolated, 2 * MS, MS), MS as i64);
        // Late in CPU time as well: a long system call.
        assert_eq!(machine.sample(&interpolated, 50 * MS, 50 * MS), 50 * MS as i64);
        assert_eq!(machine.reads.get(), 3);
        let since = machine.sample(&interpolated, MS, MS);
        assert!(since.abs_diff(MS as i64) < 10, "{since}");
        assert_eq!(machine.reads.get(), 3);
    }

    /// The counter jumps rarely, more often, and at every sample.
    #[test]
    fn an_unreliable_counter_does_not_change_the_sum() {
        for jumps in [1, 7, 40] {
            let (machine, interpolated) = Machine::fresh(MS);
            let mut sum = 0;
            for turn in 0..161 {
                if turn % jumps == 0 {
                    machine.jumped.set(machine.jumped.get() ^ (turn << 40 | 0x1_0000_0000));
                }
                sum += machine.sample(&interpolated, MS, MS);
            }
            assert!((sum - 161 * MS as i64).abs() < 1_000, "{jumps}: {sum}");
            assert!(machine.reads.get() > 11);
        }
    }

    #[test]
    fn the_clock_is_always_read_without_a_distance() {
        let (machine, interpolated) = Machine::fresh(0);
        for sample in 1..20 {
            assert_eq!(machine.sample(&interpolated, 5 * MS, MS), MS as i64);
            assert_eq!(machine.reads.get(), sample);
        }
        assert_eq!(machine.read(&interpolated, MS, MS).now, machine.real.get());
    }

    #[test]
    fn the_clocks_of_the_system_agree_on_a_thread_that_runs() {
        let interpolated = InterpolatedClock::default();
        interpolated.begin(libc::CLOCK_THREAD_CPUTIME_ID);
        let start = time_of(libc::CLOCK_THREAD_CPUTIME_ID);
        let mut sum = 0;
        for turn in 1..50 {
            while time_of(libc::CLOCK_THREAD_CPUTIME_ID) - start < turn * MS {}
            interpolated.expect(MS);
            sum += interpolated.read().since;
        }
        // The clock is read at least at every sixteenth sample.
        assert!((sum - 49 * MS as i64).abs() < MS as i64, "{sum}");
    }
}
