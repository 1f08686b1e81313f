//! What edges and operations cost on this machine.
//!
//! One duty: measure how long a running thread takes to see what another one has done, and how long an
//! operation takes. The least of some times counts, so that other programs matter little. Threads that sleep
//! take longer to see something: 10 µs and more.

use crate::clock::ThreadClock;
use crate::path::Site;
use crate::settings::Settings;
use crate::thread::Thread;
use crate::tracker::Tracker;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Round trips, and the longest time for all of them.
const TRIPS: u32 = 200;
const LONGEST: Duration = Duration::from_millis(5);
/// A longer trip tells of the scheduler: the threads did not run at the same time.
const PLAUSIBLE: u64 = 20_000;

impl Settings {
    /// With edge costs that are measured now, in some milliseconds: a message takes as long as a running
    /// thread needs to see it, a spawn twice that, since a thief must look and claim the task. Where no
    /// second thread runs at the same time, they are 150 and 300 ns, as on a usual machine.
    pub fn calibrated(self) -> Self {
        let round_trip = round_trip().unwrap_or(300);
        Settings { spawn_cost: round_trip, message_cost: round_trip / 2, ..self }
    }

    /// With the cost of operations, which is measured now on the calling thread, in a tenth of a millisecond.
    pub fn without_operations(self) -> Self {
        Settings { operation_cost: operation(), ..self }
    }
}

/// The least time, in nanoseconds, that a signal takes to another thread and back; `None` if no second thread
/// ran at the same time.
fn round_trip() -> Option<u64> {
    let (ball, over) = (AtomicU32::new(0), AtomicBool::new(false));
    // SAFETY: there are no preconditions.
    let core = unsafe { libc::sched_getcpu() };
    let wait_for = |value: u32| {
        while ball.load(Ordering::Acquire) != value {
            if over.load(Ordering::Relaxed) {
                return false;
            }
            core::hint::spin_loop();
        }
        true
    };
    thread::scope(|scope| {
        let partner = || {
            if !leave(core) {
                return over.store(true, Ordering::Relaxed);
            }
            for trip in 0..TRIPS {
                if !wait_for(2 * trip + 1) {
                    return;
                }
                ball.store(2 * trip + 2, Ordering::Release);
            }
        };
        thread::Builder::new().spawn_scoped(scope, partner).ok()?;
        let start = Instant::now();
        let mut least = None;
        for trip in 0..TRIPS {
            let sent = Instant::now();
            if sent - start > LONGEST {
                break;
            }
            ball.store(2 * trip + 1, Ordering::Release);
            while ball.load(Ordering::Acquire) != 2 * trip + 2 && start.elapsed() < LONGEST {
                if over.load(Ordering::Relaxed) {
                    return None;
                }
                match trip {
                    // The partner may have begun on this core.
                    0 => thread::yield_now(),
                    _ => core::hint::spin_loop(),
                }
            }
            if ball.load(Ordering::Acquire) == 2 * trip + 2 {
                let time = sent.elapsed().as_nanos() as u64;
                least = Some(least.map_or(time, |least: u64| least.min(time)));
            }
        }
        over.store(true, Ordering::Relaxed);
        least.filter(|time| *time <= PLAUSIBLE)
    })
}

/// The calling thread leaves a core for others that it may use; whether there are any.
fn leave(core: i32) -> bool {
    const SIZE: usize = size_of::<libc::cpu_set_t>();
    // SAFETY: a set of cores is plain numbers.
    let mut cores: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel fills a set of this size for the calling thread.
    let is_known = unsafe { libc::sched_getaffinity(0, SIZE, &mut cores) } == 0;
    let Some(core) = usize::try_from(core).ok().filter(|_| is_known) else {
        return false;
    };
    // SAFETY: the number of a core is less than the kernel's number of them, which fits into the set.
    unsafe { libc::CPU_CLR(core, &mut cores) };
    // SAFETY: a set of this size; the kernel refuses an empty one.
    unsafe { libc::sched_setaffinity(0, SIZE, &raw const cores) == 0 }
}

/// The least time in nanoseconds from one operation's reading of the clock to the next one's, on the average
/// of a spawn, a begin, and an end with a merge, if the program does nothing between them. The chain of the
/// two halves has two of these.
fn operation() -> u64 {
    const ROUNDS: u32 = 8;
    const FORKS: u64 = 32;
    let tracker = Tracker::new(Settings::default());
    let mut thread = Thread::new(&tracker, ThreadClock::new(), Site(0));
    let least = (0..ROUNDS).map(|_| {
        let before = thread.length();
        for _ in 0..FORKS {
            let spawned = thread.copy(Site(0));
            let left = thread.begin(Some(spawned), Site(0));
            thread.end_and_merge(left, Site(0));
        }
        (thread.length() - before) / (2 * FORKS)
    });
    least.min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    /// On a busy machine the partner may not run in time: then the usual costs count.
    #[test]
    fn edges_cost_what_they_may_cost() {
        let settings = Settings::default().calibrated();
        assert!((10..=PLAUSIBLE).contains(&settings.spawn_cost));
        assert_eq!(settings.message_cost, settings.spawn_cost / 2);
    }

    /// A clock by which each reading takes as long as an operation does, and nothing else takes any time.
    struct Readings(u64);

    impl Clock for Readings {
        fn now(&mut self) -> u64 {
            self.0 += 100;
            self.0
        }
    }

    /// What passes between operations counts, less their cost; what passes inside of them does not.
    #[test]
    fn operations_take_no_time() {
        for (operation_cost, counted) in [(0, 100), (30, 70), (200, 0)] {
            let tracker = Tracker::new(Settings { operation_cost, ..Settings::default() });
            let mut thread = Thread::new(&tracker, Readings(0), Site(0));
            for _ in 0..10 {
                let spawned = thread.copy(Site(0));
                let left = thread.begin(Some(spawned), Site(0));
                thread.end_and_merge(left, Site(0));
            }
            // A copy does not see what passes before the begin, which the one that is left has instead.
            assert_eq!(thread.length(), 21 * counted, "{operation_cost}");
        }
    }
}
