//! Overhead of the category `sched`: pushing, popping, stealing, recording and entering tasks.
//!
//! One duty: what a fork costs beside its synchronisation. Fast halves are always inlined into
//! the spawner; slow halves are out of line in the section `wsrt_text`, which tells a profiler
//! that their frames are the runtime's.

mod find;
mod kept;
mod pace;

use core::sync::atomic::{Ordering, compiler_fence};
use std::time::Instant;

use crate::boundary;
use crate::deque::{NONE, SlotPtr};
use crate::fifo::{Fifo, Queued};
use crate::job::{InSlot, StackTask, TaskRef};
use crate::latch::Latch;
use crate::parallel_overhead::sync;
use crate::pool::Pool;
use crate::profiler;
use crate::worker::Worker;

pub(crate) use find::{Found, find, find_idle, find_local, is_available};
pub(crate) use kept::Place;

/// The calling thread's worker; `None` on other threads.
///
/// # Safety
/// `'a`, which the caller chooses, ends when the calling function returns. (Where speed allows,
/// [`Worker::with_current`] sees to that.)
#[inline(always)]
pub(crate) unsafe fn current<'a>() -> Option<&'a Worker> {
    // SAFETY: null, or valid for `'a`: a thread keeps its pool while it is a worker, and does not
    // stop being one in the middle of a function that asks for it.
    unsafe { Worker::current().as_ref() }
}

/// The calling thread's worker once more, which so needs no register in between.
///
/// # Safety
/// As for [`current`]; and the calling thread is a worker.
#[inline(always)]
pub(crate) unsafe fn same_worker<'a>() -> &'a Worker {
    // SAFETY: as in `current`; not null by this function's contract.
    unsafe { &*Worker::current() }
}

/// A task for [`fork`], in the calling frame.
#[inline(always)]
pub(crate) fn task<F, R>(closure: F) -> StackTask<F, R, InSlot>
where
    F: FnOnce(bool) -> R + Send,
    R: Send,
{
    StackTask::new(closure, InSlot)
}

/// Records the calling frame as the task's spawner, and offers the task to others. `COUNTED`: the
/// fork is counted for a profiler.
#[inline(always)]
pub(crate) fn fork<F, R, const COUNTED: bool>(
    worker: &Worker,
    task: &StackTask<F, R, InSlot>,
) -> SlotPtr
where
    F: FnOnce(bool) -> R + Send,
    R: Send,
{
    let task = task.record();
    if COUNTED {
        // SAFETY: the task lives in the calling frame.
        if let Some(counts) = unsafe { profiler::counts(task.0) } {
            counts.forks.fetch_add(1, Ordering::Relaxed);
        }
    }
    match worker.joins.push(task.0.expose_provenance()) {
        Ok(slot) => slot,
        Err(slot) => attend(worker, slot),
    }
}

/// The slow half of [`fork`]: thieves are hungry, or the deque is full.
#[cold]
#[inline(never)]
#[cfg_attr(
    all(target_os = "linux", not(miri)),
    unsafe(link_section = "wsrt_text")
)]
fn attend(worker: &Worker, slot: SlotPtr) -> SlotPtr {
    let slot = worker.joins.attend(slot);
    worker.pool().sleep.notify_after_rmw();
    slot
}

/// Takes the youngest forked task, which is in `slot`, back, and its closure out of it. `None`:
/// it was stolen, and its thief has announced its end.
///
/// # Safety
/// [`fork`] has put the task into the slot, and this is called once.
#[inline(always)]
pub(crate) unsafe fn take_back<F, R>(
    worker: &Worker,
    slot: SlotPtr,
    task: &StackTask<F, R, InSlot>,
) -> Option<F>
where
    F: FnOnce(bool) -> R + Send,
    R: Send,
{
    if worker.joins.pop_private(slot) || take_back_shared(worker, slot) {
        // SAFETY: out of the deque, so nobody else runs it.
        Some(unsafe { task.take_closure() })
    } else {
        None
    }
}

/// The slow half of [`take_back`]: true, or false after the wait for the thief. One call for both, so
/// that the spawner needs to keep nothing over it.
#[cold]
#[inline(never)]
#[cfg_attr(
    all(target_os = "linux", not(miri)),
    unsafe(link_section = "wsrt_text")
)]
fn take_back_shared(worker: &Worker, slot: SlotPtr) -> bool {
    let is_ours = worker.joins.pop_shared(slot);
    if is_ours {
        pace::taken_back(worker);
    } else {
        wait_for_stolen(worker, slot);
    }
    is_ours
}

/// Offers a task that nobody waits for in LIFO order: to the calling worker's own queue if it is
/// one of the pool's, else to the pool's common queue.
#[inline(always)]
pub(crate) fn offer(pool: &Pool, task: TaskRef) {
    match Worker::current_in(pool) {
        Some(worker) => {
            worker.spawns.push(Queued::task(task));
            notify_others(pool);
        }
        None => {
            pool.injector.push(task);
            pool.sleep.notify();
        }
    }
}

/// A worker of the pool has queued a task: others may have to be woken for it.
#[inline(always)]
fn notify_others(pool: &Pool) {
    if pool.workers().len() > 1 {
        pool.sleep.notify();
    }
}

/// As [`offer`], but the calling worker will begin the task after all that it has offered through
/// the same `Fifo`, which `fifo` chooses by the worker.
#[inline(always)]
pub(crate) fn offer_in_order<'a>(
    pool: &'a Pool,
    task: TaskRef,
    fifo: impl FnOnce(&'a Worker) -> &'a Fifo,
) {
    match Worker::current_in(pool) {
        Some(worker) => {
            worker.spawns.push(fifo(worker).push(task));
            notify_others(pool);
        }
        None => {
            pool.injector.push(task);
            pool.sleep.notify();
        }
    }
}

/// Gives the task to one worker, who alone may run it.
#[inline(always)]
pub(crate) fn post(worker: &Worker, task: TaskRef) {
    worker.mailbox.push(task);
    worker.pool().sleep.notify_one(worker.index);
}

/// Asks the processor to get the memory at `place` for a write soon; no effect but on speed.
#[inline(always)]
pub(crate) fn prefetch_for_write<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: a hint: any address is allowed.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(place.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}

/// The calling worker starts to work.
#[inline(always)]
pub(crate) fn begin_work(worker: &Worker) {
    profiler::begin_work(&worker.own.state, worker.own.counted.replace(true));
}

/// The calling worker has no task any more. What it does afterwards may free the contexts of its tasks:
/// the compiler must not move that up.
#[inline(always)]
pub(crate) fn end_work(worker: &Worker) {
    profiler::end_work(&worker.own.state);
    compiler_fence(Ordering::SeqCst);
}

/// The calling worker, which has no task, has none at hand either.
#[inline(always)]
pub(crate) fn rest(worker: &Worker) {
    if worker.own.counted.replace(false) {
        profiler::rest();
    }
}

/// Runs a found task to its end. The worker is idle before and after.
#[inline(never)]
#[cfg_attr(
    all(target_os = "linux", not(miri)),
    unsafe(link_section = "wsrt_text")
)]
pub(crate) fn run(worker: &Worker, found: Found) {
    // SAFETY: whoever found the task has it alone. It is live until its end is announced below:
    // a stack task's spawner waits for that, a heap task frees itself in `finish`. Entries
    // return normally whatever the user's closure does.
    unsafe {
        let task = found.task();
        let site = task.site();
        match profiler::counts(task.0) {
            None => boundary::enter(task.0, worker, site.entry),
            Some(counts) => {
                let start = Instant::now();
                boundary::enter(task.0, worker, site.entry);
                let spent = start.elapsed().as_nanos() as u64;
                counts.steals.fetch_add(1, Ordering::Relaxed);
                counts.stolen_ns.fetch_add(spent, Ordering::Relaxed);
            }
        }
        if found.slot == NONE {
            (site.finish)(task.0);
        } else {
            let pool = worker.pool();
            sync::announce(pool, &*found.slot, || pool.owner_of(found.slot).index);
        }
    }
}

/// The worker waits in the middle of a task for something else than its youngest fork: all its
/// forks become public, as it will not push for a while.
#[cold]
#[inline(never)]
#[cfg_attr(
    all(target_os = "linux", not(miri)),
    unsafe(link_section = "wsrt_text")
)]
pub(crate) fn share_all(worker: &Worker) {
    if worker.joins.publish_all() {
        worker.pool().sleep.notify();
    }
}

/// Waits, as an idle worker, in the middle of a task.
#[cold]
#[inline(never)]
#[cfg_attr(
    all(target_os = "linux", not(miri)),
    unsafe(link_section = "wsrt_text")
)]
pub(crate) fn wait_in_task(worker: &Worker, latch: &Latch) {
    if latch.probe() {
        return;
    }
    share_all(worker);
    end_work(worker);
    sync::wait(worker, latch);
    begin_work(worker);
}

/// Runs one task in the middle of the calling worker's own, if `find` finds one; all forks of the
/// calling worker are public then.
pub(crate) fn run_one(worker: &Worker, find: impl FnOnce(&Worker) -> Option<Found>) -> bool {
    share_all(worker);
    let Some(found) = find(worker) else {
        return false;
    };
    end_work(worker);
    run(worker, found);
    begin_work(worker);
    true
}

/// Waits for the stolen task of the given slot, and frees the slot.
#[inline(always)]
fn wait_for_stolen(worker: &Worker, slot: SlotPtr) {
    // SAFETY: slots live as long as the pool.
    let latch = unsafe { &*slot };
    let waited = if sync::comes_soon(latch) {
        None
    } else {
        let start = Instant::now();
        end_work(worker);
        sync::wait(worker, latch);
        begin_work(worker);
        Some(start.elapsed())
    };
    pace::stolen(worker, waited);
    worker.joins.forget_stolen(slot);
}
