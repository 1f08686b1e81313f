//! The life of a thread's state, and who may complete its profile.
//!
//! | from | to | by | when |
//! |---|---|---|---|
//! | `Free` | `Acquired` | the creator | it takes a state for a new thread |
//! | `Acquired` | `Free` | the creator, or the new thread | the thread did not start, or nothing is measured any more |
//! | `Acquired` | `Live` | the thread | it begins |
//! | `Live` | `Closing` | the thread, or the one that ends the process | whoever makes this move completes the profile |
//! | `Closing` | `Closed` | the same | the profile is complete |
//! | `Closed` | `Free` | the thread | it ends; the state may be reused |
//! | any | `Free` | the forking thread | in a forked child, for states of threads that exist in the parent alone |
//!
//! The recorder belongs to the thread while `Live`, and then to whoever closes it. Within the thread, `busy`
//! keeps the handler and the hooks apart. One that ends the process waits, once sampling is over, until the
//! thread is not busy; a thread that becomes busy after that finds sampling over, and leaves
//! (`ThreadState::enter`).
//!
//! Async-signal-safe.

use crate::system;
use std::sync::atomic::{AtomicU8, Ordering};

/// See the module's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub(super) enum Phase {
    Free,
    Acquired,
    Live,
    Closing,
    Closed,
}

/// The phase that a state is in.
#[derive(Debug)]
pub(super) struct Lifecycle(AtomicU8);

impl Lifecycle {
    /// One that its creator has.
    pub(super) const fn acquired() -> Lifecycle {
        Lifecycle(AtomicU8::new(Phase::Acquired as u8))
    }

    /// Makes a move of the table; false if the state is not in `from`.
    pub(super) fn advance(&self, from: Phase, to: Phase) -> bool {
        let (from, to) = (from as u8, to as u8);
        self.0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Free, in a forked child.
    pub(super) fn abandon(&self) {
        self.0.store(Phase::Free as u8, Ordering::Release);
    }

    /// Whether it is in this phase.
    pub(super) fn is(&self, phase: Phase) -> bool {
        self.0.load(Ordering::Acquire) == phase as u8
    }
}

/// Waits for a condition that another thread is about to make true, a hundred milliseconds at most.
pub(super) fn wait_until(condition: impl Fn() -> bool) -> bool {
    for _ in 0..2000 {
        if condition() {
            return true;
        }
        system::sleep(50_000);
    }
    condition()
}
