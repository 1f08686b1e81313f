//! Which cores threads are bound to: n is counted anew after a change. A program that binds no thread makes
//! no system call for this.

use crate::real::{Real, function, real};
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

/// Interposed.
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_setaffinity(
    thread: libc::pid_t,
    size: usize,
    mask: *const c_void,
) -> c_int {
    static REAL: Real = Real::versioned(c"sched_setaffinity", c"GLIBC_2.3.4");
    type Function = unsafe extern "C" fn(libc::pid_t, usize, *const c_void) -> c_int;
    // SAFETY: libc's own function, same arguments.
    let result = unsafe { function::<Function>(&REAL)(thread, size, mask) };
    bound(thread, result);
    result
}

/// Interposed.
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setaffinity_np(
    thread: libc::pthread_t,
    size: usize,
    mask: *const c_void,
) -> c_int {
    static REAL: Real = Real::versioned(c"pthread_setaffinity_np", c"GLIBC_2.3.4");
    type Function = unsafe extern "C" fn(libc::pthread_t, usize, *const c_void) -> c_int;
    // SAFETY: libc's own function, same arguments.
    let result = unsafe { function::<Function>(&REAL)(thread, size, mask) };
    // Only threads of this process have such a name.
    bound(0, result);
    result
}

/// Interposed: threads that begin with these attributes have cores of their own.
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_attr_setaffinity_np(
    attributes: *mut libc::pthread_attr_t,
    size: usize,
    mask: *const c_void,
) -> c_int {
    BOUND.store(true, Ordering::Relaxed);
    // SAFETY: libc's own function, same arguments.
    unsafe {
        real!(c"pthread_attr_setaffinity_np": fn(
            *mut libc::pthread_attr_t, usize, *const c_void,
        ) -> c_int)(attributes, size, mask)
    }
}
