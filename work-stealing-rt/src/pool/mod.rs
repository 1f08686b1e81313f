//! Pools of workers, the global pool, and work that comes from outside a pool.
//!
//! `builder` sets a pool up, `threads` starts its threads, `thread_pool` is the owner's handle. This file has
//! the part that workers share, and runs closures in a pool while their callers wait.
//!
//! Life of a pool: its worker threads share it, and the last one frees it. `pending` counts whoever can
//! make tasks in it, in two phases:
//!
//! 1. The handle, the workers that have not finished their start handlers, and detached tasks. At zero
//!    each worker is told to call its exit handler.
//! 2. The workers that have not finished their exit handlers, and detached tasks. At zero each worker is
//!    told to terminate.
//!
//! Without an exit handler the second phase is skipped. So no worker leaves its loop while it may still get a
//! task. The global pool's handle is never dropped. A pool's current thread (`use_current_thread`) is a
//! worker that is not counted: after the others have terminated, it must run its own tasks itself.

mod builder;
mod configuration;
mod error;
mod thread_pool;
mod threads;

use core::mem;
use core::panic::Location;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::abort;
use std::sync::{Arc, Mutex, Once, OnceLock, TryLockError, Weak};
use std::thread;

use crate::deque::SlotPtr;
use crate::job::{Event, Linked, StackTask, TaskRef};
use crate::latch::{Latch, ThreadLatch};
use crate::primitives::{AtomicUsize, Ordering};
use crate::queue::Injector;
use crate::sched::in_task::wait_in_task;
use crate::sched::offer::offer;
use crate::sleep::Sleep;
use crate::sync::announce::announce;
use crate::track;
use crate::worker::Worker;

pub use builder::ThreadPoolBuilder;
#[allow(deprecated)]
pub use configuration::{Configuration, initialize};
pub use error::ThreadPoolBuildError;
pub use thread_pool::ThreadPool;
pub use threads::{CustomSpawn, DefaultSpawn, ThreadBuilder, ThreadSpawn};

/// The most workers that a pool can have.
const MOST_THREADS: usize = 65_535;

/// See [`Pool::cores`]. Kept, since asking the system takes longer than making a pool.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}

/// The user's handlers. Several workers may call one at the same time.
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
    /// Holds on the pool; [`EXITS`] is set in the second phase.
    pending: AtomicUsize,
    /// Workers that have begun, each of which will call the exit handler.
    begun: AtomicUsize,
    pub(crate) handlers: Handlers,
}

/// Set in [`Pool::pending`] while the exit handlers run, and after that.
const EXITS: usize = 1 << (usize::BITS - 1);

impl Pool {
    /// A pool of `count` workers without threads yet; see [`Worker::new`] for `breadth_first`.
    fn new(count: usize, breadth_first: bool, handlers: Handlers) -> Arc<Pool> {
        let pool = Arc::new(Pool {
            workers: OnceLock::new(),
            injector: Injector::new(),
            sleep: Sleep::new(count),
            cores: cores(),
            pending: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            handlers,
        });
        let address = Arc::as_ptr(&pool);
        pool.workers.get_or_init(|| {
            (0..count)
                .map(|index| Worker::new(index, count, breadth_first, address))
                .collect()
        });
        with_pools(|pools| pools.push(Arc::downgrade(&pool)));
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

    /// Adds a hold on the pool. The caller has one itself, or is making the pool.
    pub(crate) fn retain(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a hold on the pool. The last one ends the phase.
    pub(crate) fn release(&self) {
        let left = self.pending.fetch_sub(1, Ordering::AcqRel) - 1;
        if left & !EXITS != 0 {
            return;
        }
        let begun = self.begun.load(Ordering::Relaxed);
        if left == EXITS || self.handlers.exit.is_none() || begun == 0 {
            self.tell_all(|worker| &worker.terminate);
        } else if self
            .pending
            .compare_exchange(0, EXITS | begun, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
        {
            // On failure the pool's current thread has spawned a task, whose end calls this again.
            self.tell_all(|worker| &worker.exit);
        }
    }

    fn tell_all(&self, event: impl Fn(&Worker) -> &Latch) {
        for worker in self.workers() {
            announce(self, event(worker), || worker.index);
        }
    }

    /// A worker's thread begins; it holds the pool.
    pub(crate) fn begin_worker(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls one of the user's handlers.
    pub(crate) fn call_handler(&self, handler: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(handler)) {
            self.handle_panic(payload);
        }
    }

    /// Handles a panic of code that nobody waits for. Aborts the process if there is no handler.
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

    /// Runs the closure on a worker of this pool while the caller, which is not one of them, waits.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn run_from_outside<R: Send>(&self, closure: impl FnOnce() -> R + Send) -> R {
        let location = Location::caller();
        let closure = |_migrated: bool| closure();
        Worker::with_current(|worker| match worker {
            None => {
                let event = Linked::new(ThreadLatch::new(), location);
                let task = StackTask::new(closure, event);
                offer(self, task.record());
                let paused = track::pause();
                task.event.event.wait();
                track::resume(paused);
                finished(&task)
            }
            Some(caller) => {
                let event = Linked::new(ForeignWorker::new(caller), location);
                let task = StackTask::new(closure, event);
                offer(self, task.record());
                wait_in_task(caller, &task.event.event.latch);
                finished(&task)
            }
        })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let this: *const Pool = self;
        with_pools(|pools| pools.retain(|pool| !core::ptr::eq(pool.as_ptr(), this)));
    }
}

/// All pools that live, for [`tracking_changed`].
static POOLS: Mutex<Vec<Weak<Pool>>> = Mutex::new(Vec::new());
/// How often a thread tries to get the list: in a child of `fork` it may stay locked for ever. A pool that is
/// not in the list is tracked from its workers' next slow fork on.
const TRIES: u32 = 1000;

fn with_pools(change: impl FnOnce(&mut Vec<Weak<Pool>>)) {
    for _ in 0..TRIES {
        match POOLS.try_lock() {
            Ok(mut pools) => return change(&mut pools),
            Err(TryLockError::Poisoned(pools)) => return change(&mut pools.into_inner()),
            Err(TryLockError::WouldBlock) => thread::yield_now(),
        }
    }
}

/// The tracking of the critical path has started or stopped: every worker takes the slow half of its next
/// fork, which notices that.
pub(crate) extern "C" fn tracking_changed() {
    let mut alive: Vec<Arc<Pool>> = Vec::new();
    // The last owner of a pool takes it off the list, so it must not be dropped in here.
    with_pools(|pools| alive.extend(pools.iter().filter_map(Weak::upgrade)));
    for pool in alive {
        for worker in pool.workers() {
            worker.joins.raise_attention();
        }
    }
}

/// The result of an installed task that has ended. Its panic resumes here.
fn finished<F, R, E>(task: &StackTask<F, R, Linked<E>>) -> R
where
    F: FnOnce(bool) -> R + Send,
    R: Send,
    E: Event,
{
    // SAFETY: the event has happened, and this is the only place that asks.
    match unsafe { task.join_outcome() } {
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
            pool: worker.owned_pool(),
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
        announce(&pool, unsafe { &(*this).latch }, || index);
    }
}

/// An owner that [`Pool::pending`] counts.
pub(crate) struct Hold(Arc<Pool>);

impl Hold {
    pub(crate) fn new(pool: &Arc<Pool>) -> Self {
        pool.retain();
        Hold(Arc::clone(pool))
    }

    /// The pool, which may be kept beyond the hold.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.0
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.release();
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
#[track_caller]
pub(crate) fn on_worker<R: Send>(closure: impl FnOnce(&Worker) -> R + Send) -> R {
    Worker::with_current(|worker| match worker {
        Some(worker) => closure(worker),
        None => in_global(closure),
    })
}

/// Runs the closure in the global pool; the caller is not a worker.
#[cold]
#[inline(never)]
#[track_caller]
pub(crate) fn in_global<R: Send>(closure: impl FnOnce(&Worker) -> R + Send) -> R {
    global().install(|| {
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

/// The most workers that a pool can have. A builder makes this many if it is asked for more.
pub fn max_num_threads() -> usize {
    MOST_THREADS
}

/// Whether the calling worker has spawned or forked tasks that nobody has taken yet. `None` if the calling
/// thread is not a worker.
pub fn current_thread_has_pending_tasks() -> Option<bool> {
    Worker::with_current(|worker| worker.map(Worker::has_pending_tasks))
}

/// The number of workers in the calling thread's pool; outside of any, in the global pool.
pub fn current_num_threads() -> usize {
    with_pool(|pool| pool.workers().len())
}

/// The calling thread's index in its pool; `None` if it is not a worker.
pub fn current_thread_index() -> Option<usize> {
    Worker::with_current(|worker| worker.map(|worker| worker.index))
}
