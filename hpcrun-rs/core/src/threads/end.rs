//! How a thread's profile is completed: by the thread when it ends, or by the one that ends the process.
//! `lifecycle` says who may.

use super::ThreadState;
use super::lifecycle::{Phase, wait_until};
use crate::arch::thread_slot;
use crate::image;
use crate::lcct::spare;
use hpc_formats::profile::header;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// CPU time of threads that ended without a profile, nanoseconds.
pub static UNSAMPLED_NS: AtomicU64 = AtomicU64::new(0);
/// CPU time of threads that share the memory but are processes of their own to the kernel, nanoseconds.
pub static FOREIGN_NS: AtomicU64 = AtomicU64::new(0);

impl ThreadState {
    /// Completes the thread's profile: CPU time, name, counters, final length. The caller has made the move
    /// to `Closing`.
    fn complete(&self) {
        // SAFETY: whoever closes the state has the recorder (`lifecycle`): the thread itself, which is busy,
        // or the one that ends the process, which saw it not busy after sampling had ended.
        let recorder = unsafe { &mut *self.recorder.get() };
        let losses = || self.losses.iter().map(|l| l.load(Ordering::Relaxed));
        let idle = self.idle_weight.load(Ordering::Relaxed);
        let is_worth_it = idle > 0 || losses().any(|n| n > 0);
        let cpu = self.cpu.used();
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
            // SAFETY: the kernel writes sixteen bytes, the last of them zero.
            let asked = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
            return (asked == 0).then_some(name);
        }
        let path = format!("/proc/self/task/{}/comm", self.tid());
        let text = std::fs::read(path).ok()?;
        let mut name = [0; 16];
        let text = text.strip_suffix(b"\n").unwrap_or(&text);
        let n = text.len().min(16);
        name[..n].copy_from_slice(&text[..n]);
        Some(name)
    }

    /// The thread ends: called by itself, last of all its destructors.
    pub fn retire(&'static self) {
        self.source.disarm();
        // A sample that is pending still finds the thread in the profiler.
        self.busy.store(true, Ordering::SeqCst);
        let closes = self.lifecycle.advance(Phase::Live, Phase::Closing);
        if closes {
            self.complete();
        }
        if ptr::eq(thread_slot::get(), self) {
            thread_slot::set(ptr::null_mut::<ThreadState>());
        }
        self.working.end(image::now());
        self.stack.clear();
        self.signal_stack.remove();
        self.busy.store(false, Ordering::Release);
        // One that ends the process may be at it. A state that is not done with is not used again.
        wait_until(|| self.lifecycle.is(Phase::Closed));
        self.lifecycle.advance(Phase::Closed, Phase::Free);
    }

    /// The process ends (or is replaced) while the thread still runs: completes its profile.
    /// The caller has stopped sampling.
    pub fn complete_from_outside(&self) {
        if self.lifecycle.is(Phase::Closing) {
            wait_until(|| !self.lifecycle.is(Phase::Closing));
        }
        if !self.lifecycle.is(Phase::Live) || !wait_until(|| !self.is_busy()) {
            return;
        }
        if self.lifecycle.advance(Phase::Live, Phase::Closing) {
            self.complete();
        }
    }

    /// The process ends: its timer is stopped, and it counts no more.
    pub fn stop(&self) {
        if self.in_process.load(Ordering::Relaxed) {
            self.source.disarm();
        }
        self.working.stop(image::now());
    }
}
