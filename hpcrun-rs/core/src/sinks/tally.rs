//! Counts what no context has: the time of idle samples, and that of lost ones by cause. Other threads may
//! read the counts, and hooks count, too.
//!
//! Async-signal-safe.

use super::{Sink, Values};
use hpc_formats::loss::{LOSS_SLOTS, LossCause};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counts of one thread, in periods.
#[derive(Default)]
pub(crate) struct Tally {
    idle: AtomicU64,
    losses: [AtomicU64; LOSS_SLOTS],
}

impl Tally {
    pub(crate) fn clear(&self) {
        self.idle.store(0, Relaxed);
        for loss in &self.losses {
            loss.store(0, Relaxed);
        }
    }

    /// Counts a loss of so many periods.
    pub(crate) fn lose(&self, cause: LossCause, periods: u64) {
        self.losses[cause as usize].fetch_add(periods, Relaxed);
    }

    pub(crate) fn idle_periods(&self) -> u64 {
        self.idle.load(Relaxed)
    }

    /// Of lost samples, by the number of their cause.
    pub(crate) fn lost_periods(&self) -> impl Iterator<Item = u64> {
        self.losses.iter().map(|loss| loss.load(Relaxed))
    }
}

impl Sink for &Tally {
    #[inline]
    fn idle(&mut self, values: &Values) {
        self.idle.fetch_add(values.periods(), Relaxed);
    }

    fn lost(&mut self, values: &Values, cause: LossCause) {
        self.lose(cause, values.periods());
    }
}
