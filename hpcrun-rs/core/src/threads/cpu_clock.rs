//! A thread's CPU time, as any thread may read it.
//!
//! Async-signal-safe.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// See the module's description.
#[derive(Debug)]
pub(super) struct CpuClock {
    id: AtomicU32,
    /// When the state was made, nanoseconds: an exec does not reset the clock.
    start: AtomicU64,
    /// At the last look of [`CpuClock::has_slept`].
    last: AtomicU64,
}

impl CpuClock {
    pub(super) const fn new() -> CpuClock {
        CpuClock {
            id: AtomicU32::new(0),
            start: AtomicU64::new(0),
            last: AtomicU64::new(0),
        }
    }

    /// The clock is that of the thread with this kernel id from now on.
    pub(super) fn begin(&self, tid: u32) {
        // As the kernel numbers the CPU clock of a thread (CPUCLOCK_PERTHREAD, CPUCLOCK_SCHED).
        self.id.store(!tid << 3 | 6, Relaxed);
        let now = self.read();
        self.start.store(now, Relaxed);
        self.last.store(now, Relaxed);
    }

    /// Nanoseconds since the beginning.
    pub(super) fn used(&self) -> u64 {
        self.read().saturating_sub(self.start.load(Relaxed))
    }

    /// Whether the thread was charged hardly any CPU time since this was asked last, a period ago or more:
    /// it waited, whatever by.
    pub(super) fn has_slept(&self, period_ns: u64) -> bool {
        let now = self.read();
        now.wrapping_sub(self.last.swap(now, Relaxed)) < period_ns / 8
    }

    fn read(&self) -> u64 {
        let clock = self.id.load(Relaxed) as libc::clockid_t;
        let mut t = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `t` is ours; an invalid clock id is an error, not a fault.
        if clock == 0 || unsafe { libc::clock_gettime(clock, &mut t) } != 0 {
            return 0;
        }
        t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
    }
}
