//! Completes a thread's profile: by the thread itself when it ends, or by the thread that ends the process.
//! `lifecycle` decides which of them.

use super::lifecycle::{Phase, wait_until};
use super::{OwnThread, SharedThread};
use crate::arch::thread_slot;
use crate::image;
use crate::lcct::spare;
use crate::system;
use hpc_formats::loss::LossCause;
use hpc_formats::profile::header;
use std::ptr;
use std::sync::atomic::Ordering;

impl SharedThread {
    /// Completes the thread's profile: CPU time, name, counters, final length. The caller has moved the state
    /// to `Closing`.
    pub fn complete(&self) {
        // SAFETY: whoever moves the state to `Closing` owns the recorder (`lifecycle`): the thread itself,
        // which is busy, or the thread that ends the process, which saw it not busy after sampling had ended.
        let recorder = unsafe { &mut *self.recorder.0.get() };
        let losses = || self.tally.lost_periods();
        let idle = self.tally.idle_periods();
        let is_worth_it = idle > 0 || losses().any(|n| n > 0);
        let cpu = self.cpu.used();
        image::count(|counts| &counts.run_delay_ns, self.run_delay.all(self.tid()));
        self.run_delay.end(self.tid(), recorder);
        if !self.in_process.load(Ordering::Relaxed) {
            image::count(|counts| &counts.foreign_ns, cpu);
        }
        match recorder.take_tree(is_worth_it, || self.identity()) {
            None => {
                image::count(|counts| &counts.unsampled_ns, cpu);
                image::add_losses(losses());
            }
            Some(mut tree) => {
                tree.set(header::CPU_NS, cpu);
                tree.set(header::IDLE_WEIGHT, idle);
                for (i, n) in losses().enumerate() {
                    tree.set(header::LOSSES + 8 * i, n);
                }
                if let Some(name) = self.name() {
                    tree.set(header::NAME, name);
                }
                tree.finish();
                spare::keep(tree);
            }
        }
        self.lifecycle.advance(Phase::Closing, Phase::Closed);
    }

    fn name(&self) -> Option<[u8; 16]> {
        if self.is_own() {
            let mut name = [0; 16];
            // SAFETY: the kernel writes at most the sixteen bytes of `name`, with a zero at the end.
            let asked = unsafe {
                let arguments = [libc::PR_GET_NAME as usize, name.as_mut_ptr() as usize, 0, 0, 0];
                system::call(libc::SYS_prctl, arguments)
            };
            return (asked == 0).then_some(name);
        }
        let text = system::read(&format!("/proc/self/task/{}/comm", self.tid()));
        let text = text.strip_suffix(b"\n")?;
        let mut name = [0; 16];
        let n = text.len().min(16);
        name[..n].copy_from_slice(&text[..n]);
        Some(name)
    }

    /// Moves the state of a running thread to `Closing`, because the process ends; the caller, which has
    /// stopped sampling, completes the profile. False if the thread does that itself, or there is none.
    pub fn claim(&self) -> bool {
        if self.lifecycle.is(Phase::Closing) {
            wait_until(|| !self.lifecycle.is(Phase::Closing));
        }
        self.lifecycle.is(Phase::Live)
            && wait_until(|| !self.is_busy())
            && self.lifecycle.advance(Phase::Live, Phase::Closing)
    }

    /// Stops the thread's timer, and removes the thread from the counts, because the process ends.
    pub fn stop(&self) {
        if self.in_process.load(Ordering::Relaxed) {
            self.disarm();
        }
        self.listing.stop(image::now());
    }

    fn disarm(&self) {
        if !self.source.disarm() {
            self.count_loss(LossCause::NoTimer);
        }
    }
}

impl OwnThread {
    /// Retires the state. Called by the ending thread itself, after all its destructors.
    pub fn retire(self) {
        self.disarm();
        // A pending sample still finds the thread inside the profiler.
        self.busy.store(true, Ordering::SeqCst);
        // First, so that no other thread reads the profile for the critical path from now on.
        if self.lifecycle.advance(Phase::Live, Phase::Closing) {
            self.end_path();
            self.complete();
        }
        if ptr::eq(thread_slot::get(), self.shared) {
            thread_slot::set(ptr::null_mut::<SharedThread>());
        }
        self.abandon_lock_wait();
        self.own().working.end(image::now());
        self.stack.clear();
        self.busy.store(false, Ordering::Release);
        // The thread that ends the process may be completing this state, which must not be reused before.
        wait_until(|| self.lifecycle.is(Phase::Closed));
        self.lifecycle.advance(Phase::Closed, Phase::Free);
    }
}
