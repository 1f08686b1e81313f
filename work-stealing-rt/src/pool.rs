//! Pools of workers, the global pool, and work that comes from outside a pool.
//!
//! One duty: make and end pools, and carry a closure to a pool while its caller waits.
//!
//! Life of a pool: its worker threads share it; `pending` counts its handle and the detached
//! tasks. When that reaches zero the workers are told to terminate, and the last one frees it.
//! The global pool's handle is never dropped.

use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::ffi::OsString;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};
use std::{env, io, thread};

use crossbeam_deque::Injector;

use crate::job::{Event, StackTask, TaskRef};
use crate::latch::{Latch, ThreadLatch};
use crate::parallel_overhead::{sched, sync};
use crate::profiler;
use crate::sleep::Sleep;
use crate::worker::{self, Worker};

/// The environment variable with the default number of workers.
const THREADS_VARIABLE: &str = "WORK_STEALING_RT_NUM_THREADS";
/// The most workers that a pool can have.
const MOST_THREADS: usize = 65_535;

/// What a pool's workers share.
pub(crate) struct Pool {
    workers: OnceLock<Box<[Worker]>>,
    pub(crate) injector: Injector<TaskRef>,
    pub(crate) sleep: Sleep,
    pending: AtomicUsize,
}

impl Pool {
    fn new(count: usize) -> Arc<Pool> {
        let pool = Arc::new(Pool {
            workers: OnceLock::new(),
            injector: Injector::new(),
            sleep: Sleep::new(count),
            pending: AtomicUsize::new(1),
        });
        let address = Arc::as_ptr(&pool);
        pool.workers.get_or_init(|| {
            (0..count)
                .map(|index| Worker::new(index, count == 1, address))
                .collect()
        });
        pool
    }

    /// The workers; at least one.
    #[inline(always)]
    pub(crate) fn workers(&self) -> &[Worker] {
        self.workers.get().map_or(&[], |workers| workers)
    }

    /// A detached task was made.
    pub(crate) fn retain(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// The handle was dropped, or a detached task is over.
    pub(crate) fn release(&self) {
        if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            for worker in self.workers() {
                sync::announce(self, &worker.terminate, worker.index);
            }
        }
    }

    /// Runs the closure on a worker of this pool while the caller, which is none of them, waits.
    #[cold]
    #[inline(never)]
    fn run_from_outside<R: Send>(&self, closure: impl FnOnce() -> R + Send) -> R {
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
    F: FnOnce() -> R + Send,
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
        sync::announce(&pool, unsafe { &(*this).latch }, index);
    }
}

impl Pool {
    /// A further owning handle.
    fn handle(&self) -> Arc<Pool> {
        let address: *const Pool = self;
        // SAFETY: a `Pool` exists in an `Arc` only (`Pool::new`), which is alive as `self` is.
        unsafe {
            Arc::increment_strong_count(address);
            Arc::from_raw(address)
        }
    }
}

static GLOBAL: OnceLock<ThreadPool> = OnceLock::new();

/// The global pool, made at the first use.
///
/// # Panics
/// If it cannot be made, for the reasons of [`ThreadPoolBuilder::build`].
fn global() -> &'static ThreadPool {
    GLOBAL.get_or_init(|| match ThreadPoolBuilder::new().build() {
        Ok(pool) => pool,
        Err(error) => panic!("the global thread pool could not be made: {error}"),
    })
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
        None => use_pool(&global().pool),
    }
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

/// A pool of worker threads.
///
/// Dropping it lets its detached tasks finish and then ends the threads, without waiting for
/// them.
pub struct ThreadPool {
    pool: Arc<Pool>,
}

impl ThreadPool {
    /// Runs the closure on one of the pool's workers and returns its result. Inside, [`join`],
    /// [`scope`] and so on use this pool. A panic of the closure goes on in the caller.
    ///
    /// The calling thread blocks; if it is a worker of another pool it works there meanwhile.
    ///
    /// [`join`]: crate::join
    /// [`scope`]: crate::scope
    pub fn install<OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce() -> R + Send,
        R: Send,
    {
        if Worker::current_in(&self.pool).is_some() {
            op()
        } else {
            self.pool.run_from_outside(op)
        }
    }

    /// [`join`](crate::join) in this pool.
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
    pub fn scope<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&crate::Scope<'scope>) -> R + Send,
        R: Send,
    {
        self.install(|| crate::scope(op))
    }

    /// [`spawn`](crate::spawn()) in this pool.
    pub fn spawn<OP>(&self, op: OP)
    where
        OP: FnOnce() + Send + 'static,
    {
        crate::spawn::spawn_in(&self.pool, op);
    }

    /// The number of workers.
    pub fn current_num_threads(&self) -> usize {
        self.pool.workers().len()
    }

    /// The calling thread's index if it is one of this pool's workers.
    pub fn current_thread_index(&self) -> Option<usize> {
        Worker::current_in(&self.pool).map(|worker| worker.index)
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.pool.release();
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool")
            .field("num_threads", &self.current_num_threads())
            .finish_non_exhaustive()
    }
}

/// Sets up a pool.
///
/// ```
/// let pool = work_stealing_rt::ThreadPoolBuilder::new().num_threads(2).build()?;
/// let (a, b) = pool.install(|| work_stealing_rt::join(|| 1, || 2));
/// assert_eq!(a + b, 3);
/// # Ok::<(), work_stealing_rt::ThreadPoolBuildError>(())
/// ```
#[derive(Default)]
pub struct ThreadPoolBuilder {
    num_threads: usize,
    stack_size: Option<usize>,
    thread_name: Option<Box<dyn FnMut(usize) -> String>>,
}

impl ThreadPoolBuilder {
    /// A builder with the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of workers, at most 65535. 0, the default, stands for the number in the
    /// environment variable `WORK_STEALING_RT_NUM_THREADS` if it is set and not 0, else for the
    /// parallelism that the system offers the process.
    pub fn num_threads(mut self, num_threads: usize) -> Self {
        self.num_threads = num_threads;
        self
    }

    /// The stack size of each worker thread in bytes. A worker that waits runs other tasks on
    /// top of its stack, so deep recursions may need more than the standard library's default.
    pub fn stack_size(mut self, stack_size: usize) -> Self {
        self.stack_size = Some(stack_size);
        self
    }

    /// The worker threads' names, by index; `wsrt-INDEX` by default.
    pub fn thread_name<F>(mut self, name: F) -> Self
    where
        F: FnMut(usize) -> String + 'static,
    {
        self.thread_name = Some(Box::new(name));
        self
    }

    /// Makes the pool.
    ///
    /// # Errors
    /// [`ThreadPoolBuildError`] if the number of workers is out of range, if the environment
    /// variable is needed and does not hold a number, or if the system refuses a thread.
    pub fn build(mut self) -> Result<ThreadPool, ThreadPoolBuildError> {
        profiler::attach();
        let count = match self.num_threads {
            0 => default_num_threads()?,
            given => given,
        };
        if count > MOST_THREADS {
            return Err(ThreadPoolBuildError(Cause::TooMany(count)));
        }
        // On an early return the handle's drop ends the threads that were started.
        let handle = ThreadPool {
            pool: Pool::new(count),
        };
        for index in 0..count {
            let name = match &mut self.thread_name {
                Some(name) => name(index),
                None => format!("wsrt-{index}"),
            };
            let mut builder = thread::Builder::new().name(name);
            if let Some(size) = self.stack_size {
                builder = builder.stack_size(size);
            }
            let pool = Arc::clone(&handle.pool);
            builder
                .spawn(move || worker::live(pool, index))
                .map_err(|error| ThreadPoolBuildError(Cause::Thread(error)))?;
        }
        Ok(handle)
    }

    /// Makes the global pool, which is used outside of any other.
    ///
    /// # Errors
    /// [`ThreadPoolBuildError`] if there is one already (it is also made at its first use), and
    /// for the reasons of [`ThreadPoolBuilder::build`].
    pub fn build_global(self) -> Result<(), ThreadPoolBuildError> {
        let already = || ThreadPoolBuildError(Cause::GlobalExists);
        if GLOBAL.get().is_some() {
            return Err(already());
        }
        GLOBAL.set(self.build()?).map_err(|_| already())
    }
}

impl fmt::Debug for ThreadPoolBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPoolBuilder")
            .field("num_threads", &self.num_threads)
            .field("stack_size", &self.stack_size)
            .finish_non_exhaustive()
    }
}

fn default_num_threads() -> Result<usize, ThreadPoolBuildError> {
    let asked = match env::var_os(THREADS_VARIABLE) {
        None => 0,
        Some(text) => text
            .to_str()
            .and_then(|text| text.trim().parse().ok())
            .ok_or(ThreadPoolBuildError(Cause::Variable(text)))?,
    };
    match asked {
        0 => Ok(thread::available_parallelism().map_or(1, usize::from)),
        asked => Ok(asked),
    }
}

/// Why a pool could not be made.
#[derive(Debug)]
pub struct ThreadPoolBuildError(Cause);

#[derive(Debug)]
enum Cause {
    GlobalExists,
    TooMany(usize),
    Variable(OsString),
    Thread(io::Error),
}

impl fmt::Display for ThreadPoolBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Cause::GlobalExists => f.write_str(
                "the global thread pool exists already; build it before anything uses it",
            ),
            Cause::TooMany(count) => {
                write!(
                    f,
                    "{count} worker threads are too many; ask for at most {MOST_THREADS}"
                )
            }
            Cause::Variable(text) => write!(
                f,
                "{THREADS_VARIABLE} is {text:?}; set it to a number of threads, or unset it"
            ),
            Cause::Thread(error) => write!(
                f,
                "a worker thread could not be started ({error}); ask for fewer threads"
            ),
        }
    }
}

impl std::error::Error for ThreadPoolBuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            Cause::Thread(error) => Some(error),
            _ => None,
        }
    }
}
