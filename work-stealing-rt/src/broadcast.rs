//! Broadcasts: one task on every worker of a pool.
//!
//! Puts a task into each worker's mailbox, and collects the results if a caller waits for them. A worker runs
//! the tasks in its mailbox when it has no other task of its own.

use core::fmt;
use core::marker::PhantomData;
use core::panic::Location;
use std::panic::resume_unwind;
use std::sync::Arc;

use crate::count_latch::{CountLatch, Counted};
use crate::job::{HeapTask, StackTask};
use crate::pool::global;
use crate::profiler;
use crate::sched::offer::post;
use crate::spawn::Detached;
use crate::worker::{Pool, Worker};

/// Where a task of a broadcast runs.
pub struct BroadcastContext<'a> {
    worker: &'a Worker,
    /// It belongs to one call: invariant, neither `Send` nor `Sync`.
    marker: PhantomData<&'a mut dyn Fn()>,
}

impl BroadcastContext<'_> {
    /// The worker's index in the pool, from 0 on.
    #[inline]
    pub fn index(&self) -> usize {
        self.worker.index
    }

    /// The number of workers that take part.
    #[inline]
    pub fn num_threads(&self) -> usize {
        self.worker.pool().workers().len()
    }
}

impl fmt::Debug for BroadcastContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BroadcastContext")
            .field("index", &self.index())
            .field("num_threads", &self.num_threads())
            .finish_non_exhaustive()
    }
}

/// Calls `op` on every worker of the calling thread's pool (outside of any, of the global pool) and
/// returns the results by worker. Each calls it when it has no other task of its own.
///
/// # Panics
/// If calls of `op` panic, the panic of the first worker among them resumes here after all calls have ended.
///
/// ```
/// let indices = work_stealing_rt::broadcast(|context| context.index());
/// assert!(indices.into_iter().eq(0..work_stealing_rt::current_num_threads()));
/// ```
#[track_caller]
pub fn broadcast<OP, R>(op: OP) -> Vec<R>
where
    OP: Fn(BroadcastContext<'_>) -> R + Sync,
    R: Send,
{
    let location = Location::caller();
    global::with_pool(|pool| broadcast_in(pool, op, location))
}

/// Calls `op` later on every worker of the calling thread's pool, or of the global pool.
///
/// A panic of `op` is treated as that of a [`spawn`](crate::spawn())ed task.
#[track_caller]
pub fn spawn_broadcast<OP>(op: OP)
where
    OP: Fn(BroadcastContext<'_>) + Send + Sync + 'static,
{
    let location = Location::caller();
    global::with_pool(|pool| spawn_broadcast_in(pool, op, location));
}

/// [`broadcast`] in the given pool.
pub(crate) fn broadcast_in<OP, R>(pool: &Pool, op: OP, location: &'static Location<'static>) -> Vec<R>
where
    OP: Fn(BroadcastContext<'_>) -> R + Sync,
    R: Send,
{
    let workers = pool.workers();
    let completion = CountLatch::new(workers.len());
    let run = |_migrated: bool| call(&op);
    let tasks: Vec<_> =
        workers.iter().map(|_| StackTask::new(&run, Counted::new(&completion, Some(location)))).collect();
    for (worker, task) in workers.iter().zip(&tasks) {
        post(worker, task.record());
    }
    completion.wait();
    // All outcomes are taken before a panic among them resumes: an outcome that is not taken is never
    // dropped.
    let outcomes: Vec<_> = tasks
        .iter()
        // SAFETY: all tasks are over, and each is asked once.
        .map(|task| unsafe { task.join_outcome() })
        .collect();
    outcomes.into_iter().collect::<Result<_, _>>().unwrap_or_else(|payload| resume_unwind(payload))
}

/// [`spawn_broadcast`] in the given pool.
pub(crate) fn spawn_broadcast_in<OP>(pool: &Pool, op: OP, location: &'static Location<'static>)
where
    OP: Fn(BroadcastContext<'_>) + Send + Sync + 'static,
{
    let op = Arc::new(op);
    let context = profiler::capture_context();
    for worker in pool.workers() {
        let op = Arc::clone(&op);
        let call = move |_: &_| call(&*op);
        let task = HeapTask::boxed(call, Detached::new(pool), context, location);
        post(worker, task);
    }
}

/// Calls `op` with the calling worker's context.
#[inline(always)]
pub(crate) fn call<R>(op: &impl Fn(BroadcastContext<'_>) -> R) -> R {
    Worker::with_current(|worker| {
        op(BroadcastContext { worker: worker.expect("tasks run on workers"), marker: PhantomData })
    })
}
