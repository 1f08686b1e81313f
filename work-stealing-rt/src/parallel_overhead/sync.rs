//! Overhead of the category `sync`: waiting, and telling those who wait.
//!
//! One duty: let a worker do something useful until an event happens, sleep when there is
//! nothing, and be woken. A waiting worker is *idle*: its callers see to that.

use std::thread;

use crate::latch::Latch;
use crate::parallel_overhead::sched;
use crate::pool::Pool;
use crate::worker::Worker;

/// Fruitless rounds of searching before a worker of a small pool sleeps: a few tens of microseconds, about what
/// it costs to sleep and to be woken.
const PATIENCE: u32 = if cfg!(loom) {
    1
} else if cfg!(miri) {
    5
} else {
    500
};
/// A round takes about as long as so many pauses.
const PAUSES_A_ROUND: u32 = 4;
/// A round that looks at so many workers more takes twice as long.
const WORKERS_A_ROUND: usize = 8;
/// One round in so many looks everywhere.
const FULL_ROUND: u32 = 8;
/// A worker that has run fewer tasks is young.
const YOUNG: u32 = 8;
/// A round with a yield takes about as long as so many without, where nobody else wants the core.
const ROUNDS_A_YIELD: u32 = 8;
/// Pauses for which a worker waits for a thief without turning idle: about what it costs to
/// turn idle and back.
const GRACE: u32 = if cfg!(loom) { 0 } else { 8 };

/// For how many rounds of [`PATIENCE`] a round counts in a pool of so many workers, of which so many are awake, on so many
/// cores. In a large pool it takes longer. Of workers awake that are more than the cores one that searches keeps another from its
/// work, or from its own search (when a broadcast has woken them all, they search in turn), so each does for the less.
#[inline(always)]
fn cost_of_a_round(workers: usize, cores: usize, awake: impl FnOnce() -> usize) -> u32 {
    let length = 1 + workers / WORKERS_A_ROUND;
    let turns = if workers > cores {
        (awake() / cores.max(1)).max(1)
    } else {
        1
    };
    length.saturating_mul(turns).min(PATIENCE as usize) as u32
}

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
    let pool = worker.pool();
    while !latch.probe() {
        let mut found = sched::find_idle(worker, rounds % FULL_ROUND == 1);
        rounds = rounds.wrapping_add(1);
        if found.is_none() {
            let awake = || pool.sleep.awake();
            fruitless += cost_of_a_round(pool.workers().len(), pool.cores, awake)
                + worker.own.pace.get() / PAUSES_A_ROUND;
            if fruitless >= PATIENCE {
                found = sleep(worker, latch);
                (rounds, fruitless) = (0, 0);
            } else if is_young(worker) {
                thread::yield_now();
                fruitless += ROUNDS_A_YIELD - 1;
            } else {
                core::hint::spin_loop();
            }
        }
        if let Some(found) = found {
            stop_searching(worker);
            sched::run(worker, found);
            grow_older(worker);
            (rounds, fruitless) = (0, 0);
        }
    }
    stop_searching(worker);
}

/// While a pool is new there are more threads than it has workers: the one that makes it, uses it and perhaps drops it
/// again, workers that have not begun yet, and those of the pool before, which end. A worker that searches keeps its core from
/// them, so it yields until it has run a few tasks.
#[inline(always)]
fn is_young(worker: &Worker) -> bool {
    worker.own.tasks.get() < YOUNG
}

#[inline(always)]
fn grow_older(worker: &Worker) {
    let tasks = &worker.own.tasks;
    tasks.set(tasks.get().saturating_add(1));
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

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    /// Looks at other workers, a core, before all workers of a pool, which were woken at once, sleep again: one after the
    /// other, as if none slept before the next begins.
    fn looks_a_core(workers: usize, cores: usize) -> usize {
        let searching = (1..=workers).rev();
        let rounds = |awake| PATIENCE.div_ceil(cost_of_a_round(workers, cores, || awake)) as usize;
        searching
            .map(|awake| rounds(awake) * workers)
            .sum::<usize>()
            / cores
    }

    #[test]
    fn those_who_have_a_core_search_for_all_their_patience() {
        for workers in 1..WORKERS_A_ROUND {
            assert_eq!(cost_of_a_round(workers, workers, || workers), 1);
            assert_eq!(cost_of_a_round(workers, 1, || 1), 1);
        }
        assert_eq!(cost_of_a_round(64, 64, || 64), 9);
        assert_eq!(cost_of_a_round(64, 2, || 3), 9);
        assert_eq!(cost_of_a_round(64, 2, || 64), 9 * 32);
        assert_eq!(cost_of_a_round(65_535, 1, || 65_535), PATIENCE);
    }

    /// Were each to search as long as in a small pool, 500 on 2 cores would look 62 million times.
    #[test]
    fn the_search_of_all_hardly_grows_with_the_pool() {
        for cores in [1, 2, 8] {
            for workers in [16, 64, 500] {
                // All look at all once, at least; beyond that, the turns are those of a harmonic series.
                let once = workers * workers / cores;
                let looks = looks_a_core(workers, cores);
                let usual = PATIENCE as usize * WORKERS_A_ROUND;
                assert!(
                    looks <= 8 * usual + 2 * once,
                    "{workers} on {cores}: {looks}"
                );
            }
        }
    }
}
