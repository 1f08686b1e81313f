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
use std::sync::OnceLock;

use hpcrun_abi::Site;

use super::path::{self, Strand};
use crate::deque::CAPACITY;

/// Records that are allocated at once.
const CHUNK: usize = 64;

/// The records of a worker; none until one is needed.
pub(crate) struct Forks(OnceLock<Box<[Chunk]>>);

type Chunk = OnceLock<Box<[Record]>>;

impl Forks {
    pub(crate) fn new() -> Self {
        Forks(OnceLock::new())
    }

    /// The record of a slot.
    #[inline(always)]
    pub(crate) fn record(&self, slot: usize) -> &Record {
        let chunks = self.0.get_or_init(|| {
            let chunks = CAPACITY.div_ceil(CHUNK);
            (0..chunks).map(|_| OnceLock::new()).collect()
        });
        let chunk =
            chunks[slot / CHUNK].get_or_init(|| (0..CHUNK).map(|_| Record::default()).collect());
        &chunk[slot % CHUNK]
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
