//! `par_for`: a loop whose iterations may run in parallel.
//!
//! Splits a range only as far as idle workers ask for it. A worker runs its part of the range block by block.
//! If its deque has no task for other workers between two blocks, it forks the upper half of the rest.

use core::ops::Range;

use crate::join;
use crate::pool::global;
use crate::worker::Worker;

/// The least number of blocks per worker into which [`par_for`] divides its range.
const BLOCKS_PER_WORKER: usize = 64;
/// The largest block of [`par_for`], in iterations.
pub(crate) const LARGEST_BLOCK: usize = 1024;

/// Calls `body` for each index of the range, in no particular order, potentially in parallel.
/// Outside of a pool this happens in the global pool.
///
/// The splitting adapts to demand: a worker runs its part in blocks, each at most 1/64 of the range per
/// worker and at most 1024 iterations, and forks half of the rest when other workers have no task. If an
/// iteration takes very long or very short, [`par_for_grain`] can be faster.
///
/// # Panics
/// A panic of `body` resumes here. The later iterations of the same part do not run.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
/// let sum = AtomicUsize::new(0);
/// work_stealing_rt::par_for(0..100, |i| {
///     sum.fetch_add(i, Relaxed);
/// });
/// assert_eq!(sum.into_inner(), 4950);
/// ```
pub fn par_for<F>(range: Range<usize>, body: F)
where
    F: Fn(usize) + Sync,
{
    watched(range, &body, ());
}

/// [`par_for`], each part of it watched.
pub(crate) fn watched<F, W>(range: Range<usize>, body: &F, watch: W)
where
    F: Fn(usize) + Sync,
    W: Watch,
{
    global::on_worker(|worker| {
        let workers = worker.pool().workers().len();
        let block = range.len() / (workers * BLOCKS_PER_WORKER);
        part(range, block.clamp(1, LARGEST_BLOCK), body, watch);
    });
}

/// Told when a worker begins and ends to run iterations.
pub(crate) trait Watch: Copy + Send + Sync {
    /// What is kept meanwhile.
    type Start;
    fn start(self) -> Self::Start;
    fn stop(self, start: Self::Start);
}

/// Nobody watches.
impl Watch for () {
    type Start = ();
    fn start(self) {}
    fn stop(self, (): ()) {}
}

/// As [`par_for`], in blocks of `grain` iterations (0 counts as 1), which are not split.
pub fn par_for_grain<F>(range: Range<usize>, grain: usize, body: F)
where
    F: Fn(usize) + Sync,
{
    global::on_worker(|_| part(range, grain.max(1), &body, ()));
}

/// Runs a part of the range on the calling worker.
fn part<F, W>(mut range: Range<usize>, block: usize, body: &F, watch: W)
where
    F: Fn(usize) + Sync,
    W: Watch,
{
    // SAFETY: only called on a worker, which the calling thread keeps.
    let worker = unsafe { &*Worker::current() };
    let start = watch.start();
    while range.len() > block {
        if worker.is_hungry() {
            // A whole number of blocks to the left, at least one.
            let blocks = range.len().div_ceil(block);
            let middle = range.start + blocks / 2 * block;
            let (left, right) = (range.start..middle, middle..range.end);
            watch.stop(start);
            join(|| part(left, block, body, watch), || part(right, block, body, watch));
            return;
        }
        let stop = range.start + block;
        for index in range.start..stop {
            body(index);
        }
        range.start = stop;
    }
    for index in range {
        body(index);
    }
    watch.stop(start);
}
