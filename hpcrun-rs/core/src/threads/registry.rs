//! All thread states: created once, never freed, reused for later threads.

use super::calls::Call;
use super::cpu_clock::CpuClock;
use super::lifecycle::{Lifecycle, Phase, has_free, wait_until};
use super::own_stack::{OwnStack, Spare};
use super::working::Working;
use super::{Deferred, Recorder, ThreadPath, ThreadState};
use crate::arch::thread_slot;
use crate::image;
use crate::sinks::Tally;
use crate::source::Source;
use crate::system;
use crate::unwind::stack::StackSlot;
use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

static ALL: AtomicPtr<ThreadState> = AtomicPtr::new(ptr::null_mut());
static NEXT_ORDINAL: AtomicU32 = AtomicU32::new(1);

/// All states, in use or not.
pub fn all() -> impl Iterator<Item = &'static ThreadState> {
    let mut next = ALL.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: states are never freed, and never leave the list.
        let state: &'static ThreadState = unsafe { next.as_ref() }?;
        next = state.next.load(Ordering::Acquire);
        Some(state)
    })
}

/// The states of the process's threads.
pub fn live() -> impl Iterator<Item = &'static ThreadState> {
    all().filter(|t| t.lifecycle.is(Phase::Live) && t.in_process.load(Ordering::Relaxed))
}

/// The number of threads that ever got a state.
pub fn count() -> u32 {
    NEXT_ORDINAL.load(Ordering::Relaxed) - 1
}

/// Whether no thread is inside the profiler, the calling one included: a signal handler of the program may
/// have interrupted it there.
pub fn quiescent() -> bool {
    all().all(|t| !t.is_busy())
}

/// Waits until each thread except the calling one was outside the profiler at some moment; at most a hundred
/// milliseconds for each.
pub fn wait_until_quiescent() {
    let me: *mut ThreadState = thread_slot::get();
    for thread in all().filter(|t| !ptr::eq(*t, me)) {
        wait_until(|| !thread.is_busy());
    }
}

/// Acquires a state for a thread that is about to start: a free one, or a new one. Needs some tens of KiB of
/// stack, so the creator calls it: the new thread's stack may be small. `None` when memory cannot be
/// allocated. Not async-signal-safe.
pub fn acquire() -> Option<&'static ThreadState> {
    reuse().or_else(allocate)
}

/// Releases a state whose thread did not start.
pub fn release(state: &'static ThreadState) {
    state.lifecycle.advance(Phase::Acquired, Phase::Free);
}

/// Assigns an acquired state to the calling thread. `creation` is its creation context (thread, record),
/// zeros if unknown; `stack` holds its bounds. Not async-signal-safe.
pub fn begin(state: &'static ThreadState, creation: (u32, u32), stack: (u64, u64), is_main: bool) {
    begin_unnamed(state, creation, stack, is_main);
    thread_slot::set(ptr::from_ref(state).cast_mut());
}

/// Like [`begin`], for a thread that uses the thread-local storage of another thread. The handler finds the
/// state by the cookie of the timer's signal; hooks do not find it.
pub fn begin_unnamed(
    state: &'static ThreadState,
    creation: (u32, u32),
    stack: (u64, u64),
    is_main: bool,
) {
    let ordinal = NEXT_ORDINAL.fetch_add(1, Ordering::Relaxed);
    let tid = system::thread_id();
    state.thread.store(ordinal, Ordering::Relaxed);
    state.path.name(ordinal);
    state.tid.store(tid, Ordering::Relaxed);
    state.cpu.begin(tid);
    state.creation.set(creation);
    state.task.set(ptr::null());
    state.destructor_rounds.set(0);
    state.tally.clear();
    state.stack.set(stack.0, stack.1, is_main, creation);
    let process = system::process_id();
    let is_main_process =
        image::current().is_none_or(|i| process.is_none_or(|process| i.pid == process));
    state.in_process.store(is_main_process, Ordering::Relaxed);
    state.working.begin(tid, image::now());
    state.lifecycle.advance(Phase::Acquired, Phase::Live);
}

/// The state that the cookie of a signal names, if it belongs to the calling thread. Async-signal-safe.
pub fn by_cookie(cookie: u64) -> Option<&'static ThreadState> {
    let named = all().find(|t| ptr::from_ref(*t) as u64 == cookie)?;
    (named.lifecycle.is(Phase::Live) && named.is_own()).then_some(named)
}

fn reuse() -> Option<&'static ThreadState> {
    // One of thousands of threads does not look at the states of all others.
    if !has_free() {
        return None;
    }
    all().find(|t| t.lifecycle.advance(Phase::Free, Phase::Acquired))
}

fn allocate() -> Option<&'static ThreadState> {
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
        cpu: CpuClock::new(),
        signal_stack: OwnStack::map()?,
        spare_stack: Spare::default(),
        source: Source::new(),
        recorder: UnsafeCell::new(Recorder::new()?),
        lock_wait: Cell::new(None),
        task: Cell::new(ptr::null()),
        path: ThreadPath::default(),
        call: Call::none(),
        deferred: Deferred::new(),
        tally: Tally::new(),
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

/// Sets the ordinal of the next thread, in a forked child.
pub(super) fn count_from(ordinal: u32) {
    NEXT_ORDINAL.store(ordinal, Ordering::Relaxed);
}
