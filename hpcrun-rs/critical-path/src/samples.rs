//! Samples on their way from a signal handler to the thread that it has interrupted.
//!
//! One duty: keep the time of the contexts that were sampled, until the thread's next event adds it to the
//! segment that was open meanwhile. [`Samples::add`] is async-signal-safe: it neither allocates nor locks nor
//! panics.
//!
//! Invariant: only the thread itself and its signal handler use it. The handler may interrupt
//! [`Samples::take`] anywhere, but not the other way round. There are two sides: the thread turns the handler
//! to the empty one before it empties the other.

use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence};
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

/// Contexts between two events of a thread.
const ROOM: usize = 1 << 12;
/// Places of the hash table, of which at least half are free.
const PLACES: usize = 2 * ROOM;

/// See the module.
#[derive(Debug)]
pub struct Samples {
    side: AtomicUsize,
    sides: Box<[Side; 2]>,
    missed: AtomicU64,
    /// Time in waits that no hook has seen.
    waited: AtomicU64,
}

/// Contexts and their times, in the order of their first samples, and a hash table of their numbers.
/// All zeros is an empty side, so memory is used as it is needed.
#[derive(Debug)]
struct Side {
    len: AtomicUsize,
    contexts: [AtomicU32; ROOM],
    times: [AtomicU64; ROOM],
    /// The place of each context in the hash table.
    places: [AtomicU16; ROOM],
    /// A context's number plus one; 0: free.
    table: [AtomicU16; PLACES],
}

/// Adds to a counter that nobody else writes.
fn add(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Ordering::Relaxed) + value, Ordering::Relaxed);
}

impl Side {
    /// False: there is no room.
    fn add(&self, context: u32, time: u64) -> bool {
        let first = context.wrapping_mul(0x9e37_79b9) as usize >> 8;
        for place in first..first + PLACES {
            let place = place % PLACES;
            let number = self.table[place].load(Ordering::Relaxed) as usize;
            let len = self.len.load(Ordering::Relaxed);
            let at = if number == 0 { len } else { number - 1 };
            if at >= ROOM {
                return false;
            }
            if number == 0 {
                self.contexts[at].store(context, Ordering::Relaxed);
                self.times[at].store(time, Ordering::Relaxed);
                self.places[at].store(place as u16, Ordering::Relaxed);
                self.table[place].store(at as u16 + 1, Ordering::Relaxed);
                self.len.store(at + 1, Ordering::Relaxed);
                return true;
            }
            if self.contexts[at].load(Ordering::Relaxed) == context {
                add(&self.times[at], time);
                return true;
            }
        }
        false
    }
}

impl Default for Samples {
    fn default() -> Self {
        let layout = Layout::new::<[Side; 2]>();
        // SAFETY: the layout is not empty. All fields are atomic integers, for which zeros are valid, and the
        // memory is the allocator's for a box of this type.
        let sides = unsafe {
            let sides = alloc_zeroed(layout).cast::<[Side; 2]>();
            if sides.is_null() {
                handle_alloc_error(layout);
            }
            Box::from_raw(sides)
        };
        Samples { side: AtomicUsize::new(0), sides, missed: AtomicU64::new(0), waited: AtomicU64::new(0) }
    }
}

impl Samples {
    /// `time` nanoseconds were spent in the context since the last sample.
    pub fn add(&self, context: u32, time: u64) {
        let side = &self.sides[self.side.load(Ordering::Relaxed) % 2];
        if !side.add(context, time) {
            add(&self.missed, time);
        }
    }

    /// A sample found the thread in a wait that costs CPU time, as `time` nanoseconds since the last one did.
    pub fn add_wait(&self, time: u64) {
        self.waited.fetch_add(time, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn found_wait(&self) -> bool {
        self.waited.load(Ordering::Relaxed) != 0
    }

    /// The time in such waits since this was asked last.
    pub(crate) fn take_waited(&self) -> u64 {
        self.waited.swap(0, Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        let side = &self.sides[self.side.load(Ordering::Relaxed) % 2];
        side.len.load(Ordering::Relaxed) != 0
    }

    /// Takes all samples.
    pub(crate) fn take(&self) -> Vec<(u32, u64)> {
        let side = self.side.load(Ordering::Relaxed) % 2;
        self.side.store(1 - side, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let side = &self.sides[side];
        let len = side.len.swap(0, Ordering::Relaxed);
        let taken = (0..len).map(|at| {
            side.table[side.places[at].load(Ordering::Relaxed) as usize].store(0, Ordering::Relaxed);
            let context = side.contexts[at].load(Ordering::Relaxed);
            (context, side.times[at].load(Ordering::Relaxed))
        });
        taken.collect()
    }

    /// Nanoseconds that found no room, since this was asked last.
    pub(crate) fn take_missed(&self) -> u64 {
        self.missed.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up_until_they_are_taken() {
        let samples = Samples::default();
        assert!(!samples.are_there());
        for round in 0..3 {
            for _ in 0..3 {
                samples.add(0, 5);
                samples.add(4095 + round, 7);
            }
            assert!(samples.are_there());
            assert_eq!(samples.take(), [(0, 15), (4095 + round, 21)]);
            assert!(!samples.are_there() && samples.take().is_empty());
        }
    }

    #[test]
    fn what_finds_no_room_is_known() {
        let samples = Samples::default();
        let more = 100;
        for _ in 0..2 {
            (0..ROOM as u32 + more).for_each(|context| samples.add(context * 64, 2));
        }
        assert_eq!(samples.take_missed(), u64::from(more) * 2 * 2);
        let taken = samples.take();
        assert_eq!(taken.len(), ROOM);
        assert!(taken.iter().all(|(_, time)| *time == 4));
        assert_eq!(samples.take_missed(), 0);
        samples.add(7, 1);
        assert_eq!(samples.take(), [(7, 1)]);
    }
}
