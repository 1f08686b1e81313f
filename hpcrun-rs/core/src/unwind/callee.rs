//! A frame whose caller is wanted, and how it is found.

use super::loadmap::Snapshot;
use super::registers::Pointers;
use super::unwind_rule::UnwindRule;

/// How to step the frames at one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)] // empty caches hold zeros: the first variant
pub(super) enum Method {
    /// With an unwind rule.
    Rule(UnwindRule),
    /// With call frame information.
    Cfi,
    /// Like `Cfi`, for a signal trampoline: the caller was interrupted, so its instruction pointer is exact.
    SignalFrame,
    /// The return address is undefined: the outermost frame.
    Root,
    /// The module has no information for this address.
    None,
    /// Like `None`, in no module: generated code, or no code at all.
    Generated,
}

/// A frame whose caller is wanted.
pub(super) struct Callee<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) registers: Pointers,
    /// The look-up address of the frame.
    pub(super) lookup: u64,
    /// Whether the frame was interrupted, rather than being in a call.
    pub(super) is_exact: bool,
    pub(super) method: Method,
}
