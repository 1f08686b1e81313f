//! Finding the next task of a worker.
//!
//! The places are searched in order of cost: the worker's own tasks, those that only it may run, then those
//! that other workers have opened to thieves.

use core::ptr::{self, NonNull};

use hpcrun_abi::TaskHeader;

use super::state::count_as_idle;
use crate::deque::{NONE, SlotPtr, Steal};
use crate::fifo::Queued;
use crate::queue;
use crate::task::TaskRef;
use crate::worker::{Pool, Worker};

/// A task to run, and where to announce its end. Two words with a niche, so that an `Option` of it is
/// returned in registers.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    task: NonNull<TaskHeader>,
    /// The deque slot it was stolen from. [`NONE`]: the task itself announces its end.
    pub(super) slot: SlotPtr,
}

impl Found {
    #[inline(always)]
    fn new(task: TaskRef, slot: SlotPtr) -> Self {
        // SAFETY: tasks lie in memory, so their addresses are not null.
        let task = unsafe { NonNull::new_unchecked(task.0.cast_mut()) };
        Found { task, slot }
    }

    #[inline(always)]
    fn on_its_own(task: TaskRef) -> Self {
        Found::new(task, NONE)
    }

    #[inline(always)]
    fn queued(queued: Queued) -> Self {
        // SAFETY: whoever queued it keeps it alive until it has run, and it has left its queue.
        Found::on_its_own(unsafe { queued.redeem() })
    }

    #[inline(always)]
    pub(super) fn task(self) -> TaskRef {
        TaskRef(self.task.as_ptr())
    }
}

/// Looks once for a task: own spawned tasks, tasks for this worker alone, then other workers' joins. If
/// `everywhere`, also at places that cost more: other workers' spawned tasks, the common queue, and last the
/// worker's own shared joins, which exist if it waits in the middle of a task.
#[cold]
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
pub(crate) fn find(worker: &Worker, everywhere: bool) -> Option<Found> {
    find_own(worker).or_else(|| find_other(worker, everywhere))
}

/// As [`find`], for a worker without a task: it counts as idle unless a task of its own is ready.
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
pub(crate) fn find_idle(worker: &Worker, everywhere: bool) -> Option<Found> {
    let found = find_own(worker);
    if found.is_some() {
        return found;
    }
    count_as_idle(worker);
    find_other(worker, everywhere)
}

#[inline(always)]
fn find_other(worker: &Worker, everywhere: bool) -> Option<Found> {
    let workers = worker.pool().workers();
    let start = next_random(worker, workers.len());
    for _ in 0..worker.own.pace.get() {
        core::hint::spin_loop();
    }
    let mut victim = start;
    loop {
        if victim != worker.index {
            let found = steal_join(&workers[victim], true);
            worker.own.pace.set(workers[victim].joins.pace());
            if found.is_some() {
                return found;
            }
        }
        victim = if victim + 1 == workers.len() { 0 } else { victim + 1 };
        if victim == start {
            break;
        }
    }
    if everywhere { find_elsewhere(worker, start) } else { None }
}

/// The youngest task that this worker has spawned, else one for this worker alone.
#[inline(always)]
fn find_own(worker: &Worker) -> Option<Found> {
    if let Some(queued) = worker.spawns.pop() {
        return Some(Found::queued(queued));
    }
    if worker.mailbox.is_empty() {
        return None;
    }
    steal_retrying(|| worker.mailbox.steal()).map(Found::on_its_own)
}

/// As [`find`], without other workers' tasks.
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
pub(crate) fn find_local(worker: &Worker) -> Option<Found> {
    find_own(worker).or_else(|| steal_join(worker, false))
}

#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
fn find_elsewhere(worker: &Worker, start: usize) -> Option<Found> {
    let pool = worker.pool();
    let workers = pool.workers();
    (start..workers.len())
        .chain(0..start)
        .filter(|&victim| victim != worker.index)
        .find_map(|victim| steal_retrying(|| workers[victim].stealer.steal()))
        .map(Found::queued)
        .or_else(|| steal_retrying(|| pool.injector.steal()).map(Found::on_its_own))
        .or_else(|| steal_join(worker, false))
}

/// Whether there is a task in a place where more than one worker looks.
pub(crate) fn is_available(pool: &Pool) -> bool {
    let has_tasks = |worker: &Worker| worker.joins.has_shared() || !worker.stealer.is_empty();
    !pool.injector.is_empty() || pool.workers().iter().any(has_tasks)
}

#[inline(always)]
fn steal_join(victim: &Worker, ask: bool) -> Option<Found> {
    match victim.joins.steal() {
        Steal::Taken(slot) => {
            // SAFETY: slots live as long as the pool.
            let address = unsafe { (*slot).payload() };
            let task = TaskRef(ptr::with_exposed_provenance(address));
            Some(Found::new(task, slot))
        }
        Steal::Empty => {
            if ask {
                victim.joins.raise_attention();
            }
            None
        }
    }
}

#[inline(always)]
fn steal_retrying<T>(mut steal: impl FnMut() -> queue::Steal<T>) -> Option<T> {
    loop {
        match steal() {
            queue::Steal::Success(task) => return Some(task),
            queue::Steal::Empty => return None,
            queue::Steal::Retry => core::hint::spin_loop(),
        }
    }
}

/// A number below `bound`, which is less than 2^32.
#[inline(always)]
fn next_random(worker: &Worker, bound: usize) -> usize {
    let mut x = worker.own.random.get();
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    worker.own.random.set(x);
    (((x >> 32) * bound as u64) >> 32) as usize
}
