//! The critical path at a worker's pending forks.
//!
//! One duty: a record for each slot of the worker's deque, with the strand of the fork, later that
//! of its stolen task's end.
//!
//! Invariant: a record is touched by whoever has the slot: the owner before it opens the task to others and
//! after it has taken the task back, the thief from its claim to its announcement, then the owner again.
//! These hand-overs order the accesses (`deque`).

use core::cell::UnsafeCell;
use core::mem;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;

use hpcrun_abi::Site;

use super::path::{self, Strand};
use crate::deque::CAPACITY;

/// Records that are allocated at once.
const CHUNK: usize = 64;

/// What is known of a worker's forks.
pub(crate) struct Forks {
    /// None until one is needed.
    records: OnceLock<Box<[Chunk]>>,
    pub(crate) grains: Grains,
}

type Chunk = OnceLock<Box<[Record]>>;

impl Forks {
    pub(crate) fn new() -> Self {
        Forks { records: OnceLock::new(), grains: Grains::default() }
    }

    #[inline(always)]
    pub(crate) fn record(&self, slot: usize) -> &Record {
        let chunks = self.records.get_or_init(|| {
            let chunks = CAPACITY.div_ceil(CHUNK);
            (0..chunks).map(|_| OnceLock::new()).collect()
        });
        let chunk = chunks[slot / CHUNK].get_or_init(|| (0..CHUNK).map(|_| Record::default()).collect());
        &chunk[slot % CHUNK]
    }
}

/// So many grains of a worker are known at once.
const MOST_GRAINS: usize = 4;

/// The slots of forks that the profiler need not be told of: those in one half of a fork that it has said so
/// of, which is in the slot before. They have no records. Written by the owner alone. A thief that has such a
/// fork finds its slot here: the owner does not leave the half before it has joined the fork.
///
/// While a grain is suspended, another one may begin, in later slots, and ends first.
#[derive(Default)]
pub(crate) struct Grains {
    slots: [Grain; MOST_GRAINS],
    /// How many there are now, for the owner.
    count: AtomicUsize,
}

struct Grain {
    from: AtomicUsize,
    /// Not the owner's last pending fork, if it does something else meanwhile.
    until: AtomicUsize,
}

impl Default for Grain {
    fn default() -> Self {
        Grain { from: AtomicUsize::new(usize::MAX), until: AtomicUsize::new(usize::MAX) }
    }
}

impl Grains {
    /// Anyone who has the slot: whether the fork is one of these.
    #[inline(always)]
    pub(crate) fn contains(&self, slot: usize) -> bool {
        self.slots.iter().any(|grain| {
            slot >= grain.from.load(Ordering::Relaxed) && slot < grain.until.load(Ordering::Relaxed)
        })
    }

    /// Owner: the grain that has begun last.
    #[inline(always)]
    fn last(&self) -> Option<&Grain> {
        let last = self.count.load(Ordering::Relaxed).checked_sub(1)?;
        self.slots.get(last)
    }

    /// Owner: whether further forks are.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        self.last().is_some_and(|grain| grain.until.load(Ordering::Relaxed) == usize::MAX)
    }

    /// Owner: whether the last ones are in a half of the fork in the slot.
    pub(crate) fn is_of(&self, slot: usize) -> bool {
        self.last().is_some_and(|grain| grain.from.load(Ordering::Relaxed) == slot + 1)
    }

    /// Owner: further forks, the first one in the slot, are not told. False: the worker is in a grain, or
    /// has too many.
    pub(crate) fn enter(&self, slot: usize) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        let free = self.slots.get(count).filter(|_| !self.is_open());
        if let Some(grain) = free {
            grain.from.store(slot, Ordering::Relaxed);
            self.count.store(count + 1, Ordering::Relaxed);
        }
        free.is_some()
    }

    /// Owner: the half is over.
    pub(crate) fn leave(&self) {
        if let Some(grain) = self.last() {
            let count = self.count.load(Ordering::Relaxed);
            self.count.store(count - 1, Ordering::Relaxed);
            grain.from.store(usize::MAX, Ordering::Relaxed);
            grain.until.store(usize::MAX, Ordering::Relaxed);
        }
    }

    /// Owner: further forks, the first one in the slot, are told.
    pub(crate) fn suspend(&self, slot: usize) {
        self.last().inspect(|grain| grain.until.store(slot, Ordering::Relaxed));
    }

    /// Owner: as before [`Grains::suspend`].
    pub(crate) fn resume(&self) {
        self.last().inspect(|grain| grain.until.store(usize::MAX, Ordering::Relaxed));
    }
}

/// A fork's strand: from the fork to its task's begin, and back from the task's end.
#[derive(Default)]
pub(crate) struct Record(UnsafeCell<Content>);

// SAFETY: see the module: one thread at a time, in an order that atomics of the slot make.
unsafe impl Sync for Record {}
// SAFETY: nothing in it is bound to a thread.
unsafe impl Send for Record {}

#[derive(Default)]
struct Content {
    site: Site,
    strand: Option<Strand>,
}

impl Record {
    /// The strand of the fork at `site`, or of the end of its task.
    ///
    /// # Safety
    /// The calling thread has the slot.
    #[inline(always)]
    pub(crate) unsafe fn set(&self, site: Site, strand: Option<Strand>) {
        // SAFETY: the caller's promise; nothing is called that could come back here.
        let content = unsafe { &mut *self.0.get() };
        content.site = site;
        if let old @ Some(_) = mem::replace(&mut content.strand, strand) {
            // Left behind when the tracking stopped.
            path::discard(old);
        }
    }

    /// Takes the strand.
    ///
    /// # Safety
    /// As for `set`.
    #[inline(always)]
    pub(crate) unsafe fn take(&self) -> Option<Strand> {
        // SAFETY: as in `set`.
        unsafe { (*self.0.get()).strand.take() }
    }

    /// The fork's site. Only whoever has the slot calls this.
    #[inline(always)]
    pub(crate) fn site(&self) -> Site {
        // SAFETY: a copy of a number; the calling thread has the slot, as both callers do.
        unsafe { (*self.0.get()).site }
    }
}

#[cfg(test)]
mod tests {
    use crate::track::forks::{Grains, MOST_GRAINS};

    #[test]
    fn a_grain_begins_while_others_are_suspended() {
        let grains = Grains::default();
        assert!(!grains.is_open());
        for level in 0..MOST_GRAINS {
            let first = 10 * level;
            assert!(grains.enter(first) && grains.is_open());
            assert!(!grains.enter(first + 1), "it is in one");
            assert!(grains.contains(first) && grains.contains(first + 9));
            grains.suspend(first + 5);
            assert!(!grains.is_open() && !grains.contains(first + 5));
            assert!((0..level).all(|level| grains.contains(10 * level + 4)));
        }
        assert!(!grains.enter(100), "there are too many");
        for level in (0..MOST_GRAINS).rev() {
            let first = 10 * level;
            assert!(grains.contains(first));
            grains.resume();
            assert!(grains.is_open() && grains.contains(first + 5));
            grains.leave();
            assert!(!grains.is_open() && !grains.contains(first));
        }
        assert!(grains.enter(3) && grains.is_of(2) && !grains.contains(2));
    }
}
