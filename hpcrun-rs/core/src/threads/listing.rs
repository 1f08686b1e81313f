//! A thread's slot in the node's table ([`activity`]). Any thread may read it or take the thread out of the
//! counts; the thread itself moves the slot (`working`).
//!
//! Async-signal-safe, except [`Listing::enter`] and [`Listing::leave`].

use crate::activity::{self, Slot, State};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

#[derive(Default)]
pub(super) struct Listing {
    /// Null: `unlisted`.
    slot: AtomicPtr<Slot>,
    /// The slot if the node's table is full.
    unlisted: Slot,
    /// Whether the thread contributes to the counts; false once the process is about to end.
    counts: AtomicBool,
}

impl Listing {
    /// Takes a slot for the thread with this kernel id, which begins at `now`.
    pub(super) fn enter(&self, tid: u32, now: u64) {
        let listed = activity::acquire(tid, now);
        let slot = listed.map_or(ptr::null_mut(), |slot| ptr::from_ref(slot).cast_mut());
        self.slot.store(slot, Ordering::Release);
        self.counts.store(true, Ordering::Relaxed);
    }

    /// Gives the slot back; the thread ends at `now`.
    pub(super) fn leave(&self, now: u64) {
        self.stop(now);
        self.slot().release();
        self.slot.store(ptr::null_mut(), Ordering::Release);
    }

    /// In a forked child: forgets the slot, which belongs to a thread of the parent.
    pub(super) fn forget(&self) {
        self.slot.store(ptr::null_mut(), Ordering::Release);
        self.unlisted.forget();
    }

    /// Removes the thread from the counts, because the process is about to end. It keeps its slot.
    pub(super) fn stop(&self, now: u64) {
        if self.counts.swap(false, Ordering::Relaxed) {
            activity::end(self.slot(), now);
        }
    }

    #[inline]
    pub(super) fn slot(&self) -> &Slot {
        // SAFETY: null, or a slot of the node's table, which is never unmapped.
        unsafe { self.slot.load(Ordering::Relaxed).as_ref() }.unwrap_or(&self.unlisted)
    }

    #[inline]
    pub(super) fn move_to(&self, state: State, runtimes: impl FnOnce() -> u8) {
        if self.counts.load(Ordering::Relaxed) {
            self.slot().move_to(state, runtimes());
        }
    }
}
