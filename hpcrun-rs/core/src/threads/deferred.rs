//! Samples that arrive while a thread captures its context for a task.
//!
//! The handler cannot use the recorder then. But it need not: the thread is in the profiler, called
//! from just the context that is being captured, so the samples are added to that one's node in
//! the end. Without this, programs that spawn without pause would lose the samples of their spawns.
//!
//! Only the owning thread and its signal handler, which interrupts it, use this; so plain atomics
//! without ordering between threads do. Async-signal-safe.

use super::recorder::Values;
use crate::activity::Load;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// See the module's description.
#[derive(Debug)]
pub(super) struct Deferred {
    is_open: AtomicBool,
    samples: AtomicU64,
    periods: AtomicU64,
    /// The bits of `f64`s.
    idleness: AtomicU64,
    oversubscribed: AtomicU64,
}

impl Deferred {
    /// None, and closed.
    pub(super) const fn new() -> Deferred {
        Deferred {
            is_open: AtomicBool::new(false),
            samples: AtomicU64::new(0),
            periods: AtomicU64::new(0),
            idleness: AtomicU64::new(0),
            oversubscribed: AtomicU64::new(0),
        }
    }

    /// Samples that find the thread in the profiler are kept from now on.
    #[inline]
    pub(super) fn open(&self) {
        self.is_open.store(true, Relaxed);
    }

    /// They are not any more.
    #[inline]
    pub(super) fn close(&self) {
        self.is_open.store(false, Relaxed);
    }

    /// Whether nothing waits to be taken.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.samples.load(Relaxed) == 0
    }

    /// Keeps a sample of so many periods; false when closed. For the handler.
    #[cold]
    pub(super) fn add(&self, periods: u64, load: Load) -> bool {
        if !self.is_open.load(Relaxed) {
            return false;
        }
        let add = |sum: &AtomicU64, share: f64| {
            let value = f64::from_bits(sum.load(Relaxed)) + periods as f64 * share;
            sum.store(value.to_bits(), Relaxed);
        };
        add(&self.idleness, load.idle_per_working);
        add(&self.oversubscribed, load.oversubscribed);
        self.periods.fetch_add(periods, Relaxed);
        self.samples.fetch_add(1, Relaxed);
        true
    }

    /// What was kept, the last of it at `last_ns`. A sample that arrives in between may be split over this and the next call,
    /// and is whole in their sum.
    pub(super) fn take(&self, last_ns: u64) -> Option<Values> {
        if self.is_empty() {
            return None;
        }
        Some(Values {
            samples: self.samples.swap(0, Relaxed),
            periods: self.periods.swap(0, Relaxed),
            idleness: f64::from_bits(self.idleness.swap(0, Relaxed)),
            oversubscribed: f64::from_bits(self.oversubscribed.swap(0, Relaxed)),
            last_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load = Load {
        idle_per_working: 0.5,
        oversubscribed: 0.25,
    };

    #[test]
    fn samples_are_kept_while_open_and_taken_once() {
        let deferred = Deferred::new();
        assert!(!deferred.add(1, LOAD), "closed: the sample is lost");
        deferred.open();
        assert!(deferred.add(3, LOAD) && deferred.add(1, LOAD));
        let expected = Values {
            samples: 2,
            periods: 4,
            idleness: 2.0,
            oversubscribed: 1.0,
            last_ns: 9,
        };
        assert_eq!(deferred.take(9), Some(expected));
        assert_eq!(deferred.take(9), None);
        deferred.close();
        assert!(!deferred.add(1, LOAD) && deferred.is_empty());
    }
}
