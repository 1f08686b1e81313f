//! Fork: the child continues as a separate process image.

use crate::real::real;
use crate::writer;
use hpcrun_core::session;
use hpcrun_core::threads::with_room;
use std::ffi::c_long;

unsafe extern "C" {
    fn pthread_atfork(
        before: Option<unsafe extern "C" fn()>,
        in_parent: Option<unsafe extern "C" fn()>,
        in_child: Option<unsafe extern "C" fn()>,
    ) -> i32;
}

/// Registers the handler that runs in a forked child. `vfork` and `posix_spawn` do not run it: their children
/// share the parent's memory until they exec, and inherit neither timers nor perf events.
pub(crate) fn prepare() {
    // SAFETY: the handler is a function of this library, which is never unloaded.
    unsafe { pthread_atfork(None, None, Some(in_child)) };
}

/// Interposed: forks without the handlers of `pthread_atfork`.
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> libc::pid_t {
    // SAFETY: libc's own function.
    by_system_call(|| unsafe { real!(c"_Fork": fn() -> libc::pid_t)() }.into()) as libc::pid_t
}

/// Forks by `fork`, which runs no handlers.
pub(crate) fn by_system_call(fork: impl FnOnce() -> c_long) -> c_long {
    let child = fork();
    if child == 0 {
        // SAFETY: the calling thread is the child's only one, as where libc calls it.
        unsafe { in_child() };
    }
    child
}

unsafe extern "C" fn in_child() {
    with_room(|| {
        session::continue_in_child();
        writer::start();
    });
}
