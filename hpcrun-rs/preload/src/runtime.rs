//! The registration of cooperating runtimes (`hpcrun-abi`).

use crate::threads::capture_registers;
use hpcrun_abi::{ABI_VERSION, ProfilerTable, RuntimeTable};
use hpcrun_core::activity::{self, MAX_RUNTIMES, Refusal};
use hpcrun_core::{session, threads};
use std::io::Write as _;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

static TABLE: ProfilerTable = ProfilerTable {
    size: size_of::<ProfilerTable>() as u32,
    version: ABI_VERSION,
    worker_enter,
    worker_leave,
    capture_context,
    path: ptr::null(),
};

/// The entry point of a runtime; see [`hpcrun_abi::RegisterRuntime`].
///
/// # Safety
/// As for [`hpcrun_abi::RegisterRuntime`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hpcrun_rt_register(table: *const RuntimeTable) -> *const ProfilerTable {
    // SAFETY: the caller's promise: the table is null, or valid until the process ends.
    let Some(table) = (unsafe { table.as_ref() }) else {
        return ptr::null();
    };
    if !session::is_running() {
        return ptr::null();
    }
    if let Err(refusal) = activity::register_runtime(table) {
        warn(refusal);
        return ptr::null();
    }
    session::forget_owners();
    &TABLE
}

/// Warns once about what the measurement will lack. Not called by the handler: a runtime registers when its
/// first pool starts.
fn warn(refusal: Refusal) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    let (why, remedy) = match refusal {
        Refusal::Version(version) if version < ABI_VERSION => (
            format!("was built for an older profiler (table {version}, not {ABI_VERSION})"),
            "build it with this release's work-stealing-rt",
        ),
        Refusal::Version(version) => (
            format!("was built for a newer profiler (table {version}, not {ABI_VERSION})"),
            "update hpcrun-rs",
        ),
        Refusal::TooMany => (
            format!("is one of more than {MAX_RUNTIMES} in this process"),
            "build the program with fewer copies of work-stealing-rt",
        ),
    };
    // A closed standard error is ignored: a panic would end the program.
    let _ = writeln!(
        std::io::stderr(),
        "hpcrun-rs: warning: the program's task runtime {why}: its tasks have no logical callers, and its \
         workers count as ordinary threads; {remedy}"
    );
}

unsafe extern "C" fn worker_enter(state: *const AtomicU8) {
    if let Some(thread) = threads::current() {
        thread.enter_runtime(state);
    }
}

unsafe extern "C" fn worker_leave(state: *const AtomicU8) {
    if let Some(thread) = threads::current() {
        thread.leave_runtime(state);
    }
}

unsafe extern "C" fn capture_context() -> usize {
    let kept = threads::current().and_then(|t| t.capture(capture_registers()));
    kept.map_or(0, |(thread, node)| (thread as usize) << 32 | node as usize)
}
