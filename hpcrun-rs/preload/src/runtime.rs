//! The entry for cooperating runtimes (`hpcrun-abi`).

use crate::threads::here;
use hpcrun_abi::{ABI_VERSION, ProfilerTable, RuntimeTable};
use hpcrun_core::{activity, session, threads};
use std::ptr;
use std::sync::atomic::AtomicU8;

static TABLE: ProfilerTable = ProfilerTable {
    size: size_of::<ProfilerTable>() as u32,
    version: ABI_VERSION,
    worker_enter,
    worker_leave,
    capture_context,
};

/// See [`hpcrun_abi::RegisterRuntime`].
///
/// # Safety
/// As stated there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hpcrun_rt_register(table: *const RuntimeTable) -> *const ProfilerTable {
    // SAFETY: the caller's promise: null or valid until the process ends.
    let Some(table) = (unsafe { table.as_ref() }) else {
        return ptr::null();
    };
    if !session::is_running() || !activity::register_runtime(table) {
        return ptr::null();
    }
    session::forget_owners();
    &TABLE
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
    let kept = threads::current().and_then(|t| t.capture(here()));
    kept.map_or(0, |(thread, node)| (thread as usize) << 32 | node as usize)
}
