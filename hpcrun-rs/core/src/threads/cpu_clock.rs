//! A thread's CPU clock, which any thread may read.
//!
//! Async-signal-safe.

use crate::system;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

#[derive(Default)]
pub(super) struct CpuClock {
    id: AtomicU32,
    /// CPU time when the thread began, nanoseconds: an exec does not reset the clock.
    start: AtomicU64,
    /// CPU time at the last call of [`CpuClock::has_slept`], nanoseconds.
    last: AtomicU64,
}

impl CpuClock {
    /// Starts with the clock of the thread with this kernel id.
    pub(super) fn begin(&self, tid: u32) {
        // The kernel's number of a thread's CPU clock (CPUCLOCK_PERTHREAD, CPUCLOCK_SCHED).
        self.id.store(!tid << 3 | 6, Relaxed);
        let now = self.read();
        self.start.store(now, Relaxed);
        self.last.store(now, Relaxed);
    }

    pub(super) fn used(&self) -> u64 {
        self.read().saturating_sub(self.start.load(Relaxed))
    }

    /// Whether the thread has used hardly any CPU time since the last call. The calls are at least a period
    /// apart, so it has waited.
    pub(super) fn has_slept(&self, period_ns: u64) -> bool {
        let now = self.read();
        now.wrapping_sub(self.last.swap(now, Relaxed)) < period_ns / 8
    }

    /// CPU time of the thread, nanoseconds.
    pub(super) fn read(&self) -> u64 {
        match self.id.load(Relaxed) {
            0 => 0,
            id => system::clock(id as libc::clockid_t),
        }
    }
}
