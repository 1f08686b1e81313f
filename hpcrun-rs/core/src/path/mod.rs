//! The critical path of this process: one tracker (crate `critical-path`), each thread's part in it, and the
//! objects through which threads wait for each other.
//!
//! | file | duty |
//! |---|---|
//! | `objects` | strands that are left at locks, conditions, barriers, semaphores, futexes, ended threads |
//! | `contexts` | the contexts of samples, and the functions in them |
//! | `tracked` | what the events of a thread do to its strand |
//! | `functions` | which functions an address is in, inlined ones included |
//! | `file` | the result, in the measurement directory |
//!
//! A sample's signal makes the thread's next event ask the system for its CPU time, once: about 1 us.
//!
//! # Who uses a thread's part
//! The thread itself, from its hooks: [`ThreadPath::with`]. An event that arrives inside of that, from the
//! tracker's own locks or from a signal handler of the program, is ignored. The signal handler of the
//! profiler does not come here. When tracking is over, the thread that ends the process waits until the
//! others are outside, and publishes their strands ([`ThreadPath::tell_from_outside`]).

mod contexts;
mod file;
mod functions;
mod objects;
mod tracked;

pub use file::write;
pub use tracked::Tracked;

use crate::config::Tracking;
use crate::system;
pub(crate) use contexts::ThreadSamples;
use contexts::{Captured, Contexts};
pub use critical_path::table::Tracked as OwnThread;
use critical_path::{Lost, Settings, Site, Thread, ThreadClock, Trace, Tracker};
use hpc_formats::critical_path::{Moment, SPAWNS};
use objects::Objects;
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, compiler_fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// What the threads of a process image share. Never freed.
struct Path {
    tracker: Tracker,
    settings: Settings,
    objects: Objects,
    names: functions::Names,
    /// Of each thread: its number here, and its ordinal in the process.
    threads: Mutex<Vec<(u32, u32)>>,
    /// Whoever has it writes the file, which has the path at these moments of a session.
    writer: Mutex<(u32, Vec<Moment>)>,
    captured: Captured,
    halted_by: AtomicU8,
    /// The process is started by a launcher of jobs: it may join one.
    in_job: bool,
    job: OnceLock<Job>,
}

/// The process's part in a job of several processes that exchange messages.
struct Job {
    id: u64,
    rank: u32,
    ranks: u32,
}

impl Path {
    fn threads(&self) -> MutexGuard<'_, Vec<(u32, u32)>> {
        // Nothing panics with the lock held.
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps threads out, unless somebody does. Returns whether it does.
    fn halt(&self, who: u8) -> bool {
        let halted = self.halted_by.compare_exchange(NOBODY, who, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if halted {
            // Pairs with the compiler fence in `with`: either a thread sees this, or we see it inside.
            system::membarrier();
        }
        halted
    }

    /// Who keeps threads out.
    #[inline]
    fn halted_by(&self) -> u8 {
        self.halted_by.load(Ordering::Relaxed)
    }
}

/// Following a fork, with all that it does to the program's caches, takes a few hundred nanoseconds.
const GRAIN: u64 = 20_000;

/// Null: this run does not track.
static PATH: AtomicPtr<Path> = AtomicPtr::new(ptr::null_mut());
/// 1 while tracking.
static ACTIVE: AtomicU8 = AtomicU8::new(0);

/// Who keeps threads out: nobody; [`stop_after`], which lets them in again; [`finish`].
const NOBODY: u8 = 0;
const STOP: u8 = 1;
const FINISH: u8 = 2;
/// As `FINISH`; threads were tracked until then.
const FINISH_TRACKED: u8 = 3;

fn is_in_job() -> bool {
    current().is_some_and(|path| path.in_job)
}

/// The process has this rank in a job.
pub fn join(id: u64, rank: u32, ranks: u32) {
    current().inspect(|path| drop(path.job.set(Job { id, rank, ranks })));
}

fn rank() -> u32 {
    let job = current().and_then(|path| path.job.get());
    job.map_or(0, |job| job.rank)
}

/// Starts to track, before the program has threads, or prepares for it. `period`: nanoseconds between
/// samples; `trace` keeps the edges.
pub(crate) fn start(tracking: &Tracking, in_job: bool, (period, trace): (u64, Option<Trace>)) {
    system::register_membarrier();
    functions::open();
    let mut settings = Settings::default().without_operations();
    // Another process could not tell how certain a strand's length is.
    settings.grain = if in_job { 0 } else { GRAIN };
    settings.sample_period = period;
    settings.trace = trace;
    // Messages carry what is saved without a procedure alone.
    settings.faster = if in_job { 0 } else { tracking.faster };
    if tracking.edges > 0 {
        settings.edges = true;
        settings.message_cost = tracking.edges;
        settings.spawn_cost = tracking.edges.saturating_mul(SPAWNS);
    }
    open(settings, in_job);
    ACTIVE.store(u8::from(tracking.signal == 0), Ordering::SeqCst);
}

fn open(settings: Settings, in_job: bool) {
    let path = Box::leak(Box::new(Path {
        tracker: Tracker::new(settings),
        settings,
        objects: Objects::new(),
        names: functions::Names::default(),
        threads: Mutex::default(),
        writer: Mutex::default(),
        captured: Captured::default(),
        halted_by: AtomicU8::new(NOBODY),
        in_job,
        job: OnceLock::new(),
    }));
    PATH.store(path, Ordering::Release);
}

fn current() -> Option<&'static Path> {
    // SAFETY: null, or leaked by `open`.
    unsafe { PATH.load(Ordering::Acquire).as_ref() }
}

/// Whether this run tracks, now or at another time.
pub fn is_configured() -> bool {
    current().is_some()
}

#[inline]
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed) != 0
}

/// 1 while threads are tracked. Others may change it.
pub fn active() -> &'static AtomicU8 {
    &ACTIVE
}

/// The tracker of a run that tracks.
pub fn tracker() -> Option<&'static Tracker> {
    current().map(|path| &path.tracker)
}

/// The program begins: what ran before, in the constructors of libraries, is no part of its path.
pub fn begin() {
    tracker().filter(|_| is_active()).inspect(|tracker| tracker.begin());
}

/// Stops for good: when this returns, other threads do not enter any more, and those that were inside are
/// about to leave ([`ThreadPath::is_inside`]). Returns whether threads were tracked until now.
pub fn finish() -> bool {
    let Some(path) = current() else { return false };
    let how = || if is_active() { FINISH_TRACKED } else { FINISH };
    // Another thread that stops is about to be ready; the limit is for a thread that the kernel has ended.
    if system::within(10_000, || path.halt(how()).then_some(())).is_none() {
        path.halted_by.store(how(), Ordering::SeqCst);
        system::membarrier();
    }
    ACTIVE.swap(0, Ordering::SeqCst) != 0
}

/// Stops after `publish`, for which threads are kept outside as by [`finish`]; one that ends waits. Called by
/// a thread that is not tracked and cannot be interrupted by signals.
pub fn stop_after(publish: impl FnOnce()) {
    if let Some(path) = current().filter(|path| path.halt(STOP)) {
        publish();
        ACTIVE.store(0, Ordering::SeqCst);
        path.halted_by.store(NOBODY, Ordering::SeqCst);
    }
}

/// Forgets the parent's tracker in a forked child, where other threads' locks may be held forever.
pub fn start_anew() {
    if let Some(path) = current() {
        open(path.settings, path.in_job);
    }
}

#[derive(Default)]
pub struct ThreadPath {
    /// The thread is in the tracker.
    inside: AtomicBool,
    tracked: UnsafeCell<Option<Box<Tracked>>>,
    /// Where the signal handler leaves samples: that of `tracked`, or null.
    samples: AtomicPtr<ThreadSamples>,
    ordinal: AtomicU32,
    /// The thread's CPU time when the session began, nanoseconds, plus one, until the thread has heard of it.
    since: AtomicU64,
    /// Events are ignored: another thread, or process, has the same thread-local storage, or see
    /// [`Self::ignore`].
    is_shared: AtomicBool,
}

// SAFETY: `tracked` is used by the thread itself, and by the one that ends the process when threads are kept
// out and the thread is outside ([`ThreadPath::with_first`]).
unsafe impl Sync for ThreadPath {}

impl ThreadPath {
    /// The thread that uses this from now on, by its ordinal.
    pub fn name(&self, ordinal: u32) {
        self.ordinal.store(ordinal, Ordering::Relaxed);
        self.since.store(0, Ordering::Relaxed);
        self.is_shared.store(false, Ordering::Relaxed);
    }

    /// A session begins when the thread, which is active, has used so much CPU time.
    pub fn starts_at(&self, cpu: u64) {
        self.since.store(cpu + 1, Ordering::Relaxed);
    }

    /// Begins the session where [`Self::starts_at`] has said.
    #[inline]
    fn catch_up(&self, tracked: &mut Tracked) {
        if self.since.load(Ordering::Relaxed) != 0 {
            let since = self.since.swap(0, Ordering::Relaxed);
            tracked.end_wait();
            tracked.thread.restart_at(since - 1);
        }
    }

    /// The thread belongs to a message-passing library: its activity is none of the program's.
    pub fn ignore(&self) {
        self.is_shared.store(true, Ordering::Relaxed);
    }

    /// Calls `act` with the calling thread's tracker, unless the thread is in it already, or tracking is
    /// over, or the run does not track.
    #[inline]
    pub fn with<R>(&self, act: impl FnOnce(&mut Tracked) -> R) -> Option<R> {
        let act = |tracked: &mut Tracked| {
            tracked.thread.restart(Site(0));
            act(tracked)
        };
        self.with_first(first, act)
    }

    /// As [`Self::with`], for a runtime's or a program's own events: `first` makes the thread's state, if it
    /// has none, and `act` looks after the session.
    pub fn with_first<R>(
        &self,
        first: impl FnOnce() -> Option<OwnThread>,
        act: impl FnOnce(&mut Tracked) -> R,
    ) -> Option<R> {
        if self.inside.load(Ordering::Relaxed) || self.is_shared.load(Ordering::Relaxed) {
            return None;
        }
        self.inside.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let result = match current() {
            Some(path) if path.halted_by() == NOBODY => {
                // SAFETY: `inside` shows that this thread does not use it, and `halted_by`, looked at after
                // `inside` was set, that no other thread does.
                let slot = unsafe { &mut *self.tracked.get() };
                if slot.is_none() {
                    *slot = self.enter(path, first);
                }
                slot.as_deref_mut().map(|tracked| {
                    self.catch_up(tracked);
                    act(tracked)
                })
            }
            _ => None,
        };
        compiler_fence(Ordering::SeqCst);
        self.inside.store(false, Ordering::Release);
        result
    }

    #[cold]
    #[inline(never)]
    fn enter(&self, path: &'static Path, first: impl FnOnce() -> Option<OwnThread>) -> Option<Box<Tracked>> {
        let tracked = Box::new(Tracked::new(path, first()?, self.ordinal.load(Ordering::Relaxed)));
        let numbers = (tracked.thread.number(), self.ordinal.load(Ordering::Relaxed));
        path.threads().push(numbers);
        self.samples.store(tracked.samples(), Ordering::Relaxed);
        Some(tracked)
    }

    /// Where its samples go, if it is tracked. Async-signal-safe.
    #[inline]
    pub(crate) fn samples(&self) -> Option<&ThreadSamples> {
        // SAFETY: null, or what `tracked` owns. The calling thread, or its handler, is the one that frees it,
        // after this was set to null.
        unsafe { self.samples.load(Ordering::Relaxed).as_ref() }
    }

    /// The thread ends, and completes its profile next; whoever joins it knows it by `name`.
    pub fn end(&self, name: usize) {
        // SAFETY: another thread changes nothing here before it keeps threads out, and then only the strand.
        let is_tracked = unsafe { (*self.tracked.get()).is_some() };
        let Some(path) = current().filter(|_| is_tracked) else { return };
        let ended = self.with(|tracked| tracked.end(name));
        let is_last = path.halted_by() == FINISH_TRACKED;
        if ended.is_none() && is_last && !self.is_inside() && !self.is_shared.load(Ordering::Relaxed) {
            // The thread that ends the process leaves the strand of a thread that completes itself to it.
            self.publish();
        }
        self.leave(path);
    }

    /// Frees what belongs to an ended thread.
    fn leave(&self, path: &Path) {
        loop {
            self.inside.store(true, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            let halted_by = path.halted_by();
            if halted_by == NOBODY {
                self.samples.store(ptr::null_mut(), Ordering::Relaxed);
                compiler_fence(Ordering::SeqCst);
                // SAFETY: as in `with`.
                unsafe { (*self.tracked.get()).take() };
            }
            compiler_fence(Ordering::SeqCst);
            self.inside.store(false, Ordering::Release);
            if halted_by != STOP {
                return;
            }
            system::sleep(100_000);
        }
    }

    /// Whether the thread is in the tracker.
    pub fn is_inside(&self) -> bool {
        self.inside.load(Ordering::SeqCst)
    }

    /// Another thread or process will use this thread's thread-local storage: its events cannot be told from
    /// this thread's any more, so both are ignored from now on.
    pub fn share(&self) {
        self.with(|tracked| tracked.thread.lose(Lost::Untracked));
        self.is_shared.store(true, Ordering::Relaxed);
    }

    /// The calling thread's strand counts as ended now. Returns whether there is one. Called by the thread
    /// that ends the process, after [`finish`], when it is outside.
    pub fn publish(&self) -> bool {
        self.after_finish(|tracked| tracked.thread.publish(Site(0)))
    }

    /// As [`Self::publish`], for another thread, which may run: its activity counts, and it `ends` here or
    /// goes on unheeded. `cpu`: its CPU clock, in nanoseconds.
    pub fn tell_from_outside(&self, cpu: u64, ends: bool) {
        self.after_finish(|tracked| {
            self.catch_up(tracked);
            tracked.thread.tell_from_outside(cpu, ends);
        });
    }

    fn after_finish(&self, act: impl FnOnce(&mut Tracked)) -> bool {
        // SAFETY: tracking is over, so the thread does not enter any more, and it is outside (the callers'
        // promise).
        unsafe { &mut *self.tracked.get() }.as_deref_mut().map(act).is_some()
    }

    /// Forgets the thread, in a forked child: its tracker is the parent's.
    pub fn forget(&self) {
        self.samples.store(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: the child has one thread, this one, and it runs the fork handler.
        std::mem::forget(unsafe { (*self.tracked.get()).take() });
        self.inside.store(false, Ordering::Relaxed);
        self.is_shared.store(false, Ordering::Relaxed);
    }
}

fn first() -> Option<OwnThread> {
    Some(Thread::new(tracker()?, ThreadClock::new(), Site(0)))
}
