//! The outermost frame of a thread whose creation was observed.

use crate::logical::walk::Walk;
use hpc_formats::address::ModuleId;
use std::sync::atomic::{AtomicU64, Ordering};

static RETURN: AtomicU64 = AtomicU64::new(0);

/// Declares the return address of the call that enters a thread's start routine.
pub fn set_return(address: u64) {
    RETURN.store(address, Ordering::Release);
}

pub(super) fn owns(lookup: u64, _: ModuleId) -> Option<u8> {
    (lookup + 1 == RETURN.load(Ordering::Acquire)).then_some(0)
}

pub(super) fn step(walk: &mut Walk<'_>, _: u8) {
    walk.root();
}
