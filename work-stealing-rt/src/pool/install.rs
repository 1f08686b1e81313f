//! Running a closure in a pool while its caller, which is not one of its workers, waits.

use core::panic::Location;
use std::panic::resume_unwind;
use std::sync::Arc;

use crate::job::{Event, Linked, StackTask};
use crate::latch::{Latch, ThreadLatch};
use crate::sched::in_task::wait_in_task;
use crate::sched::offer::offer;
use crate::sched::state::{Installed, same_worker};
use crate::sync::announce::announce;
use crate::track;
use crate::worker::{Pool, Worker};

impl Pool {
    /// Runs the closure on a worker of this pool while the caller, which is not one of them, waits at the
    /// location; without one, in its context.
    #[cold]
    #[inline(never)]
    pub(super) fn run_from_outside<R: Send>(
        &self,
        location: Option<&'static Location<'static>>,
        closure: impl FnOnce() -> R + Send,
    ) -> R {
        let closure = |_migrated: bool| {
            // SAFETY: an installed closure runs on a worker, which its thread stays meanwhile.
            let _installed = unsafe { Installed::set(same_worker(), true) };
            closure()
        };
        Worker::with_current(|worker| match worker {
            None => {
                let event = Linked::new(ThreadLatch::new(), location);
                let task = StackTask::new(closure, event);
                offer(self, task.record());
                let paused = track::pause();
                task.event.event.wait();
                track::resume(paused);
                finished(&task)
            }
            Some(caller) => {
                let event = Linked::new(ForeignWorker::new(caller), location);
                let task = StackTask::new(closure, event);
                offer(self, task.record());
                wait_in_task(caller, &task.event.event.latch);
                finished(&task)
            }
        })
    }
}

/// The result of an installed task that has ended. Its panic resumes here.
fn finished<F, R, E>(task: &StackTask<F, R, Linked<E>>) -> R
where
    F: FnOnce(bool) -> R + Send,
    R: Send,
    E: Event,
{
    // SAFETY: the event has happened, and this is the only place that asks.
    match unsafe { task.join_outcome() } {
        Ok(result) => result,
        Err(payload) => resume_unwind(payload),
    }
}

impl Event for ThreadLatch {
    unsafe fn happen(this: *const Self) {
        // SAFETY: valid until the waiter is told (this function's contract).
        unsafe { ThreadLatch::set(this) }
    }
}

/// The event for which a worker of another pool waits.
struct ForeignWorker {
    latch: Latch,
    pool: Arc<Pool>,
    index: usize,
}

impl ForeignWorker {
    fn new(worker: &Worker) -> Self {
        ForeignWorker { latch: Latch::new(), pool: worker.owned_pool(), index: worker.index }
    }
}

impl Event for ForeignWorker {
    unsafe fn happen(this: *const Self) {
        // SAFETY: valid until the latch is set (this function's contract). The waiter's pool is
        // kept beyond that by a handle of our own.
        let (pool, index) = unsafe { (Arc::clone(&(*this).pool), (*this).index) };
        // SAFETY: as above; the latch is not touched after it is set.
        announce(&pool, unsafe { &(*this).latch }, || index);
    }
}
