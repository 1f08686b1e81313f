//! Whether a thread works: the waits that it is in, and the runtimes of which it is a worker.
//!
//! One duty: move the thread's slot in the node's table ([`activity`]) as hooks see waits begin and end. A
//! runtime counts its worker from acquiring a task to its next look for one and does not know of a wait that
//! blocks it in between: on a lock, in a join of threads, in the pool of another runtime. A thread may be a
//! worker of several copies of a runtime, one in a task of the other: it is idle where one of them has it in
//! its scheduling loop.
//!
//! Async-signal-safe, but for [`Working::begin`] and [`Working::end`].

use crate::activity::{self, Charge, MAX_RUNTIMES, Slot, State};
use crate::arch::{counter, stack_pointer};
use hpcrun_abi::WORKER_IDLE;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

/// What is known of one thread. Only the thread and its handler use it.
#[derive(Debug)]
pub(super) struct Working {
    /// The thread's slot; null: the one below.
    slot: AtomicPtr<Slot>,
    /// Its slot if the node's table is full.
    unlisted: Slot,
    /// Whether the thread counts: not once the process is about to end.
    counts: AtomicBool,
    /// State bytes of the runtimes whose worker the thread is, side by side from the first place.
    workers: [AtomicPtr<AtomicU8>; MAX_RUNTIMES],
    /// Nested waits that the thread is in.
    waiting: Cell<u32>,
    /// Where the outermost of them has its frame.
    waits_at: Cell<usize>,
    /// The thread gives up its core (`sched_yield`).
    yielding: Cell<bool>,
    yields: Yields,
}

/// Calls of `sched_yield` that follow each other at once: a loop that looks for something to do.
#[derive(Debug)]
struct Yields {
    /// The processor's counter at the end of the last.
    last: Cell<u64>,
    /// How many followed each other.
    in_a_row: Cell<u32>,
    /// The last began while the thread was in a spinning wait.
    in_spin: Cell<bool>,
}

/// Cycles between two yields of a loop: somewhat more than 1 us. Whoever has a task takes longer.
const YIELD_GAP: u64 = 1 << 12;
/// A loop has yielded so often.
const YIELDS_OF_A_LOOP: u32 = 4;

impl Yields {
    const fn new() -> Yields {
        Yields {
            last: Cell::new(0),
            in_a_row: Cell::new(0),
            in_spin: Cell::new(false),
        }
    }

    fn begin(&self) {
        let in_a_row = if self.is_recent() {
            self.in_a_row.get()
        } else {
            0
        };
        self.in_a_row.set(in_a_row.saturating_add(1));
    }

    fn end(&self) {
        self.last.set(counter());
    }

    /// Whether the thread is in such a loop at this moment.
    #[inline]
    fn is_loop(&self) -> bool {
        self.in_a_row.get() >= YIELDS_OF_A_LOOP && self.is_recent()
    }

    fn is_recent(&self) -> bool {
        counter().wrapping_sub(self.last.get()) < YIELD_GAP
    }
}

impl Working {
    pub(super) const fn new() -> Self {
        Working {
            slot: AtomicPtr::new(ptr::null_mut()),
            unlisted: Slot::new(),
            counts: AtomicBool::new(false),
            workers: [const { AtomicPtr::new(ptr::null_mut()) }; MAX_RUNTIMES],
            waiting: Cell::new(0),
            waits_at: Cell::new(0),
            yielding: Cell::new(false),
            yields: Yields::new(),
        }
    }

    /// A thread with this kernel id begins at `now`, and works.
    pub(super) fn begin(&self, tid: u32, now: u64) {
        for worker in &self.workers {
            worker.store(ptr::null_mut(), Ordering::Relaxed);
        }
        self.waiting.set(0);
        self.yielding.set(false);
        self.take_slot(tid, now);
    }

    fn take_slot(&self, tid: u32, now: u64) {
        let listed = activity::acquire(tid, now);
        let slot = listed.map_or(ptr::null_mut(), |slot| ptr::from_ref(slot).cast_mut());
        self.slot.store(slot, Ordering::Release);
        self.counts.store(true, Ordering::Relaxed);
        self.move_to(match self.waiting.get() {
            0 => self.works_as(),
            _ => self.waits_as(),
        });
    }

    /// In a forked child, of which this is the only thread: it goes on under another id.
    pub(super) fn renew(&self, tid: u32, now: u64) {
        let counted = self.runtimes().filter(|state| *state != WORKER_IDLE);
        activity::enter_child(counted.count() as i32);
        self.leave_slot();
        self.take_slot(tid, now);
    }

    /// In a forked child: the slot is that of a thread of the parent.
    pub(super) fn leave_slot(&self) {
        self.slot.store(ptr::null_mut(), Ordering::Release);
        self.unlisted.forget();
    }

    /// The thread ends at `now`, and its slot is free. A worker whose runtime was not told is counted by it
    /// for ever.
    pub(super) fn end(&self, now: u64) {
        let counted = self.runtimes().filter(|state| *state != WORKER_IDLE);
        activity::discount(counted.count() as i32);
        self.stop(now);
        self.slot().release();
        self.slot.store(ptr::null_mut(), Ordering::Release);
    }

    /// The process is about to end: the thread counts no more. The slot stays its own.
    pub(super) fn stop(&self, now: u64) {
        if self.counts.swap(false, Ordering::Relaxed) {
            activity::end(self.slot(), now);
        }
    }

    #[inline]
    fn slot(&self) -> &Slot {
        // SAFETY: null, or a slot of the node's table, which lives for ever.
        unsafe { self.slot.load(Ordering::Relaxed).as_ref() }.unwrap_or(&self.unlisted)
    }

    #[inline]
    fn move_to(&self, state: State) {
        if !self.counts.load(Ordering::Relaxed) {
            return;
        }
        let runtimes = match self.is_worker() {
            true => self.runtimes().count() as u8,
            false => 0,
        };
        self.slot().move_to(state, runtimes);
    }

    #[inline]
    fn is_worker(&self) -> bool {
        !is_null(&self.workers[0])
    }

    /// The states that the thread's runtimes have it in.
    #[inline]
    fn runtimes(&self) -> impl Iterator<Item = u8> {
        let known = self.workers.iter().take_while(|w| !is_null(w));
        known.map(|worker| {
            // SAFETY: not null; the state outlives the worker's registration (hpcrun-abi).
            unsafe { &*worker.load(Ordering::Relaxed) }.load(Ordering::Relaxed)
        })
    }

    #[inline]
    fn works_as(&self) -> State {
        match self.is_worker() {
            true => State::Worker,
            false => State::Working,
        }
    }

    /// The thread is a worker, idle as yet, whose state is in `state`.
    pub(super) fn enter(&self, state: *const AtomicU8) {
        let free = self.workers.iter().find(|w| is_null(w));
        // There is one for each runtime that is registered, so this does not fail.
        if let Some(free) = free {
            free.store(state.cast_mut(), Ordering::Relaxed);
            self.move_to(State::Worker);
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
        self.move_to(self.works_as());
    }

    /// The thread begins to wait.
    #[inline]
    pub(super) fn begin_wait(&self) {
        let here = stack_pointer();
        let depth = match self.waiting.get() {
            depth if depth > 0 && self.was_left(here) => 0,
            depth => depth,
        };
        self.waiting.set(depth + 1);
        if depth == 0 {
            self.waits_at.set(here);
            self.move_to(self.waits_as());
        }
    }

    /// Whether the wait was left by a long jump: its frame is gone, or a sample found the thread running.
    fn was_left(&self, here: usize) -> bool {
        here > self.waits_at.get() || self.slot().state() == self.works_as()
    }

    #[inline]
    fn waits_as(&self) -> State {
        if !self.is_worker() {
            return State::Waiting;
        }
        match self.is_idle_worker() {
            // The count is down by now, and nobody else may be there to say so.
            true => {
                activity::publish_count();
                State::Asleep
            }
            false => State::Blocked,
        }
    }

    /// The wait is over.
    #[inline]
    pub(super) fn end_wait(&self) {
        let depth = self.waiting.get();
        self.waiting.set(depth.saturating_sub(1));
        if depth == 1 {
            self.slot().begin_anew();
            self.move_to(self.works_as());
        }
    }

    /// The thread gives up its core: it has nothing to do right now, and is idle even while it
    /// is charged CPU time for saying so.
    #[inline]
    pub(super) fn begin_yield(&self) {
        self.yielding.set(true);
        self.yields.begin();
        let spins = matches!(self.slot().state(), State::Spinning | State::Yielding);
        self.yields.in_spin.set(spins);
        self.begin_wait();
    }

    /// See [`Self::begin_yield`].
    #[inline]
    pub(super) fn end_yield(&self) {
        self.yields.end();
        let loops = self.yields.in_a_row.get() >= YIELDS_OF_A_LOOP;
        if self.waiting.get() != 1 || self.is_worker() || !(loops || self.yields.in_spin.get()) {
            self.end_wait();
        } else {
            // Idle until it is sampled elsewhere, or waits otherwise.
            self.waiting.set(0);
            self.move_to(match loops {
                true => State::Yielding,
                false => State::Spinning,
            });
        }
        self.yielding.set(false);
    }

    /// Whether a runtime has the thread in its scheduling loop.
    #[inline]
    pub(super) fn is_idle_worker(&self) -> bool {
        self.runtimes().any(|state| state == WORKER_IDLE)
    }

    /// Whether the thread gives up its core at this moment, or does so again and again.
    #[inline]
    pub(super) fn is_yielding(&self) -> bool {
        self.yielding.get() || (self.yields.in_a_row.get() > 0 && self.yields.is_loop())
    }

    /// Whether the thread is flagged as waiting.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.get() > 0
    }

    /// A sample is about to be charged.
    #[inline]
    pub(super) fn prepare_charge(&self) {
        activity::prepare(self.slot());
    }

    /// A sample at `now`, which stands for so many nanoseconds of work, is charged.
    #[inline]
    pub(super) fn charge(&self, now: u64, stands_for: u64) -> Charge {
        activity::charge(self.slot(), now, stands_for)
    }

    /// A sample at `now` found the thread idle though it runs: in its scheduling loop, or in a spinning wait.
    #[inline]
    pub(super) fn idles(&self, now: u64) {
        activity::spin(self.slot(), now);
    }
}

#[inline]
fn is_null(worker: &AtomicPtr<AtomicU8>) -> bool {
    worker.load(Ordering::Relaxed).is_null()
}
