//! The tasks that the thread is in ([`crate::tasks`]), and the waits of their runtimes.
//!
//! A runtime that tells of its tasks tells of its waits as well, which are *pauses*: within them the thread
//! is idle, however it waits, except in the tasks that it runs meanwhile. On the critical path, too.
//!
//! Async-signal-safe: a sample may arrive at any point.

use super::OwnThread;
use crate::path;
use crate::tasks::Task;
use std::ptr;
use std::sync::atomic::{Ordering, compiler_fence};

impl OwnThread {
    /// The innermost task; null: none.
    #[inline]
    pub fn task(&self) -> *const Task {
        self.own().task.get()
    }

    /// The thread, which this is, begins a task. It is in none of the pauses around the task.
    ///
    /// # Safety
    /// The record must stay where it is until [`Self::end_task`].
    #[inline]
    pub unsafe fn begin_task(&self, task: &Task) {
        task.begin(self.own().task.get(), self.own().working.pauses());
        compiler_fence(Ordering::Release);
        self.own().task.set(ptr::from_ref(task));
        self.set_pauses(0);
    }

    /// The thread ends a task, with all that began in it.
    #[inline]
    pub fn end_task(&self, task: &Task) {
        self.set_pauses(task.pauses());
        self.own().task.set(task.outer());
        compiler_fence(Ordering::Release);
    }

    /// The thread begins to wait in its runtime.
    #[inline]
    pub fn begin_pause(&self) {
        self.set_pauses(self.own().working.pauses() + 1);
    }

    /// As [`Self::begin_pause`], where the thread most likely begins a task at once.
    #[inline]
    pub fn expect_pause(&self) {
        self.expect_pauses(self.own().working.pauses() + 1);
    }

    /// As [`Self::end_task`], where the pause around the task ends at once.
    #[inline]
    pub fn end_last_task(&self, task: &Task) {
        self.expect_pauses(task.pauses());
        self.own().task.set(task.outer());
        compiler_fence(Ordering::Release);
    }

    #[inline]
    fn expect_pauses(&self, count: u32) {
        self.own().working.expect_pauses(count);
        self.follow_pauses(count);
    }

    #[inline]
    pub fn end_pause(&self) {
        self.set_pauses(self.own().working.pauses().saturating_sub(1));
    }

    /// As [`Self::end_pause`], of an expected one that most likely took no time.
    #[inline]
    pub fn end_expected_pause(&self) {
        let count = self.own().working.pauses().saturating_sub(1);
        self.own().working.end_expected(count);
        self.follow_pauses(count);
    }

    #[inline]
    fn set_pauses(&self, count: u32) {
        self.own().working.set_pauses(count);
        self.follow_pauses(count);
    }

    #[inline]
    fn follow_pauses(&self, count: u32) {
        if path::is_active() {
            self.path.with(|tracked| if count == 0 { tracked.end_wait() } else { tracked.begin_wait() });
        }
    }
}
