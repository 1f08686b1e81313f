//! Cold caches, for the benchmarks: between two samples a program puts other things into them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes; second caches have 2 MiB at most, as yet.
const EVICTED: usize = 4 << 20;

/// Puts other things into the processor's caches of its own.
pub(crate) fn evict() {
    static OTHER: [AtomicU64; EVICTED / 8] = [const { AtomicU64::new(0) }; EVICTED / 8];
    for line in OTHER.chunks(8) {
        line[0].fetch_add(1, Ordering::Relaxed);
    }
}
