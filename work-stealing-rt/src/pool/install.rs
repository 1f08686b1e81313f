//! Running a closure in a pool while its caller, which is not one of its workers, waits.

use core::panic::Location;
use std::panic::resume_unwind;

use crate::count_latch::{CountLatch, Counted};
use crate::job::StackTask;
use crate::sched::offer::offer;
use crate::sched::state::{Installed, same_worker};
use crate::worker::Pool;

impl Pool {
    /// Runs the closure on a worker of this pool while the caller, which is not one of them, waits at the
    /// location; without one, in its context. A panic of the closure resumes here.
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
        let ended = CountLatch::new(1);
        let task = StackTask::new(closure, Counted::new(&ended, location));
        offer(self, task.record());
        ended.wait();
        // SAFETY: the task has ended, and this is the only place that asks.
        unsafe { task.join_outcome() }.unwrap_or_else(|payload| resume_unwind(payload))
    }
}
