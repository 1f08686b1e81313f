//! How far an analysis is, for whoever waits for it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Work done so far, shared with the analysis through [`crate::Options::progress`].
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// Bytes of debug information that are analysed, and all; both 0 before that begins.
    pub fn bytes(&self) -> (u64, u64) {
        // Relaxed: a number to look at; nothing else is published by it.
        (
            self.done.load(Ordering::Relaxed),
            self.total.load(Ordering::Relaxed),
        )
    }

    pub(crate) fn begin(&self, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }
}
