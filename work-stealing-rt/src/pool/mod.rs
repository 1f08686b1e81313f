//! Pools of workers, the global pool, and work that comes from outside a pool.
//!
//! One duty: hold what a pool's workers share, and carry a closure to a pool while its caller
//! waits. How a pool is set up is `builder`'s business, how its threads come to be `threads`'s;
//! `thread_pool` is the owner's handle.
//!
//! Life of a pool: its worker threads share it; `pending` counts its handle and the detached
//! tasks. When that reaches zero the workers are told to terminate, and the last one frees it.
//! The global pool's handle is never dropped.

mod builder;
mod configuration;
mod error;
mod thread_pool;
mod threads;

use core::mem;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::abort;
use std::sync::{Arc, Once, OnceLock};
use std::thread;

use crossbeam_deque::Injector;

use crate::deque::SlotPtr;
use crate::job::{Event, StackTask, TaskRef};
use crate::latch::{Latch, ThreadLatch};
use crate::parallel_overhead::{sched, sync};
use crate::sleep::Sleep;
use crate::worker::Worker;

pub use builder::ThreadPoolBuilder;
#[allow(deprecated)]
pub use configuration::{Configuration, initialize};
pub use error::ThreadPoolBuildError;
pub use thread_pool::ThreadPool;
pub use threads::{CustomSpawn, DefaultSpawn, ThreadBuilder, ThreadSpawn};

/// The most workers that a pool can have.
const MOST_THREADS: usize = 65_535;

/// See [`Pool::cores`]. Asking the system takes longer than to make a pool.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}

/// What the user wants to be called for; all may be called by several workers at once.
#[derive(Default)]
pub(crate) struct Handlers {
    /// A worker has started; its index.
    pub(crate) start: Option<Box<IndexHandler>>,
    /// A worker ends; its index.
    pub(crate) exit: Option<Box<IndexHandler>>,
    /// A detached task, or another handler, has panicked.
    pub(crate) panic: Option<Box<PanicHandler>>,
}

type IndexHandler = dyn Fn(usize) + Send + Sync;
type PanicHandler = dyn Fn(Box<dyn Any + Send>) + Send + Sync;

/// What a pool's workers share.
pub(crate) struct Pool {
    workers: OnceLock<Box<[Worker]>>,
    pub(crate) injector: Injector<TaskRef>,
    pub(crate) sleep: Sleep,
    /// Cores that the process may use, as far as was known when it made its first pool.
    pub(crate) cores: usize,
    pending: AtomicUsize,
    pub(crate) handlers: Handlers,
}

impl Pool {
    /// A pool of `count` workers without threads yet; see [`Worker::new`] for `breadth_first`.
    fn new(count: usize, breadth_first: bool, handlers: Handlers) -> Arc<Pool> {
        let pool = Arc::new(Pool {
            workers: OnceLock::new(),
            injector: Injector::new(),
            sleep: Sleep::new(count),
            cores: cores(),
            pending: AtomicUsize::new(1),
            handlers,
        });
        let address = Arc::as_ptr(&pool);
        pool.workers.get_or_init(|| {
            (0..count)
                .map(|index| Worker::new(index, count, breadth_first, address))
                .collect()
        });
        pool
    }

    /// The workers; at least one.
    #[inline(always)]
    pub(crate) fn workers(&self) -> &[Worker] {
        self.workers.get().map_or(&[], |workers| workers)
    }

    /// The worker in whose deque the slot is: one of this pool's.
    pub(crate) fn owner_of(&self, slot: SlotPtr) -> &Worker {
        let mut workers = self.workers().iter();
        let owner = workers.find(|worker| worker.joins.has_slot(slot));
        owner.expect("tasks are stolen within a pool")
    }

    /// A detached task was made.
    pub(crate) fn retain(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// The handle was dropped, or a detached task is over.
    pub(crate) fn release(&self) {
        if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            for worker in self.workers() {
                sync::announce(self, &worker.terminate, || worker.index);
            }
        }
    }

    /// Calls one of the user's handlers.
    pub(crate) fn call_handler(&self, handler: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(handler)) {
            self.handle_panic(payload);
        }
    }

    /// Code for which nobody waits has panicked. Aborts the process unless a handler takes care.
    pub(crate) fn handle_panic(&self, payload: Box<dyn Any + Send>) {
        let Some(handler) = &self.handlers.panic else {
            eprintln!("work-stealing-rt: a detached task panicked; aborting");
            abort();
        };
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| handler(payload))) {
            mem::forget(again);
            eprintln!("work-stealing-rt: the panic handler panicked; aborting");
            abort();
        }
    }

    /// Runs the closure on a worker of this pool while the caller, which is none of them, waits.
    #[cold]
    #[inline(never)]
    fn run_from_outside<R: Send>(&self, closure: impl FnOnce() -> R + Send) -> R {
        let closure = |_migrated: bool| closure();
        // SAFETY: the calling thread keeps its worker and its pool.
        match unsafe { Worker::current().as_ref() } {
            None => {
                let task = StackTask::new(closure, ThreadLatch::new());
                sched::offer(self, task.record());
                task.event.wait();
                finished(&task)
            }
            Some(caller) => {
                let task = StackTask::new(closure, ForeignWorker::new(caller));
                sched::offer(self, task.record());
                sched::wait_in_task(caller, &task.event.latch);
                finished(&task)
            }
        }
    }
}

/// The result of an installed task that is over; its panic goes on here.
fn finished<F, R, E>(task: &StackTask<F, R, E>) -> R
where
    F: FnOnce(bool) -> R + Send,
    R: Send,
    E: Event,
{
    // SAFETY: the event has happened, and this is the only place that asks.
    match unsafe { task.take_outcome() } {
        Ok(result) => result,
        Err(payload) => resume_unwind(payload),
    }
}

impl Event for ThreadLatch {
    unsafe fn happen(this: *const Self) {
        // SAFETY: valid until the waiter is told (this function's contract).
        unsafe { ThreadLatch::set(this) }
    }
}

/// The event for which a worker of another pool waits.
struct ForeignWorker {
    latch: Latch,
    pool: Arc<Pool>,
    index: usize,
}

impl ForeignWorker {
    fn new(worker: &Worker) -> Self {
        ForeignWorker {
            latch: Latch::new(),
            pool: worker.pool().handle(),
            index: worker.index,
        }
    }
}

impl Event for ForeignWorker {
    unsafe fn happen(this: *const Self) {
        // SAFETY: valid until the latch is set (this function's contract). The waiter's pool is
        // kept beyond that by a handle of our own.
        let (pool, index) = unsafe { (Arc::clone(&(*this).pool), (*this).index) };
        // SAFETY: as above; the latch is not touched after it is set.
        sync::announce(&pool, unsafe { &(*this).latch }, || index);
    }
}

impl Pool {
    /// A further owning handle.
    pub(crate) fn handle(&self) -> Arc<Pool> {
        let address: *const Pool = self;
        // SAFETY: a `Pool` exists in an `Arc` only (`Pool::new`), which is alive as `self` is.
        unsafe {
            Arc::increment_strong_count(address);
            Arc::from_raw(address)
        }
    }
}

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

/// Makes the global pool, which is tried once only.
fn set_global(
    make: impl FnOnce() -> Result<ThreadPool, ThreadPoolBuildError>,
) -> Result<(), ThreadPoolBuildError> {
    let mut result = Err(error::Cause::GlobalExists.into());
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
pub(crate) fn on_worker<R: Send>(closure: impl FnOnce(&Worker) -> R + Send) -> R {
    match sched::current() {
        Some(worker) => closure(worker),
        None => in_global(closure),
    }
}

/// Runs the closure in the global pool; the caller is not a worker.
#[cold]
#[inline(never)]
pub(crate) fn in_global<R: Send>(closure: impl FnOnce(&Worker) -> R + Send) -> R {
    global().install(|| {
        // SAFETY: `install` runs this on a worker of the global pool.
        closure(unsafe { &*Worker::current() })
    })
}

/// Calls `use_pool` with the calling thread's pool, or the global one.
pub(crate) fn with_pool<R>(use_pool: impl FnOnce(&Pool) -> R) -> R {
    // SAFETY: the calling thread keeps its worker.
    match unsafe { Worker::current().as_ref() } {
        Some(worker) => use_pool(worker.pool()),
        None => use_pool(global().pool()),
    }
}

/// The most workers that a pool can have; a builder that is asked for more makes so many.
pub fn max_num_threads() -> usize {
    MOST_THREADS
}

/// Has the calling worker spawned or forked tasks that nobody has taken yet? `None` if the calling
/// thread is not a worker.
pub fn current_thread_has_pending_tasks() -> Option<bool> {
    sched::current().map(Worker::has_pending_tasks)
}

/// The number of workers in the calling thread's pool; outside of any, in the global pool.
pub fn current_num_threads() -> usize {
    with_pool(|pool| pool.workers().len())
}

/// The calling thread's index in its pool; `None` if it is not a worker.
pub fn current_thread_index() -> Option<usize> {
    // SAFETY: the calling thread keeps its worker.
    unsafe { Worker::current().as_ref() }.map(|worker| worker.index)
}
