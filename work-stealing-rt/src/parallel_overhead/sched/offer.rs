//! Queueing tasks for other workers.

use crate::fifo::{Fifo, Queued};
use crate::task::TaskRef;
use crate::worker::{Pool, Worker};

/// Offers a task in LIFO order: to the calling worker's own queue if it belongs to the pool, else to the
/// pool's common queue.
#[inline(always)]
pub(crate) fn offer(pool: &Pool, task: TaskRef) {
    offer_entry(pool, task, |_| Queued::task(task));
}

/// As [`offer`], but the calling worker starts the task after all those it has offered through the same
/// `Fifo`, which `fifo` chooses by the worker.
#[inline(always)]
pub(crate) fn offer_in_order<'a>(pool: &'a Pool, task: TaskRef, fifo: impl FnOnce(&'a Worker) -> &'a Fifo) {
    offer_entry(pool, task, |worker| fifo(worker).push(task));
}

/// `entry`: what the calling worker queues for the task.
#[inline(always)]
fn offer_entry<'a>(pool: &'a Pool, task: TaskRef, entry: impl FnOnce(&'a Worker) -> Queued) {
    match Worker::current_in(pool) {
        Some(worker) => {
            worker.spawns.push(entry(worker));
            if pool.workers().len() > 1 {
                pool.sleep.notify();
            }
        }
        None => {
            pool.injector.push(task);
            pool.sleep.notify();
        }
    }
}

/// Gives the task to one worker; no other may run it.
#[inline(always)]
pub(crate) fn post(worker: &Worker, task: TaskRef) {
    worker.mailbox.push(task);
    worker.pool().sleep.notify_one(worker.index);
}
