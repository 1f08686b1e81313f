//! Per-thread state: made when a thread starts, found by the handler through one thread-local
//! word, retired when the thread ends, and then reused for a later thread.
//!
//! `recorder` makes records of paths and samples, `capture` keeps a context for a task, `deferred` the
//! samples that arrive meanwhile; `working` says whether the thread works, `lifecycle` who may do what when.
//! Async-signal-safe: [`current`], [`ThreadState`]'s methods that say so.

mod capture;
mod deferred;
mod lifecycle;
mod recorder;
mod working;

use crate::activity::Charge;
use crate::arch::thread_slot;
use crate::config::Event;
use crate::image;
use crate::lcct::{Identity, spare};
use crate::memory::{self, PAGE};
use crate::system;
use crate::timer::Source;
use crate::unwind::Registers;
use crate::unwind::stack::StackSlot;
use deferred::Deferred;
use hpc_formats::loss::{LOSS_SLOTS, LossCause};
use hpc_formats::profile::header;
use lifecycle::{Lifecycle, Phase, wait_until};
use recorder::{Recorder, Values};
use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use working::Working;

/// The calling thread's state. Async-signal-safe.
#[inline]
pub fn current() -> Option<&'static ThreadState> {
    // SAFETY: states are never freed; the slot is null or points to this thread's.
    unsafe { thread_slot::get::<ThreadState>().as_ref() }
}

/// Size of the alternate signal stack that every thread gets: the handler's frames, with room
/// for the program's own handlers, which may run there too.
pub const SIGNAL_STACK: usize = 128 << 10;

/// State of one thread. Only its own thread (and its handler) uses the cells; the atomics may be
/// read by others.
#[derive(Debug)]
pub struct ThreadState {
    next: AtomicPtr<ThreadState>,
    lifecycle: Lifecycle,
    /// Its timer is the process's own to stop: not so of a thread that shares memory alone.
    in_process: AtomicBool,
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
    /// The same at the last sample of wall time.
    cpu_at_sample: AtomicU64,
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
/// CPU time of threads that ended without a profile, nanoseconds.
pub static UNSAMPLED_NS: AtomicU64 = AtomicU64::new(0);
/// CPU time of threads that share the memory but are processes of their own to the kernel, nanoseconds.
pub static FOREIGN_NS: AtomicU64 = AtomicU64::new(0);

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
    let me: *mut ThreadState = thread_slot::get();
    all().all(|t| ptr::eq(t, me) || !t.busy.load(Ordering::SeqCst))
}

/// Waits until each thread but the calling one was outside the profiler at some moment, a hundred
/// milliseconds at most.
pub fn wait_until_quiescent() {
    let me: *mut ThreadState = thread_slot::get();
    for thread in all().filter(|t| !ptr::eq(*t, me)) {
        wait_until(|| !thread.is_busy());
    }
}

/// Takes a state for a thread that is about to start: a free one, or a new one. Needs some tens
/// of KiB of stack, so a creator calls it for its new thread, whose stack may be small.
/// Not async-signal-safe. `None` when memory for it cannot be had.
pub fn acquire() -> Option<&'static ThreadState> {
    reuse().or_else(allocate)
}

/// Gives back a state whose thread did not start.
pub fn release(state: &'static ThreadState) {
    state.lifecycle.advance(Phase::Acquired, Phase::Free);
}

/// Makes an acquired state the calling thread's. `creation` is its creation context (thread,
/// record), zeros when unknown; `stack` its bounds. Not async-signal-safe.
pub fn begin(state: &'static ThreadState, creation: (u32, u32), stack: (u64, u64), is_main: bool) {
    begin_unnamed(state, creation, stack, is_main);
    thread_slot::set(ptr::from_ref(state).cast_mut());
}

/// As [`begin`], of a thread whose thread-local storage is another's: the handler finds the state by what its
/// timer says, the hooks do not find it.
pub fn begin_unnamed(
    state: &'static ThreadState,
    creation: (u32, u32),
    stack: (u64, u64),
    is_main: bool,
) {
    let ordinal = NEXT_ORDINAL.fetch_add(1, Ordering::Relaxed);
    let tid = system::thread_id();
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
    // SAFETY: getpid has no arguments.
    let process = unsafe { libc::getpid() } as u32;
    let is_main_process = image::current().is_none_or(|i| i.pid == process);
    state.in_process.store(is_main_process, Ordering::Relaxed);
    state.working.begin(tid, image::now());
    state.lifecycle.advance(Phase::Acquired, Phase::Live);
}

/// The state that a signal of ours names, if the calling thread is the one that it stands for.
/// Async-signal-safe.
pub fn by_cookie(cookie: u64) -> Option<&'static ThreadState> {
    let named = all().find(|t| ptr::from_ref(*t) as u64 == cookie)?;
    (named.lifecycle.is(Phase::Live) && named.is_own()).then_some(named)
}

fn reuse() -> Option<&'static ThreadState> {
    all().find(|t| t.lifecycle.advance(Phase::Free, Phase::Acquired))
}

fn allocate() -> Option<&'static ThreadState> {
    let stack = memory::map_anonymous(SIGNAL_STACK + PAGE)?.as_ptr() as usize;
    // SAFETY: the lowest page of our own fresh mapping becomes a guard.
    unsafe { libc::mprotect(stack as *mut libc::c_void, PAGE, libc::PROT_NONE) };
    let state: &'static ThreadState = Box::leak(Box::new(ThreadState {
        next: AtomicPtr::new(ptr::null_mut()),
        lifecycle: Lifecycle::acquired(),
        in_process: AtomicBool::new(true),
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
        cpu_at_sample: AtomicU64::new(0),
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

/// The system call: the libc function is interposed, and acts for whoever owns the thread-local storage.
///
/// # Safety
/// As `sigaltstack`.
unsafe fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) {
    // SAFETY: the caller's promise.
    unsafe { system::call(libc::SYS_sigaltstack, [new as usize, old as usize, 0, 0, 0]) };
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
    /// Enters the profiler; `None` when the thread is already inside, or sampling is over. Async-signal-safe.
    #[inline]
    pub fn enter(&self) -> Option<Busy<'_>> {
        if self.busy.load(Ordering::Relaxed) {
            return None;
        }
        self.busy.store(true, Ordering::Relaxed);
        // Pairs with the fences in `session::stop`, `loadmap::refresh` and `loadmap::begin_unload`: either
        // they see us busy, or we see that sampling is over, the new snapshot, or that a module goes.
        fence(Ordering::SeqCst);
        let busy = Busy(self);
        image::is_running().then_some(busy)
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
        self.tid() == system::thread_id()
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
            sigaltstack(ptr::null(), &mut old);
            if old.ss_flags & libc::SS_DISABLE == 0 && old.ss_size >= SIGNAL_STACK / 2 {
                return;
            }
            let new = libc::stack_t {
                ss_sp: self.signal_stack.get() as *mut libc::c_void,
                ss_flags: 0,
                ss_size: SIGNAL_STACK,
            };
            sigaltstack(&new, ptr::null_mut());
        }
    }

    fn remove_signal_stack(&self) {
        // SAFETY: disables this thread's alternate stack if it is ours.
        unsafe {
            let mut old: libc::stack_t = std::mem::zeroed();
            sigaltstack(ptr::null(), &mut old);
            if old.ss_sp as usize == self.signal_stack.get() {
                old.ss_flags = libc::SS_DISABLE;
                sigaltstack(&old, ptr::null_mut());
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

    /// Counts periods of a sample at `now` that fell while the thread was idle. Async-signal-safe.
    pub fn count_idle(&self, periods: u64, now: u64) {
        self.idle_weight.fetch_add(periods, Ordering::Relaxed);
        self.working.idles(now);
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
        charge: Charge,
        now: u64,
    ) -> Result<(), LossCause> {
        let mut values = Values::default();
        values.add(periods, charge, now);
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
        // One that is charged CPU time runs, whatever it is about to wait for. One that yields has nothing to do.
        let working = &self.working;
        working.is_idle_worker()
            || working.is_yielding()
            || (image::event() == Event::WallTime && (self.has_slept() || working.is_waiting()))
    }

    /// Whether the thread was charged hardly any CPU time since its last sample: it waited, whatever by.
    fn has_slept(&self) -> bool {
        let cpu = self.cpu_ns();
        let used = cpu.wrapping_sub(self.cpu_at_sample.swap(cpu, Ordering::Relaxed));
        used < image::period_ns() / 8
    }

    /// A sample is about to be charged: reads ahead. Async-signal-safe.
    #[inline]
    pub fn prepare_charge(&self) {
        self.working.prepare_charge();
    }

    /// What a sample at `now`, of work that stands for so many periods, is charged. Async-signal-safe.
    #[inline]
    pub fn charge(&self, now: u64, periods: u64) -> Charge {
        let stands_for = periods.saturating_mul(image::period_ns());
        self.working.charge(now, stands_for)
    }

    /// The monotonic clock at the sample that was claimed last, nanoseconds. Async-signal-safe.
    #[inline]
    pub fn sampled_at(&self) -> u64 {
        self.source.last_sample().unwrap_or_else(image::now)
    }

    fn read_cpu_clock(&self) {
        // As the kernel numbers the CPU clock of a thread (CPUCLOCK_PERTHREAD, CPUCLOCK_SCHED).
        self.cpu_clock
            .store(!self.tid() << 3 | 6, Ordering::Relaxed);
        let cpu = self.cpu_ns();
        self.cpu_start.store(cpu, Ordering::Relaxed);
        self.cpu_at_sample.store(cpu, Ordering::Relaxed);
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

    /// Completes the thread's profile: CPU time, name, counters, final length. The caller has made the move
    /// to `Closing`.
    fn complete(&self) {
        // SAFETY: whoever closes the state has the recorder (`lifecycle`): the thread itself, which is busy,
        // or the one that ends the process, which saw it not busy after sampling had ended.
        let recorder = unsafe { &mut *self.recorder.get() };
        let losses = || self.losses.iter().map(|l| l.load(Ordering::Relaxed));
        let idle = self.idle_weight.load(Ordering::Relaxed);
        let is_worth_it = idle > 0 || losses().any(|n| n > 0);
        let cpu = self
            .cpu_ns()
            .saturating_sub(self.cpu_start.load(Ordering::Relaxed));
        if !self.in_process.load(Ordering::Relaxed) {
            FOREIGN_NS.fetch_add(cpu, Ordering::Relaxed);
        }
        match recorder.take_tree(is_worth_it, || self.identity()) {
            None => {
                UNSAMPLED_NS.fetch_add(cpu, Ordering::Relaxed);
                image::add_losses(losses());
            }
            Some(mut tree) => {
                tree.set_u64(header::CPU_NS, cpu);
                tree.set_u64(header::IDLE_WEIGHT, idle);
                for (i, n) in losses().enumerate() {
                    tree.set_u64(header::LOSSES + 8 * i, n);
                }
                if let Some(name) = self.name() {
                    tree.set_name(&name);
                }
                tree.finish();
                spare::keep(tree);
            }
        }
        self.lifecycle.advance(Phase::Closing, Phase::Closed);
    }

    fn name(&self) -> Option<[u8; 16]> {
        if self.is_own() {
            let mut name = [0; 16];
            // SAFETY: the kernel writes sixteen bytes, the last of them zero.
            let asked = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
            return (asked == 0).then_some(name);
        }
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
        // A sample that is pending still finds the thread in the profiler.
        self.busy.store(true, Ordering::SeqCst);
        let closes = self.lifecycle.advance(Phase::Live, Phase::Closing);
        if closes {
            self.complete();
        }
        if ptr::eq(thread_slot::get(), self) {
            thread_slot::set(ptr::null_mut::<ThreadState>());
        }
        self.working.end(image::now());
        self.stack.clear();
        self.remove_signal_stack();
        self.busy.store(false, Ordering::Release);
        // One that ends the process may be at it. A state that is not done with is not used again.
        wait_until(|| self.lifecycle.is(Phase::Closed));
        self.lifecycle.advance(Phase::Closed, Phase::Free);
    }

    /// The process ends (or is replaced) while the thread still runs: completes its profile.
    /// The caller has stopped sampling.
    pub fn complete_from_outside(&self) {
        if self.lifecycle.is(Phase::Closing) {
            wait_until(|| !self.lifecycle.is(Phase::Closing));
        }
        if !self.lifecycle.is(Phase::Live) || !wait_until(|| !self.is_busy()) {
            return;
        }
        if self.lifecycle.advance(Phase::Live, Phase::Closing) {
            self.complete();
        }
    }

    /// The process ends: its timer is stopped, and it counts no more.
    pub fn stop(&self) {
        if self.in_process.load(Ordering::Relaxed) {
            self.source.disarm();
        }
        self.working.stop(image::now());
    }

    /// In a forked child: this state belongs to a thread that exists only in the parent.
    pub fn forget_after_fork(&'static self) {
        self.source.close_inherited();
        self.abandon_tree();
        self.stack.clear();
        self.working.leave_slot();
        self.busy.store(false, Ordering::Relaxed);
        self.lifecycle.abandon();
    }

    /// In a forked child: the forking thread goes on under a new ordinal, with an empty tree.
    pub fn renew_after_fork(&self) {
        self.source.close_inherited();
        self.abandon_tree();
        NEXT_ORDINAL.store(2, Ordering::Relaxed);
        self.thread.store(1, Ordering::Relaxed);
        let tid = system::thread_id();
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
        self.working.renew(tid, image::now());
    }

    fn abandon_tree(&self) {
        // SAFETY: the child has one thread, this one, and it is in the fork handler.
        let recorder = unsafe { &mut *self.recorder.get() };
        if let Some(tree) = recorder.take_tree(false, || self.identity()) {
            tree.close();
        }
    }
}
