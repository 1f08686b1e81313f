//! A thread inside the profiler. Until [`Busy`] is dropped, neither the thread's handler nor a hook enters
//! again, so it has the thread's recorder for itself.
//!
//! Async-signal-safe.

use super::OwnThread;
use crate::image;
use crate::logical::PathRoot;
use crate::record::Recorder;
use crate::sinks::{self, Node, Sink, Values, Verdict};
use crate::unwind::Registers;
use crate::unwind::loadmap::Pinned;
use hpc_formats::loss::LossCause;
use std::sync::atomic::{Ordering, fence};

/// The calling thread inside the profiler, with its recorder.
pub struct Busy<'t> {
    thread: &'t OwnThread,
    recorder: &'t mut Recorder,
    pinned: Pinned,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.thread.in_handler.store(false, Ordering::Relaxed);
        self.thread.busy.store(false, Ordering::Release);
    }
}

impl OwnThread {
    /// Enters the profiler. `None` when the thread is already inside, or when sampling is over.
    #[inline]
    pub(super) fn enter(&self) -> Option<Busy<'_>> {
        if self.busy.load(Ordering::Relaxed) {
            return None;
        }
        self.busy.store(true, Ordering::Relaxed);
        // Pairs with the fences in `session::stop`, `loadmap::refresh` and `loadmap::begin_unload`: either
        // they see us busy, or we see that sampling is over, the new snapshot, or the pending unload.
        fence(Ordering::SeqCst);
        // SAFETY: `busy` was not set, so no other `Busy` of this thread exists, and another thread uses the
        // recorder only in phase `Closing`, which begins when sampling is over and this one is not busy.
        let recorder = unsafe { &mut *self.recorder.0.get() };
        // SAFETY: `quiescent` is false while `busy` is set.
        let busy = Busy { thread: self, recorder, pinned: unsafe { Pinned::new() } };
        image::is_running().then_some(busy)
    }

    /// Makes the thread's profile, with room for many contexts. Called by the thread.
    pub fn prepare_profile(&self) {
        if let Some(busy) = self.enter() {
            busy.recorder.prepare(|| self.identity());
        }
    }
}

impl Busy<'_> {
    #[inline]
    pub(super) fn in_handler(self) -> Self {
        self.thread.in_handler.store(true, Ordering::Relaxed);
        self
    }

    /// What `look` finds for the look-up address of one of the innermost frames.
    pub(super) fn find_frame<T>(
        &mut self,
        registers: &Registers,
        look: impl Fn(u64) -> Option<T>,
    ) -> Option<T> {
        self.recorder.find_frame(&self.pinned, registers, look)
    }

    /// The context that these registers are in.
    #[inline]
    pub(super) fn walk(&mut self, registers: &Registers) -> Verdict {
        let thread = self.thread;
        self.recorder.walk(&self.pinned, registers, thread.task(), &thread.stack, || thread.identity())
    }

    /// The context of time that was held back.
    pub(super) fn held_back(&mut self) -> Verdict {
        self.recorder.placeless(PathRoot::from(self.thread.stack.root()), LossCause::HeldBack)
    }

    /// Adds to a context's value of the metric at a position. False if it cannot be recorded.
    pub(super) fn add_value(&mut self, node: Node, position: usize, amount: u64) -> bool {
        self.recorder.add_value(node, position, amount)
    }

    /// Tells all sinks what became of samples.
    #[inline]
    pub(super) fn tell(&mut self, verdict: Verdict, values: &Values) {
        if verdict == Verdict::Idle {
            self.thread.own().working.idles(values.last_ns);
        }
        let thread = self.thread;
        let trace = thread.own().working.trace();
        sinks::all(self.recorder.tree(), &thread.path, trace, &thread.tally).take(verdict, values);
    }
}

#[cfg(test)]
mod tests {
    use crate::{image, threads};

    /// What an interrupted walk uses must not be freed by whoever has interrupted it.
    #[test]
    fn a_thread_that_is_interrupted_inside_the_profiler_is_inside() {
        assert!(crate::activity::attach(None));
        let new = threads::acquire().expect("memory");
        let state = threads::begin(new, (0, 0), (0, 0), false);
        image::set_running(true);
        let busy = state.enter().expect("outside");
        assert!(state.enter().is_none() && !threads::quiescent());
        drop(busy);
        assert!(threads::quiescent());
        image::set_running(false);
        state.retire();
    }
}
