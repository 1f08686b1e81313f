//! Waiting for a number of tasks to end.
//!
//! One duty: count tasks, and let the one thread that waits for all of them know. A worker works
//! on while it waits; another thread blocks.

use crate::latch::{Latch, ThreadLatch};
use crate::parallel_overhead::{sched, sync};
use crate::primitives::{AtomicUsize, Ordering};
use crate::worker::Worker;

/// The event that the last of some tasks has ended.
pub(crate) struct Completion {
    /// The tasks that have not ended.
    pending: AtomicUsize,
    waiter: Waiter,
}

/// Who waits.
enum Waiter {
    /// A worker, of whichever pool. It outlives the wait, in the frame of which this lies.
    Worker { worker: *const Worker, over: Latch },
    /// Another thread.
    Thread(ThreadLatch),
}

// SAFETY: what changes is atomic; `worker` leads to a `Sync` worker.
unsafe impl Sync for Completion {}
// SAFETY: as above.
unsafe impl Send for Completion {}

impl Completion {
    /// For `pending` tasks, to be waited for by the calling thread.
    pub(crate) fn new(pending: usize) -> Self {
        let worker = Worker::current();
        let waiter = if worker.is_null() {
            Waiter::Thread(ThreadLatch::new())
        } else {
            Waiter::Worker {
                worker,
                over: Latch::new(),
            }
        };
        Completion {
            pending: AtomicUsize::new(pending),
            waiter,
        }
    }

    /// One more task. The caller is itself counted, or knows of one that is.
    pub(crate) fn add(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// The tasks that have not ended at this moment.
    pub(crate) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// A task has ended.
    ///
    /// # Safety
    /// The task was counted; `this` may be gone afterwards.
    pub(crate) unsafe fn one_over(this: *const Self) {
        // SAFETY: it stays until its latch is set, which only the last task does, and which is
        // the last access here.
        unsafe {
            if (*this).pending.fetch_sub(1, Ordering::AcqRel) != 1 {
                return;
            }
            match &(*this).waiter {
                Waiter::Thread(latch) => ThreadLatch::set(latch),
                Waiter::Worker { worker, over } => {
                    let (worker, over) = (&**worker, &raw const *over);
                    let index = worker.index;
                    if Worker::current_in(worker.pool()).is_some() {
                        sync::announce(worker.pool(), &*over, || index);
                    } else {
                        // Once the latch is set the waiter's pool might end.
                        let pool = worker.owned_pool();
                        sync::announce(&pool, &*over, || index);
                    }
                }
            }
        }
    }

    /// Waits, on the thread that made it, until all tasks have ended.
    pub(crate) fn wait(&self) {
        match &self.waiter {
            Waiter::Thread(latch) => latch.wait(),
            Waiter::Worker { worker, over } => {
                // SAFETY: the calling thread's own worker.
                sched::wait_in_task(unsafe { &**worker }, over);
            }
        }
    }
}
