//! Overhead of the category `track`: following the critical path, while that is asked for.
//!
//! One duty: tell the profiler what the runtime does with tasks, so that each task is a strand of its own,
//! whoever runs it. Off, all of it is a few comparisons in functions that are out of line anyway. On, every
//! deque is open ([`crate::deque::SplitDeque::set_open`]), so that every fork, and every task that is taken
//! back, comes through such a function; a task that is taken back is entered through the boundary, which
//! shows its end. The code that is inlined into a spawner is the same in both cases.
//!
//! The profiler knows a thread's strand. A worker's stack of nested tasks is the stack of strands that it has
//! left.
//!
//! Invariant: nothing here calls a user's closure but through the boundary.

pub(crate) mod forks;
pub(crate) mod link;
pub(crate) mod path;

use core::panic::Location;
use core::ptr;
use core::sync::atomic::{Ordering, fence};

use hpcrun_abi::{LOST_UNKNOWN, SERIAL, SITE_TASK, Site};

use self::forks::Record;
pub(crate) use self::path::{Strand, at, end, finish, is_active};
use crate::boundary;
use crate::deque::{NONE, SlotPtr};
use crate::sched::state::begin_work;
use crate::task::TaskRef;
use crate::worker::Worker;

/// Forks inside of each other that the profiler is not told of. Beyond, it may see that there are too many.
const DEPTH: usize = 16;

/// What follows is a wait. The result is for [`resume`].
#[inline(always)]
pub(crate) fn pause() -> bool {
    let active = is_active();
    if active {
        path::pause();
    }
    active
}

/// The calling worker has no task: what it does in its scheduling loop is no activity, whatever the task
/// before has left behind.
#[inline(always)]
pub(crate) fn rest() {
    pause();
}

/// The wait is over.
#[inline(always)]
pub(crate) fn resume(paused: bool) {
    // A wait during which the tracking started has not been paused, but the thread may be new and idle.
    if paused || is_active() {
        path::resume();
    }
}

/// The calling strand spawns a task at `location`.
#[inline(always)]
pub(crate) fn spawn(location: &'static Location<'static>) -> Option<Strand> {
    if is_active() { path::copy(at(location)) } else { None }
}

/// Begins a spawned task.
#[inline(always)]
pub(crate) fn begin(spawned: Option<Strand>, site: Site) -> Option<Strand> {
    if spawned.is_some() || is_active() { path::begin(spawned, site) } else { None }
}

/// The fork whose task is in the slot, which nobody else knows yet.
#[inline(always)]
pub(crate) fn fork(worker: &Worker, slot: SlotPtr) {
    let active = is_active();
    let open = active && !worker.forks.grains.is_open();
    if open != worker.joins.is_open() {
        worker.joins.set_open(open);
    }
    if active {
        track_fork(worker, slot);
    }
}

#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
fn track_fork(worker: &Worker, slot: SlotPtr) {
    // SAFETY: the slot is the worker's, and has a task, which lies in a frame that the caller returns to.
    let (task, ip) = unsafe { (task(slot), task(slot).site().ip as Site) };
    let number = worker.joins.number(slot);
    let forked = path::fork(spawn_of(task));
    let followed = forked.as_ref().filter(|forked| !forked.is_serial());
    let grains = &worker.forks.grains;
    if followed.is_some() && grains.contains(number) {
        // The profiler has changed its mind; forks that are pending stay in the grain.
        grains.suspend(number);
        worker.joins.set_open(true);
    }
    if followed.is_some_and(Strand::is_grain) {
        // The deque stays open until the fork's task is.
        grains.enter(number + 1);
    }
    // SAFETY: nobody else knows of the task.
    unsafe { worker.forks.record(number).set(ip, forked) };
}

/// What the calling worker forks is not told from now on, and need not be open to thieves at once. False: as
/// for [`forks::Grains::enter`].
fn enter_grain(worker: &Worker) -> bool {
    let entered = worker.forks.grains.enter(worker.joins.next());
    if entered {
        worker.joins.set_open_beyond(DEPTH);
    }
    entered
}

fn leave_grain(worker: &Worker) {
    worker.forks.grains.leave();
    worker.joins.set_open(true);
}

/// The fork is done; `pushed`: [`NONE`] if the deque was full.
#[inline(always)]
pub(crate) fn forked(worker: &Worker, slot: SlotPtr, pushed: SlotPtr) {
    if worker.joins.is_open() {
        if pushed == NONE {
            forget_fork(worker, slot);
        } else if worker.forks.grains.is_open() {
            worker.joins.set_open_beyond(DEPTH);
        }
        return;
    }
    if worker.forks.grains.is_open() {
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
    let number = worker.joins.number(slot);
    if worker.forks.grains.is_of(number) {
        leave_grain(worker);
    }
    let record = worker.forks.record(number);
    // SAFETY: the task was never open to others.
    path::discard(unsafe { record.take() });
    path::lose(LOST_UNKNOWN);
}

/// Runs the task in the slot, which was taken back, if its fork was tracked.
#[inline(always)]
pub(crate) fn run_taken_back(worker: &Worker, slot: SlotPtr) -> bool {
    let is_told = worker.joins.is_open() || worker.forks.grains.is_open();
    slot != NONE && is_told && run_tracked(worker, slot)
}

#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
fn run_tracked(worker: &Worker, slot: SlotPtr) -> bool {
    let number = worker.joins.number(slot);
    if worker.forks.grains.contains(number) {
        return false;
    }
    if worker.forks.grains.is_of(number) {
        leave_grain(worker);
    }
    let record = worker.forks.record(number);
    // SAFETY: the slot is the worker's alone again. The record is empty before the task can fork.
    let Some(forked) = (unsafe { record.take() }) else {
        return false;
    };
    if forked.is_serial() {
        return false;
    }
    let is_grain = forked.is_grain();
    // SAFETY: the slot keeps the task's address until the next push; the task waits in its spawner's frame,
    // and is run by nobody else.
    let task = unsafe { task(slot) };
    let site = spawn_of(task);
    let left = path::begin(Some(forked), site);
    let entered = is_grain && enter_grain(worker);
    worker.own.in_order.set(true);
    // SAFETY: as above; entries catch every panic.
    unsafe { boundary::enter(task.0, ptr::from_ref(worker).cast(), task.site().entry) };
    begin_work(worker);
    if entered {
        leave_grain(worker);
    }
    if let Some(left) = left {
        path::end_and_join(left, site);
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

/// Where a task was forked. The profiler reads its header, whose frame waits for the task's end.
#[inline(always)]
fn spawn_of(task: TaskRef) -> Site {
    SITE_TASK | task.0.expose_provenance() as Site
}

/// A task that the worker has found, and runs.
pub(crate) struct Found<'a> {
    stolen: Option<Stolen<'a>>,
    /// The worker is in the middle of a grain, of which the task is no part.
    suspended: bool,
}

/// A stolen task that is tracked.
struct Stolen<'a> {
    left: Strand,
    record: &'a Record,
    task: TaskRef,
    entered: bool,
}

/// The calling worker begins a task that it has found. Tasks without a slot are tracked by their own entries.
#[inline(always)]
pub(crate) fn begin_found(worker: &Worker, slot: SlotPtr, task: TaskRef) -> Found<'_> {
    let suspended = worker.forks.grains.is_open();
    if suspended {
        worker.forks.grains.suspend(worker.joins.next());
        worker.joins.set_open(true);
    }
    let stolen = match slot != NONE && is_active() {
        true => begin_tracked(worker, slot, task),
        false => None,
    };
    Found { stolen, suspended }
}

#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
fn begin_tracked(worker: &Worker, slot: SlotPtr, task: TaskRef) -> Option<Stolen<'_>> {
    let owner = worker.pool().owner_of(slot);
    let number = owner.joins.number(slot);
    let record = owner.forks.record(number);
    let forked = match owner.forks.grains.contains(number) {
        true => Strand::new(SERIAL),
        // SAFETY: whoever has stolen the task has its record, until the task's end is announced.
        false => unsafe { record.take() },
    };
    let is_grain = forked.as_ref().is_some_and(Strand::is_grain);
    let left = begin(forked, spawn_of(task))?;
    Some(Stolen { left, record, task, entered: is_grain && enter_grain(worker) })
}

/// Ends it, before its end is announced.
#[inline(always)]
pub(crate) fn end_found(worker: &Worker, found: Found<'_>) {
    if let Some(stolen) = found.stolen {
        end_tracked(worker, stolen);
    }
    if found.suspended {
        worker.forks.grains.resume();
        worker.joins.set_open_beyond(DEPTH);
    }
}

#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
fn end_tracked(worker: &Worker, stolen: Stolen<'_>) {
    if stolen.entered {
        leave_grain(worker);
    }
    // SAFETY: the task lives until its end is announced.
    let site = unsafe { stolen.task.site() };
    let ended = end(stolen.left, spawn_of(stolen.task));
    // SAFETY: as in `begin_tracked`.
    unsafe { stolen.record.set(site.ip as Site, ended) };
}

/// The calling worker has waited for the stolen task of the slot.
#[inline(always)]
pub(crate) fn join_stolen(worker: &Worker, slot: SlotPtr) {
    if is_active() || worker.forks.grains.is_open() {
        join_tracked(worker, slot);
    }
}

#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
fn join_tracked(worker: &Worker, slot: SlotPtr) {
    let number = worker.joins.number(slot);
    if worker.forks.grains.is_of(number) {
        leave_grain(worker);
    }
    let record = worker.forks.record(number);
    // SAFETY: the task's end was announced.
    path::join(unsafe { record.take() }, record.site());
}
