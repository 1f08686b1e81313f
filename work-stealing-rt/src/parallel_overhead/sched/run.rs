//! Running a task that its spawner does not run itself.

use core::ptr;
use core::sync::atomic::Ordering;
use std::time::Instant;

use super::find::Found;
use crate::boundary;
use crate::deque::NONE;
use crate::profiler;
use crate::sync::announce::announce;
use crate::track;
use crate::worker::Worker;

/// Runs a found task to its end. The worker is idle before and after.
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
pub(crate) fn run(worker: &Worker, found: Found) {
    // SAFETY: whoever found the task is the only one to run it. It is live until its end is announced below:
    // a stack task's spawner waits for that, a heap task frees itself in `finish`. Entries
    // return normally whatever the user's closure does.
    unsafe {
        let task = found.task();
        let site = task.site();
        let address = ptr::from_ref(worker).cast();
        let tracked = track::begin_found(worker, found.slot, task);
        let depth = worker.own.depth.get();
        worker.own.depth.set(depth + 1);
        let is_installed = worker.own.is_installed.replace(false);
        match profiler::counts(task.0) {
            None => boundary::enter(task.0, address, site.entry),
            Some(counts) => {
                let start = Instant::now();
                boundary::enter(task.0, address, site.entry);
                let spent = start.elapsed().as_nanos() as u64;
                counts.steals.fetch_add(1, Ordering::Relaxed);
                counts.stolen_ns.fetch_add(spent, Ordering::Relaxed);
            }
        }
        worker.own.depth.set(depth);
        worker.own.is_installed.set(is_installed);
        track::end_found(worker, tracked);
        track::rest();
        if found.slot == NONE {
            (site.finish)(task.0);
        } else {
            let pool = worker.pool();
            announce(pool, &*found.slot, || pool.owner_of(found.slot).index);
        }
    }
}
