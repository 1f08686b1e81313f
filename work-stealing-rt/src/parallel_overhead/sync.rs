//! Overhead of the category `sync`: waiting, and telling those who wait.
//!
//! One duty: let a worker do something useful until an event happens, sleep when there is
//! nothing, and be woken. A waiting worker is *idle*: its callers see to that.

use crate::latch::Latch;
use crate::parallel_overhead::sched;
use crate::pool::Pool;
use crate::worker::Worker;

/// Fruitless rounds of searching before a worker sleeps: a few tens of microseconds, about what
/// it costs to sleep and to be woken.
const PATIENCE: u32 = if cfg!(miri) { 5 } else { 500 };
/// A round takes about as long as so many pauses.
const PAUSES_A_ROUND: u32 = 4;
/// One round in so many looks everywhere.
const FULL_ROUND: u32 = 8;
/// Pauses for which a worker waits for a thief without turning idle: about what it costs to
/// turn idle and back.
const GRACE: u32 = 8;

/// Is the latch set within a very short time? The worker still counts as working meanwhile, and
/// the time as overhead.
#[inline(always)]
pub(crate) fn comes_soon(latch: &Latch) -> bool {
    for _ in 0..GRACE {
        if latch.probe() {
            return true;
        }
        core::hint::spin_loop();
    }
    latch.probe()
}

/// Runs other tasks until the latch is set.
#[inline(never)]
#[cfg_attr(
    all(target_os = "linux", not(miri)),
    unsafe(link_section = "wsrt_text")
)]
pub(crate) fn wait(worker: &Worker, latch: &Latch) {
    let (mut rounds, mut fruitless) = (0_u32, 0);
    while !latch.probe() {
        let mut found = sched::find_idle(worker, rounds % FULL_ROUND == 1);
        rounds = rounds.wrapping_add(1);
        if found.is_none() {
            fruitless += 1 + worker.own.pace.get() / PAUSES_A_ROUND;
            if fruitless < PATIENCE {
                core::hint::spin_loop();
            } else {
                found = sleep(worker, latch);
                (rounds, fruitless) = (0, 0);
            }
        }
        if let Some(found) = found {
            stop_searching(worker);
            sched::run(worker, found);
            (rounds, fruitless) = (0, 0);
        }
    }
    stop_searching(worker);
}

#[cold]
#[inline(never)]
#[cfg_attr(
    all(target_os = "linux", not(miri)),
    unsafe(link_section = "wsrt_text")
)]
fn sleep(worker: &Worker, latch: &Latch) -> Option<sched::Found> {
    let sleep = &worker.pool().sleep;
    let was_searching = worker.own.searching.replace(true);
    sleep.park(worker.index, was_searching, latch, || {
        sched::find_idle(worker, true)
    })
}

#[inline(always)]
fn stop_searching(worker: &Worker) {
    if worker.own.searching.replace(false) {
        let pool = worker.pool();
        pool.sleep.stop_searching(|| sched::is_available(pool));
    }
}

/// The event of `latch`, for which worker `waiter` of `pool` waits, happens. The latch may be
/// gone afterwards; the pool must not.
#[inline(always)]
pub(crate) fn announce(pool: &Pool, latch: &Latch, waiter: impl FnOnce() -> usize) {
    if latch.set() {
        pool.sleep.wake(waiter());
    }
}
