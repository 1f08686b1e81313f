//! All thread states: created once, never freed, reused for later threads.

use super::cpu_clock::CpuClock;
use super::lifecycle::{Lifecycle, Phase, has_free, wait_until};
use super::listing::Listing;
use super::own_stack::{OwnStack, Spare};
use super::run_delay::RunDelay;
use super::{Guarded, Own, OwnThread, Recorder, SharedThread, ThreadPath};
use crate::arch::thread_slot;
use crate::image;
use crate::sinks::Tally;
use crate::source::Source;
use crate::system;
use crate::unwind::stack::StackSlot;
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

static ALL: AtomicPtr<SharedThread> = AtomicPtr::new(ptr::null_mut());

/// All states, in use or not.
pub fn all() -> impl Iterator<Item = &'static SharedThread> {
    let mut next = ALL.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: states are never freed, and never leave the list.
        let state: &'static SharedThread = unsafe { next.as_ref() }?;
        next = state.next.load(Ordering::Acquire);
        Some(state)
    })
}

pub fn live() -> impl Iterator<Item = &'static SharedThread> {
    all().filter(|t| t.lifecycle.is(Phase::Live) && t.in_process.load(Ordering::Relaxed))
}

/// Whether no thread is inside the profiler, the calling one included: a signal handler of the program may
/// have interrupted it there.
pub fn quiescent() -> bool {
    all().all(|t| !t.is_busy())
}

/// Waits until each thread except the calling one was outside the profiler at some moment; at most a hundred
/// milliseconds for each.
pub fn wait_until_quiescent() {
    let me: *mut SharedThread = thread_slot::get();
    for thread in all().filter(|t| !ptr::eq(*t, me)) {
        wait_until(|| !thread.is_busy());
    }
}

/// A state for a thread that is about to start. It is free again if the thread does not.
pub struct NewThread(&'static SharedThread);

impl NewThread {
    /// What will identify the thread's own signals.
    pub fn cookie(&self) -> u64 {
        self.0.cookie()
    }
}

impl Drop for NewThread {
    fn drop(&mut self) {
        self.0.lifecycle.advance(Phase::Acquired, Phase::Free);
    }
}

/// Acquires a state for a thread that is about to start: a free one, or a new one. Needs some tens of KiB of
/// stack, so the creator calls it: the new thread's stack may be small. `None` when memory cannot be
/// allocated. Not async-signal-safe.
pub fn acquire() -> Option<NewThread> {
    reuse().or_else(allocate).map(NewThread)
}

/// Gives the calling thread an acquired state. `creation` is its creation context (thread, record), zeros if
/// unknown; `stack` holds its bounds. Not async-signal-safe.
pub fn begin(new: NewThread, creation: (u32, u32), stack: (u64, u64), is_main: bool) -> OwnThread {
    let own = begin_unnamed(new, creation, stack, is_main);
    thread_slot::set(ptr::from_ref(own.shared).cast_mut());
    own
}

/// Like [`begin`], for a thread that uses the thread-local storage of another thread. The handler finds the
/// state by the cookie of the timer's signal; hooks do not find it.
pub fn begin_unnamed(new: NewThread, creation: (u32, u32), stack: (u64, u64), is_main: bool) -> OwnThread {
    let state = new.0;
    let own = Own::fresh(state.listing);
    // SAFETY: a state in phase `Acquired` belongs to whoever has the `NewThread`, which ends here.
    unsafe { state.own.0.get().write(own) };
    state.fresh(is_main);
    state.stack.set(stack.0, stack.1, is_main, creation);
    let process = system::process_id();
    let is_main_process = image::current().is_none_or(|i| process.is_none_or(|process| i.pid == process));
    state.in_process.store(is_main_process, Ordering::Relaxed);
    // SAFETY: the state is the calling thread's from now on.
    let own = unsafe { OwnThread::of(state) };
    own.own().working.trace().begin(state.ordinal());
    own.own().working.begin(state.tid(), image::now());
    state.lifecycle.advance(Phase::Acquired, Phase::Live);
    own
}

impl SharedThread {
    /// Begins a profile, of the calling thread.
    pub(super) fn fresh(&self, is_main: bool) {
        let (ordinal, tid) = (image::next_ordinal(), system::thread_id());
        self.thread.store(ordinal, Ordering::Relaxed);
        self.path.name(ordinal);
        self.tid.store(tid, Ordering::Relaxed);
        self.cpu.begin(tid);
        self.run_delay.begin(tid, is_main);
        self.tally.clear();
    }
}

/// The state that the cookie of a signal names, if it belongs to the calling thread. Async-signal-safe.
pub fn by_cookie(cookie: u64) -> Option<OwnThread> {
    let named = all().find(|t| t.cookie() == cookie)?;
    let is_own = named.lifecycle.is(Phase::Live) && named.is_own();
    // SAFETY: the thread with the state's kernel id calls.
    is_own.then(|| unsafe { OwnThread::of(named) })
}

fn reuse() -> Option<&'static SharedThread> {
    // One of thousands of threads does not look at the states of all others.
    if !has_free() {
        return None;
    }
    all().find(|t| t.lifecycle.advance(Phase::Free, Phase::Acquired))
}

fn allocate() -> Option<&'static SharedThread> {
    let listing: &'static Listing = Box::leak(Box::new(Listing::default()));
    let state: &'static SharedThread = Box::leak(Box::new(SharedThread {
        next: AtomicPtr::new(ptr::null_mut()),
        lifecycle: Lifecycle::acquired(),
        in_process: AtomicBool::new(true),
        busy: AtomicBool::new(false),
        in_handler: AtomicBool::new(false),
        listing,
        stack: StackSlot::default(),
        thread: AtomicU32::new(0),
        tid: AtomicU32::new(0),
        cpu: CpuClock::default(),
        run_delay: RunDelay::default(),
        signal_stack: OwnStack::map()?,
        spare_stack: Spare::default(),
        source: Source::default(),
        path: ThreadPath::default(),
        tally: Tally::default(),
        recorder: Guarded(UnsafeCell::new(Recorder::new()?)),
        own: Guarded(UnsafeCell::new(Own::fresh(listing))),
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
