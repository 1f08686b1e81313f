//! Forking a task, and taking it back.

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use std::time::Instant;

use hpcrun_abi::TaskHeader;

use super::pace;
use super::state::{begin_work, end_work};
use crate::boundary;
use crate::deque::SlotPtr;
use crate::job::{InSlot, StackTask};
use crate::profiler;
use crate::sync::wait_until::{spin_briefly, wait_until};
use crate::track;
use crate::worker::Worker;

/// A task for [`fork`], in the calling frame.
#[inline(always)]
pub(crate) fn task<F, R>(closure: F) -> StackTask<F, R, InSlot>
where
    F: FnOnce(bool) -> R + Send,
    R: Send,
{
    StackTask::new(closure, InSlot)
}

/// Records the calling frame as the task's spawner, and offers the task to others. `COUNTED`: counts the
/// fork for a profiler.
#[inline(always)]
pub(crate) fn fork<F, R, const COUNTED: bool>(worker: &Worker, task: &StackTask<F, R, InSlot>) -> SlotPtr
where
    F: FnOnce(bool) -> R + Send,
    R: Send,
{
    let task = task.record();
    if COUNTED {
        // SAFETY: the task lives in the calling frame.
        if let Some(counts) = unsafe { profiler::counts(task.0) } {
            counts.forks.fetch_add(1, Ordering::Relaxed);
            if worker.own.begins.replace(false) {
                counts.executions.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    match worker.joins.push(task.0.expose_provenance()) {
        Ok(slot) => slot,
        Err(slot) => finish_fork(worker, slot),
    }
}

/// Counts the execution of a parallel region for a profiler: a fork outside of a pool, in the calling frame.
#[inline(always)]
pub(crate) fn count_outside() {
    let mut header = MaybeUninit::<TaskHeader>::uninit();
    // SAFETY: it is written first. No task has it: its site is there to be counted.
    let counts = unsafe {
        boundary::record::<StackTask<fn(bool), (), InSlot>>(header.as_mut_ptr());
        profiler::counts(header.as_ptr())
    };
    if let Some(counts) = counts {
        counts.executions.fetch_add(1, Ordering::Relaxed);
    }
}

/// The slow half of [`fork`]: thieves are hungry, or the deque is full.
#[cold]
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
fn finish_fork(worker: &Worker, slot: SlotPtr) -> SlotPtr {
    // Before the task is open to thieves.
    track::fork(worker, slot);
    let pushed = worker.joins.finish_push(slot);
    worker.pool().sleep.notify_after_rmw();
    track::forked(worker, slot, pushed);
    pushed
}

/// Takes back the youngest forked task, which is in `slot`, and returns its closure. `None`: it was stolen,
/// and its thief has announced its end.
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

/// The slow half of [`take_back`]: true, or false after waiting for the thief. A single call, so that the
/// spawner saves no register across it.
#[cold]
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
fn take_back_shared(worker: &Worker, slot: SlotPtr) -> bool {
    let is_ours = worker.joins.pop_shared(slot);
    if !is_ours {
        wait_for_stolen(worker, slot);
        return false;
    }
    pace::taken_back(worker);
    // A task whose fork was tracked is run here, where its end is seen: as if it had been stolen.
    !track::run_taken_back(worker, slot)
}

/// Waits for the stolen task of the given slot, and frees the slot.
#[inline(always)]
fn wait_for_stolen(worker: &Worker, slot: SlotPtr) {
    // SAFETY: slots live as long as the pool.
    let latch = unsafe { &*slot };
    let paused = track::pause();
    let waited = if spin_briefly(latch) {
        None
    } else {
        let start = Instant::now();
        end_work(worker);
        wait_until(worker, latch);
        begin_work(worker);
        Some(start.elapsed())
    };
    pace::stolen(worker, waited);
    track::resume(paused);
    track::join_stolen(worker, slot);
    worker.joins.forget_stolen(slot);
}
