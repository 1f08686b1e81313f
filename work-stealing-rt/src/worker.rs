//! A worker's state, its own part and the part that other workers see; and a pool's, which its workers share.
//!
//! A `Worker` is a part of its pool, which every worker thread keeps alive. The thread-local pointer to it is
//! set while the thread is a worker (`main_loop`).

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::AtomicU8;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use hpcrun_abi::WORKER_IDLE;

use crate::deque::{SlotPtr, SplitDeque};
use crate::fifo::{Fifo, Queued};
use crate::latch::{Latch, ThreadLatch};
use crate::pool::handlers::Handlers;
use crate::primitives::AtomicUsize;
use crate::queue::{self, Injector};
use crate::sleep::Sleep;
use crate::task::TaskRef;
use crate::track::{forks::Forks, path};

#[cfg(not(loom))]
thread_local! {
    static CURRENT: Cell<*const Worker> = const { Cell::new(ptr::null()) };
}
#[cfg(loom)]
loom::thread_local! {
    static CURRENT: Cell<*const Worker> = Cell::new(ptr::null());
}

/// A worker of a pool. Fields marked *owner* are touched by its own thread alone. In this order, so that the
/// deque is at offset 0, where the code of a join reaches it by the shortest instructions.
#[repr(C)]
pub(crate) struct Worker {
    /// The tasks of its pending joins.
    pub(crate) joins: SplitDeque,
    /// The tasks it has spawned (owner).
    pub(crate) spawns: queue::Worker<Queued>,
    /// The other end of `spawns`.
    pub(crate) stealer: queue::Stealer<Queued>,
    /// Its detached tasks that start in the order of their spawns.
    pub(crate) fifo: Fifo,
    /// Tasks that this worker alone may run: broadcasts.
    pub(crate) mailbox: Injector<TaskRef>,
    /// The critical path at its forks.
    pub(crate) forks: Forks,
    /// Its place in the pool.
    pub(crate) index: usize,
    /// Its pool, kept alive by the worker's thread; from the pool's `Arc`.
    pool: *const Pool,
    /// What changes often.
    pub(crate) own: CachePadded<Own>,
    /// The worker has started.
    pub(crate) started: ThreadLatch,
    /// It is time for the exit handler, if there is one.
    pub(crate) exit: Latch,
    /// The pool ends.
    pub(crate) terminate: Latch,
}

/// The part that only the worker's own thread touches, on cache lines of its own. The profiler reads `state`
/// in a signal handler on that thread.
pub(crate) struct Own {
    /// For the profiler: idle or working.
    pub(crate) state: AtomicU8,
    /// Whether the profiler's number of working threads includes it.
    pub(crate) counted: Cell<bool>,
    /// Whether `Sleep` counts it as a searcher.
    pub(crate) searching: Cell<bool>,
    /// Tasks that it has run while it waited; saturates.
    pub(crate) tasks: Cell<u32>,
    /// Found tasks that it runs, one in the middle of the other.
    pub(crate) depth: Cell<u32>,
    /// It runs the code of a closure that was installed, not that of a task.
    pub(crate) is_installed: Cell<bool>,
    /// The next counted fork is the first one of a parallel iterator in such code.
    pub(crate) begins: Cell<bool>,
    /// State of the victim choice.
    pub(crate) random: Cell<u64>,
    /// Pauses before its next look at other workers, as the last of them asked for.
    pub(crate) pace: Cell<u32>,
    /// Open joins that it has taken back since the last one that was stolen.
    pub(crate) taken_back: Cell<u32>,
    /// The task that it enters next was not stolen.
    pub(crate) in_order: Cell<bool>,
    /// When the last stolen one ended, if others were taken back before it.
    pub(crate) stolen_at: Cell<Option<Instant>>,
}

/// What a pool's workers share.
pub(crate) struct Pool {
    pub(crate) workers: OnceLock<Box<[Worker]>>,
    pub(crate) injector: Injector<TaskRef>,
    pub(crate) sleep: Sleep,
    /// Cores that the process may use, as far as was known when it made its first pool.
    pub(crate) cores: usize,
    /// Who can make tasks in it; see `pool::life`.
    pub(crate) pending: AtomicUsize,
    /// Workers that have begun, each of which will call the exit handler.
    pub(crate) begun: AtomicUsize,
    pub(crate) handlers: Handlers,
}

// SAFETY: the owner's fields are touched by its own thread alone (they are reached through
// `current()` only), the others are `Sync`.
unsafe impl Sync for Worker {}
// SAFETY: nothing in it is bound to the thread that made it.
unsafe impl Send for Worker {}

impl Worker {
    /// Worker `index` of `workers` in `pool`. `breadth_first`: it runs its oldest spawned task first.
    pub(crate) fn new(index: usize, workers: usize, breadth_first: bool, pool: *const Pool) -> Self {
        let spawns = if breadth_first { queue::Worker::new_fifo() } else { queue::Worker::new_lifo() };
        Worker {
            joins: SplitDeque::new(workers),
            stealer: spawns.stealer(),
            spawns,
            fifo: Fifo::new(),
            mailbox: Injector::new(),
            forks: Forks::new(),
            index,
            pool,
            own: CachePadded::new(Own {
                state: AtomicU8::new(WORKER_IDLE),
                counted: Cell::new(false),
                searching: Cell::new(false),
                tasks: Cell::new(0),
                depth: Cell::new(0),
                is_installed: Cell::new(false),
                begins: Cell::new(false),
                random: Cell::new(0x9e37_79b9_7f4a_7c15 ^ ((index as u64 + 1) << 20)),
                pace: Cell::new(0),
                taken_back: Cell::new(0),
                in_order: Cell::new(false),
                stolen_at: Cell::new(None),
            }),
            started: ThreadLatch::new(),
            exit: Latch::new(),
            terminate: Latch::new(),
        }
    }

    /// The worker's pool.
    #[inline(always)]
    pub(crate) fn pool(&self) -> &Pool {
        // SAFETY: the worker is a part of the pool.
        unsafe { &*self.pool }
    }

    /// A further owner of the worker's pool.
    pub(crate) fn owned_pool(&self) -> Arc<Pool> {
        // SAFETY: the pointer comes from `Arc::as_ptr`, so it may be used for the whole allocation
        // (one made from a `&Pool` may not); the pool is alive as the worker, a part of it, is.
        unsafe {
            Arc::increment_strong_count(self.pool);
            Arc::from_raw(self.pool)
        }
    }

    /// The calling thread's worker; null on other threads.
    #[inline(always)]
    pub(crate) fn current() -> *const Worker {
        CURRENT.with(Cell::get)
    }

    /// Makes the calling thread this worker, or, if null, none.
    pub(crate) fn set_current(worker: *const Worker) {
        CURRENT.with(|current| current.set(worker));
    }

    /// Calls the closure with the calling thread's worker; `None` on other threads.
    #[inline(always)]
    pub(crate) fn with_current<R>(use_worker: impl FnOnce(Option<&Worker>) -> R) -> R {
        // SAFETY: null, or a worker of the pool that the thread keeps until `main_loop`, which is then
        // among the closure's callers, returns or unwinds.
        use_worker(unsafe { Worker::current().as_ref() })
    }

    /// The calling thread's worker, if it is one of `pool`: a part of it.
    #[inline(always)]
    pub(crate) fn current_in(pool: &Pool) -> Option<&Worker> {
        // SAFETY: the thread keeps the pool, and with it the worker, for as long as it runs.
        let worker = unsafe { Worker::current().as_ref() }?;
        ptr::eq(worker.pool, pool).then_some(worker)
    }

    /// Whether it has spawned or forked tasks that nobody has taken.
    pub(crate) fn has_pending_tasks(&self) -> bool {
        !self.spawns.is_empty() || self.joins.has_tasks()
    }

    /// Whether other workers look for tasks, so that the calling thread should split its work; or whether the
    /// critical path is tracked, for which all that may run in parallel must be tasks.
    #[inline(always)]
    pub(crate) fn is_hungry(&self) -> bool {
        self.joins.is_hungry() || path::is_active()
    }
}

impl Pool {
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
}
