//! The outermost frame of a thread whose creation was observed, and that of a coroutine.

use crate::logical::walk::Walk;
use hpc_formats::address::ModuleId;
use std::sync::atomic::{AtomicU64, Ordering};

static RETURNS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Declares the return addresses of the call that enters a thread's start routine, and of a routine that
/// `makecontext` has put on a stack of its own.
pub fn set_returns(addresses: [u64; 2]) {
    for (known, address) in RETURNS.iter().zip(addresses) {
        known.store(address, Ordering::Release);
    }
}

pub(super) fn owns(lookup: u64, _: ModuleId) -> Option<u8> {
    RETURNS.iter().any(|known| lookup + 1 == known.load(Ordering::Acquire)).then_some(0)
}

pub(super) fn step(walk: &mut Walk<'_>, _: u8) {
    walk.root();
}
