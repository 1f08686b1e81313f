//! Work on several threads: each takes the next item when it is done with one.

use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{ScopedJoinHandle, scope};

/// The number of threads to use where the user gave none: one for each core.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
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
pub fn both<A: Send, B>(
    threads: usize,
    a: impl FnOnce() -> A + Send,
    b: impl FnOnce() -> B,
) -> (A, B) {
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
