//! The balanced loop in the constructs of Rust.

use crate::calibration::{Construct, Place, Row};
use crate::measure::balanced::{ITERATIONS, Loop};
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use std::thread;
use std::time::Duration;
use work_stealing_rt::ThreadPoolBuilder;

/// After this the workers of work-stealing-rt and of rayon sleep: they search for tens of microseconds.
const PAUSE: Duration = Duration::from_millis(2);

/// Measures those of them that are asked for on a number of workers.
///
/// # Panics
/// If threads cannot be started.
pub(super) fn measure(
    balanced: &Loop,
    workers: u32,
    is_asked: &(dyn Fn(Construct) -> bool + Sync),
    add: &mut (dyn FnMut(Row) + Send),
) {
    let count = workers as usize;
    let join = || join(balanced, workers);
    let scope = || scope(balanced, workers);
    let par_for = || {
        work_stealing_rt::par_for(0..count * ITERATIONS, |_| balanced.iteration());
    };
    let run = |construct, place, add: &mut (dyn FnMut(Row) + Send), execute: &mut dyn FnMut()| {
        if is_asked(construct) {
            let rows = balanced.measure((construct, place, workers), PAUSE, execute);
            rows.into_iter().for_each(add);
        }
    };
    let pool = ThreadPoolBuilder::new().num_threads(count).build();
    let pool = pool.expect("a pool starts its workers");
    pool.install(|| {
        run(Construct::Join, Place::Worker, add, &mut || join());
        run(Construct::Scope, Place::Worker, add, &mut || scope());
        run(Construct::ParFor, Place::Worker, add, &mut || par_for());
    });
    run(Construct::Join, Place::Outside, add, &mut || pool.install(join));
    run(Construct::Scope, Place::Outside, add, &mut || pool.install(scope));
    run(Construct::ParFor, Place::Outside, add, &mut || pool.install(par_for));
    run(Construct::Install, Place::Outside, add, &mut || pool.install(|| balanced.part()));
    drop(pool);
    let par_iter = || {
        let iterations = (0..count * ITERATIONS).into_par_iter();
        iterations.for_each(|_| balanced.iteration());
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(count).build();
    let pool = pool.expect("a pool starts its workers");
    pool.install(|| run(Construct::ParIter, Place::Worker, add, &mut || par_iter()));
    run(Construct::ParIter, Place::Outside, add, &mut || pool.install(par_iter));
    drop(pool);
    run(Construct::StdThread, Place::Worker, add, &mut || {
        thread::scope(|scope| {
            for _ in 1..workers {
                scope.spawn(|| balanced.part());
            }
            balanced.part();
        });
    });
}

/// A part in each leaf of a tree of joins.
fn join(balanced: &Loop, parts: u32) {
    if parts == 1 {
        return balanced.part();
    }
    work_stealing_rt::join(|| join(balanced, parts / 2), || join(balanced, parts - parts / 2));
}

/// A part in each of as many tasks, the caller's included.
fn scope(balanced: &Loop, parts: u32) {
    work_stealing_rt::scope(|scope| {
        for _ in 1..parts {
            scope.spawn(|_| balanced.part());
        }
        balanced.part();
    });
}
