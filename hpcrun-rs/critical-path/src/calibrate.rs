//! What edges cost on this machine.
//!
//! One duty: measure how long a running thread takes to see what another one has done. The least of some
//! round trips counts, so that other programs matter little. Threads that sleep take longer: 10 µs and more.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Round trips, and the longest time for all of them.
const TRIPS: u32 = 200;
const LONGEST: Duration = Duration::from_millis(5);
/// A longer trip tells of the scheduler: the threads did not run at the same time.
const PLAUSIBLE: u64 = 20_000;
/// Looks before a thread gives its core away: on one core the other thread needs it.
const PATIENCE: u32 = 1000;

/// The least time, in nanoseconds, that a signal takes to another thread and back; `None` if no second thread
/// ran at the same time.
pub(crate) fn round_trip() -> Option<u64> {
    let (ball, over) = (AtomicU32::new(0), AtomicBool::new(false));
    let wait_for = |value: u32| {
        for look in 1_u32.. {
            if ball.load(Ordering::Acquire) == value {
                return true;
            }
            if over.load(Ordering::Relaxed) {
                return false;
            }
            if look % PATIENCE == 0 {
                thread::yield_now();
            }
            core::hint::spin_loop();
        }
        false
    };
    thread::scope(|scope| {
        let partner = || {
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
                core::hint::spin_loop();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracker::Settings;

    /// On a busy machine the partner may not run in time: then the usual costs count.
    #[test]
    fn edges_cost_what_they_may_cost() {
        let settings = Settings::default().calibrated();
        assert!((10..=PLAUSIBLE).contains(&settings.spawn_cost));
        assert_eq!(settings.message_cost, settings.spawn_cost / 2);
    }
}
