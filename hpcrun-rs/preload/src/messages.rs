//! The functions for the library that observes calls of message-passing libraries (`hpcrun-mpi`). It is
//! preloaded beside this one into processes that a launcher of jobs has started.

use crate::{events, writer};
use critical_path::Lost;
use hpcrun_abi::{ABI_VERSION, CALL_UNTRACKED, Entered, MessageTable, RemoteStrand};
use hpcrun_core::logical::agents;
use hpcrun_core::threads::{self, calls};
use hpcrun_core::{path, session};
use std::ptr;
use std::sync::OnceLock;

/// The entry point; see [`hpcrun_abi::Messages`].
#[unsafe(no_mangle)]
pub extern "C" fn hpcrun_messages(own: usize) -> *const MessageTable {
    static TABLE: OnceLock<&'static MessageTable> = OnceLock::new();
    if !session::is_running() {
        return ptr::null();
    }
    if let Some(module) = session::module_of(own as u64) {
        agents::profiler::add_module(module);
        session::forget_owners();
        calls::find_copies();
    }
    *TABLE.get_or_init(|| {
        Box::leak(Box::new(MessageTable {
            size: size_of::<MessageTable>() as u32,
            version: ABI_VERSION,
            tracks: path::is_configured(),
            join,
            enter,
            leave,
            lose,
        }))
    })
}

extern "C" fn join(job: u64, rank: u32, ranks: u32) {
    path::join(job, rank, ranks);
}

// Calls of MPI need not keep errno.

extern "C" fn enter(address: u64, sends: bool, waits: bool) -> Entered {
    let untracked = Entered { site: CALL_UNTRACKED, strand: ptr::null() };
    threads::current().map_or(untracked, |thread| thread.enter_call(address, (sends, waits)))
}

unsafe extern "C" fn leave(at: u64, from: *const RemoteStrand, is_over: bool) {
    // SAFETY: null, or the caller's strand.
    let from = unsafe { from.as_ref() };
    if let Some(from) = from.filter(|_| at == CALL_UNTRACKED) {
        writer::start_with(from.session);
    }
    threads::current().inspect(|thread| thread.leave_call(at, from, is_over));
}

extern "C" fn lose(cause: u32) {
    let cause = Lost::from_number(cause).unwrap_or(Lost::Unknown);
    events::amend(|tracked| tracked.thread.lose(cause));
}
