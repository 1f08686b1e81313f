//! Per-thread state: created when a thread starts, found by the handler through one thread-local word,
//! retired when the thread ends, and then reused for a later thread.
//!
//! | file | duty |
//! |---|---|
//! | `registry` | all states; gives one to each thread |
//! | `lifecycle` | the phases of a state, and their transitions |
//! | `working`, `listing` | whether the thread works; its slot in the node's table |
//! | `busy` | the thread inside the profiler, with its recorder |
//! | `take` | takes a sample |
//! | `tasking` | the tasks that the thread is in |
//! | `capture` | captures the context of a task that the thread spawns, or of a lock that it releases |
//! | `tracking`, `edges` | the thread's events on the critical path; what the trace keeps of them |
//! | `calls` | calls of a message-passing library |
//! | `locking` | the lock that the thread waits for |
//! | `end`, `fork` | completes a profile; resets states in a forked child |
//! | `cpu_clock`, `run_delay` | the thread's CPU clock; for how long it had no core |
//! | `own_stack` | the stacks of its handler and hooks |
//!
//! A thread has one state, of which two types show the parts: [`SharedThread`], atomics that all threads may
//! use, and [`OwnThread`], the rest, which cannot leave its thread:
//!
//! ```compile_fail,E0277
//! let own = hpcrun_core::threads::current();
//! std::thread::spawn(move || own.map(|thread| thread.working().begin_wait()));
//! ```
//!
//! Async-signal-safe: [`current`], and the methods that say so.

mod busy;
pub mod calls;
mod capture;
mod cpu_clock;
mod edges;
mod end;
mod fork;
mod lifecycle;
mod listing;
mod locking;
mod own_stack;
mod registry;
mod run_delay;
mod take;
mod tasking;
mod tracking;
mod working;

pub use busy::Busy;
pub(crate) use edges::TRACE;
pub(crate) use lifecycle::wait_until;
pub use own_stack::with_room;
pub use registry::{
    NewThread, acquire, all, begin, begin_unnamed, by_cookie, live, quiescent, wait_until_quiescent,
};
pub use run_delay::run_delays;
pub use take::{claim, signalled};
pub use working::Working;

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
use listing::Listing;
use own_stack::{OwnStack, Spare};
use run_delay::RunDelay;
use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// The calling thread's state. Async-signal-safe.
#[inline]
pub fn current() -> Option<OwnThread> {
    // SAFETY: states are never freed; the slot is null or points to this thread's state.
    unsafe { thread_slot::get::<SharedThread>().as_ref().map(|shared| OwnThread::of(shared)) }
}

/// What any thread may use of a thread's state.
pub struct SharedThread {
    next: AtomicPtr<SharedThread>,
    lifecycle: Lifecycle,
    /// Whether the thread belongs to this process, rather than only sharing its memory. `stop` disarms only
    /// timers of this process.
    in_process: AtomicBool,
    /// The profiler is active in this thread.
    busy: AtomicBool,
    /// The handler is active in this thread.
    in_handler: AtomicBool,
    listing: &'static Listing,
    stack: StackSlot,
    thread: AtomicU32,
    tid: AtomicU32,
    cpu: CpuClock,
    run_delay: RunDelay,
    /// The stack that the handler runs on.
    pub signal_stack: OwnStack,
    /// The stack that its hooks run on if its own is small.
    spare_stack: Spare,
    pub source: Source,
    /// The thread's part in the critical path.
    path: ThreadPath,
    tally: Tally,
    recorder: Guarded<Recorder>,
    own: Guarded<Own>,
}

/// What only one thread at a time may use, as each use shows.
struct Guarded<T>(UnsafeCell<T>);

// SAFETY: `own` is used by the thread that has the state, through an `OwnThread`, which is not `Send`, and by
// `begin_unnamed`, before there is one. `recorder` is used through `Busy`, which exists once in the thread,
// and by whoever moves the state to phase `Closing` (`lifecycle`).
unsafe impl<T> Sync for Guarded<T> {}

/// What belongs to a thread from its beginning to its end.
struct Own {
    working: Working,
    /// Number of rounds of the thread's key destructors so far.
    destructor_rounds: Cell<usize>,
    /// The innermost task that the thread is in; null: none.
    task: Cell<*const Task>,
    lock_wait: Cell<Option<locks::Wait>>,
    /// The thread's call of a message-passing library.
    call: calls::Call,
    /// Samples that arrived during a capture.
    deferred: Deferred,
}

impl Own {
    /// Of a thread that begins.
    fn fresh(listing: &'static Listing) -> Own {
        Own {
            working: Working::new(listing),
            destructor_rounds: Cell::new(0),
            task: Cell::new(ptr::null()),
            lock_wait: Cell::new(None),
            call: calls::Call::none(),
            deferred: Deferred::default(),
        }
    }
}

/// The state of the calling thread: all that a thread may use of its own.
#[derive(Clone, Copy)]
pub struct OwnThread {
    shared: &'static SharedThread,
    stays: PhantomData<*const ()>,
}

impl Deref for OwnThread {
    type Target = SharedThread;

    #[inline]
    fn deref(&self) -> &SharedThread {
        self.shared
    }
}

impl SharedThread {
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

    pub fn tid(&self) -> u32 {
        self.tid.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn cookie(&self) -> u64 {
        ptr::from_ref(self) as u64
    }

    /// Whether the state belongs to the calling thread (and not to memory that is shared after `vfork`).
    pub fn is_own(&self) -> bool {
        refuses(libc::SYS_gettid) || self.tid() == system::thread_id()
    }

    /// Counts a loss that is no sample. Async-signal-safe.
    pub fn count_loss(&self, cause: LossCause) {
        self.tally.lose(cause, 1);
    }

    /// The identity of a new profile of this thread.
    fn identity(&self) -> Identity {
        let (creator_thread, creator_node) = self.stack.creation();
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

impl OwnThread {
    /// # Safety
    /// The state must be the calling thread's.
    #[inline]
    const unsafe fn of(shared: &'static SharedThread) -> OwnThread {
        OwnThread { shared, stays: PhantomData }
    }

    #[inline]
    fn own(&self) -> &Own {
        // SAFETY: this thread's own part, which is replaced only while the thread has no `OwnThread`.
        unsafe { &*self.shared.own.0.get() }
    }

    /// Counts a round of the thread's key destructors, and returns its number.
    pub fn count_destructor_round(&self) -> usize {
        let rounds = &self.own().destructor_rounds;
        rounds.set(rounds.get() + 1);
        rounds.get()
    }

    #[inline]
    pub fn working(&self) -> &Working {
        &self.own().working
    }
}
