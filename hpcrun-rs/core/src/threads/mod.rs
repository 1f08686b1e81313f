//! Per-thread state: made when a thread starts, found by the handler through one thread-local
//! word, retired when the thread ends, and then reused for a later thread.
//!
//! `recorder` makes records of paths and samples, `capture` keeps a context for a task, `deferred`
//! the samples that arrive meanwhile; `working` whether the thread works; `slot` is the thread-local word.
//! Async-signal-safe: [`current`], [`ThreadState`]'s methods that say so.

mod capture;
mod deferred;
mod recorder;
mod slot;
mod working;

use crate::activity;
use crate::config::Event;
use crate::image;
use crate::lcct::Identity;
use crate::memory::{self, PAGE};
use crate::timer::Source;
use crate::unwind::Registers;
use crate::unwind::stack::StackSlot;
use deferred::Deferred;
use hpc_formats::loss::{LOSS_SLOTS, LossCause};
use hpc_formats::profile::header;
use recorder::{Recorder, Values};
use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use working::Working;

/// The calling thread's state. Async-signal-safe.
#[inline]
pub fn current() -> Option<&'static ThreadState> {
    // SAFETY: states are never freed; the slot is null or points to this thread's.
    unsafe { slot::get().as_ref() }
}

/// Size of the alternate signal stack that every thread gets: the handler's frames, with room
/// for the program's own handlers, which may run there too.
pub const SIGNAL_STACK: usize = 128 << 10;

/// State of one thread. Only its own thread (and its handler) uses the cells; the atomics may be
/// read by others.
#[derive(Debug)]
pub struct ThreadState {
    next: AtomicPtr<ThreadState>,
    in_use: AtomicBool,
    /// The profiler is active in this thread.
    busy: AtomicBool,
    /// It is the handler that is active.
    in_handler: AtomicBool,
    /// Its waits and its runtimes.
    working: Working,
    /// How often the thread's end was announced to us.
    destructor_rounds: Cell<usize>,
    stack: StackSlot,
    /// Creation context (thread ordinal, record index); zeros when unknown.
    creation: Cell<(u32, u32)>,
    thread: AtomicU32,
    tid: AtomicU32,
    cpu_clock: AtomicU32,
    /// CPU time of the thread when its state was made, nanoseconds (an exec does not reset it).
    cpu_start: AtomicU64,
    /// The program's own alternate signal stack, when it is too small to run our handler on.
    pub program_stack: Cell<Option<libc::stack_t>>,
    signal_stack: Cell<usize>,
    /// Timer or perf event.
    pub source: Source,
    recorder: UnsafeCell<Recorder>,
    /// Samples that arrived while a context was captured.
    deferred: Deferred,
    idle_weight: AtomicU64,
    losses: [AtomicU64; LOSS_SLOTS],
}

static ALL: AtomicPtr<ThreadState> = AtomicPtr::new(ptr::null_mut());
static NEXT_ORDINAL: AtomicU32 = AtomicU32::new(1);

/// Samples that arrived in a thread without state.
pub static WITHOUT_STATE: AtomicU64 = AtomicU64::new(0);

/// Every state, in use or not.
pub fn all() -> impl Iterator<Item = &'static ThreadState> {
    let mut next = ALL.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: states are never freed and never leave the list.
        let state: &'static ThreadState = unsafe { next.as_ref() }?;
        next = state.next.load(Ordering::Acquire);
        Some(state)
    })
}

/// Threads that were ever given a state.
pub fn count() -> u32 {
    NEXT_ORDINAL.load(Ordering::Relaxed) - 1
}

/// Whether no thread but the calling one is inside the profiler.
pub fn quiescent() -> bool {
    let me = slot::get();
    all().all(|t| ptr::eq(t, me) || !t.busy.load(Ordering::SeqCst))
}

/// Takes a state for a thread that is about to start: a free one, or a new one. Needs some tens
/// of KiB of stack, so a creator calls it for its new thread, whose stack may be small.
/// Not async-signal-safe. `None` when memory for it cannot be had.
pub fn acquire() -> Option<&'static ThreadState> {
    reuse().or_else(allocate)
}

/// Gives back a state whose thread did not start.
pub fn release(state: &'static ThreadState) {
    state.in_use.store(false, Ordering::Release);
}

/// Makes an acquired state the calling thread's. `creation` is its creation context (thread,
/// record), zeros when unknown; `stack` its bounds. Not async-signal-safe.
pub fn begin(state: &'static ThreadState, creation: (u32, u32), stack: (u64, u64), is_main: bool) {
    let ordinal = NEXT_ORDINAL.fetch_add(1, Ordering::Relaxed);
    // SAFETY: gettid has no arguments.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    state.thread.store(ordinal, Ordering::Relaxed);
    state.tid.store(tid, Ordering::Relaxed);
    state.read_cpu_clock();
    state.creation.set(creation);
    state.destructor_rounds.set(0);
    state.program_stack.set(None);
    state.idle_weight.store(0, Ordering::Relaxed);
    for loss in &state.losses {
        loss.store(0, Ordering::Relaxed);
    }
    state.stack.set(stack.0, stack.1, is_main, creation);
    state.install_signal_stack();
    slot::set(ptr::from_ref(state).cast_mut());
    state.working.begin();
}

fn reuse() -> Option<&'static ThreadState> {
    all().find(|t| {
        t.in_use
            .compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    })
}

fn allocate() -> Option<&'static ThreadState> {
    let stack = memory::map_anonymous(SIGNAL_STACK + PAGE)?.as_ptr() as usize;
    // SAFETY: the lowest page of our own fresh mapping becomes a guard.
    unsafe { libc::mprotect(stack as *mut libc::c_void, PAGE, libc::PROT_NONE) };
    let state: &'static ThreadState = Box::leak(Box::new(ThreadState {
        next: AtomicPtr::new(ptr::null_mut()),
        in_use: AtomicBool::new(true),
        busy: AtomicBool::new(false),
        in_handler: AtomicBool::new(false),
        working: Working::new(),
        destructor_rounds: Cell::new(0),
        stack: StackSlot::new(),
        creation: Cell::new((0, 0)),
        thread: AtomicU32::new(0),
        tid: AtomicU32::new(0),
        cpu_clock: AtomicU32::new(0),
        cpu_start: AtomicU64::new(0),
        program_stack: Cell::new(None),
        signal_stack: Cell::new(stack + PAGE),
        source: Source::new(),
        recorder: UnsafeCell::new(Recorder::new()?),
        deferred: Deferred::new(),
        idle_weight: AtomicU64::new(0),
        losses: [const { AtomicU64::new(0) }; LOSS_SLOTS],
    }));
    state.stack.publish();
    let this = ptr::from_ref(state).cast_mut();
    let mut head = ALL.load(Ordering::Acquire);
    loop {
        state.next.store(head, Ordering::Relaxed);
        match ALL.compare_exchange(head, this, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some(state),
            Err(now) => head = now,
        }
    }
}

/// Marks a thread as being inside the profiler, until dropped. While it exists the handler
/// takes no sample; see [`ThreadState::defer_sample`].
#[derive(Debug)]
pub struct Busy<'a>(&'a ThreadState);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.in_handler.store(false, Ordering::Relaxed);
        self.0.busy.store(false, Ordering::Release);
    }
}

impl ThreadState {
    /// Enters the profiler; `None` when the thread is already inside. Async-signal-safe.
    #[inline]
    pub fn enter(&self) -> Option<Busy<'_>> {
        if self.busy.load(Ordering::Relaxed) {
            return None;
        }
        self.busy.store(true, Ordering::Relaxed);
        // Pairs with the fences in `session::stop` and `loadmap::refresh`: either they see us
        // busy, or we see that sampling is over / the new snapshot.
        fence(Ordering::SeqCst);
        Some(Busy(self))
    }

    /// As [`Self::enter`], for the signal handler. Async-signal-safe.
    #[inline]
    pub fn enter_handler(&self) -> Option<Busy<'_>> {
        let busy = self.enter()?;
        self.in_handler.store(true, Ordering::Relaxed);
        Some(busy)
    }

    /// Whether the thread is in the signal handler.
    pub fn is_in_handler(&self) -> bool {
        self.in_handler.load(Ordering::Relaxed)
    }

    /// Whether the profiler is active in the thread.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst)
    }

    /// Whether a living thread has this state.
    pub fn is_in_use(&self) -> bool {
        self.in_use.load(Ordering::Acquire)
    }

    /// Ordinal of the thread in its process, from 1.
    pub fn ordinal(&self) -> u32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// Kernel thread id.
    pub fn tid(&self) -> u32 {
        self.tid.load(Ordering::Relaxed)
    }

    /// Whether it is the calling thread's state (and not shared memory after `vfork`).
    pub fn is_own(&self) -> bool {
        // SAFETY: gettid has no arguments.
        self.tid() == unsafe { libc::syscall(libc::SYS_gettid) } as u32
    }

    /// Counts the rounds of the thread's key destructors; returns the round's number.
    pub fn count_destructor_round(&self) -> usize {
        self.destructor_rounds.set(self.destructor_rounds.get() + 1);
        self.destructor_rounds.get()
    }

    fn install_signal_stack(&self) {
        // SAFETY: the stack is this state's own mapping of SIGNAL_STACK bytes, never freed; a
        // program that has installed one before keeps it if it is large enough.
        unsafe {
            let mut old: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(ptr::null(), &mut old);
            if old.ss_flags & libc::SS_DISABLE == 0 && old.ss_size >= SIGNAL_STACK / 2 {
                return;
            }
            let new = libc::stack_t {
                ss_sp: self.signal_stack.get() as *mut libc::c_void,
                ss_flags: 0,
                ss_size: SIGNAL_STACK,
            };
            libc::sigaltstack(&new, ptr::null_mut());
        }
    }

    fn remove_signal_stack(&self) {
        // SAFETY: disables this thread's alternate stack if it is ours.
        unsafe {
            let mut old: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(ptr::null(), &mut old);
            if old.ss_sp as usize == self.signal_stack.get() {
                old.ss_flags = libc::SS_DISABLE;
                libc::sigaltstack(&old, ptr::null_mut());
            }
        }
    }

    /// The thread is a worker, idle as yet, whose state is in `state`, until [`Self::leave_runtime`].
    pub fn enter_runtime(&self, state: *const AtomicU8) {
        self.working.enter(state);
    }

    /// The thread is no longer the worker whose state is in `state`.
    pub fn leave_runtime(&self, state: *const AtomicU8) {
        self.working.leave(state);
    }

    /// The thread begins to wait.
    #[inline]
    pub fn begin_wait(&self) {
        self.working.begin_wait();
    }

    /// The wait is over.
    #[inline]
    pub fn end_wait(&self) {
        self.working.end_wait();
    }

    /// The thread gives up its core: it has nothing to do right now.
    #[inline]
    pub fn begin_yield(&self) {
        self.working.begin_yield();
    }

    /// See [`Self::begin_yield`].
    #[inline]
    pub fn end_yield(&self) {
        self.working.end_yield();
    }

    /// Counts a sample that is not in the tree, or is partial. Async-signal-safe.
    pub fn count_loss(&self, cause: LossCause) {
        self.losses[cause as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts periods that fell while the thread was idle. Async-signal-safe.
    pub fn count_idle(&self, periods: u64) {
        self.idle_weight.fetch_add(periods, Ordering::Relaxed);
    }

    /// What records paths and samples. Async-signal-safe.
    #[inline]
    #[allow(clippy::mut_from_ref)] // `Busy` is the exclusive right, see below
    fn recorder(&self, _busy: &Busy<'_>) -> &mut Recorder {
        // SAFETY: `Busy` is held: neither the handler nor a hook uses the recorder at the same
        // time, no other thread ever does while this one lives, and no caller keeps the reference.
        unsafe { &mut *self.recorder.get() }
    }

    /// Unwinds from `registers` and enters the path into the thread's tree; `None` when the stack
    /// shows that the thread waits for a task. Async-signal-safe; the caller holds [`Busy`].
    #[inline]
    pub fn insert_path(
        &self,
        busy: &Busy<'_>,
        registers: Registers,
    ) -> Result<Option<u32>, LossCause> {
        self.recorder(busy)
            .insert_path(registers, || self.identity())
    }

    /// Adds a sample's values. Async-signal-safe; the caller holds [`Busy`].
    #[inline]
    pub fn add_sample(
        &self,
        busy: &Busy<'_>,
        node: u32,
        periods: u64,
        load: activity::Load,
    ) -> Result<(), LossCause> {
        let values = Values {
            samples: 1,
            periods,
            idleness: periods as f64 * load.idle_per_working,
            oversubscribed: periods as f64 * load.oversubscribed,
            last_ns: self.source.last_sample().unwrap_or_else(image::coarse_now),
        };
        self.recorder(busy).add_samples(node, &values)
    }

    /// Whose profile it is, for a new one.
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

    /// Whether a sample of the thread is one of idleness, as far as can be told without its stack.
    /// Async-signal-safe.
    #[inline]
    pub fn is_idle(&self) -> bool {
        // One that is charged CPU time runs, whatever it is about to wait for; on the wall clock a waiting one
        // is blocked. One that yields has nothing to do.
        let working = &self.working;
        working.is_idle_worker()
            || working.is_yielding()
            || (working.is_waiting() && image::event() == Event::WallTime)
    }

    /// The load to charge to the thread, which is not idle. Async-signal-safe.
    #[inline]
    pub fn load(&self) -> activity::Load {
        activity::load(self.working.is_discounted())
    }

    fn read_cpu_clock(&self) {
        let mut clock = 0;
        // SAFETY: the calling thread's own handle; `clock` is ours.
        if unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) } == 0 {
            self.cpu_clock.store(clock as u32, Ordering::Relaxed);
        }
        self.cpu_start.store(self.cpu_ns(), Ordering::Relaxed);
    }

    fn cpu_ns(&self) -> u64 {
        let clock = self.cpu_clock.load(Ordering::Relaxed) as libc::clockid_t;
        let mut t = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `t` is ours; an invalid clock id is an error, not a fault.
        if clock == 0 || unsafe { libc::clock_gettime(clock, &mut t) } != 0 {
            return 0;
        }
        t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
    }

    /// Completes the thread's profile: CPU time, name, counters, final length. Must not run
    /// while the handler does.
    fn complete(&self) {
        // SAFETY: called by the owner under `Busy`, or by the stopping thread after sampling
        // ended and this thread was seen not busy (`session::stop`).
        let recorder = unsafe { &mut *self.recorder.get() };
        let losses = || self.losses.iter().map(|l| l.load(Ordering::Relaxed));
        let idle = self.idle_weight.load(Ordering::Relaxed);
        let is_worth_it = idle > 0 || losses().any(|n| n > 0);
        let Some(mut tree) = recorder.take_tree(is_worth_it, || self.identity()) else {
            image::add_losses(losses());
            return;
        };
        let cpu = self
            .cpu_ns()
            .saturating_sub(self.cpu_start.load(Ordering::Relaxed));
        tree.set_u64(header::CPU_NS, cpu);
        tree.set_u64(header::IDLE_WEIGHT, idle);
        for (i, n) in losses().enumerate() {
            tree.set_u64(header::LOSSES + 8 * i, n);
        }
        if let Some(name) = self.name() {
            tree.set_name(&name);
        }
        tree.finish();
    }

    fn name(&self) -> Option<[u8; 16]> {
        let path = format!("/proc/self/task/{}/comm", self.tid());
        let text = std::fs::read(path).ok()?;
        let mut name = [0; 16];
        let text = text.strip_suffix(b"\n").unwrap_or(&text);
        let n = text.len().min(16);
        name[..n].copy_from_slice(&text[..n]);
        Some(name)
    }

    /// The thread ends: called by itself, last of all its destructors.
    pub fn retire(&'static self) {
        self.source.disarm();
        if let Some(busy) = self.enter() {
            self.complete();
            drop(busy);
        }
        slot::set(ptr::null_mut());
        self.working.end();
        self.stack.clear();
        self.remove_signal_stack();
        self.in_use.store(false, Ordering::Release);
    }

    /// The process ends (or is replaced) while the thread still runs: completes its profile.
    /// The caller has stopped sampling.
    pub fn complete_from_outside(&self) {
        for _ in 0..2000 {
            if !self.is_busy() {
                break;
            }
            // SAFETY: sleeps.
            unsafe { libc::usleep(50) };
        }
        if !self.is_busy() {
            self.complete();
        }
    }

    /// In a forked child: this state belongs to a thread that exists only in the parent.
    pub fn forget_after_fork(&'static self) {
        self.source.close_inherited();
        self.abandon_tree();
        self.stack.clear();
        self.busy.store(false, Ordering::Relaxed);
        self.in_use.store(false, Ordering::Release);
    }

    /// In a forked child: the forking thread goes on under a new ordinal, with an empty tree.
    pub fn renew_after_fork(&self) {
        self.source.close_inherited();
        self.abandon_tree();
        NEXT_ORDINAL.store(2, Ordering::Relaxed);
        self.thread.store(1, Ordering::Relaxed);
        // SAFETY: gettid has no arguments.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
        self.tid.store(tid, Ordering::Relaxed);
        self.idle_weight.store(0, Ordering::Relaxed);
        for loss in &self.losses {
            loss.store(0, Ordering::Relaxed);
        }
        self.creation.set((0, 0));
        // Its creator is not in this process: the fork is its beginning.
        self.stack.set_main();
        self.read_cpu_clock();
        self.busy.store(false, Ordering::Relaxed);
        activity::reset_after_fork(self.working.is_working());
    }

    fn abandon_tree(&self) {
        // SAFETY: the child has one thread, this one, and it is in the fork handler.
        let recorder = unsafe { &mut *self.recorder.get() };
        if let Some(tree) = recorder.take_tree(false, || self.identity()) {
            tree.abandon();
        }
    }
}
