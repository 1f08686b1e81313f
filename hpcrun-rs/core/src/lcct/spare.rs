//! Trees of ended threads: the profile of a later thread goes into the same file.
//!
//! Creating a file takes some 100 us, longer than many threads run. So the tree of a thread that ends is
//! kept, a few at most, and a later thread takes one at its first sample ([`Tree::begin_next`]). Files that
//! remain when the process ends are complete.
//!
//! Async-signal-safe: the thread that moves a slot to `TAKEN` owns it, and no thread waits for a slot.

use super::Tree;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const EMPTY: u8 = 0;
const TAKEN: u8 = 1;
const FULL: u8 = 2;

/// About the number of threads that end while others begin.
const SLOTS: usize = 16;

struct Slot {
    state: AtomicU8,
    /// Initialised while the state is `FULL`.
    tree: UnsafeCell<MaybeUninit<Tree>>,
}

// SAFETY: only the thread that moved the state to `TAKEN` accesses the tree. `Tree` may move between threads:
// it owns its mappings.
unsafe impl Sync for Slot {}

static SPARE: [Slot; SLOTS] =
    [const { Slot { state: AtomicU8::new(EMPTY), tree: UnsafeCell::new(MaybeUninit::uninit()) } }; SLOTS];

impl Slot {
    fn claim(&self, state: u8) -> bool {
        self.state.load(Relaxed) == state
            && self.state.compare_exchange(state, TAKEN, Acquire, Relaxed).is_ok()
    }
}

/// Keeps the tree of an ended thread, if there is room.
pub fn keep(tree: Tree) {
    if tree.has_room() {
        if let Some(slot) = SPARE.iter().find(|slot| slot.claim(EMPTY)) {
            // SAFETY: `claim` made this thread the owner of the slot, until the store below.
            unsafe { (*slot.tree.get()).write(tree) };
            slot.state.store(FULL, Release);
        }
    }
}

pub fn take() -> Option<Tree> {
    let slot = SPARE.iter().find(|slot| slot.claim(FULL))?;
    // SAFETY: the slot was `FULL`, so the tree is initialised; `claim` made this thread its owner.
    let tree = unsafe { (*slot.tree.get()).assume_init_read() };
    slot.state.store(EMPTY, Release);
    Some(tree)
}

/// Closes all kept trees in a forked child: the files belong to the parent. A tree that another thread was
/// moving at the fork stays mapped.
pub fn abandon() {
    while take().is_some() {}
    for slot in &SPARE {
        slot.state.store(EMPTY, Relaxed);
    }
}
