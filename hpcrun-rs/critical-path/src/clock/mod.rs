//! The time by which activity is measured: the CPU time of the calling thread.
//!
//! `counter` reads it in about 20 ns where the machine allows that: x86-64 with an invariant time stamp
//! counter and restartable sequences, found out by a check at the first use. Elsewhere each reading asks the
//! system.

#[cfg(target_arch = "x86_64")]
mod counter;

#[cfg(not(target_arch = "x86_64"))]
mod counter {
    //! No counter is known.

    #[derive(Debug)]
    pub(super) enum Counter {}

    impl Counter {
        pub(super) fn of_this_thread() -> Option<Self> {
            None
        }

        pub(super) fn read(&mut self) -> u64 {
            match *self {}
        }

        pub(super) fn resyncs(&self) -> u64 {
            match *self {}
        }

        pub(super) fn at(&self, _cpu: u64) -> u64 {
            match *self {}
        }
    }
}

use counter::Counter;

/// The activity of one thread.
pub trait Clock {
    /// Nanoseconds of activity so far; never less than the value before.
    fn now(&mut self) -> u64;

    /// Readings that had to ask the system.
    fn resyncs(&self) -> u64 {
        0
    }

    /// The time when the system's CPU clock of the thread shows `cpu` nanoseconds. Any thread may ask.
    fn at(&self, cpu: u64) -> u64 {
        cpu
    }
}

/// The CPU time of the thread that made it, without the time that its own readings take from the system.
/// It must be used by that thread only, one at a time on each thread: a second one is as exact, but then both
/// ask the system each time.
#[derive(Debug)]
pub struct ThreadClock {
    last: u64,
    /// `None`: each reading is a system call of 0.2 to 1 µs.
    counter: Option<Counter>,
    /// It belongs to one thread.
    marker: core::marker::PhantomData<*mut ()>,
}

impl ThreadClock {
    /// The calling thread's clock.
    pub fn new() -> Self {
        ThreadClock { last: 0, counter: Counter::of_this_thread(), marker: core::marker::PhantomData }
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
        let now = self.counter.as_mut().map_or_else(thread_time, Counter::read);
        self.last = self.last.max(now);
        self.last
    }

    fn resyncs(&self) -> u64 {
        self.counter.as_ref().map_or(0, Counter::resyncs)
    }

    fn at(&self, cpu: u64) -> u64 {
        self.counter.as_ref().map_or(cpu, |counter| counter.at(cpu))
    }
}

/// CPU time of the calling thread in nanoseconds. Async-signal-safe.
fn thread_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the result, which the call fills. It cannot fail for this clock, and if it
    // did the time would be 0, which advances no clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Until the thread's CPU clock, by the system, has advanced by so much.
    fn spin(time: Duration) {
        let start = thread_time();
        while thread_time() - start < time.as_nanos() as u64 {
            core::hint::spin_loop();
        }
    }

    /// However often the thread loses its core, both clocks agree.
    #[test]
    fn it_agrees_with_the_systems_clock() {
        let threads = std::thread::available_parallelism().map_or(2, usize::from) * 2;
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut clock = ThreadClock::new();
                    let (start, from) = (thread_time(), clock.now());
                    for _ in 0..100 {
                        spin(Duration::from_micros(300));
                        clock.now();
                    }
                    let time = clock.now() - from;
                    let system = thread_time() - start;
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
    fn the_systems_clock_serves_alone() {
        let mut clock = ThreadClock::new();
        clock.counter = None;
        let from = clock.now();
        spin(Duration::from_millis(5));
        let time = clock.now() - from;
        assert!((5_000_000..10_000_000).contains(&time), "{time}");
        assert_eq!(clock.resyncs(), 0);
    }
}
