//! What operations cost on this machine.
//!
//! One duty: measure how long an operation takes. The least of some times counts, so that other programs
//! matter little.

use crate::clock::ThreadClock;
use crate::path::Site;
use crate::settings::Settings;
use crate::thread::Thread;
use crate::tracker::Tracker;

impl Settings {
    /// With the cost of operations, which is measured now on the calling thread, in a tenth of a millisecond.
    pub fn without_operations(self) -> Self {
        Settings { operation_cost: operation(), ..self }
    }
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
