//! The calling worker, and whether it works.
//!
//! A worker with a task is *working*. Between two tasks it is *idle*, but still counts among the working
//! threads until it finds no task of its own.

use core::sync::atomic::{Ordering, compiler_fence};

use crate::profiler;
use crate::worker::Worker;

/// The calling thread's worker; `None` on other threads.
///
/// # Safety
/// `'a`, which the caller chooses, ends when the calling function returns. [`Worker::with_current`] enforces
/// that; use it where speed allows.
#[inline(always)]
pub(crate) unsafe fn current<'a>() -> Option<&'a Worker> {
    // SAFETY: null, or valid for `'a`: a thread keeps its pool while it is a worker, and does not
    // stop being one in the middle of a function that asks for it.
    unsafe { Worker::current().as_ref() }
}

/// Looks the calling thread's worker up again, so that the caller needs no register for it in between.
///
/// # Safety
/// As for [`current`]; and the calling thread is a worker.
#[inline(always)]
pub(crate) unsafe fn same_worker<'a>() -> &'a Worker {
    // SAFETY: as in `current`; not null by this function's contract.
    unsafe { &*Worker::current() }
}

/// Whether the calling worker runs an installed closure's code, as
/// [`Own::is_installed`](crate::worker::Own::is_installed) says it; as before from the drop on, also if a
/// panic drops it.
pub(crate) struct Installed {
    before: bool,
}

impl Installed {
    /// # Safety
    /// The worker is the calling thread's, also at the drop.
    pub(crate) unsafe fn set(worker: &Worker, is_installed: bool) -> Installed {
        let before = worker.own.is_installed.replace(is_installed);
        Installed { before }
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        // SAFETY: the promise of `set`.
        unsafe { same_worker() }.own.is_installed.set(self.before);
    }
}

/// The calling worker starts to work.
#[inline(always)]
pub(crate) fn begin_work(worker: &Worker) {
    profiler::begin_work(&worker.own.state, worker.own.counted.replace(true));
}

/// The calling worker has finished its task. It may free the contexts of its tasks afterwards: the compiler
/// must not move that before this point.
#[inline(always)]
pub(crate) fn end_work(worker: &Worker) {
    profiler::end_work(&worker.own.state);
    compiler_fence(Ordering::SeqCst);
}

/// The calling worker, which has no task, no longer counts as working.
#[inline(always)]
pub(crate) fn count_as_idle(worker: &Worker) {
    if worker.own.counted.replace(false) {
        profiler::count_one_less_working();
    }
}
