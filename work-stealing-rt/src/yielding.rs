//! `yield_now`, `yield_local`, `idle`, `is_nested`: running another task in the middle of one, or none.
//!
//! For a task that waits for an event that the runtime does not know.

use crate::sched::find::{find, find_local};
use crate::sched::in_task::run_one;
use crate::sched::state::{begin_work, count_as_idle, end_work};
use crate::track;
use crate::worker::Worker;

/// What became of a yield.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yield {
    /// A task was run.
    Executed,
    /// There was none.
    Idle,
}

/// Runs one task of the calling worker's pool, if there is one: its own, else one of another worker
/// or from outside. `None` if the calling thread is not a worker.
///
/// A loop that calls this until something happens uses a whole processor; where there is an event
/// to wait for, that is better.
pub fn yield_now() -> Option<Yield> {
    Worker::with_current(|worker| worker.map(yield_now_on))
}

/// As [`yield_now`], but only for tasks that the calling worker has spawned or forked itself, and
/// those of broadcasts.
pub fn yield_local() -> Option<Yield> {
    Worker::with_current(|worker| worker.map(yield_local_on))
}

/// Calls the closure, in which the calling task waits, or looks for work that the runtime does not know: for
/// a profiler the calling worker is idle meanwhile, and the task's path stands still.
pub fn idle<R>(wait: impl FnOnce() -> R) -> R {
    Worker::with_current(|worker| {
        let Some(worker) = worker else {
            return wait();
        };
        let paused = track::pause();
        end_work(worker);
        count_as_idle(worker);
        let result = wait();
        begin_work(worker);
        track::resume(paused);
        result
    })
}

/// Whether the calling task runs in the middle of another one, which waits for something on the same worker.
/// A task that serves others without end gives way then, so that the other one learns when its wait is over.
pub fn is_nested() -> bool {
    Worker::with_current(|worker| worker.is_some_and(|worker| worker.own.depth.get() > 1))
}

/// [`yield_now`] on the calling worker.
pub(crate) fn yield_now_on(worker: &Worker) -> Yield {
    executed(run_one(worker, |worker| find(worker, true)))
}

/// [`yield_local`] on the calling worker.
pub(crate) fn yield_local_on(worker: &Worker) -> Yield {
    executed(run_one(worker, find_local))
}

fn executed(executed: bool) -> Yield {
    if executed { Yield::Executed } else { Yield::Idle }
}
