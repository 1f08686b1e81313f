//! `spawn`, `spawn_fifo`: detached tasks.
//!
//! One duty: run a closure later, without anyone waiting for it. The pool stays alive until it has ended.

use core::panic::Location;
use std::any::Any;

use crate::job::{CompletionHook, HeapTask};
use crate::pool::global;
use crate::profiler;
use crate::sched::offer::{offer, offer_in_order};
use crate::task::TaskRef;
use crate::track::{self, Strand};
use crate::worker::Pool;

/// Runs the closure later in the calling thread's pool, or in the global pool. A worker that
/// runs tasks it has spawned itself begins with the youngest.
///
/// # Aborts
/// As nobody waits for the closure, a panic in it goes to the pool's panic handler
/// ([`ThreadPoolBuilder::panic_handler`](crate::ThreadPoolBuilder::panic_handler)). Without one,
/// the process is aborted after the usual message.
#[track_caller]
pub fn spawn<F>(func: F)
where
    F: FnOnce() + Send + 'static,
{
    let location = Location::caller();
    global::with_pool(|pool| spawn_in(pool, func, location));
}

/// As [`spawn`], but a worker begins with the oldest of the tasks that it has spawned this way.
#[track_caller]
pub fn spawn_fifo<F>(func: F)
where
    F: FnOnce() + Send + 'static,
{
    let location = Location::caller();
    global::with_pool(|pool| spawn_fifo_in(pool, func, location));
}

/// [`spawn`] in the given pool.
#[inline(always)]
pub(crate) fn spawn_in<F>(pool: &Pool, func: F, location: &'static Location<'static>)
where
    F: FnOnce() + Send + 'static,
{
    offer(pool, task(pool, func, location));
}

/// [`spawn_fifo`] in the given pool.
#[inline(always)]
pub(crate) fn spawn_fifo_in<F>(pool: &Pool, func: F, location: &'static Location<'static>)
where
    F: FnOnce() + Send + 'static,
{
    offer_in_order(pool, task(pool, func, location), |worker| &worker.fifo);
}

#[inline(always)]
fn task<F>(pool: &Pool, func: F, location: &'static Location<'static>) -> TaskRef
where
    F: FnOnce() + Send + 'static,
{
    HeapTask::boxed(move |_: &_| func(), Detached::new(pool), profiler::capture_context(), location)
}

/// A detached task's hold on its pool.
pub(crate) struct Detached(*const Pool);

impl Detached {
    pub(crate) fn new(pool: &Pool) -> Self {
        pool.retain();
        Detached(pool)
    }
}

// SAFETY: a `Pool` is `Sync`, and stays while it counts the task.
unsafe impl Send for Detached {}

impl CompletionHook for Detached {
    fn ended(&self, strand: Strand) {
        track::finish(strand);
    }

    fn panicked(&self, payload: Box<dyn Any + Send>) {
        // SAFETY: the calling thread is one of the pool's workers, and keeps it.
        unsafe { &*self.0 }.handlers.handle_panic(payload);
    }

    fn completed(self) {
        // SAFETY: as above.
        unsafe { &*self.0 }.release();
    }
}
