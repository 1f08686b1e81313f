//! Samples on their way from a signal handler to the thread that it has interrupted.
//!
//! One duty: keep the time of some procedures until the thread's next event, which adds it to the segment
//! that was open meanwhile. [`Samples::add`] is async-signal-safe: it neither allocates nor locks nor panics.
//!
//! Invariant: only the thread itself and its signal handler use it. The handler may interrupt
//! [`Samples::take`] anywhere, but not the other way round: procedure and time share a word, so no sample
//! falls between two procedures.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::procedures::Procedure;

/// Procedures between two events of a thread.
const ROOM: usize = 32;
/// Bits of a time in nanoseconds: 13 days.
const TIME_BITS: u32 = 50;

/// See the module.
#[derive(Debug, Default)]
pub struct Samples {
    any: AtomicBool,
    /// A procedure's number above its time; 0: free.
    slots: [AtomicU64; ROOM],
}

impl Samples {
    /// `time` nanoseconds were spent in the procedure since the last sample. False: there is no room, and the
    /// sample is lost.
    pub fn add(&self, procedure: Procedure, time: u64) -> bool {
        let time = time.min((1 << TIME_BITS) - 1);
        let number = u64::from(procedure.0);
        for slot in &self.slots {
            let value = slot.load(Ordering::Relaxed);
            if value == 0 || value >> TIME_BITS == number {
                let before = value & ((1 << TIME_BITS) - 1);
                let sum = (before + time).min((1 << TIME_BITS) - 1);
                slot.store(number << TIME_BITS | sum, Ordering::Relaxed);
                self.any.store(true, Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Takes all samples.
    pub(crate) fn take(&self) -> impl Iterator<Item = (Procedure, u64)> + '_ {
        // First: a handler from here on sets it again.
        self.any.store(false, Ordering::Relaxed);
        let taken = self
            .slots
            .iter()
            .map(|slot| slot.swap(0, Ordering::Relaxed));
        taken.filter(|value| *value != 0).map(|value| {
            let time = value & ((1 << TIME_BITS) - 1);
            (Procedure((value >> TIME_BITS) as u32), time)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up_until_they_are_taken() {
        let samples = Samples::default();
        assert!(!samples.are_there());
        for _ in 0..3 {
            assert!(samples.add(Procedure(0), 5));
            assert!(samples.add(Procedure(4095), 7));
        }
        assert!(samples.are_there());
        let taken: Vec<_> = samples.take().collect();
        assert_eq!(taken, [(Procedure(0), 15), (Procedure(4095), 21)]);
        assert_eq!(samples.take().count(), 0);
    }

    #[test]
    fn it_says_when_it_is_full() {
        let samples = Samples::default();
        let added = (0..100).filter(|n| samples.add(Procedure(*n), 1)).count();
        assert_eq!(added, ROOM);
    }
}
