//! The handle of a pool.

use core::fmt;
use core::panic::Location;
use std::sync::Arc;

use super::life::Hold;
use crate::worker::{Pool, Worker};

/// A pool of worker threads.
///
/// After it is dropped, its start handlers and detached tasks finish, then its exit handlers and their tasks
/// run, then its threads end. Dropping does not wait for that.
pub struct ThreadPool {
    hold: Hold,
}

impl ThreadPool {
    pub(super) fn new_owner(pool: &Arc<Pool>) -> Self {
        ThreadPool { hold: Hold::new(pool) }
    }

    pub(super) fn pool(&self) -> &Arc<Pool> {
        self.hold.pool()
    }

    /// Runs the closure on one of the pool's workers and returns its result. Inside, [`join`],
    /// [`scope`] and so on use this pool. A panic of the closure resumes in the caller.
    ///
    /// The calling thread blocks; if it is a worker of another pool it works there meanwhile.
    ///
    /// [`join`]: crate::join
    /// [`scope`]: crate::scope()
    #[track_caller]
    pub fn install<OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce() -> R + Send,
        R: Send,
    {
        let location = Some(Location::caller());
        if self.current().is_some() { op() } else { self.pool().run_from_outside(location, op) }
    }

    /// The calling thread, if it is one of this pool's workers.
    pub(super) fn current(&self) -> Option<&Worker> {
        Worker::current_in(self.pool())
    }

    /// The number of workers.
    #[inline]
    pub fn current_num_threads(&self) -> usize {
        self.pool().workers().len()
    }

    /// The calling thread's index if it is one of this pool's workers.
    #[inline]
    pub fn current_thread_index(&self) -> Option<usize> {
        self.current().map(|worker| worker.index)
    }

    /// As [`current_thread_has_pending_tasks`](crate::current_thread_has_pending_tasks()); `None`
    /// also on a worker of another pool.
    #[inline]
    pub fn current_thread_has_pending_tasks(&self) -> Option<bool> {
        self.current().map(Worker::has_pending_tasks)
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool").field("num_threads", &self.current_num_threads()).finish_non_exhaustive()
    }
}
