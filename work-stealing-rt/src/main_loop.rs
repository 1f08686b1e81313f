//! The life of a worker's thread.
//!
//! Enters the worker's registrations, calls the pool's handlers, and runs tasks until the pool ends.

use std::sync::Arc;
use std::{mem, ptr};

use crate::latch::ThreadLatch;
use crate::pool::life::Hold;
use crate::profiler::Enrolment;
use crate::sched::state::{begin_work, count_as_idle, end_work};
use crate::sync::wait_until::wait_until;
use crate::track;
use crate::worker::{Pool, Worker};

/// The body of a worker's thread: runs tasks until the pool ends.
///
/// # Panics
/// If the calling thread is a worker already.
pub(crate) fn main_loop(hold: Hold, index: usize) {
    assert!(
        Worker::current().is_null(),
        "this thread is a worker already; run a pool's threads on threads of their own"
    );
    let pool = Arc::clone(hold.pool());
    let worker = &pool.workers()[index];
    let enrolment = begin(worker);
    pool.begin_worker();
    if let Some(handler) = &pool.handlers.start {
        // User code counts as work.
        begin_work(worker);
        pool.handlers.call(|| handler(index));
        track::rest();
        end_work(worker);
    }
    // Released only now: the handler may have spawned tasks.
    drop(hold);
    if let Some(handler) = &pool.handlers.exit {
        wait_until(worker, &worker.exit);
        begin_work(worker);
        pool.handlers.call(|| handler(index));
        track::rest();
        end_work(worker);
        // This handler may have spawned tasks too, and other workers' handlers may need this worker for
        // theirs.
        pool.release();
    }
    wait_until(worker, &worker.terminate);
    count_as_idle(worker);
    drop(enrolment);
    Worker::set_current(ptr::null());
}

/// Makes the calling thread worker `index` for the rest of its life, without a scheduling loop: it runs other
/// tasks only while it waits. False if it is a worker already.
pub(crate) fn adopt_current(pool: &Arc<Pool>, index: usize) -> bool {
    if !Worker::current().is_null() {
        return false;
    }
    // Never dropped: the thread stays a worker until it ends.
    let pool = mem::ManuallyDrop::new(Arc::clone(pool));
    let worker = &pool.workers()[index];
    mem::forget(begin(worker));
    worker.own.depth.set(1);
    begin_work(worker);
    true
}

fn begin(worker: &Worker) -> Enrolment<'_> {
    Worker::set_current(worker);
    let enrolment = Enrolment::new(&worker.own.state);
    // SAFETY: the latch lives as long as the pool, which the calling thread keeps.
    unsafe { ThreadLatch::set(&raw const worker.started) };
    enrolment
}
