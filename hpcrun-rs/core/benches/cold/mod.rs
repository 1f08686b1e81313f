//! Cold caches for the benchmarks: between two samples, a program fills them with other data.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of bytes; second-level caches have at most 2 MiB today.
const EVICTED: usize = 4 << 20;

/// Fills the processor's own caches with other data.
pub(crate) fn evict() {
    static OTHER: [AtomicU64; EVICTED / 8] = [const { AtomicU64::new(0) }; EVICTED / 8];
    for line in OTHER.chunks(8) {
        line[0].fetch_add(1, Ordering::Relaxed);
    }
}
