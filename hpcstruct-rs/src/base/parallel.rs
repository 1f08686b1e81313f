//! Runs independent jobs on a few threads; the result does not depend on how many.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `job` for 0..count on up to `threads` threads and returns the results in order.
pub(crate) fn run<T: Send>(
    count: usize,
    threads: usize,
    job: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    run_with(count, threads, || (), |(), i| job(i))
}

/// As [`run_with`]; jobs of much `weight` begin first, so that none of them is left over for the end.
pub(crate) fn run_heaviest_first<S, T: Send>(
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
pub(crate) fn run_with<S, T: Send>(
    count: usize,
    threads: usize,
    state: impl Fn() -> S + Sync,
    job: impl Fn(&mut S, usize) -> T + Sync,
) -> Vec<T> {
    let order: Vec<usize> = (0..count).collect();
    in_order(&order, threads, state, job)
}

/// The results of two jobs, which run at once where there are threads for it.
pub(crate) fn both<A: Send, B>(
    threads: usize,
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B,
) -> (A, B) {
    if threads < 2 {
        let first = first();
        return (first, second());
    }
    std::thread::scope(|scope| {
        let first = scope.spawn(first);
        let second = second();
        match first.join() {
            Ok(first) => (first, second),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Begins the jobs in this order, which has every number once.
fn in_order<S, T: Send>(
    order: &[usize],
    threads: usize,
    state: impl Fn() -> S + Sync,
    job: impl Fn(&mut S, usize) -> T + Sync,
) -> Vec<T> {
    let count = order.len();
    let threads = threads.clamp(1, count.max(1));
    if threads == 1 {
        let mut state = state();
        return (0..count).map(|i| job(&mut state, i)).collect();
    }
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(count));
    let work = || {
        let mut mine = Vec::new();
        let mut state = state();
        loop {
            // Relaxed: the counter hands out numbers and publishes nothing else; results are
            // published by the mutex and the end of the scope.
            let next = next.fetch_add(1, Ordering::Relaxed);
            let Some(i) = order.get(next).copied() else {
                break;
            };
            mine.push((i, job(&mut state, i)));
        }
        if let Ok(mut done) = done.lock() {
            done.append(&mut mine);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        // This thread is one of them.
        work();
    });
    // Poisoned only if a job panicked, and then the scope has already passed the panic on.
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_unstable_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_their_order() {
        let expected: Vec<usize> = (0..1000).map(|i| i * i).collect();
        for threads in [0, 1, 2, 7, 5000] {
            assert_eq!(run(1000, threads, |i| i * i), expected);
            let ordered = run_heaviest_first(1000, threads, |i| i as u64 % 7, || (), |(), i| i * i);
            assert_eq!(ordered, expected);
        }
        assert!(run(0, 4, |i| i).is_empty());
        for threads in [1, 2] {
            assert_eq!(both(threads, || 1, || "two"), (1, "two"));
        }
    }
}
