//! Work on several threads: each takes the next item when it is done with one. The result does not depend on
//! how many threads there are.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{ScopedJoinHandle, scope};

/// Calls `job` for 0..count on up to `threads` threads and returns the results in order.
pub(crate) fn run<T: Send>(count: usize, threads: usize, job: impl Fn(usize) -> T + Sync) -> Vec<T> {
    run_with(count, threads, || (), |(), i| job(i))
}

/// As [`run`], for short jobs: a thread takes `chunk` of them at once.
pub(crate) fn run_in_chunks<T: Send>(
    count: usize,
    chunk: usize,
    threads: usize,
    job: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let jobs = |c: usize| c * chunk..((c + 1) * chunk).min(count);
    run(count.div_ceil(chunk), threads, |c| jobs(c).map(&job).collect::<Vec<T>>())
        .into_iter()
        .flatten()
        .collect()
}

/// As [`run_with`]; jobs of much `weight` begin first, so that none of them is left over for the end.
pub(crate) fn run_heaviest_first<S: Send, T: Send>(
    count: usize,
    threads: usize,
    weight: impl Fn(usize) -> u64,
    state: impl Fn() -> S + Sync,
    job: impl Fn(&mut S, usize) -> T + Sync,
) -> Vec<T> {
    let mut order: Vec<usize> = (0..count).collect();
    if threads > 1 {
        order.sort_by_cached_key(|i| std::cmp::Reverse(weight(*i)));
    }
    in_order(&order, threads, state, job)
}

/// As [`run`]; the jobs of one thread share what `state` makes, for buffers.
pub(crate) fn run_with<S: Send, T: Send>(
    count: usize,
    threads: usize,
    state: impl Fn() -> S + Sync,
    job: impl Fn(&mut S, usize) -> T + Sync,
) -> Vec<T> {
    let order: Vec<usize> = (0..count).collect();
    in_order(&order, threads, state, job)
}

/// Begins the jobs in this order, which has every number once.
fn in_order<S: Send, T: Send>(
    order: &[usize],
    threads: usize,
    state: impl Fn() -> S + Sync,
    job: impl Fn(&mut S, usize) -> T + Sync,
) -> Vec<T> {
    let begin = || (state(), Vec::new());
    let parts = for_each(order, threads, begin, |(state, done), _, i| {
        done.push((*i, job(state, *i)));
    });
    let mut done: Vec<(usize, T)> = parts.into_iter().flat_map(|part| part.1).collect();
    done.sort_unstable_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Calls `work` for each of `items`, with its index, on at most `threads` threads. Each thread has a state of
/// its own that `begin` makes. Returns the states; which thread had which item is not determined.
pub fn for_each<T: Sync, S: Send>(
    items: &[T],
    threads: usize,
    begin: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize, &T) + Sync,
) -> Vec<S> {
    let threads = threads.min(items.len());
    for_each_after(|| (), items, threads, begin, work).1
}

/// The same, where the calling thread calls `first` before it takes an item; the other threads do not wait.
pub fn for_each_after<R, T: Sync, S: Send>(
    first: impl FnOnce() -> R,
    items: &[T],
    threads: usize,
    begin: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize, &T) + Sync,
) -> (R, Vec<S>) {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut state = begin();
        loop {
            // Relaxed: the counter hands out numbers and publishes nothing else.
            let index = next.fetch_add(1, Relaxed);
            let Some(item) = items.get(index) else {
                return state;
            };
            work(&mut state, index, item);
        }
    };
    let threads = threads.min(items.len() + 1);
    scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let result = first();
        let own = run();
        let others = others.into_iter().map(joined);
        (result, std::iter::once(own).chain(others).collect())
    })
}

/// Calls both functions; at the same time, if there is more than one thread.
pub fn both<A: Send, B>(threads: usize, a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B) -> (A, B) {
    if threads < 2 {
        return (a(), b());
    }
    scope(|scope| {
        let other = scope.spawn(a);
        let own = b();
        (joined(other), own)
    })
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}
