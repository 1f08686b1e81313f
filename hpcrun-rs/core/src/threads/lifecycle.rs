//! The lifecycle of a thread's state, and who may complete its profile.
//!
//! | from | to | by | when |
//! |---|---|---|---|
//! | `Free` | `Acquired` | the creator | it takes a state for a new thread |
//! | `Acquired` | `Free` | the creator, or the new thread | the thread did not start, or sampling is over |
//! | `Acquired` | `Live` | the thread | it begins |
//! | `Live` | `Closing` | the thread, or the one that ends the process | the mover completes the profile |
//! | `Closing` | `Closed` | the same | the profile is complete |
//! | `Closed` | `Free` | the thread | it ends; the state may be reused |
//! | any | `Free` | the forking thread | in a forked child, for threads that exist only in the parent |
//!
//! The recorder belongs to the thread while `Live`, and then to the thread that closes the state. Within one
//! thread, `busy` keeps the handler and the hooks apart. The thread that ends the process first stops
//! sampling, and then waits until the other thread is not busy. A thread that becomes busy after that finds
//! sampling over, and leaves (`OwnThread::enter`).
//!
//! Async-signal-safe.

use crate::system;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

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

/// The number of states in phase `Free`; for an instant it may differ.
static FREE: AtomicI32 = AtomicI32::new(0);

pub(super) fn has_free() -> bool {
    FREE.load(Ordering::Acquire) != 0
}

pub(super) struct Lifecycle(AtomicU8);

impl Lifecycle {
    /// In phase `Acquired`, for a new state.
    pub(super) const fn acquired() -> Lifecycle {
        Lifecycle(AtomicU8::new(Phase::Acquired as u8))
    }

    /// Makes one transition of the table; false if the state is not in `from`.
    pub(super) fn advance(&self, from: Phase, to: Phase) -> bool {
        let phases = (from as u8, to as u8);
        let moved = self.0.compare_exchange(phases.0, phases.1, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if moved && to == Phase::Free {
            FREE.fetch_add(1, Ordering::Release);
        }
        if moved && from == Phase::Free {
            FREE.fetch_sub(1, Ordering::Relaxed);
        }
        moved
    }

    /// Sets phase `Free`, in a forked child.
    pub(super) fn abandon(&self) {
        if self.0.swap(Phase::Free as u8, Ordering::Release) != Phase::Free as u8 {
            FREE.fetch_add(1, Ordering::Release);
        }
    }

    /// Whether the state is in this phase.
    pub(super) fn is(&self, phase: Phase) -> bool {
        self.0.load(Ordering::Acquire) == phase as u8
    }
}

/// Waits at most a hundred milliseconds for a condition that another thread makes true.
pub(crate) fn wait_until(condition: impl Fn() -> bool) -> bool {
    system::within(1000, || condition().then_some(())).is_some()
}
