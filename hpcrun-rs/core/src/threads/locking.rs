//! The lock that a thread waits for (`locks`).
//!
//! A thread may leave a wait without its end: by a long jump out of a signal handler, or because it ends
//! there. Such a wait is over when the thread next waits for a lock, or ends.
//!
//! Async-signal-safe.

use super::OwnThread;
use crate::futex_locks::FutexLock;
use crate::locks::{Outcome, Wait};
use crate::logical::agents::lock_waits;
use crate::unwind::Registers;

impl OwnThread {
    /// The thread begins to wait for a lock, by `begin`. `None` if there is no room for the wait.
    pub fn begin_lock_wait(&self, begin: impl FnOnce() -> Option<Wait>) -> Option<Wait> {
        self.abandon_lock_wait();
        self.own().lock_wait.set(begin());
        self.own().lock_wait.get()
    }

    /// The lock for which the thread is about to wait on a futex, by the function that waits. `None`: for
    /// none, as far as is known.
    pub fn lock_of_futex(&self, registers: Registers, futex: usize) -> Option<FutexLock> {
        let mut busy = self.enter()?;
        let wait = busy.find_frame(&registers, lock_waits::wait_at)?;
        Some(FutexLock::of_wait(wait, futex))
    }

    pub fn end_lock_wait(&self, wait: Wait, outcome: Outcome) {
        if self.own().lock_wait.get() == Some(wait) {
            self.own().lock_wait.set(None);
            wait.end(outcome);
        }
    }

    /// Ends a wait that the thread has left.
    pub(super) fn abandon_lock_wait(&self) {
        if let Some(wait) = self.own().lock_wait.take() {
            wait.end(Outcome::Held);
        }
    }
}
