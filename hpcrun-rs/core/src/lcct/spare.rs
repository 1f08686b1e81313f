//! Trees whose threads are over: the next thread's profile goes into the same file.
//!
//! Making a file costs some 100 us, more than many a thread runs for. So the tree of a thread that ends is
//! kept, a few at most, and a thread that has its first sample takes one ([`Tree::begin_next`]). What is left
//! when the process ends is complete as it is.
//!
//! Async-signal-safe: a slot is owned by whoever moves it to `TAKEN`, and nobody waits for one.

use super::Tree;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const EMPTY: u8 = 0;
const TAKEN: u8 = 1;
const FULL: u8 = 2;

/// As many as threads that end at one moment while others begin.
const SLOTS: usize = 16;

struct Slot {
    state: AtomicU8,
    /// Initialised while the state is `FULL`.
    tree: UnsafeCell<MaybeUninit<Tree>>,
}

// SAFETY: the tree is touched only by the thread that has moved the state to `TAKEN`, and `Tree` may go from
// thread to thread: it owns its mappings.
unsafe impl Sync for Slot {}

static SPARE: [Slot; SLOTS] = [const {
    Slot {
        state: AtomicU8::new(EMPTY),
        tree: UnsafeCell::new(MaybeUninit::uninit()),
    }
}; SLOTS];

impl Slot {
    fn claim(&self, state: u8) -> bool {
        self.state.load(Relaxed) == state
            && self
                .state
                .compare_exchange(state, TAKEN, Acquire, Relaxed)
                .is_ok()
    }
}

/// Keeps the tree of a thread that is over, or closes it.
pub fn keep(tree: Tree) {
    if tree.has_room() {
        if let Some(slot) = SPARE.iter().find(|slot| slot.claim(EMPTY)) {
            // SAFETY: the slot is this thread's since it was claimed.
            unsafe { (*slot.tree.get()).write(tree) };
            slot.state.store(FULL, Release);
            return;
        }
    }
    tree.close();
}

/// Takes a tree.
pub fn take() -> Option<Tree> {
    let slot = SPARE.iter().find(|slot| slot.claim(FULL))?;
    // SAFETY: the slot was full, and is this thread's since it was claimed.
    let tree = unsafe { (*slot.tree.get()).assume_init_read() };
    slot.state.store(EMPTY, Release);
    Some(tree)
}

/// In a forked child: the files are the parent's. One that another thread was moving at the fork stays mapped.
pub fn abandon() {
    while let Some(tree) = take() {
        tree.close();
    }
    for slot in &SPARE {
        slot.state.store(EMPTY, Relaxed);
    }
}
