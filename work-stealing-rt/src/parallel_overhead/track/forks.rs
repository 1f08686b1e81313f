//! The critical path at a worker's pending forks.
//!
//! One duty: a record for each slot of the worker's deque, with the strand of the fork, and that of the
//! stolen task's end.
//!
//! Invariant: a record is touched by whoever has the slot: the owner before it opens the task to others and
//! after it has taken the task back, the thief from its claim to its announcement, then the owner again.
//! These hand-overs order the accesses (`deque`).

use core::cell::UnsafeCell;
use std::sync::OnceLock;

use critical_path::{Site, Strand};

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

/// A fork's strands.
#[derive(Default)]
pub(crate) struct Record(UnsafeCell<Content>);

// SAFETY: see the module: one thread at a time, in an order that atomics of the slot make.
unsafe impl Sync for Record {}
// SAFETY: nothing in it is bound to a thread.
unsafe impl Send for Record {}

/// What a record holds.
#[derive(Default)]
pub(crate) struct Content {
    site: Site,
    forked: Option<Strand>,
    ended: Option<Strand>,
}

impl Content {
    /// Gives its memory back.
    #[inline(always)]
    pub(crate) fn discard(self) {
        if self.forked.is_some() || self.ended.is_some() {
            super::discard(self.forked);
            super::discard(self.ended);
        }
    }
}

impl Record {
    /// A fork at `site`.
    ///
    /// # Safety
    /// As for all of these: the calling thread has the slot.
    #[inline(always)]
    pub(crate) unsafe fn set(&self, site: Site, forked: Option<Strand>) {
        // SAFETY: the caller's promise; nothing is called that could come back here.
        let content = unsafe { &mut *self.0.get() };
        if content.forked.is_some() || content.ended.is_some() {
            // Left behind when the tracking stopped.
            core::mem::take(content).discard();
        }
        content.site = site;
        content.forked = forked;
    }

    /// Leaves it empty.
    ///
    /// # Safety
    /// As for `set`.
    #[inline(always)]
    pub(crate) unsafe fn take(&self) -> Content {
        // SAFETY: as in `set`.
        unsafe { core::ptr::replace(self.0.get(), Content::default()) }
    }

    /// Takes the fork's strand.
    ///
    /// # Safety
    /// As for `set`.
    #[inline(always)]
    pub(crate) unsafe fn take_forked(&self) -> Option<Strand> {
        // SAFETY: as in `set`.
        unsafe { (*self.0.get()).forked.take() }
    }

    /// The stolen task of the fork at `site` has ended.
    ///
    /// # Safety
    /// As for `set`.
    #[inline(always)]
    pub(crate) unsafe fn end(&self, site: Site, ended: Option<Strand>) {
        // SAFETY: as in `set`. The task's entry has emptied the record.
        let content = unsafe { &mut *self.0.get() };
        content.site = site;
        content.ended = ended;
    }

    /// Takes the strand of the task's end.
    ///
    /// # Safety
    /// As for `set`.
    #[inline(always)]
    pub(crate) unsafe fn take_ended(&self) -> Option<Strand> {
        // SAFETY: as in `set`.
        unsafe { (*self.0.get()).ended.take() }
    }

    /// The fork's site. Only whoever has the slot calls this.
    #[inline(always)]
    pub(crate) fn site(&self) -> Site {
        // SAFETY: a copy of a number; the calling thread has the slot, as both callers do.
        unsafe { (*self.0.get()).site }
    }
}
