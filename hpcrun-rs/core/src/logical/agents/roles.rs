//! What ranges of code are for, in runtimes that do not cooperate, as their agents have found out.
//!
//! Async-signal-safe: [`owner_of`].
//!
//! Invariant: a published list is immutable, sorted, without overlaps, and never freed.

use super::Owner;
use hpc_formats::address::ModuleId;
use std::hint::black_box;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What a range of code is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Role {
    /// A worker without a job looks for one, sleeps, or waits.
    Scheduler,
    /// A job is entered.
    Task,
    /// A loop that waits for others.
    SpinLoop,
    /// Other code of a runtime that has such loops.
    Support,
}

/// A range of code, absolute addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) role: Role,
}

static PUBLISHED: AtomicPtr<Vec<Range>> = AtomicPtr::new(ptr::null_mut());
static LEARNT: Mutex<Vec<(ModuleId, Vec<Range>)>> = Mutex::new(Vec::new());

/// Whose the frame at an address is, if its code has a role.
pub(super) fn owner_of(lookup: u64) -> Option<Owner> {
    // SAFETY: null, or a leaked list (below).
    let ranges = unsafe { PUBLISHED.load(Ordering::Acquire).as_ref() }?;
    let after = ranges.partition_point(|r| r.start <= lookup);
    let range = ranges.get(after.checked_sub(1)?)?;
    (lookup < range.end).then_some(match range.role {
        Role::Scheduler => Owner::Scheduler,
        Role::Task => Owner::Task,
        Role::SpinLoop => Owner::SpinLoop,
        Role::Support => Owner::Support,
    })
}

/// Keeps the ranges of a module; false when another thread is at it. Not async-signal-safe.
pub(super) fn keep(module: ModuleId, ranges: Vec<Range>) -> bool {
    let Ok(mut learnt) = LEARNT.try_lock() else {
        return false;
    };
    learnt.retain(|(known, _)| *known != module);
    learnt.push((module, ranges));
    publish(&learnt);
    true
}

/// A module is gone. Not async-signal-safe.
pub fn evict(id: ModuleId) {
    let Ok(mut learnt) = LEARNT.try_lock() else {
        return;
    };
    let before = learnt.len();
    learnt.retain(|(known, _)| *known != id);
    if learnt.len() != before {
        publish(&learnt);
    }
}

/// Modules that matter are few and rarely change: an old list is left for handlers that may still read it.
fn publish(learnt: &[(ModuleId, Vec<Range>)]) {
    let mut all: Vec<Range> = learnt.iter().flat_map(|(_, r)| r).copied().collect();
    all.sort_unstable();
    // The black box hides the allocation: LLVM 19 (Rust 1.85) would keep it in a global of its own and
    // shrink the atomic to a flag, whose load it then cannot translate.
    let list = black_box(Box::into_raw(Box::new(all)));
    PUBLISHED.store(list, Ordering::Release);
}
