//! Captures a thread's context, for a task that it spawns or for the waiting that it has caused, and adds the
//! samples that arrive meanwhile.
//!
//! Async-signal-safe: a sample may arrive at any point.

use super::{Busy, ThreadState};
use crate::image;
use crate::record::Values;
use crate::unwind::Registers;
use hpc_formats::loss::LossCause;
use std::ptr;
use std::sync::atomic::Ordering;

impl ThreadState {
    /// Captures the calling thread's current path; see [`hpcrun_abi::ProfilerTable`]. Samples that arrive
    /// meanwhile are added to that path.
    pub fn capture(&self, registers: Registers) -> Option<(u32, u32)> {
        let mut profile = ptr::null_mut();
        let inserted =
            self.capture_and(registers, |busy, _| profile = self.recorder(busy).profile());
        let node = inserted?.ok()??;
        self.path.capture(profile, node);
        Some((self.ordinal(), node))
    }

    /// Charges the calling thread's current path with waiting for a lock that it held, nanoseconds. False if
    /// that is not possible.
    pub fn charge_lock_wait(&self, registers: Registers, nanoseconds: u64) -> bool {
        let mut is_charged = false;
        self.capture_and(registers, |busy, node| {
            is_charged = self.recorder(busy).add_lock_wait(node, nanoseconds);
        });
        is_charged
    }

    /// Captures the current path, and calls `add` with its node.
    fn capture_and(
        &self,
        registers: Registers,
        add: impl FnOnce(&Busy<'_>, u32),
    ) -> Option<Result<Option<u32>, LossCause>> {
        // Opened before `enter` and closed after `Busy` is dropped, so that no sample falls between.
        self.deferred.open();
        let inserted = self.enter().map(|busy| {
            let inserted = self.insert_path(&busy, registers)?;
            if let Some(node) = inserted {
                add(&busy, node);
            }
            Ok(inserted)
        });
        while let (Some(inserted), false) = (&inserted, self.deferred.is_empty()) {
            let Some(busy) = self.enter() else { break };
            if let Some(values) = self.deferred.take() {
                self.settle(&busy, inserted, &values);
            }
        }
        self.deferred.close();
        inserted
    }

    /// Adds the samples that arrived during a capture, or counts them as idle or lost.
    #[cold]
    fn settle(&self, busy: &Busy<'_>, inserted: &Result<Option<u32>, LossCause>, values: &Values) {
        let entered = match *inserted {
            Ok(Some(node)) => {
                let recorder = self.recorder(busy);
                let time = values.periods() * image::period_ns();
                self.path.sample(recorder.profile(), node, time);
                recorder.add_samples(node, values)
            }
            Ok(None) => {
                self.count_idle(values.periods(), values.last_ns);
                Ok(())
            }
            Err(cause) => Err(cause),
        };
        if let Err(cause) = entered {
            self.losses[cause as usize].fetch_add(values.samples(), Ordering::Relaxed);
        }
    }

    /// Handles a sample that arrived while the thread was in the profiler. During a capture it is deferred
    /// and later added to the captured path; otherwise it is lost. Async-signal-safe.
    pub fn defer_sample(&self, periods: u64) {
        let now = self.sampled_at();
        if self.is_idle() {
            self.count_idle(periods, now);
        } else if self.deferred.is_open() {
            self.deferred.add(periods, self.charge(now, periods), now);
        } else {
            self.count_loss(LossCause::Reentered);
        }
    }
}
