//! Whether a thread works: the waits that it is in, and the runtimes of which it is a worker.
//!
//! One duty: keep what the thread adds to n_working, by the counters of its runtimes and by
//! [`activity`]'s together, at one while it works and at none while it is idle. A runtime counts its worker from
//! acquiring a task to its next look for one and does not know of a wait that blocks it in between: on a lock, in a join
//! of threads, in the pool of another runtime. A thread may be a worker of several copies of a runtime, one in a
//! task of the other: it is idle where one of them has it in its scheduling loop.
//!
//! Async-signal-safe, all of it.

use crate::activity::{self, MAX_RUNTIMES};
use hpcrun_abi::WORKER_IDLE;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// What is known of one thread. Only the thread and its handler use it.
#[derive(Debug)]
pub(super) struct Working {
    /// State bytes of the runtimes whose worker the thread is, side by side from the first place.
    workers: [AtomicPtr<AtomicU8>; MAX_RUNTIMES],
    /// Nested waits that the thread is in.
    waiting: Cell<u32>,
    /// The outermost of them was taken off the number of working threads.
    discounted: Cell<bool>,
    /// The thread gives up its core (`sched_yield`).
    yielding: Cell<bool>,
}

impl Working {
    pub(super) const fn new() -> Self {
        Working {
            workers: [const { AtomicPtr::new(ptr::null_mut()) }; MAX_RUNTIMES],
            waiting: Cell::new(0),
            discounted: Cell::new(false),
            yielding: Cell::new(false),
        }
    }

    /// A thread begins, and works.
    pub(super) fn begin(&self) {
        for worker in &self.workers {
            worker.store(ptr::null_mut(), Ordering::Relaxed);
        }
        self.waiting.set(0);
        self.discounted.set(false);
        self.yielding.set(false);
        activity::begin_work();
    }

    /// The thread ends. A worker whose runtime counts it for ever, as it was not told, is no longer counted either.
    pub(super) fn end(&self) {
        if self.is_working() {
            activity::end_work();
        }
    }

    /// Whether n_working includes the thread.
    pub(super) fn is_working(&self) -> bool {
        !self.discounted.get() && !self.is_idle_worker()
    }

    /// The thread is a worker, idle as yet, whose state is in `state`.
    pub(super) fn enter(&self, state: *const AtomicU8) {
        let free = self.workers.iter().find(|w| is_null(w));
        // There is one for each runtime that is registered, so this does not fail.
        if let Some(free) = free {
            free.store(state.cast_mut(), Ordering::Relaxed);
            activity::end_work();
        }
    }

    /// The thread is no longer the worker whose state is in `state`; it was idle as such.
    pub(super) fn leave(&self, state: *const AtomicU8) {
        let is_it = |w: &AtomicPtr<AtomicU8>| ptr::eq(w.load(Ordering::Relaxed), state);
        let Some(place) = self.workers.iter().position(is_it) else {
            return;
        };
        // A sample in between sees one of the others twice.
        for pair in self.workers[place..].windows(2) {
            pair[0].store(pair[1].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.workers[MAX_RUNTIMES - 1].store(ptr::null_mut(), Ordering::Relaxed);
        activity::begin_work();
    }

    /// The thread begins to wait.
    #[inline]
    pub(super) fn begin_wait(&self) {
        let depth = self.waiting.get();
        self.waiting.set(depth + 1);
        if depth == 0 && !self.is_idle_worker() {
            activity::end_work();
            self.discounted.set(true);
        }
    }

    /// The wait is over.
    #[inline]
    pub(super) fn end_wait(&self) {
        let depth = self.waiting.get();
        self.waiting.set(depth.saturating_sub(1));
        if depth == 1 && self.discounted.replace(false) {
            activity::begin_work();
        }
    }

    /// The thread gives up its core: it has nothing to do right now, and is idle even while it
    /// is charged CPU time for saying so.
    #[inline]
    pub(super) fn begin_yield(&self) {
        self.yielding.set(true);
        self.begin_wait();
    }

    /// See [`Self::begin_yield`].
    #[inline]
    pub(super) fn end_yield(&self) {
        self.end_wait();
        self.yielding.set(false);
    }

    /// Whether a runtime has the thread in its scheduling loop.
    #[inline]
    pub(super) fn is_idle_worker(&self) -> bool {
        let mut workers = self.workers.iter().take_while(|w| !is_null(w));
        workers.any(|worker| {
            // SAFETY: not null; the state outlives the worker's registration (hpcrun-abi).
            let state = unsafe { &*worker.load(Ordering::Relaxed) };
            state.load(Ordering::Relaxed) == WORKER_IDLE
        })
    }

    /// Whether the thread gives up its core at this moment.
    #[inline]
    pub(super) fn is_yielding(&self) -> bool {
        self.yielding.get()
    }

    /// Whether the thread is flagged as waiting.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.get() > 0
    }

    /// Whether n_working lacks the thread, should it be found running.
    #[inline]
    pub(super) fn is_discounted(&self) -> bool {
        self.discounted.get()
    }
}

#[inline]
fn is_null(worker: &AtomicPtr<AtomicU8>) -> bool {
    worker.load(Ordering::Relaxed).is_null()
}
