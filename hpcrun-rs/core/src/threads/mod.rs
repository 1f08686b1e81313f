//! Per-thread state: created when a thread starts, found by the handler through one thread-local word,
//! retired when the thread ends, and then reused for a later thread.
//!
//! | file | duty |
//! |---|---|
//! | `registry` | all states; gives one to each thread |
//! | `lifecycle` | the phases of a state, and their transitions |
//! | `working` | whether the thread works |
//! | `capture` | captures the context of a task that the thread spawns, or of a lock that it releases |
//! | `tracking` | the thread's events on the critical path |
//! | `locking` | the lock that the thread waits for |
//! | `end`, `fork` | completes a profile; resets states in a forked child |
//! | `cpu_clock`, `signal_stack` | the thread's CPU clock and alternate stack |
//!
//! Async-signal-safe: [`current`], and the methods of [`ThreadState`] that say so.

mod capture;
mod cpu_clock;
mod end;
mod fork;
mod lifecycle;
mod locking;
mod registry;
mod signal_stack;
mod tracking;
mod working;

pub use end::{FOREIGN_NS, UNSAMPLED_NS};
pub(crate) use lifecycle::wait_until;
pub use registry::{
    acquire, all, begin, begin_unnamed, by_cookie, count, live, quiescent, release,
    wait_until_quiescent,
};
pub use signal_stack::SIGNAL_STACK;

use crate::activity::Charge;
use crate::arch::thread_slot;
use crate::config::Event;
use crate::image;
use crate::lcct::Identity;
use crate::locks;
use crate::path::ThreadPath;
use crate::record::{Deferred, Recorder, Values};
use crate::sandbox::refuses;
use crate::system;
use crate::timer::Source;
use crate::unwind::Registers;
use crate::unwind::stack::StackSlot;
use cpu_clock::CpuClock;
use hpc_formats::loss::{LOSS_SLOTS, LossCause};
use lifecycle::Lifecycle;
use signal_stack::SignalStack;
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use working::Working;

/// The calling thread's state. Async-signal-safe.
#[inline]
pub fn current() -> Option<&'static ThreadState> {
    // SAFETY: states are never freed; the slot is null or points to this thread's state.
    unsafe { thread_slot::get::<ThreadState>().as_ref() }
}

/// State of one thread. Only the thread itself (and its handler) uses the cells; other threads may read the
/// atomics.
#[derive(Debug)]
pub struct ThreadState {
    next: AtomicPtr<ThreadState>,
    lifecycle: Lifecycle,
    /// Whether the thread belongs to this process, rather than only sharing its memory. `stop` disarms only
    /// timers of this process.
    in_process: AtomicBool,
    /// The profiler is active in this thread.
    busy: AtomicBool,
    /// The handler is active in this thread.
    in_handler: AtomicBool,
    /// The thread's waits and runtimes.
    working: Working,
    /// Number of rounds of the thread's key destructors so far.
    destructor_rounds: Cell<usize>,
    stack: StackSlot,
    /// Creation context (thread ordinal, record index); zeros if unknown.
    creation: Cell<(u32, u32)>,
    thread: AtomicU32,
    tid: AtomicU32,
    cpu: CpuClock,
    /// The alternate stack that the handler runs on.
    pub signal_stack: SignalStack,
    /// Timer or perf event.
    pub source: Source,
    recorder: UnsafeCell<Recorder>,
    /// The lock that the thread waits for.
    lock_wait: Cell<Option<locks::Wait>>,
    /// The thread's part in the critical path.
    path: ThreadPath,
    /// The thread is in a call of a message-passing library.
    in_call: Cell<bool>,
    /// Samples that arrived during a capture.
    deferred: Deferred,
    idle_weight: AtomicU64,
    losses: [AtomicU64; LOSS_SLOTS],
}

/// Number of samples that arrived in a thread without a state.
pub static WITHOUT_STATE: AtomicU64 = AtomicU64::new(0);
/// Marks a thread as inside the profiler, until dropped. While it exists, the handler takes no samples; see
/// [`ThreadState::defer_sample`].
#[derive(Debug)]
pub struct Busy<'a>(&'a ThreadState);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.in_handler.store(false, Ordering::Relaxed);
        self.0.busy.store(false, Ordering::Release);
    }
}

impl ThreadState {
    /// Enters the profiler. `None` when the thread is already inside, or when sampling is over.
    /// Async-signal-safe.
    #[inline]
    pub fn enter(&self) -> Option<Busy<'_>> {
        if self.busy.load(Ordering::Relaxed) {
            return None;
        }
        self.busy.store(true, Ordering::Relaxed);
        // Pairs with the fences in `session::stop`, `loadmap::refresh` and `loadmap::begin_unload`: either
        // they see us busy, or we see that sampling is over, the new snapshot, or the pending unload.
        fence(Ordering::SeqCst);
        let busy = Busy(self);
        image::is_running().then_some(busy)
    }

    /// Like [`Self::enter`], for the signal handler. Async-signal-safe.
    #[inline]
    pub fn enter_handler(&self) -> Option<Busy<'_>> {
        let busy = self.enter()?;
        self.in_handler.store(true, Ordering::Relaxed);
        Some(busy)
    }

    /// Whether the signal handler is active in the thread.
    pub fn is_in_handler(&self) -> bool {
        self.in_handler.load(Ordering::Relaxed)
    }

    /// Whether the profiler is active in the thread.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst)
    }

    /// Ordinal of the thread in its process, from 1.
    pub fn ordinal(&self) -> u32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// Kernel thread id.
    pub fn tid(&self) -> u32 {
        self.tid.load(Ordering::Relaxed)
    }

    /// Whether the state belongs to the calling thread (and not to memory that is shared after `vfork`).
    pub fn is_own(&self) -> bool {
        refuses(libc::SYS_gettid) || self.tid() == system::thread_id()
    }

    /// Counts a round of the thread's key destructors, and returns its number.
    pub fn count_destructor_round(&self) -> usize {
        self.destructor_rounds.set(self.destructor_rounds.get() + 1);
        self.destructor_rounds.get()
    }

    /// Registers the thread as a worker, idle at first, with its state byte in `state`, until
    /// [`Self::leave_runtime`].
    pub fn enter_runtime(&self, state: *const AtomicU8) {
        self.working.enter(state);
    }

    /// Ends the registration of the worker with this state byte.
    pub fn leave_runtime(&self, state: *const AtomicU8) {
        self.working.leave(state);
    }

    /// Called when the thread begins to wait.
    #[inline]
    pub fn begin_wait(&self) {
        self.working.begin_wait();
    }

    /// Called when the wait is over.
    #[inline]
    pub fn end_wait(&self) {
        self.working.end_wait();
    }

    /// Called when the thread gives up its core, because it has nothing to do.
    #[inline]
    pub fn begin_yield(&self) {
        self.working.begin_yield();
    }

    /// Called when the thread has its core again.
    #[inline]
    pub fn end_yield(&self) {
        self.working.end_yield();
    }

    /// Counts a sample that is missing in the tree, or is partial. Async-signal-safe.
    pub fn count_loss(&self, cause: LossCause) {
        self.losses[cause as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a sample at `now` of an idle thread, with a weight of `periods`. Async-signal-safe.
    pub fn count_idle(&self, periods: u64, now: u64) {
        self.idle_weight.fetch_add(periods, Ordering::Relaxed);
        self.working.idles(now);
    }

    /// The thread's recorder. Async-signal-safe.
    #[inline]
    #[allow(clippy::mut_from_ref)] // `Busy` grants exclusive use, see below
    fn recorder(&self, _busy: &Busy<'_>) -> &mut Recorder {
        // SAFETY: `_busy` shows that this thread is inside the profiler, so neither the handler nor a hook
        // enters it again and uses the recorder at the same time. No other thread uses it while this thread
        // is `Live`, and no caller keeps the reference.
        unsafe { &mut *self.recorder.get() }
    }

    /// Unwinds from `registers` and inserts the path into the thread's tree. `None` when the stack shows that
    /// the thread waits for a task. Async-signal-safe; the caller holds [`Busy`].
    #[inline]
    pub fn insert_path(
        &self,
        busy: &Busy<'_>,
        registers: Registers,
    ) -> Result<Option<u32>, LossCause> {
        self.recorder(busy).insert_path(registers, || self.identity())
    }

    /// Makes the thread's profile, with room for many contexts. Called by the thread.
    pub fn prepare_profile(&self) {
        if let Some(busy) = self.enter() {
            self.recorder(&busy).prepare(|| self.identity());
        }
    }

    /// Adds a sample to a node. Async-signal-safe; the caller holds [`Busy`].
    #[inline]
    pub fn add_sample(
        &self,
        busy: &Busy<'_>,
        node: u32,
        periods: u64,
        charge: Charge,
        now: u64,
    ) -> Result<(), LossCause> {
        let mut values = Values::default();
        values.add(periods, charge, now);
        let recorder = self.recorder(busy);
        recorder.add_samples(node, &values)?;
        self.path.sample(recorder.profile(), node, periods * image::period_ns());
        Ok(())
    }

    /// The identity of a new profile of this thread.
    fn identity(&self) -> Identity {
        let (creator_thread, creator_node) = self.creation.get();
        Identity {
            pid: 0,
            image: 0,
            thread: self.ordinal(),
            tid: self.tid(),
            period_ns: 0,
            creator_thread,
            creator_node,
        }
    }

    /// Whether a sample finds the thread idle, as far as this is known without its stack. Async-signal-safe.
    #[inline]
    pub fn is_idle(&self) -> bool {
        // A CPU-time sample shows that the thread runs, even if it is flagged as waiting. A thread that
        // yields has nothing to do.
        let working = &self.working;
        working.is_idle_worker()
            || working.is_yielding()
            || (image::event() == Event::WallTime
                && (self.cpu.has_slept(image::period_ns()) || working.is_waiting()))
    }

    /// Prefetches the memory that `charge` reads. Async-signal-safe.
    #[inline]
    pub fn prepare_charge(&self) {
        self.working.prepare_charge();
    }

    /// Charges a sample at `now`, with a weight of `periods`, of a working thread. Async-signal-safe.
    #[inline]
    pub fn charge(&self, now: u64, periods: u64) -> Charge {
        let stands_for = periods.saturating_mul(image::period_ns());
        self.working.charge(now, stands_for)
    }

    /// Monotonic clock at the last claimed sample, nanoseconds. Async-signal-safe.
    #[inline]
    pub fn sampled_at(&self) -> u64 {
        self.source.last_sample().unwrap_or_else(image::now)
    }
}
