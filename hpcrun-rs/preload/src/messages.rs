//! The functions for the library that observes calls of message-passing libraries (`hpcrun-mpi`). It is
//! preloaded beside this one into processes that a launcher of jobs has started.

use crate::events::{self, keeping_errno};
use critical_path::{Lost, Site};
use hpcrun_abi::{ABI_VERSION, CALL_UNTRACKED, MessageTable, RemoteStrand};
use hpcrun_core::logical::agents;
use hpcrun_core::{path, session, threads};
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
    }
    *TABLE.get_or_init(|| {
        Box::leak(Box::new(MessageTable {
            size: size_of::<MessageTable>() as u32,
            version: ABI_VERSION,
            tracks: path::is_configured(),
            join,
            enter,
            leave,
            export,
            import,
            lose,
        }))
    })
}

extern "C" fn join(job: u64, rank: u32, ranks: u32) {
    path::join(job, rank, ranks);
}

extern "C" fn enter(address: u64) -> u64 {
    let enter = |thread: &threads::ThreadState| keeping_errno(|| thread.enter_call(address));
    threads::current().map_or(CALL_UNTRACKED, enter)
}

extern "C" fn leave(entered: u64) {
    threads::current().inspect(|thread| keeping_errno(|| thread.leave_call(entered)));
}

unsafe extern "C" fn export(at: u64, to: *mut RemoteStrand) {
    // SAFETY: the caller's strand.
    let to = unsafe { &mut *to };
    to.session = 0;
    if at != CALL_UNTRACKED {
        events::amend(|tracked| tracked.export(Site(at), to));
    }
}

unsafe extern "C" fn import(from: *const RemoteStrand, at: u64) {
    // SAFETY: the caller's strand.
    let remote = unsafe { &*from };
    if at != CALL_UNTRACKED {
        events::amend(|tracked| tracked.thread.import(remote, Site(at)));
    }
}

extern "C" fn lose(cause: u32) {
    let cause = Lost::from_number(cause);
    events::amend(|tracked| tracked.thread.lose(cause));
}
