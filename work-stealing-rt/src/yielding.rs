//! `yield_now`, `yield_local`: running another task in the middle of one.
//!
//! For a task that waits for an event that the runtime does not know.

use crate::sched::find::{find, find_local};
use crate::sched::in_task::run_one;
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

/// [`yield_now`] on the calling worker.
pub(crate) fn yield_now_on(worker: &Worker) -> Yield {
    executed(run_one(worker, |worker| find(worker, true)))
}

/// [`yield_local`] on the calling worker.
pub(crate) fn yield_local_on(worker: &Worker) -> Yield {
    executed(run_one(worker, find_local))
}

fn executed(executed: bool) -> Yield {
    if executed {
        Yield::Executed
    } else {
        Yield::Idle
    }
}
