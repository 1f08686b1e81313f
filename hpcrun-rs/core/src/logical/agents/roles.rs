//! Roles: the purpose of code ranges in runtimes that do not cooperate, as found by their agents.
//!
//! Async-signal-safe: [`role_of`].
//!
//! Invariant: a published list is immutable, sorted, free of overlaps, and never freed.

use super::lock_waits::LockWait;
use hpc_formats::address::ModuleId;
use std::hint::black_box;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The purpose of a range of code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Role {
    /// A worker without a job searches for one, sleeps, or waits.
    Scheduler,
    /// The entry of a job.
    Task,
    /// A loop that waits for other threads.
    SpinLoop,
    /// Other code of a runtime that has such loops.
    Support,
    /// A function in which a thread waits for a lock, on a futex.
    LockWait(LockWait),
}

/// A range of code, in absolute addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) role: Role,
}

static PUBLISHED: AtomicPtr<Vec<Range>> = AtomicPtr::new(ptr::null_mut());
static SCANNED: Mutex<Vec<(ModuleId, Vec<Range>)>> = Mutex::new(Vec::new());

/// The role of the code at an address.
pub(super) fn role_of(lookup: u64) -> Option<Role> {
    // SAFETY: null, or a list that `publish` has leaked, so it lives forever and is immutable.
    let ranges = unsafe { PUBLISHED.load(Ordering::Acquire).as_ref() }?;
    let after = ranges.partition_point(|r| r.start <= lookup);
    let range = ranges.get(after.checked_sub(1)?)?;
    (lookup < range.end).then_some(range.role)
}

/// Stores the ranges of a module; false when another thread holds the lock. Not async-signal-safe.
pub(super) fn keep(module: ModuleId, ranges: Vec<Range>) -> bool {
    let Ok(mut scanned) = SCANNED.try_lock() else {
        return false;
    };
    scanned.retain(|(known, _)| *known != module);
    scanned.push((module, ranges));
    publish(&scanned);
    true
}

/// Drops the ranges of an unloaded module. Not async-signal-safe.
pub fn evict(id: ModuleId) {
    let Ok(mut scanned) = SCANNED.try_lock() else {
        return;
    };
    let before = scanned.len();
    scanned.retain(|(known, _)| *known != id);
    if scanned.len() != before {
        publish(&scanned);
    }
}

/// Publishes a new list. Leaks the old one, which a handler may still read; changes are few and rare.
fn publish(scanned: &[(ModuleId, Vec<Range>)]) {
    let mut all: Vec<Range> = scanned.iter().flat_map(|(_, r)| r).copied().collect();
    all.sort_unstable();
    // The black box hides the allocation. Otherwise LLVM 19 (Rust 1.85) keeps it in a global and shrinks the
    // atomic to a flag, whose load it then cannot translate.
    let list = black_box(Box::into_raw(Box::new(all)));
    PUBLISHED.store(list, Ordering::Release);
}
