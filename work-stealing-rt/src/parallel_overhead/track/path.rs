//! The profiler's functions for the critical path, in the runtime's types.
//!
//! One duty: call them, and keep what they give numbers to. Without a profiler that tracks, nothing is
//! active.

use core::panic::Location;

use hpcrun_abi::{self as abi, PathTable};

use crate::profiler;

pub(crate) use crate::profiler::path_is_active as is_active;
/// A copy of a strand on its way along an edge. It must be given back; nothing is freed by a drop.
pub(crate) use hpcrun_abi::client::Strand;

/// Calls `change` with the profiler's functions, if there are any. `change` is allowed to call them with
/// strands that it owns, and with texts.
#[inline(always)]
fn with<R>(change: impl FnOnce(&'static PathTable) -> R) -> Option<R> {
    profiler::path().map(change)
}

// In all of these a strand was made by the profiler, and is given back once: a `Strand` is not copied. A
// place is one of the source, or a task that lives.

#[inline(always)]
pub(crate) fn copy(at: abi::Site) -> Option<Strand> {
    // SAFETY: see above.
    with(|path| Strand::new(unsafe { (path.copy)(at) })).flatten()
}

/// As `copy`, for a fork.
#[inline(always)]
pub(crate) fn fork(at: abi::Site) -> Option<Strand> {
    // SAFETY: see above.
    with(|path| Strand::new(unsafe { (path.fork)(at) })).flatten()
}

/// The calling strand has waited for the end of another one; `None`: that was not tracked.
#[inline(always)]
pub(crate) fn join(ended: Option<Strand>, at: abi::Site) {
    // SAFETY: see above.
    with(|path| unsafe { (path.merge)(Strand::word(ended), at, abi::EDGE_JOIN) });
}

/// Leaves the current strand for a spawned one.
#[inline(always)]
pub(crate) fn begin(spawned: Option<Strand>, at: abi::Site) -> Option<Strand> {
    // SAFETY: see above.
    with(|path| Strand::new(unsafe { (path.begin)(Strand::word(spawned), at) })).flatten()
}

/// Ends it, and goes on with the one that was left.
#[inline(always)]
pub(crate) fn end(left: Strand, at: abi::Site) -> Option<Strand> {
    // SAFETY: see above.
    with(|path| Strand::new(unsafe { (path.end)(left.lent(), at) })).flatten()
}

/// As [`end`], and the strand that was left has waited for it.
#[inline(always)]
pub(crate) fn end_and_join(left: Strand, at: abi::Site) {
    // SAFETY: see above.
    with(|path| unsafe { (path.end_and_merge)(left.lent(), at) });
}

/// Of two strands for which the same one waits, one.
#[inline(always)]
pub(crate) fn both(first: Option<Strand>, second: Option<Strand>) -> Option<Strand> {
    // SAFETY: see above.
    with(|path| Strand::new(unsafe { (path.both)(Strand::word(first), Strand::word(second)) })).flatten()
}

#[inline(always)]
pub(crate) fn discard(strand: Option<Strand>) {
    // SAFETY: see above.
    with(|path| unsafe { (path.discard)(Strand::word(strand)) });
}

/// A strand has ended for which nobody waits.
#[inline(always)]
pub(crate) fn finish(ended: Strand) {
    // SAFETY: see above.
    with(|path| unsafe { (path.finish)(ended.lent()) });
}

#[inline(always)]
pub(crate) fn pause() {
    with(|path| (path.pause)());
}

#[inline(always)]
pub(crate) fn resume() {
    with(|path| (path.resume)());
}

#[inline(always)]
pub(crate) fn lose(cause: u32) {
    with(|path| (path.lose)(cause));
}

/// The site of a place in the source; 0 if nothing is tracked.
#[inline(always)]
pub(crate) fn at(location: &'static Location<'static>) -> abi::Site {
    if is_active() { look_up(location) } else { 0 }
}

/// The site of the calling context; 0 if nothing is tracked, or it is not known.
pub(crate) fn context() -> abi::Site {
    match is_active().then(profiler::capture_context) {
        None | Some(0) => 0,
        Some(context) => abi::SITE_CONTEXT | context as abi::Site,
    }
}

#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
fn look_up(location: &'static Location<'static>) -> abi::Site {
    with(|path| path.at(location)).unwrap_or(0)
}
