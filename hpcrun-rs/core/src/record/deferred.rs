//! Samples that arrive while a thread captures its context for a task.
//!
//! The handler cannot use the recorder then. The thread is in the profiler, called from the very context that
//! it captures. So the handler adds the sample's values here, and the thread adds them to the node of that
//! context at the end. Without this, programs that spawn continuously would lose the samples of their spawns.
//!
//! Only the owning thread uses this, and its signal handler, which interrupts it. Async-signal-safe.

use crate::activity::Charge;
use crate::sinks::Values;
use crate::source::Sample;
use std::cell::Cell;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

/// The deferred samples of one thread: two buffers, so that the thread can empty one while the handler fills
/// the other. Empty and closed at first.
#[derive(Default)]
pub(crate) struct Deferred {
    is_open: Cell<bool>,
    /// Index of the buffer that the handler uses; the thread empties the other.
    side: Cell<usize>,
    values: [Cell<Values>; 2],
}

impl Deferred {
    /// From now on, samples that arrive inside the profiler are deferred.
    #[inline]
    pub(crate) fn open(&self) {
        self.is_open.set(true);
        compiler_fence(SeqCst);
    }

    /// From now on, they are no longer deferred.
    #[inline]
    pub(crate) fn close(&self) {
        compiler_fence(SeqCst);
        self.is_open.set(false);
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.get()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        compiler_fence(SeqCst);
        self.values[self.side.get()].get().samples() == 0
    }

    /// Defers a sample. Called by the handler.
    #[cold]
    pub(crate) fn add(&self, sample: &Sample, charge: Charge) {
        let cell = &self.values[self.side.get()];
        let mut values = cell.get();
        values.add(sample, charge);
        cell.set(values);
    }

    /// Takes the deferred samples. A handler that interrupts this uses the other buffer.
    pub(crate) fn take(&self) -> Option<Values> {
        let side = self.side.get();
        self.side.set(1 - side);
        compiler_fence(SeqCst);
        let taken = self.values[side].take();
        (taken.samples() > 0).then_some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::Registers;

    #[test]
    fn samples_are_kept_while_open_and_taken_once() {
        let charge = Charge { idleness: 0.5e6, oversubscribed: 0.25e6 };
        let sample = |weight, now| Sample {
            registers: Registers::new(0, 0, 0),
            now,
            weight,
            held_back: 0,
            period: 1_000_000,
        };
        let deferred = Deferred::default();
        assert!(!deferred.is_open());
        deferred.open();
        deferred.add(&sample(3, 8), charge);
        deferred.add(&sample(1, 9), charge);
        assert!(!deferred.is_empty());
        let taken = deferred.take().expect("two samples");
        assert_eq!((taken.samples(), taken.periods(), taken.last_ns), (2, 4, 9));
        let idleness = f64::from_bits(taken.words[0][2]);
        assert_eq!(idleness, 2.0 * taken.oversubscribed);
        assert_eq!(taken.words[1][0], 3 * 3 + 1);
        assert_eq!(deferred.take(), None);
        deferred.add(&sample(1, 10), charge);
        assert_eq!(deferred.take().map(|v| v.samples()), Some(1));
        deferred.close();
        assert!(!deferred.is_open() && deferred.is_empty());
    }
}
