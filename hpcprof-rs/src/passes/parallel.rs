//! Work on several threads: each takes the next item when it is done with one.

use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

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
    let threads = threads.clamp(1, items.len().max(1));
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let own = run();
        let others = others.into_iter().map(|thread| match thread.join() {
            Ok(state) => state,
            Err(panic) => resume_unwind(panic),
        });
        std::iter::once(own).chain(others).collect()
    })
}
