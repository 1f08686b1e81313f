//! Running other tasks, or waiting, in the middle of a task.

use super::find::Found;
use super::run::run;
use super::state::{begin_work, end_work};
use crate::latch::Latch;
use crate::sync::wait_until::wait_until;
use crate::track;
use crate::worker::Worker;

/// Opens all forks of the worker to thieves: it will not push for a while, as it waits for something else
/// than its youngest fork.
#[cold]
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
fn share_all(worker: &Worker) {
    if worker.joins.publish_all() {
        worker.pool().sleep.notify();
    }
}

/// Waits, as an idle worker, in the middle of a task.
#[cold]
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
pub(crate) fn wait_in_task(worker: &Worker, latch: &Latch) {
    if latch.probe() {
        return;
    }
    share_all(worker);
    let paused = track::pause();
    end_work(worker);
    wait_until(worker, latch);
    begin_work(worker);
    track::resume(paused);
}

/// Runs one task in the middle of the calling worker's own, if `find` finds one. All forks of the calling
/// worker are open to thieves afterwards.
pub(crate) fn run_one(worker: &Worker, find: impl FnOnce(&Worker) -> Option<Found>) -> bool {
    share_all(worker);
    let Some(found) = find(worker) else {
        return false;
    };
    let paused = track::pause();
    end_work(worker);
    run(worker, found);
    begin_work(worker);
    track::resume(paused);
    true
}
