//! Whether a thread works: the waits that it is in, and the runtimes whose worker it is.
//!
//! Moves the thread's slot in the node's table ([`activity`]) when a hook observes that a wait begins or
//! ends. A runtime counts a worker as working from the moment it acquires a task until it next searches for
//! one. The runtime does not know of waits that block the worker in between: on a lock, in a join of threads,
//! in the pool of another runtime. A thread may be a worker of several copies of a runtime, inside a task of
//! another. It is idle if any of them has it in its scheduling loop.
//!
//! Async-signal-safe, except [`Working::begin`] and [`Working::end`].

use super::listing::Listing;
use crate::activity::{self, Charge, MAX_RUNTIMES, State};
use crate::arch::{counter, stack_pointer};
use crate::image;
use crate::trace::ThreadTrace;
use crate::unwind::stack;
use hpc_formats::trace;
use hpcrun_abi::WORKER_IDLE;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// The waits and runtimes of one thread. Only the thread and its handler use it.
pub struct Working {
    listing: &'static Listing,
    /// State bytes of the runtimes whose worker the thread is; the used entries come first.
    workers: [AtomicPtr<AtomicU8>; MAX_RUNTIMES],
    /// Number of nested waits that the thread is in.
    waiting: Cell<u32>,
    /// Stack pointer at the outermost wait.
    waits_at: Cell<usize>,
    /// For how long nobody had worked when the outermost wait began, in counts of the processor.
    still_at: Cell<u64>,
    /// Number of nested waits in runtimes that tell of their tasks.
    pauses: Cell<u32>,
    yielding: Cell<bool>,
    yields: Yields,
    trace: ThreadTrace,
}

/// Detects consecutive calls of `sched_yield`: a loop that searches for work.
#[derive(Default)]
struct Yields {
    /// The cycle counter at the end of the last call.
    last: Cell<u64>,
    /// Number of consecutive calls.
    in_a_row: Cell<u32>,
    /// Whether the last call began in a spinning wait.
    in_spin: Cell<bool>,
}

/// Maximal number of cycles between two yields of a loop, somewhat more than 1 us. A task takes longer.
const YIELD_GAP: u64 = 1 << 12;
/// Number of consecutive yields that make a loop.
const YIELDS_OF_A_LOOP: u32 = 4;

impl Yields {
    fn begin(&self) {
        let in_a_row = if self.is_recent() { self.in_a_row.get() } else { 0 };
        self.in_a_row.set(in_a_row.saturating_add(1));
    }

    fn end(&self) {
        self.last.set(counter());
    }

    /// Whether the thread is in such a loop now.
    #[inline]
    fn is_loop(&self) -> bool {
        self.in_a_row.get() >= YIELDS_OF_A_LOOP && self.is_recent()
    }

    fn is_recent(&self) -> bool {
        counter().wrapping_sub(self.last.get()) < YIELD_GAP
    }
}

impl Working {
    pub(super) fn new(listing: &'static Listing) -> Self {
        Working {
            listing,
            workers: Default::default(),
            waiting: Cell::new(0),
            waits_at: Cell::new(0),
            still_at: Cell::new(0),
            pauses: Cell::new(0),
            yielding: Cell::new(false),
            yields: Yields::default(),
            trace: ThreadTrace::none(),
        }
    }

    /// A thread with this kernel id begins at `now`, in state `Working`.
    pub(super) fn begin(&self, tid: u32, now: u64) {
        self.listing.enter(tid, now);
        self.move_to(if self.waiting.get() == 0 { self.works_as() } else { self.waits_as() });
        activity::begin_work();
    }

    /// In a forked child, of which this is the only thread: takes a new slot under its new id.
    pub(super) fn renew(&self, tid: u32, now: u64) {
        let counted = self.runtimes().filter(|state| *state != WORKER_IDLE);
        activity::enter_child(counted.count() as i32);
        self.listing.forget();
        self.begin(tid, now);
    }

    /// The thread ends at `now`; frees its slot. A runtime that does not know that its working worker ended
    /// counts it forever; `discount` corrects this.
    pub(super) fn end(&self, now: u64) {
        let counted = self.runtimes().filter(|state| *state != WORKER_IDLE);
        activity::discount(counted.count() as i32);
        self.listing.leave(now);
        self.trace.end();
    }

    #[inline]
    fn move_to(&self, state: State) {
        let runtimes = || match self.is_worker() {
            true => self.runtimes().count() as u8,
            false => 0,
        };
        self.listing.move_to(state, runtimes);
        if self.trace.is_on() {
            self.trace.change(self.traced_as(state));
        }
    }

    fn traced_as(&self, state: State) -> trace::State {
        match state {
            _ if self.is_paused() => trace::State::Idle,
            State::Worker if self.is_idle_worker() => trace::State::Idle,
            State::Asleep => trace::State::Idle,
            State::Waiting | State::Blocked | State::Silent | State::SilentWorker => trace::State::Waits,
            State::Spinning | State::Yielding => trace::State::Spins,
            State::Working | State::Worker | State::Runtimes | State::Free => trace::State::Works,
        }
    }

    #[inline]
    pub(super) fn trace(&self) -> &ThreadTrace {
        &self.trace
    }

    #[inline]
    fn is_worker(&self) -> bool {
        !is_null(&self.workers[0])
    }

    /// The thread's state bytes in its runtimes.
    #[inline]
    fn runtimes(&self) -> impl Iterator<Item = u8> {
        let known = self.workers.iter().take_while(|w| !is_null(w));
        known.map(|worker| {
            // SAFETY: not null; the state byte outlives the worker's registration (hpcrun-abi).
            unsafe { &*worker.load(Ordering::Relaxed) }.load(Ordering::Relaxed)
        })
    }

    #[inline]
    fn works_as(&self) -> State {
        match self.is_worker() {
            _ if self.is_paused() => self.waits_as(),
            true => State::Worker,
            false => State::Working,
        }
    }

    #[inline]
    pub(super) fn pauses(&self) -> u32 {
        self.pauses.get()
    }

    /// Whether the thread waits in a runtime that tells of its tasks.
    #[inline]
    pub fn is_paused(&self) -> bool {
        self.pauses.get() > 0
    }

    /// The thread is about to be in so many waits of its runtimes, but for the task that it begins at once.
    /// The slot stays as it is: a sample that finds it waiting, or who inspects it, moves it.
    #[inline]
    pub(super) fn expect_pauses(&self, count: u32) {
        self.pauses.set(count);
    }

    /// The thread is in so many waits of its runtimes, after an expected one. If only a sample or who
    /// inspects has found it waiting, its next sample moves the slot back: as much too late as the first was.
    #[inline]
    pub(super) fn end_expected(&self, count: u32) {
        match self.listing.slot().state() {
            State::Waiting | State::Asleep | State::Blocked | State::Yielding => self.set_pauses(count),
            _ => self.pauses.set(count),
        }
    }

    /// The thread is in so many waits of its runtimes.
    #[inline]
    pub(super) fn set_pauses(&self, count: u32) {
        let was_paused = self.pauses.replace(count) > 0;
        if was_paused != self.is_paused() && self.waiting.get() == 0 {
            if was_paused {
                self.listing.slot().begin_anew();
            }
            self.move_to(self.works_as());
        }
    }

    /// Registers a worker, idle at first, with this state byte.
    pub fn enter_runtime(&self, state: *const AtomicU8) {
        let free = self.workers.iter().find(|w| is_null(w));
        // There is an entry for each runtime that can register, so one is free.
        if let Some(free) = free {
            free.store(state.cast_mut(), Ordering::Relaxed);
            self.move_to(State::Worker);
        }
    }

    /// Ends the registration of the worker with this state byte; it is idle then.
    pub fn leave_runtime(&self, state: *const AtomicU8) {
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

    #[inline]
    pub fn begin_wait(&self) {
        let here = stack_pointer();
        let depth = match self.waiting.get() {
            depth if depth > 0 && self.was_left(here) => 0,
            depth => depth,
        };
        self.waiting.set(depth + 1);
        if depth == 0 {
            self.waits_at.set(here);
            self.move_to(self.waits_as());
            self.still_at.set(activity::begin_wait());
        }
    }

    /// Whether a long jump has left the wait: its frame is gone, or a sample found the thread running.
    fn was_left(&self, here: usize) -> bool {
        (here > self.waits_at.get() && are_on_one_stack(here, self.waits_at.get()))
            || (!self.is_paused() && self.listing.slot().state() == self.works_as())
    }

    #[inline]
    fn waits_as(&self) -> State {
        if !self.is_worker() {
            return State::Waiting;
        }
        match self.is_idle_worker() {
            // The runtime has decremented its count already, and possibly no other thread will publish it.
            true => {
                activity::publish_count();
                State::Asleep
            }
            false => State::Blocked,
        }
    }

    /// The wait is over. Returns for how long nobody has worked meanwhile, in nanoseconds.
    #[inline]
    pub fn end_wait(&self) -> u64 {
        let depth = self.waiting.get();
        self.waiting.set(depth.saturating_sub(1));
        if depth != 1 {
            return 0;
        }
        self.listing.slot().begin_anew();
        self.move_to(self.works_as());
        match activity::begin_work().saturating_sub(self.still_at.get()) {
            // Less than a millisecond.
            counts if counts < 1 << 20 => 0,
            counts => image::nanoseconds(counts),
        }
    }

    /// The thread gives up its core. It has nothing to do, so it is idle, although the yields cost CPU time.
    #[inline]
    pub fn begin_yield(&self) {
        self.yielding.set(true);
        self.yields.begin();
        let spins = matches!(self.listing.slot().state(), State::Spinning | State::Yielding);
        self.yields.in_spin.set(spins);
        self.begin_wait();
    }

    /// The thread has its core again.
    #[inline]
    pub fn end_yield(&self) {
        self.yields.end();
        let loops = self.yields.in_a_row.get() >= YIELDS_OF_A_LOOP;
        if self.waiting.get() != 1 || self.is_worker() || !(loops || self.yields.in_spin.get()) {
            self.end_wait();
        } else {
            // Idle until a sample finds it elsewhere, or it waits otherwise.
            self.waiting.set(0);
            self.move_to(if loops { State::Yielding } else { State::Spinning });
        }
        self.yielding.set(false);
    }

    /// Whether a runtime has the thread in its scheduling loop.
    #[inline]
    pub(super) fn is_idle_worker(&self) -> bool {
        self.runtimes().any(|state| state == WORKER_IDLE)
    }

    /// Whether the thread is in `sched_yield`, or in a loop around it.
    #[inline]
    pub(super) fn is_yielding(&self) -> bool {
        self.yielding.get() || (self.yields.in_a_row.get() > 0 && self.yields.is_loop())
    }

    /// Whether the thread is in a wait that a hook observed.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.get() > 0
    }

    /// Whether the thread is in a wait within a wait.
    #[inline]
    pub(super) fn waits_inside(&self) -> bool {
        self.waiting.get() > 1
    }

    #[inline]
    pub(super) fn prepare_charge(&self) {
        activity::prepare(self.listing.slot());
    }

    /// Charges a sample at `now` that stands for `stands_for` nanoseconds of work.
    #[inline]
    pub(super) fn charge(&self, now: u64, stands_for: u64) -> Charge {
        activity::charge(self.listing.slot(), now, stands_for)
    }

    /// A sample at `now` found the thread running but idle: in its scheduling loop, or in a spinning wait.
    #[inline]
    pub(super) fn idles(&self, now: u64) {
        activity::spin(self.listing.slot(), now);
    }
}

/// Whether two addresses are of one stack. The stacks of signal handlers and coroutines are not known.
#[cold]
fn are_on_one_stack(a: usize, b: usize) -> bool {
    let [a, b] = [a, b].map(|address| stack::bounds_from(address as u64).high);
    a == b && a != 0
}

#[inline]
fn is_null(worker: &AtomicPtr<AtomicU8>) -> bool {
    worker.load(Ordering::Relaxed).is_null()
}
