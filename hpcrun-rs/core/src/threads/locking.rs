//! The lock that a thread waits for (`locks`).
//!
//! A thread may leave a wait without its end: by a long jump out of a signal handler, or because it ends
//! there. Such a wait is over when the thread next waits for a lock, or ends.
//!
//! Async-signal-safe.

use super::ThreadState;
use crate::locks::{Outcome, Wait};

impl ThreadState {
    /// The thread begins to wait for the lock at an address. `None` if there is no room for the wait.
    pub fn begin_lock_wait(&self, lock: usize) -> Option<Wait> {
        self.abandon_lock_wait();
        self.lock_wait.set(Wait::begin(lock));
        self.lock_wait.get()
    }

    /// The wait is over.
    pub fn end_lock_wait(&self, wait: Wait, outcome: Outcome) {
        if self.lock_wait.get() == Some(wait) {
            self.lock_wait.set(None);
            wait.end(outcome);
        }
    }

    /// Ends a wait that the thread has left.
    pub(super) fn abandon_lock_wait(&self) {
        if let Some(wait) = self.lock_wait.take() {
            wait.end(Outcome::Held);
        }
    }
}
