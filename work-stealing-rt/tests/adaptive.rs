//! `par_for_adaptive`: every index once, serially where that is faster, in parallel where it is not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use work_stealing_rt::{ThreadPoolBuilder, current_thread_index, par_for_adaptive};

/// How often something is done: less often under Miri.
const fn times(often: usize) -> usize {
    if cfg!(miri) { often.div_ceil(100) } else { often }
}

fn visits_each_once(range: std::ops::Range<usize>) {
    let visits: Vec<AtomicUsize> = (0..range.end).map(|_| AtomicUsize::new(0)).collect();
    par_for_adaptive(range.clone(), |i| {
        visits[i].fetch_add(1, Relaxed);
    });
    for (index, visits) in visits.into_iter().enumerate() {
        assert_eq!(visits.into_inner(), usize::from(range.contains(&index)), "{index}");
    }
}

#[test]
fn each_index_is_visited_once() {
    let pool = ThreadPoolBuilder::new().num_threads(3).build().expect("threads");
    for round in 0..times(2_000) {
        for range in [0..0, 0..1, 3..17, 0..round % 700, 0..5_000 * usize::from(round % 50 == 0)] {
            visits_each_once(range.clone());
            pool.install(|| visits_each_once(range));
        }
    }
}

/// Executes a loop and tells how many of its iterations ran on workers.
fn on_workers(iterations: usize, body: impl Fn() + Sync) -> usize {
    let count = AtomicUsize::new(0);
    par_for_adaptive(0..iterations, |_| {
        count.fetch_add(usize::from(current_thread_index().is_some()), Relaxed);
        body();
    });
    count.into_inner()
}

#[test]
fn tiny_loops_stay_on_their_caller() {
    let rounds = times(20_000);
    assert_eq!(on_workers(4, || ()), 4, "the first execution is parallel");
    let serial = (0..rounds).filter(|_| on_workers(4, || ()) == 0).count();
    // All but the first ones of another pair of site and code.
    assert!(serial > rounds / 2, "{serial} of {rounds}");
}

#[test]
fn long_loops_are_shared() {
    for _ in 0..5 {
        let workers = on_workers(8, || thread::sleep(Duration::from_millis(2)));
        assert_eq!(workers, 8);
    }
}

#[test]
fn a_loop_that_becomes_slow_is_shared_at_once() {
    let is_slow = AtomicBool::new(false);
    let body = || {
        if is_slow.load(Relaxed) {
            thread::sleep(Duration::from_micros(100));
        }
    };
    let execute = |iterations| on_workers(iterations, body);
    for _ in 0..times(2_000) {
        execute(40);
    }
    is_slow.store(true, Relaxed);
    assert!(execute(4096) >= 4096 - 1024);
}

#[test]
fn a_panic_goes_to_the_caller() {
    for _ in 0..times(200) {
        let result = catch_unwind(AssertUnwindSafe(|| {
            par_for_adaptive(0..10, |i| assert_ne!(i, 7, "seven"));
        }));
        assert!(result.is_err());
    }
}
