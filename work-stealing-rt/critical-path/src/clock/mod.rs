//! The time by which activity is measured: the CPU time of the calling thread.
//!
//! `counter` reads it in about 20 ns where the machine allows that: x86-64 Linux with an invariant time stamp
//! counter and restartable sequences, found out by a check at the first use. Elsewhere `system` asks the
//! system each time.

mod system;

#[cfg(all(
    target_arch = "x86_64",
    target_os = "linux",
    target_env = "gnu",
    not(miri)
))]
mod counter;

/// The activity of one thread.
pub trait Clock {
    /// Nanoseconds of activity so far; never less than the value before.
    fn now(&mut self) -> u64;

    /// Readings that had to ask the system.
    fn resyncs(&self) -> u64 {
        0
    }
}

/// How a [`ThreadClock`] measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// The time stamp counter, as long as the thread keeps its core; else the thread's CPU clock.
    Counter,
    /// The thread's CPU clock, by a system call each time: 0.2 to 1 µs.
    System,
    /// The wall clock: the system has no CPU clock of a thread. Preemption and waits are not excluded.
    Wall,
}

impl Timer {
    /// What the JSON report says of it.
    pub fn name(self) -> &'static str {
        match self {
            Timer::Counter | Timer::System => "cpu",
            Timer::Wall => "wall",
        }
    }
}

/// The CPU time of the thread that made it, without the time that its own readings take from the system.
/// It must be used by that thread only, one at a time on each thread: a second one is as exact, but then both
/// ask the system each time.
#[derive(Debug)]
pub struct ThreadClock {
    last: u64,
    #[cfg(all(
        target_arch = "x86_64",
        target_os = "linux",
        target_env = "gnu",
        not(miri)
    ))]
    counter: Option<counter::Counter>,
    /// It belongs to one thread.
    marker: core::marker::PhantomData<*mut ()>,
}

impl ThreadClock {
    /// The calling thread's clock.
    pub fn new() -> Self {
        ThreadClock {
            last: 0,
            #[cfg(all(
                target_arch = "x86_64",
                target_os = "linux",
                target_env = "gnu",
                not(miri)
            ))]
            counter: counter::Counter::of_this_thread(),
            marker: core::marker::PhantomData,
        }
    }

    /// How it measures.
    pub fn timer(&self) -> Timer {
        #[cfg(all(
            target_arch = "x86_64",
            target_os = "linux",
            target_env = "gnu",
            not(miri)
        ))]
        if self.counter.is_some() {
            return Timer::Counter;
        }
        system::TIMER
    }

    #[inline]
    fn read(&mut self) -> u64 {
        #[cfg(all(
            target_arch = "x86_64",
            target_os = "linux",
            target_env = "gnu",
            not(miri)
        ))]
        if let Some(counter) = &mut self.counter {
            return counter.read();
        }
        system::thread_time()
    }
}

impl Default for ThreadClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ThreadClock {
    #[inline]
    fn now(&mut self) -> u64 {
        self.last = self.last.max(self.read());
        self.last
    }

    fn resyncs(&self) -> u64 {
        #[cfg(all(
            target_arch = "x86_64",
            target_os = "linux",
            target_env = "gnu",
            not(miri)
        ))]
        if let Some(counter) = &self.counter {
            return counter.resyncs();
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// Until the thread's CPU clock, by the system, has advanced by so much.
    #[cfg(not(miri))]
    fn spin(time: Duration) {
        let start = system::thread_time();
        while system::thread_time() - start < time.as_nanos() as u64 {
            core::hint::spin_loop();
        }
    }

    /// However often the thread loses its core, both clocks agree.
    #[test]
    #[cfg(not(miri))]
    fn it_agrees_with_the_systems_clock() {
        let threads = std::thread::available_parallelism().map_or(2, usize::from) * 2;
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut clock = ThreadClock::new();
                    let (start, from) = (system::thread_time(), clock.now());
                    for _ in 0..100 {
                        spin(Duration::from_micros(300));
                        clock.now();
                    }
                    let time = clock.now() - from;
                    let system = system::thread_time() - start;
                    // What reading takes from the system is not part of it. A hypervisor may take the core
                    // unseen; by the wall clock it would be twice as much.
                    let own = clock.resyncs() * 20_000 + system / 10;
                    assert!(time <= system + system / 4, "{time} of {system}");
                    assert!(time + own >= system, "{time} of {system}");
                });
            }
        });
    }

    /// Two clocks of one thread ask the system more often, but neither is wrong.
    #[test]
    #[cfg(not(miri))]
    fn two_clocks_of_a_thread_agree() {
        let (mut one, mut other) = (ThreadClock::new(), ThreadClock::new());
        let from = (one.now(), other.now());
        for _ in 0..50 {
            spin(Duration::from_micros(100));
            one.now();
            spin(Duration::from_micros(100));
            other.now();
        }
        let (one, other) = (one.now() - from.0, other.now() - from.1);
        assert!((9_000_000..15_000_000).contains(&one), "{one}");
        assert!(one.abs_diff(other) < one / 10, "{one} and {other}");
    }

    /// Where the counter is of no use.
    #[test]
    #[cfg(not(miri))]
    fn the_systems_clock_serves_alone() {
        let mut clock = ThreadClock::new();
        #[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
        {
            clock.counter = None;
        }
        assert_eq!(clock.timer(), system::TIMER);
        let from = clock.now();
        spin(Duration::from_millis(5));
        let time = clock.now() - from;
        assert!((5_000_000..10_000_000).contains(&time), "{time}");
        assert_eq!(clock.resyncs(), 0);
    }

    #[test]
    #[cfg(not(miri))]
    fn waiting_does_not_advance_it() {
        let mut clock = ThreadClock::new();
        if clock.timer() == Timer::Wall {
            return;
        }
        let from = clock.now();
        let start = Instant::now();
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(2));
            clock.now();
        }
        assert!(start.elapsed() >= Duration::from_millis(40));
        assert!(clock.now() - from < 20_000_000);
    }

    #[test]
    fn it_never_goes_back() {
        let mut clock = ThreadClock::new();
        let mut last = 0;
        for _ in 0..if cfg!(miri) { 10 } else { 100_000 } {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }
}
