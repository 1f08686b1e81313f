//! The global pool, and the calling thread's pool.

use core::panic::Location;
use std::sync::{Once, OnceLock};

use super::builder::ThreadPoolBuilder;
use super::error::{Cause, ThreadPoolBuildError};
use super::thread_pool::ThreadPool;
use super::threads::ThreadSpawn;
use crate::worker::{Pool, Worker};

static GLOBAL: OnceLock<ThreadPool> = OnceLock::new();
/// The global pool is being made, or has been tried to.
static GLOBAL_TRIED: Once = Once::new();

/// The global pool, made at the first use.
///
/// # Panics
/// If it cannot be made, for the reasons of [`ThreadPoolBuilder::build`].
pub(crate) fn global() -> &'static ThreadPool {
    if let Some(pool) = GLOBAL.get() {
        return pool;
    }
    match set_global(|| ThreadPoolBuilder::new().build()) {
        Ok(()) => {}
        Err(error) if GLOBAL.get().is_none() => {
            panic!("the global thread pool could not be made: {error}")
        }
        Err(_) => {}
    }
    GLOBAL.get().expect("made just now, or by another thread")
}

impl<S: ThreadSpawn> ThreadPoolBuilder<S> {
    /// Makes the global pool, which is used outside of any other, and waits until its threads have
    /// started.
    ///
    /// # Errors
    /// [`ThreadPoolBuildError`] if there is one already (it is also made at its first use), and
    /// for the reasons of [`build`](Self::build).
    pub fn build_global(self) -> Result<(), ThreadPoolBuildError> {
        set_global(|| self.build())?;
        for worker in global().pool().workers() {
            worker.started.wait();
        }
        Ok(())
    }
}

/// Makes the global pool, which is tried once only.
fn set_global(
    make: impl FnOnce() -> Result<ThreadPool, ThreadPoolBuildError>,
) -> Result<(), ThreadPoolBuildError> {
    let mut result = Err(Cause::GlobalExists.into());
    GLOBAL_TRIED.call_once(|| {
        result = make().map(|pool| {
            let set = GLOBAL.set(pool);
            debug_assert!(set.is_ok(), "set here only");
        });
    });
    result
}

/// Runs the closure with the calling thread's worker; on other threads in the global pool.
#[inline(always)]
#[track_caller]
pub(crate) fn on_worker<R: Send>(closure: impl FnOnce(&Worker) -> R + Send) -> R {
    let location = Location::caller();
    Worker::with_current(|worker| match worker {
        Some(worker) => closure(worker),
        None => in_global(Some(location), closure),
    })
}

/// Runs the closure in the global pool; the caller, which is not a worker, waits at the location, or, without
/// one, in its context.
#[cold]
#[inline(never)]
pub(crate) fn in_global<R: Send>(
    location: Option<&'static Location<'static>>,
    closure: impl FnOnce(&Worker) -> R + Send,
) -> R {
    global().pool().run_from_outside(location, || {
        Worker::with_current(|worker| closure(worker.expect("installed closures run on workers")))
    })
}

/// Calls `use_pool` with the calling thread's pool, or the global one.
pub(crate) fn with_pool<R>(use_pool: impl FnOnce(&Pool) -> R) -> R {
    Worker::with_current(|worker| match worker {
        Some(worker) => use_pool(worker.pool()),
        None => use_pool(global().pool()),
    })
}

/// Whether the calling worker has spawned or forked tasks that nobody has taken yet. `None` if the calling
/// thread is not a worker.
pub fn current_thread_has_pending_tasks() -> Option<bool> {
    Worker::with_current(|worker| worker.map(Worker::has_pending_tasks))
}

/// The number of workers in the calling thread's pool; outside of any, in the global pool.
pub fn current_num_threads() -> usize {
    Worker::with_current(|worker| match worker {
        Some(worker) => {
            // A parallel iterator asks before it forks.
            worker.own.begins.set(worker.own.is_installed.get());
            worker.pool().workers().len()
        }
        None => global().pool().workers().len(),
    })
}

/// The calling thread's index in its pool; `None` if it is not a worker.
pub fn current_thread_index() -> Option<usize> {
    Worker::with_current(|worker| worker.map(|worker| worker.index))
}
