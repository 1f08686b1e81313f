//! Completes a thread's profile: by the thread itself when it ends, or by the thread that ends the process.
//! `lifecycle` decides which of them.

use super::ThreadState;
use super::lifecycle::{Phase, wait_until};
use crate::arch::thread_slot;
use crate::image;
use crate::lcct::spare;
use crate::sandbox::refuses;
use crate::system;
use hpc_formats::loss::LossCause;
use hpc_formats::profile::header;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// CPU time of threads that ended without a profile, in nanoseconds.
pub static UNSAMPLED_NS: AtomicU64 = AtomicU64::new(0);
/// CPU time of threads that share the memory but are separate processes to the kernel, in nanoseconds.
pub static FOREIGN_NS: AtomicU64 = AtomicU64::new(0);

/// Time for which threads that ended were ready to run and had no core, in nanoseconds.
static RUN_DELAY_NS: AtomicU64 = AtomicU64::new(0);

/// The same of all threads of the process, in images of it before this one, too. Not async-signal-safe.
pub fn run_delays() -> u64 {
    let live = super::live().map(|thread| run_delay(thread.tid()));
    live.fold(RUN_DELAY_NS.load(Ordering::Relaxed), u64::saturating_add)
}

/// Forgets ended threads, in a forked child.
pub fn forget_run_delays() {
    RUN_DELAY_NS.store(0, Ordering::Relaxed);
}

/// The time for which a thread was ready to run and had no core, by the kernel's account, in nanoseconds; 0
/// if that is not known. Not async-signal-safe.
fn run_delay(tid: u32) -> u64 {
    if refuses(libc::SYS_openat) || refuses(libc::SYS_statx) || refuses(libc::SYS_close) {
        return 0;
    }
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat"));
    let delay = text.ok().and_then(|text| text.split_whitespace().nth(1)?.parse().ok());
    delay.unwrap_or(0)
}

impl ThreadState {
    /// Completes the thread's profile: CPU time, name, counters, final length. The caller has moved the state
    /// to `Closing`.
    pub fn complete(&self) {
        // SAFETY: whoever moves the state to `Closing` owns the recorder (`lifecycle`): the thread itself,
        // which is busy, or the thread that ends the process, which saw it not busy after sampling had ended.
        let recorder = unsafe { &mut *self.recorder.get() };
        let losses = || self.tally.lost_periods();
        let idle = self.tally.idle_periods();
        let is_worth_it = idle > 0 || losses().any(|n| n > 0);
        let cpu = self.cpu.used();
        RUN_DELAY_NS.fetch_add(run_delay(self.tid()), Ordering::Relaxed);
        if !self.in_process.load(Ordering::Relaxed) {
            FOREIGN_NS.fetch_add(cpu, Ordering::Relaxed);
        }
        match recorder.take_tree(is_worth_it, || self.identity()) {
            None => {
                UNSAMPLED_NS.fetch_add(cpu, Ordering::Relaxed);
                image::add_losses(losses());
            }
            Some(mut tree) => {
                tree.set_u64(header::CPU_NS, cpu);
                tree.set_u64(header::IDLE_WEIGHT, idle);
                for (i, n) in losses().enumerate() {
                    tree.set_u64(header::LOSSES + 8 * i, n);
                }
                if let Some(name) = self.name() {
                    tree.set_name(&name);
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
        if refuses(libc::SYS_openat) || refuses(libc::SYS_statx) || refuses(libc::SYS_close) {
            return None;
        }
        let path = format!("/proc/self/task/{}/comm", self.tid());
        let text = std::fs::read(path).ok()?;
        let mut name = [0; 16];
        let text = text.strip_suffix(b"\n").unwrap_or(&text);
        let n = text.len().min(16);
        name[..n].copy_from_slice(&text[..n]);
        Some(name)
    }

    /// Retires the state. Called by the ending thread itself, after all its destructors.
    pub fn retire(&'static self) {
        self.disarm();
        // A pending sample still finds the thread inside the profiler.
        self.busy.store(true, Ordering::SeqCst);
        // First, so that no other thread reads the profile for the critical path from now on.
        if self.lifecycle.advance(Phase::Live, Phase::Closing) {
            self.end_path();
            self.complete();
        }
        if ptr::eq(thread_slot::get(), self) {
            thread_slot::set(ptr::null_mut::<ThreadState>());
        }
        self.abandon_lock_wait();
        self.working.end(image::now());
        self.stack.clear();
        self.busy.store(false, Ordering::Release);
        // The thread that ends the process may be completing this state, which must not be reused before.
        wait_until(|| self.lifecycle.is(Phase::Closed));
        self.lifecycle.advance(Phase::Closed, Phase::Free);
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
        self.working.stop(image::now());
    }

    fn disarm(&self) {
        if !self.source.disarm() {
            self.count_loss(LossCause::NoTimer);
        }
    }
}
