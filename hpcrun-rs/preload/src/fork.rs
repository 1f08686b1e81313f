//! Fork: the child continues as a separate process image.

use crate::writer;
use hpcrun_core::session;

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

unsafe extern "C" fn in_child() {
    session::continue_in_child();
    writer::start();
}
