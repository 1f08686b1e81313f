//! A latch that is set when a number of tasks have ended.
//!
//! One duty: count tasks, and wake the one thread that waits for all of them. A worker runs other tasks while
//! it waits; any other thread blocks.

use core::panic::Location;
use std::thread;

use crate::job::{Event, StackTask};
use crate::latch::{Latch, ThreadLatch};
use crate::primitives::{AtomicUsize, Ordering};
use crate::sched::in_task::wait_in_task;
use crate::sync::announce::announce;
use crate::track::{self, link::Link};
use crate::worker::Worker;

/// Set when the last of the counted tasks has ended.
pub(crate) struct CountLatch {
    /// Tasks that have not ended.
    pending: AtomicUsize,
    waiter: Waiter,
}

/// Who waits.
enum Waiter {
    /// A worker of any pool. It outlives the wait, as the latch lies in a frame of its thread.
    Worker { worker: *const Worker, latch: Latch },
    /// Another thread.
    Thread(ThreadLatch),
}

// SAFETY: what changes is atomic; `worker` leads to a `Sync` worker.
unsafe impl Sync for CountLatch {}
// SAFETY: as above.
unsafe impl Send for CountLatch {}

impl CountLatch {
    /// Counts `pending` tasks; the calling thread is the one that waits.
    pub(crate) fn new(pending: usize) -> Self {
        let worker = Worker::current();
        let waiter = if worker.is_null() {
            Waiter::Thread(ThreadLatch::new())
        } else {
            Waiter::Worker { worker, latch: Latch::new() }
        };
        CountLatch { pending: AtomicUsize::new(pending), waiter }
    }

    /// Counts one more task. The count is not zero: the caller is counted itself, or knows of a task that is.
    pub(crate) fn increment(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of tasks that have not ended at this moment.
    pub(crate) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// A counted task has ended.
    ///
    /// # Safety
    /// The task was counted. `this` may be gone afterwards.
    pub(crate) unsafe fn decrement(this: *const Self) {
        // SAFETY: `this` is valid until its latch is set. Only the last task sets it, as its last access.
        unsafe {
            if (*this).pending.fetch_sub(1, Ordering::AcqRel) != 1 {
                return;
            }
            match &(*this).waiter {
                Waiter::Thread(latch) => ThreadLatch::set(latch),
                Waiter::Worker { worker, latch } => {
                    let (worker, latch) = (&**worker, &raw const *latch);
                    let index = worker.index;
                    if Worker::current_in(worker.pool()).is_some() {
                        announce(worker.pool(), &*latch, || index);
                    } else {
                        // Once the latch is set, the waiter's pool might end.
                        let pool = worker.owned_pool();
                        announce(&pool, &*latch, || index);
                    }
                }
            }
        }
    }

    /// Waits, on the thread that made it, until all tasks have ended.
    pub(crate) fn wait(&self) {
        match &self.waiter {
            Waiter::Thread(latch) => {
                let paused = track::pause();
                latch.wait();
                track::resume(paused);
            }
            Waiter::Worker { worker, latch } => {
                // SAFETY: the calling thread's own worker.
                wait_in_task(unsafe { &**worker }, latch);
            }
        }
    }
}

/// The end of a task that a [`CountLatch`] counts, and the critical path along it.
pub(crate) struct Counted<'a> {
    latch: &'a CountLatch,
    link: Link,
}

impl<'a> Counted<'a> {
    /// As for [`Link::new`].
    pub(crate) fn new(latch: &'a CountLatch, location: Option<&'static Location<'static>>) -> Self {
        Counted { latch, link: Link::new(location) }
    }
}

impl Event for Counted<'_> {
    #[inline(always)]
    fn link(&self) -> Option<&Link> {
        Some(&self.link)
    }

    #[inline(always)]
    unsafe fn happen(this: *const Self) {
        // SAFETY: valid until the waiter is woken, which `decrement` does last.
        unsafe { CountLatch::decrement((*this).latch) }
    }
}

impl<F, R> StackTask<F, R, Counted<'_>>
where
    F: FnOnce(bool) -> R + Send,
    R: Send,
{
    /// As `take_outcome`, for the strand that has made the task and waited for it.
    ///
    /// # Safety
    /// As for `take_outcome`; and the calling thread has made the task.
    pub(crate) unsafe fn join_outcome(&self) -> thread::Result<R> {
        // SAFETY: passed on.
        unsafe {
            self.event.link.join();
            self.take_outcome()
        }
    }
}
