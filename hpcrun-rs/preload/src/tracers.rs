//! Tracers: each sample would stop a process that another program traces, so it has none. The report says so.

use crate::real::interpose;
use crate::start;
use hpcrun_core::system;
use std::ffi::{c_int, c_long, c_void};

/// Why the measurement ends; the analyser knows the text.
const REASON: &str = "traced by another program";

/// Ends the measurement if another program traces this process already, as a debugger that has started it.
/// Returns whether.
pub(crate) fn end_if_traced() -> bool {
    let status = system::read("/proc/self/status");
    let tracer = status.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"TracerPid:\t"));
    let is_traced = tracer.is_some_and(|tracer| tracer != b"0");
    if is_traced {
        start::stop(REASON);
    }
    is_traced
}

/// Ends the measurement if a request of `ptrace` makes this process be traced.
pub(crate) fn before_request(request: c_long) {
    if request == libc::PTRACE_TRACEME as c_long {
        start::stop(REASON);
    }
}

interpose! {
    // Variadic: three more arguments, which are passed on unread.
    ptrace(
        request: c_int, process: libc::pid_t, address: *mut c_void, data: *mut c_void
    ) -> c_long: |call| {
        before_request(request.into());
        call()
    };
}
