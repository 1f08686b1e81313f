//! Overhead of the category `track`: following the critical path, while that is asked for.
//!
//! One duty: tell the crate `critical-path` what the runtime does with tasks, so that each task is a strand
//! of its own, whoever runs it. Off, all of it is a few comparisons in functions that are out of line anyway.
//! On, every deque is open ([`crate::deque::SplitDeque::set_open`]), so that every fork, and every task that
//! is taken back, comes through such a function; a task that is taken back is entered through the boundary,
//! which shows its end. The code that is inlined into a spawner is the same in both cases.
//!
//! Each thread has one `Thread` of the tracker, made at its first event. A worker's stack of nested tasks is
//! the stack of strands that it has left.
//!
//! Invariant: nothing here calls a user's closure but through the boundary.

pub(crate) mod forks;
pub(crate) mod link;
pub(crate) mod procedure;

use core::cell::RefCell;
use core::panic::Location;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::OnceLock;

use critical_path::{Edge, Lost, Settings, Site, Strand, Thread, ThreadClock, Tracker};

use self::forks::Record;
use crate::boundary;
use crate::deque::{NONE, SlotPtr};
use crate::job::TaskRef;
use crate::sched::state::begin_work;
use crate::worker::Worker;

/// Whether the critical path is tracked now.
static ACTIVE: AtomicBool = AtomicBool::new(false);

type Tracked = Thread<'static, ThreadClock>;

thread_local! {
    /// The calling thread's state. Borrowed only within this module, where no foreign code is called.
    static THREAD: RefCell<Option<Box<Tracked>>> = const { RefCell::new(None) };
}

/// A site that is a place in the source: the address of its [`Location`], marked by the highest bit.
const LOCATION: u64 = 1 << 63;

/// What all pools of the process share.
pub(crate) fn tracker() -> &'static Tracker {
    static TRACKER: OnceLock<Tracker> = OnceLock::new();
    TRACKER.get_or_init(|| Tracker::new(Settings::default().calibrated()))
}

#[inline(always)]
pub(crate) fn is_active() -> bool {
    !cfg!(loom) && ACTIVE.load(Ordering::Relaxed)
}

/// Starts or stops. Workers notice at their next fork or task.
pub(crate) fn set_active(active: bool) {
    ACTIVE.store(active, Ordering::SeqCst);
}

/// The site of a place in the source.
pub(crate) fn at(location: &'static Location<'static>) -> Site {
    Site(ptr::from_ref(location).addr() as u64 | LOCATION)
}

/// The place in the source, if the site is one.
pub(crate) fn location(site: Site) -> Option<&'static Location<'static>> {
    let address = (site.0 & LOCATION != 0).then_some(site.0 & !LOCATION)?;
    // SAFETY: only `at` sets the bit, which no address of a program has, and it had a static reference.
    // (Provenance: the reference is exposed nowhere, but the memory is never written or freed.)
    Some(unsafe { &*ptr::with_exposed_provenance(address as usize) })
}

/// Calls `change` with the calling thread's state; `None` while the thread ends. `idle`: a thread that is new
/// here has no activity yet.
#[inline(always)]
fn with<R>(idle: bool, change: impl FnOnce(&mut Tracked) -> R) -> Option<R> {
    with_at(idle, Site(0), change)
}

/// As [`with`]; where the thread's path begins, if it does now.
#[inline(always)]
fn with_at<R>(idle: bool, site: Site, change: impl FnOnce(&mut Tracked) -> R) -> Option<R> {
    let access = |thread: &RefCell<Option<Box<Tracked>>>| {
        let mut thread = thread.try_borrow_mut().ok()?;
        let thread = match &mut *thread {
            Some(thread) => thread,
            none => none.insert(enter(idle, site)),
        };
        thread.restart(site);
        Some(change(thread))
    };
    THREAD.try_with(access).ok().flatten()
}

#[cold]
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
fn enter(idle: bool, site: Site) -> Box<Tracked> {
    let mut thread = Box::new(Thread::new(tracker(), ThreadClock::new(), site));
    if idle {
        thread.pause();
    }
    thread
}

/// The calling thread's path begins at `location`, if it has none yet.
pub(crate) fn begin_here(location: &'static Location<'static>) {
    with_at(false, at(location), Thread::resume);
}

/// The calling thread's path ends at `location`, as far as a report now is concerned.
pub(crate) fn publish(location: &'static Location<'static>) {
    with(false, |thread| thread.publish(at(location)));
}

/// What follows is a wait. The result is for [`resume`].
#[inline(always)]
pub(crate) fn pause() -> bool {
    is_active() && with(false, Thread::pause).is_some()
}

/// The calling worker has no task: what it does in its scheduling loop is no activity, whatever the task
/// before has left behind.
#[inline(always)]
pub(crate) fn rest() {
    if is_active() {
        with(true, Thread::pause);
    }
}

/// The wait is over.
#[inline(always)]
pub(crate) fn resume(paused: bool) {
    // A wait during which the tracking started has not been paused, but the thread may be new and idle.
    if paused || is_active() {
        with(false, Thread::resume);
    }
}

/// The calling strand spawns a task at `location`.
#[inline(always)]
pub(crate) fn spawn(location: &'static Location<'static>) -> Option<Strand> {
    if is_active() {
        with(false, |thread| thread.copy(at(location)))
    } else {
        None
    }
}

/// A strand has ended for which nobody waits.
pub(crate) fn finish(ended: Strand) {
    with(true, |thread| thread.finish(ended));
}

/// Begins a spawned task.
#[inline(always)]
pub(crate) fn begin(forked: Option<Strand>, site: Site) -> Option<Strand> {
    if forked.is_none() && !is_active() {
        return None;
    }
    with(true, |thread| thread.begin(forked, site))
}

/// Ends it.
#[inline(always)]
pub(crate) fn end(left: Strand, site: Site) -> Option<Strand> {
    with(true, |thread| thread.end(left, site))
}

/// The fork whose task is in the slot, which nobody else knows yet.
#[inline(always)]
pub(crate) fn fork(worker: &Worker, slot: SlotPtr) {
    let active = is_active();
    if active != worker.joins.is_open() {
        worker.joins.set_open(active);
    }
    if active {
        track_fork(worker, slot);
    }
}

#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
fn track_fork(worker: &Worker, slot: SlotPtr) {
    // SAFETY: the slot is the worker's, and has a task, which lies in a frame that the caller returns to.
    let site = unsafe { Site(task(slot).site().ip as u64) };
    let record = worker.forks.record(worker.joins.number(slot));
    // SAFETY: nobody else knows of the task.
    unsafe { record.set(site, with(false, |thread| thread.copy(site))) };
}

/// The fork is done; `pushed`: [`NONE`] if the deque was full.
#[inline(always)]
pub(crate) fn forked(worker: &Worker, slot: SlotPtr, pushed: SlotPtr) {
    if worker.joins.is_open() {
        if pushed == NONE {
            forget_fork(worker, slot);
        }
        return;
    }
    // The tracking may have started while this fork lowered the attention that it raised. With thieves, the
    // publication of the fork was a read-modify-write in between.
    if worker.pool().workers().len() == 1 {
        fence(Ordering::SeqCst);
    }
    if is_active() {
        worker.joins.raise_attention();
    }
}

/// The deque is full: the task runs as a part of its spawner.
#[cold]
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
fn forget_fork(worker: &Worker, slot: SlotPtr) {
    let record = worker.forks.record(worker.joins.number(slot));
    // SAFETY: the task was never open to others.
    unsafe { record.take() }.discard();
    with(false, |thread| thread.lose(Lost::Unknown));
}

/// Runs the task in the slot, which was taken back, if its fork was tracked.
#[inline(always)]
pub(crate) fn run_taken_back(worker: &Worker, slot: SlotPtr) -> bool {
    slot != NONE && worker.joins.is_open() && run_tracked(worker, slot)
}

#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
fn run_tracked(worker: &Worker, slot: SlotPtr) -> bool {
    let record = worker.forks.record(worker.joins.number(slot));
    // SAFETY: the slot is the worker's alone again. The record is empty before the task can fork.
    let Some(forked) = (unsafe { record.take_forked() }) else {
        return false;
    };
    let site = record.site();
    // SAFETY: the slot keeps the task's address until the next push; the task waits in its spawner's frame,
    // and is run by nobody else.
    let task = unsafe { task(slot) };
    let left = with(false, |thread| thread.begin(Some(forked), site));
    worker.own.in_order.set(true);
    // SAFETY: as above; entries catch every panic.
    unsafe { boundary::enter(task.0, worker, task.site().entry) };
    begin_work(worker);
    if let Some(left) = left {
        with(false, |thread| thread.end_and_merge(left, site));
    }
    true
}

/// The task in a slot.
///
/// # Safety
/// The slot has a task.
#[inline(always)]
unsafe fn task(slot: SlotPtr) -> TaskRef {
    // SAFETY: slots live as long as the pool; the rest is this function's contract.
    TaskRef(ptr::with_exposed_provenance(unsafe { (*slot).payload() }))
}

/// A stolen task that is tracked.
pub(crate) struct Stolen<'a> {
    left: Strand,
    record: &'a Record,
    site: Site,
}

/// The calling worker, which has stolen the task of the slot, begins it. `ip`: the fork's address. Tasks
/// without a slot are tracked by their own entries.
#[inline(always)]
pub(crate) fn begin_stolen(worker: &Worker, slot: SlotPtr, ip: usize) -> Option<Stolen<'_>> {
    if slot == NONE || !is_active() {
        return None;
    }
    begin_tracked(worker, slot, Site(ip as u64))
}

#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
fn begin_tracked(worker: &Worker, slot: SlotPtr, site: Site) -> Option<Stolen<'_>> {
    let owner = worker.pool().owner_of(slot);
    let record = owner.forks.record(owner.joins.number(slot));
    // SAFETY: whoever has stolen the task has its record, until the task's end is announced.
    let forked = unsafe { record.take_forked() };
    let left = begin(forked, site)?;
    Some(Stolen { left, record, site })
}

/// Ends it, before its end is announced.
#[inline(always)]
pub(crate) fn end_stolen(stolen: Option<Stolen<'_>>) {
    if let Some(stolen) = stolen {
        end_tracked(stolen);
    }
}

#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
fn end_tracked(stolen: Stolen<'_>) {
    let ended = end(stolen.left, stolen.site);
    // SAFETY: as in `begin_tracked`.
    unsafe { stolen.record.end(stolen.site, ended) };
}

/// The calling worker has waited for the stolen task of the slot.
#[inline(always)]
pub(crate) fn join_stolen(worker: &Worker, slot: SlotPtr) {
    if is_active() {
        join_tracked(worker, slot);
    }
}

#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
fn join_tracked(worker: &Worker, slot: SlotPtr) {
    let record = worker.forks.record(worker.joins.number(slot));
    // SAFETY: the task's end was announced.
    match unsafe { record.take_ended() } {
        Some(ended) => with(false, |thread| {
            thread.merge(ended, record.site(), Edge::Join)
        }),
        None => with(false, |thread| thread.lose(Lost::Untracked)),
    };
}

/// Gives a strand's memory back.
fn discard(strand: Option<Strand>) {
    if let Some(strand) = strand {
        with(true, |thread| thread.discard(strand));
    }
}
