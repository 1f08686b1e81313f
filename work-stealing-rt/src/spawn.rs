//! `spawn`: detached tasks.
//!
//! One duty: run a closure some time, with nobody waiting for it. The pool stays until it is
//! over.

use std::any::Any;
use std::process::abort;

use crate::job::{HeapTask, Keeper};
use crate::parallel_overhead::sched;
use crate::pool::{self, Pool};
use crate::profiler;

/// Runs the closure some time in the calling thread's pool, or in the global pool.
///
/// # Aborts
/// As nobody waits for the closure, a panic in it has nowhere to go: after the usual message the
/// process is aborted.
pub fn spawn<F>(func: F)
where
    F: FnOnce() + Send + 'static,
{
    pool::with_pool(|pool| spawn_in(pool, func));
}

/// [`spawn`] in the given pool.
pub(crate) fn spawn_in<F>(pool: &Pool, func: F)
where
    F: FnOnce() + Send + 'static,
{
    pool.retain();
    let task = HeapTask::boxed(func, Detached(pool), profiler::capture_context());
    sched::offer(pool, task);
}

/// A detached task's hold on its pool.
struct Detached(*const Pool);

// SAFETY: a `Pool` is `Sync`, and stays while it counts the task.
unsafe impl Send for Detached {}

impl Keeper for Detached {
    fn panicked(&self, _: Box<dyn Any + Send>) {
        eprintln!("work-stealing-rt: a detached task panicked; aborting");
        abort();
    }

    fn over(self) {
        // SAFETY: the calling thread is one of the pool's workers, and keeps it.
        unsafe { &*self.0 }.release();
    }
}
