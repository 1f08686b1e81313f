//! The scheduling loop: a worker searches, runs tasks and sleeps until a latch is set.
//!
//! Every wait of a worker ends up here: for a stolen task, for a scope, for the end of the pool. Callers mark
//! the worker *idle* first.

use std::thread;

use crate::latch::Latch;
use crate::sched::find::{self, Found};
use crate::sched::run;
use crate::worker::Worker;

/// Fruitless rounds of searching before a worker of a small pool sleeps: a few tens of microseconds, about
/// the cost of sleeping and being woken.
const PATIENCE: u32 = if cfg!(loom) {
    1
} else if cfg!(miri) {
    5
} else {
    500
};
/// A round takes about as long as this many pauses.
const PAUSES_A_ROUND: u32 = 4;
/// A round takes one unit longer for each this many workers it looks at.
const WORKERS_A_ROUND: usize = 8;
/// One round in this many looks everywhere.
const FULL_ROUND: u32 = 8;
/// A worker that has run fewer tasks than this is new.
const NEW_WORKER_TASKS: u32 = 8;
/// A round with a yield takes about as long as this many without, if no other thread wants the core.
const ROUNDS_A_YIELD: u32 = 8;
/// Pauses for which a worker waits for a thief before it turns idle: about the cost of turning idle and back.
const BRIEF_SPINS: u32 = if cfg!(loom) { 0 } else { 8 };

/// The cost of one round, in rounds of [`PATIENCE`].
///
/// A round over a large pool takes longer. If more workers are awake than there are cores, a searching worker
/// keeps another from its work or from its own search, so each searches for a shorter time: the cost grows by
/// the number of awake workers for each core.
#[inline(always)]
fn cost_of_a_round(workers: usize, cores: usize, awake: impl FnOnce() -> usize) -> u32 {
    let length = 1 + workers / WORKERS_A_ROUND;
    let turns = if workers > cores { (awake() / cores.max(1)).max(1) } else { 1 };
    length.saturating_mul(turns).min(PATIENCE as usize) as u32
}

/// Spins for a very short time; returns whether the latch is set. The worker still counts as working, and
/// the time as overhead.
#[inline(always)]
pub(crate) fn spin_briefly(latch: &Latch) -> bool {
    for _ in 0..BRIEF_SPINS {
        if latch.probe() {
            return true;
        }
        core::hint::spin_loop();
    }
    latch.probe()
}

/// Runs other tasks until the latch is set; sleeps when there are none.
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
pub(crate) fn wait_until(worker: &Worker, latch: &Latch) {
    let (mut rounds, mut fruitless) = (0_u32, 0);
    let pool = worker.pool();
    while !latch.probe() {
        let mut found = find::find_idle(worker, rounds % FULL_ROUND == 1);
        rounds = rounds.wrapping_add(1);
        if found.is_none() {
            let awake = || pool.sleep.awake();
            fruitless += cost_of_a_round(pool.workers().len(), pool.cores, awake)
                + worker.own.pace.get() / PAUSES_A_ROUND;
            if fruitless >= PATIENCE {
                found = sleep(worker, latch);
                (rounds, fruitless) = (0, 0);
            } else if is_new(worker) {
                thread::yield_now();
                fruitless += ROUNDS_A_YIELD - 1;
            } else {
                core::hint::spin_loop();
            }
        }
        if let Some(found) = found {
            stop_searching(worker);
            run::run(worker, found);
            count_task(worker);
            (rounds, fruitless) = (0, 0);
        }
    }
    stop_searching(worker);
}

/// Whether the worker has run only a few tasks; if so, it yields its core between rounds.
///
/// While a pool is new, the program has more threads than the pool has workers: the thread that makes the
/// pool, uses it and perhaps drops it again, workers that have not started yet, and those of an earlier pool
/// that are ending. A searching worker would keep its core from them.
#[inline(always)]
fn is_new(worker: &Worker) -> bool {
    worker.own.tasks.get() < NEW_WORKER_TASKS
}

/// Counts a task that the worker has run while it waited, for [`is_new`].
#[inline(always)]
fn count_task(worker: &Worker) {
    let tasks = &worker.own.tasks;
    tasks.set(tasks.get().saturating_add(1));
}

#[cold]
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
fn sleep(worker: &Worker, latch: &Latch) -> Option<Found> {
    let sleep = &worker.pool().sleep;
    let was_searching = worker.own.searching.replace(true);
    sleep.park(worker.index, was_searching, latch, || find::find_idle(worker, true))
}

#[inline(always)]
fn stop_searching(worker: &Worker) {
    if worker.own.searching.replace(false) {
        let pool = worker.pool();
        pool.sleep.stop_searching(|| find::is_available(pool));
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    /// Looks at other workers, for each core, until all workers of a pool that were woken at once sleep
    /// again. They search one after the other.
    fn looks_a_core(workers: usize, cores: usize) -> usize {
        let searching = (1..=workers).rev();
        let rounds = |awake| PATIENCE.div_ceil(cost_of_a_round(workers, cores, || awake)) as usize;
        searching.map(|awake| rounds(awake) * workers).sum::<usize>() / cores
    }

    #[test]
    fn workers_that_have_a_core_search_with_full_patience() {
        for workers in 1..WORKERS_A_ROUND {
            assert_eq!(cost_of_a_round(workers, workers, || workers), 1);
            assert_eq!(cost_of_a_round(workers, 1, || 1), 1);
        }
        assert_eq!(cost_of_a_round(64, 64, || 64), 9);
        assert_eq!(cost_of_a_round(64, 2, || 3), 9);
        assert_eq!(cost_of_a_round(64, 2, || 64), 9 * 32);
        assert_eq!(cost_of_a_round(65_535, 1, || 65_535), PATIENCE);
    }

    /// If each searched as long as in a small pool, 500 workers on 2 cores would look 62 million times.
    #[test]
    fn the_total_search_hardly_grows_with_the_pool() {
        for cores in [1, 2, 8] {
            for workers in [16, 64, 500] {
                // Each looks at all others at least once; the rest is bounded by a harmonic series.
                let once = workers * workers / cores;
                let looks = looks_a_core(workers, cores);
                let usual = PATIENCE as usize * WORKERS_A_ROUND;
                assert!(looks <= 8 * usual + 2 * once, "{workers} on {cores}: {looks}");
            }
        }
    }
}
