//! Context switches of a thread, and what they cost with a perf event.
//!
//! The kernel stops and starts the event's timer whenever the thread leaves a core and comes back. That
//! reprograms the processor's timer: below a microsecond, or some 10 us on a virtual machine.
//!
//! Async-signal-safe, but for [`measure_cost`].

use super::interpolated_clock::time_of;
use crate::system;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Nanoseconds of a switch, as measured by [`measure_cost`].
static COST: AtomicU64 = AtomicU64::new(0);
/// A perf event is too expensive if switches take more than this part of the thread's CPU time.
const TOO_EXPENSIVE: u64 = 4;
/// It is cheap enough again if they would take less than this part.
const CHEAP: u64 = 16;

/// Measures the cost of a switch by `set`, which stops and starts a timer, with both distances in turn.
pub(super) fn measure_cost(set: impl Fn(u64), distances: [u64; 2]) {
    let time = |()| {
        let start = time_of(libc::CLOCK_MONOTONIC);
        distances.into_iter().for_each(&set);
        time_of(libc::CLOCK_MONOTONIC).saturating_sub(start) / distances.len() as u64
    };
    COST.store([(); 3].map(time).into_iter().min().unwrap_or(0), Relaxed);
}

/// What is known of one thread's switches, used only by that thread.
#[derive(Debug)]
pub(super) struct Switches {
    /// Number of switches, and the thread's CPU time in nanoseconds, when they were last looked at.
    number: AtomicU64,
    time: AtomicU64,
}

impl Switches {
    pub(super) const fn new() -> Switches {
        Switches {
            number: AtomicU64::new(0),
            time: AtomicU64::new(0),
        }
    }

    /// For another thread, whose life begins.
    pub(super) fn forget(&self) {
        self.number.store(0, Relaxed);
        self.time.store(0, Relaxed);
    }

    /// The calling thread's switches, and its CPU time. The next answer is about those from here on.
    pub(super) fn look(&self) -> (u64, u64) {
        let switches = switches_of_this_thread();
        let time = time_of(libc::CLOCK_THREAD_CPUTIME_ID);
        (
            switches.wrapping_sub(self.number.swap(switches, Relaxed)),
            time.wrapping_sub(self.time.swap(time, Relaxed)),
        )
    }

    /// Whether a perf event is too expensive for the calling thread, by its switches since the last answer;
    /// `is_now` is that answer, which stands for half a period of CPU time at least.
    #[cold]
    pub(super) fn are_too_expensive(&self, is_now: bool, period: u64) -> bool {
        let now = time_of(libc::CLOCK_THREAD_CPUTIME_ID);
        if now.wrapping_sub(self.time.load(Relaxed)) < period / 2 {
            return is_now;
        }
        let (switches, time) = self.look();
        let part = if is_now { CHEAP } else { TOO_EXPENSIVE };
        let cost = switches.wrapping_mul(COST.load(Relaxed));
        cost.wrapping_mul(part) > time
    }
}

/// Voluntary and involuntary switches of the calling thread; 0 if they are unknown.
fn switches_of_this_thread() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    let to = usage.as_mut_ptr() as usize;
    // SAFETY: the kernel fills the structure, which is valid if it is zero and outlives the call.
    let usage = unsafe {
        system::call(
            libc::SYS_getrusage,
            [libc::RUSAGE_THREAD as usize, to, 0, 0, 0],
        );
        usage.assume_init()
    };
    (usage.ru_nvcsw as u64).wrapping_add(usage.ru_nivcsw as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calling thread sleeps so often in a millisecond of CPU time.
    fn after(switches: &Switches, sleeps: u64, is_now: bool) -> bool {
        let start = time_of(libc::CLOCK_THREAD_CPUTIME_ID);
        for _ in 0..sleeps {
            system::sleep(1);
        }
        while time_of(libc::CLOCK_THREAD_CPUTIME_ID) - start < 1_000_000 {}
        switches.are_too_expensive(is_now, 1_000_000)
    }

    #[test]
    fn the_cost_decides_and_an_answer_stands_for_a_while() {
        let switches = Switches::new();
        switches.look();
        // Far more than any CPU time, whatever the machine.
        COST.store(1 << 40, Relaxed);
        assert!(after(&switches, 20, false));
        COST.store(0, Relaxed);
        assert!(!after(&switches, 20, false));
        assert!(!after(&switches, 20, true));
        assert!(switches.are_too_expensive(true, u64::MAX));
        assert!(!switches.are_too_expensive(false, u64::MAX));
    }
}
