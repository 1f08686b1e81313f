//! Per-thread state: created when a thread starts, found by the handler through one thread-local word,
//! retired when the thread ends, and then reused for a later thread.
//!
//! | file | duty |
//! |---|---|
//! | `registry` | all states; gives one to each thread |
//! | `lifecycle` | the phases of a state, and their transitions |
//! | `working` | whether the thread works |
//! | `busy` | the thread inside the profiler, with its recorder |
//! | `take` | takes a sample |
//! | `tasking` | the tasks that the thread is in |
//! | `capture` | captures the context of a task that the thread spawns, or of a lock that it releases |
//! | `tracking` | the thread's events on the critical path |
//! | `calls` | calls of a message-passing library |
//! | `locking` | the lock that the thread waits for |
//! | `end`, `fork` | completes a profile; resets states in a forked child |
//! | `cpu_clock`, `own_stack` | the thread's CPU clock; the stacks of its handler and hooks |
//!
//! Async-signal-safe: [`current`], and the methods of [`ThreadState`] that say so.

mod busy;
pub mod calls;
mod capture;
mod cpu_clock;
mod end;
mod fork;
mod lifecycle;
mod locking;
mod own_stack;
mod registry;
mod take;
mod tasking;
mod tracking;
mod working;

pub use busy::Busy;
pub use end::{FOREIGN_NS, UNSAMPLED_NS, forget_run_delays, run_delays};
pub(crate) use lifecycle::wait_until;
pub use own_stack::with_room;
pub use registry::{
    acquire, all, begin, begin_unnamed, by_cookie, count, live, quiescent, release,
    wait_until_quiescent,
};
pub use take::{claim, signalled};

use crate::arch::thread_slot;
use crate::lcct::Identity;
use crate::locks;
use crate::path::ThreadPath;
use crate::record::{Deferred, Recorder};
use crate::sandbox::refuses;
use crate::sinks::Tally;
use crate::source::Source;
use crate::system;
use crate::tasks::Task;
use crate::unwind::stack::StackSlot;
use cpu_clock::CpuClock;
use hpc_formats::loss::LossCause;
use lifecycle::Lifecycle;
use own_stack::{OwnStack, Spare};
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
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
    /// The stack that the handler runs on.
    pub signal_stack: OwnStack,
    /// The stack that its hooks run on if its own is small.
    spare_stack: Spare,
    /// Timer or perf event.
    pub source: Source,
    recorder: UnsafeCell<Recorder>,
    /// The innermost task that the thread is in; null: none.
    task: Cell<*const Task>,
    /// The lock that the thread waits for.
    lock_wait: Cell<Option<locks::Wait>>,
    /// The thread's part in the critical path.
    path: ThreadPath,
    /// The thread's call of a message-passing library.
    call: calls::Call,
    /// Samples that arrived during a capture.
    deferred: Deferred,
    tally: Tally,
}

/// Number of samples that arrived in a thread without a state.
pub static WITHOUT_STATE: AtomicU64 = AtomicU64::new(0);

impl ThreadState {
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

    /// Identifies the thread's own signals.
    #[inline]
    pub fn cookie(&self) -> u64 {
        std::ptr::from_ref(self) as u64
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

    /// Counts a loss that is no sample. Async-signal-safe.
    pub fn count_loss(&self, cause: LossCause) {
        self.tally.lose(cause, 1);
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
}
