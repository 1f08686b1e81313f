//! The life of a pool.
//!
//! Its worker threads share it, and the last one frees it. `pending` counts whoever can make tasks in it, in
//! two phases:
//!
//! 1. The handle, the workers that have not finished their start handlers, and detached tasks. At zero
//!    each worker is told to call its exit handler.
//! 2. The workers that have not finished their exit handlers, and detached tasks. At zero each worker is
//!    told to terminate.
//!
//! Without an exit handler the second phase is skipped. So no worker leaves its loop while it may still get a
//! task. The global pool's handle is never dropped. A pool's current thread (`use_current_thread`) is a
//! worker that is not counted: after the others have terminated, it must run its own tasks itself.

use std::sync::{Arc, Mutex, OnceLock, TryLockError, Weak};
use std::thread;

use super::handlers::Handlers;
use crate::latch::Latch;
use crate::primitives::{AtomicUsize, Ordering};
use crate::queue::Injector;
use crate::sleep::Sleep;
use crate::sync::announce::announce;
use crate::worker::{Pool, Worker};

/// See [`Pool::cores`]. Kept, since asking the system takes longer than making a pool.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}

/// Set in [`Pool::pending`] while the exit handlers run, and after that.
const EXITS: usize = 1 << (usize::BITS - 1);

impl Pool {
    /// A pool of `count` workers without threads yet; see [`Worker::new`] for `breadth_first`.
    pub(super) fn new(count: usize, breadth_first: bool, handlers: Handlers) -> Arc<Pool> {
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
            (0..count).map(|index| Worker::new(index, count, breadth_first, address)).collect()
        });
        with_pools(|pools| pools.push(Arc::downgrade(&pool)));
        pool
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
        } else if self.pending.compare_exchange(0, EXITS | begun, Ordering::AcqRel, Ordering::Relaxed).is_ok()
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
