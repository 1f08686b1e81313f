//! The handle of a pool: every operation of the crate, in a given pool.

use core::fmt;
use std::error::Error;
use std::sync::Arc;

use super::{Hold, Pool};
use crate::broadcast::{self, BroadcastContext};
use crate::scope::{Scope, ScopeFifo};
use crate::worker::Worker;
use crate::yielding::{self, Yield};

/// A pool of worker threads.
///
/// After it is dropped, its start handlers and detached tasks finish, then its exit handlers and their tasks
/// run, then its threads end. Dropping does not wait for that.
pub struct ThreadPool {
    hold: Hold,
}

impl ThreadPool {
    pub(super) fn new_owner(pool: &Arc<Pool>) -> Self {
        ThreadPool {
            hold: Hold::new(pool),
        }
    }

    pub(super) fn pool(&self) -> &Arc<Pool> {
        self.hold.pool()
    }

    /// A pool with these settings.
    ///
    /// # Errors
    /// As [`ThreadPoolBuilder::build`](crate::ThreadPoolBuilder::build).
    #[deprecated(note = "use `ThreadPoolBuilder::build`")]
    #[allow(deprecated)]
    pub fn new(configuration: super::Configuration) -> Result<ThreadPool, Box<dyn Error>> {
        configuration.build()
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
        if self.current().is_some() {
            op()
        } else {
            self.pool().run_from_outside(op)
        }
    }

    /// The calling thread, if it is one of this pool's workers.
    fn current(&self) -> Option<&Worker> {
        Worker::current_in(self.pool())
    }

    /// [`broadcast`](crate::broadcast()) in this pool.
    #[track_caller]
    pub fn broadcast<OP, R>(&self, op: OP) -> Vec<R>
    where
        OP: Fn(BroadcastContext<'_>) -> R + Sync,
        R: Send,
    {
        broadcast::broadcast_in(self.pool(), op)
    }

    /// [`join`](crate::join) in this pool.
    #[track_caller]
    pub fn join<A, B, RA, RB>(&self, oper_a: A, oper_b: B) -> (RA, RB)
    where
        A: FnOnce() -> RA + Send,
        B: FnOnce() -> RB + Send,
        RA: Send,
        RB: Send,
    {
        self.install(|| crate::join(oper_a, oper_b))
    }

    /// [`scope`](crate::scope()) in this pool.
    #[track_caller]
    pub fn scope<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&Scope<'scope>) -> R + Send,
        R: Send,
    {
        self.install(|| crate::scope(op))
    }

    /// [`scope_fifo`](crate::scope_fifo()) in this pool.
    #[track_caller]
    pub fn scope_fifo<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&ScopeFifo<'scope>) -> R + Send,
        R: Send,
    {
        self.install(|| crate::scope_fifo(op))
    }

    /// A scope whose body runs in the calling thread, and whose tasks run in this pool.
    #[track_caller]
    pub fn in_place_scope<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&Scope<'scope>) -> R,
    {
        Scope::new(self.pool()).run(op)
    }

    /// As [`in_place_scope`](Self::in_place_scope), with the order of
    /// [`scope_fifo`](crate::scope_fifo()).
    #[track_caller]
    pub fn in_place_scope_fifo<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&ScopeFifo<'scope>) -> R,
    {
        ScopeFifo::new(self.pool()).run(op)
    }

    /// [`spawn`](crate::spawn()) in this pool.
    #[track_caller]
    pub fn spawn<OP>(&self, op: OP)
    where
        OP: FnOnce() + Send + 'static,
    {
        crate::spawn::spawn_in(self.pool(), op);
    }

    /// [`spawn_fifo`](crate::spawn_fifo()) in this pool.
    #[track_caller]
    pub fn spawn_fifo<OP>(&self, op: OP)
    where
        OP: FnOnce() + Send + 'static,
    {
        crate::spawn::spawn_fifo_in(self.pool(), op);
    }

    /// [`spawn_broadcast`](crate::spawn_broadcast()) in this pool.
    #[track_caller]
    pub fn spawn_broadcast<OP>(&self, op: OP)
    where
        OP: Fn(BroadcastContext<'_>) + Send + Sync + 'static,
    {
        broadcast::spawn_broadcast_in(self.pool(), op);
    }

    /// [`yield_now`](crate::yield_now()); `None` also on a worker of another pool.
    pub fn yield_now(&self) -> Option<Yield> {
        self.current().map(yielding::yield_now_on)
    }

    /// [`yield_local`](crate::yield_local()); `None` also on a worker of another pool.
    pub fn yield_local(&self) -> Option<Yield> {
        self.current().map(yielding::yield_local_on)
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
        f.debug_struct("ThreadPool")
            .field("num_threads", &self.current_num_threads())
            .finish_non_exhaustive()
    }
}
