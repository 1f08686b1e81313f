//! Which cores threads are bound to: n is counted anew after a change. A program that binds no thread makes
//! no system call for this.

use crate::real::interpose;
use hpcrun_core::session;
use hpcrun_core::threads::{self, with_room};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether threads may begin with other cores than their creators, or have others.
static BOUND: AtomicBool = AtomicBool::new(false);

/// A thread begins or has ended.
pub(crate) fn threads_changed() {
    if BOUND.load(Ordering::Relaxed) {
        with_room(|| session::affinity_changed(None));
    }
}

/// The system call has bound a thread, a process's main thread or, if it is 0, the calling thread.
pub(crate) fn bound(thread: libc::pid_t, result: c_int) {
    if result == 0 {
        BOUND.store(true, Ordering::Relaxed);
        let thread = thread as u32;
        let is_own = thread == 0 || threads::live().any(|t| t.tid() == thread);
        with_room(|| session::affinity_changed((!is_own).then_some(thread)));
    }
}

type Mask = *const c_void;

interpose! {
    sched_setaffinity at c"GLIBC_2.3.4" (thread: libc::pid_t, size: usize, mask: Mask) -> c_int: |bind| {
        let result = bind();
        bound(thread, result);
        result
    };
    pthread_setaffinity_np at c"GLIBC_2.3.4" (
        thread: libc::pthread_t, size: usize, mask: Mask
    ) -> c_int: |bind| {
        let result = bind();
        // Only threads of this process have such a name.
        bound(0, result);
        result
    };
    // Threads that begin with these attributes have cores of their own.
    pthread_attr_setaffinity_np(
        attributes: *mut libc::pthread_attr_t, size: usize, mask: Mask
    ) -> c_int: |bind| {
        BOUND.store(true, Ordering::Relaxed);
        bind()
    };
}
