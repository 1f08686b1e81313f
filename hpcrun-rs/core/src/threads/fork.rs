//! Thread states in a forked child.

use super::{ThreadState, registry};
use crate::{image, system};
use std::sync::atomic::Ordering;

impl ThreadState {
    /// Resets the state of a thread that exists only in the parent. Called in a forked child.
    pub fn forget_after_fork(&'static self) {
        self.source.close_inherited();
        self.abandon_tree();
        self.lock_wait.set(None);
        self.path.forget();
        self.stack.clear();
        self.working.leave_slot();
        self.busy.store(false, Ordering::Relaxed);
        self.lifecycle.abandon();
    }

    /// Renews the state of the forking thread: a new ordinal and an empty tree. Called in a forked child.
    pub fn renew_after_fork(&self) {
        self.source.close_inherited();
        self.abandon_tree();
        self.lock_wait.set(None);
        self.path.forget();
        registry::count_from(2);
        self.thread.store(1, Ordering::Relaxed);
        self.path.name(1);
        let tid = system::thread_id();
        self.tid.store(tid, Ordering::Relaxed);
        self.tally.clear();
        self.creation.set((0, 0));
        // Its creator is not in this process, so the fork is the root of its paths.
        self.stack.set_main();
        self.cpu.begin(tid);
        self.busy.store(false, Ordering::Relaxed);
        self.working.renew(tid, image::now());
    }

    fn abandon_tree(&self) {
        // SAFETY: the child has one thread, this one, and it runs the fork handler, so nothing else uses the
        // recorder.
        let recorder = unsafe { &mut *self.recorder.get() };
        if let Some(tree) = recorder.take_tree(false, || self.identity()) {
            tree.close();
        }
    }
}
