//! Uneven distances of a thread's samples.
//!
//! One duty: keep the samples from running in step with a program whose rounds are of equal length, and
//! weigh each by the thread's CPU time since the one before. The distance to the next sample is drawn from half
//! of the period to one and a half: with less, rounds of half a period were still kept in step at high rates. It
//! holds for a few samples, as it takes a system call to set. A sample stands for as many whole periods as have passed; what is left is carried on
//! to the next, so that the sum is the CPU time to within a period, but for what was lost to blocked signals.
//!
//! Async-signal-safe: [`Uneven::next`].

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// `_IOW('$', 4, __u64)`.
const PERF_EVENT_IOC_PERIOD: u64 = 0x4008_2404;

/// A sample stands for this many periods at most: longer distances come from signals that the program
/// had blocked, and whose time is lost rather than charged to the end of the block.
const MOST: u64 = 2;

/// So many samples come at one distance.
const SAMPLES_A_DRAW: u64 = 4;

/// The state of one thread; touched by that thread alone.
#[derive(Debug)]
pub(super) struct Uneven {
    /// Nanoseconds; 0 before the beginning.
    period: AtomicU64,
    /// State of the generator.
    random: AtomicU64,
    /// The thread's CPU time at the last sample, nanoseconds.
    last: AtomicU64,
    /// CPU time that no sample stands for yet, nanoseconds.
    carried: AtomicU64,
    /// Samples so far.
    samples: AtomicU64,
}

impl Uneven {
    pub(super) const fn new() -> Uneven {
        Uneven {
            period: AtomicU64::new(0),
            random: AtomicU64::new(0),
            last: AtomicU64::new(0),
            carried: AtomicU64::new(0),
            samples: AtomicU64::new(0),
        }
    }

    /// The calling thread's samples begin, so many nanoseconds apart at the mean; `seed` chooses the
    /// sequence.
    pub(super) fn begin(&self, period: u64, seed: u64) {
        self.period.store(period, Relaxed);
        self.random.store(seed | 1, Relaxed);
        self.last.store(thread_cpu_ns(), Relaxed);
        self.carried.store(0, Relaxed);
        self.samples.store(0, Relaxed);
    }

    /// A sample of perf event `descriptor` has come: the periods it stands for. At times sets the distance of
    /// the next ones.
    #[inline]
    pub(super) fn next(&self, descriptor: i32) -> u64 {
        let period = self.period.load(Relaxed);
        let now = thread_cpu_ns();
        let since = now.wrapping_sub(self.last.load(Relaxed));
        self.last.store(now, Relaxed);
        let samples = self.samples.load(Relaxed);
        self.samples.store(samples.wrapping_add(1), Relaxed);
        if samples % SAMPLES_A_DRAW == 0 {
            let distance = self.draw(period);
            // SAFETY: our descriptor, and a word that outlives the call. Should the kernel refuse, the
            // distance stays as it was.
            unsafe { libc::ioctl(descriptor, PERF_EVENT_IOC_PERIOD as _, &raw const distance) };
        }
        self.weigh(period, since)
    }

    /// From half of the period to one and a half.
    #[inline]
    fn draw(&self, period: u64) -> u64 {
        let mut x = self.random.load(Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.store(x, Relaxed);
        let part = (x >> 32).wrapping_mul(period) >> 32;
        (period / 2).wrapping_add(part)
    }

    /// Whole periods of what was carried and `since`.
    #[inline]
    fn weigh(&self, period: u64, since: u64) -> u64 {
        let time = self.carried.load(Relaxed).wrapping_add(since);
        let periods = time.checked_div(period).unwrap_or(1);
        if periods > MOST {
            self.carried.store(0, Relaxed);
            return 1;
        }
        self.carried
            .store(time.wrapping_sub(periods.wrapping_mul(period)), Relaxed);
        periods
    }
}

/// CPU time of the calling thread, nanoseconds.
#[inline]
fn thread_cpu_ns() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is ours. The clock of the calling thread is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    (t.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(t.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_spread_about_the_period() {
        let uneven = Uneven::new();
        uneven.begin(1_000_000, 0x7fff_1234_5678);
        let drawn: Vec<u64> = (0..10_000).map(|_| uneven.draw(1_000_000)).collect();
        assert!(drawn.iter().all(|d| (500_000..1_500_000).contains(d)));
        let mean = drawn.iter().sum::<u64>() as f64 / 1e4;
        assert!((mean - 1e6).abs() < 5e3, "{mean}");
        for eighth in 0..8 {
            let range = 500_000 + eighth * 125_000..500_000 + (eighth + 1) * 125_000;
            let share = drawn.iter().filter(|d| range.contains(*d)).count();
            assert!((1000..1500).contains(&share), "{share} in {range:?}");
        }
    }

    #[test]
    fn weights_add_up_to_the_time() {
        let uneven = Uneven::new();
        uneven.begin(1000, 5);
        let mut time = 0;
        let mut periods = 0;
        for turn in 0..1000 {
            let since = 500 + turn * 37 % 1000;
            time += since;
            periods += uneven.weigh(1000, since);
            assert!(time / 1000 - periods <= 1, "{time} ns, {periods} periods");
        }
        // Blocked signals: the time is lost, and nothing is carried on.
        assert_eq!(uneven.weigh(1000, 50_000), 1);
        assert_eq!(uneven.weigh(1000, 999), 0);
    }
}
