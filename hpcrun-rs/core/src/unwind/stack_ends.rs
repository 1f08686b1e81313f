//! The return addresses at the ends of stacks, which no call has left there, with who declares them.
//!
//! Async-signal-safe.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// An address and its tag; the address is written last.
static ENDS: [(AtomicU64, AtomicU8); 8] = [const { (AtomicU64::new(0), AtomicU8::new(0)) }; 8];

/// Declares an address; 0 is none. What finds no room is not known.
pub fn add(address: u64, tag: u8) {
    let mut free = ENDS.iter().filter(|end| end.0.load(Ordering::Relaxed) == 0);
    if let Some(end) = free.next().filter(|_| address != 0 && at(address).is_none()) {
        end.1.store(tag, Ordering::Relaxed);
        end.0.store(address, Ordering::Release);
    }
}

/// The tag of an address that was declared.
pub fn at(address: u64) -> Option<u8> {
    let known = ENDS.iter().find(|end| end.0.load(Ordering::Acquire) == address);
    known.filter(|_| address != 0).map(|end| end.1.load(Ordering::Relaxed))
}
