//! Thread states in a forked child.

use super::{OwnThread, SharedThread};
use crate::image;
use std::sync::atomic::Ordering;

impl SharedThread {
    /// Resets the state of a thread that exists only in the parent. Called in a forked child.
    pub fn forget_after_fork(&self) {
        self.leave_profile();
        self.stack.clear();
        self.listing.forget();
        self.lifecycle.abandon();
    }

    /// Gives up the profile, which is the parent's.
    fn leave_profile(&self) {
        self.source.close_inherited();
        // SAFETY: the child has one thread, this one, and it runs the fork handler, so nothing else uses the
        // recorder.
        let recorder = unsafe { &mut *self.recorder.0.get() };
        drop(recorder.take_tree(false, || self.identity()));
        self.path.forget();
        self.busy.store(false, Ordering::Relaxed);
    }
}

impl OwnThread {
    /// Begins a new profile in a forked child; the forking thread is its first. What it is in, waits and
    /// tasks, goes on.
    pub fn renew_after_fork(&self) {
        self.leave_profile();
        self.fresh(true);
        self.own().lock_wait.set(None);
        // Its creator is not in this process, so the fork is the root of its paths.
        self.stack.set_main();
        self.own().working.trace().begin(self.ordinal());
        self.own().working.renew(self.tid(), image::now());
    }
}
