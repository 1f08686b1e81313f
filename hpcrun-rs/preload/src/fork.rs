//! Fork: the child continues as a separate process image.

use crate::real::interpose;
use crate::writer;
use hpcrun_core::session;
use hpcrun_core::threads::with_room;
use hpcrun_core::unwind::loadmap;
use std::ffi::c_long;

unsafe extern "C" {
    fn pthread_atfork(
        before: Option<unsafe extern "C" fn()>,
        in_parent: Option<unsafe extern "C" fn()>,
        in_child: Option<unsafe extern "C" fn()>,
    ) -> i32;
}

/// Registers the handlers that run around a fork. `vfork` and `posix_spawn` do not run them: their children
/// share the parent's memory until they exec, and inherit neither timers nor perf events.
pub(crate) fn prepare() {
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    unsafe { pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

interpose! {
    // Forks without the handlers of `pthread_atfork`.
    _Fork() -> libc::pid_t: |fork| by_system_call(|| fork().into()) as libc::pid_t;
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

unsafe extern "C" fn before() {
    if session::is_running() {
        with_room(loadmap::begin_fork);
    }
}

unsafe extern "C" fn in_parent() {
    loadmap::end_fork();
}

pub(crate) unsafe extern "C" fn in_child() {
    with_room(|| {
        loadmap::enter_child();
        session::continue_in_child();
        writer::start();
    });
}
