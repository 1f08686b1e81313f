//! The machine code at an address: of the modules directly, of other memory (generated code) as a copy that
//! the kernel makes, which fails instead of faulting.
//!
//! Async-signal-safe.

use super::cfi;
use super::instructions;
use super::loadmap::{self, Snapshot};
use super::rule_cache::Method;
use super::stack_ends;
use super::window::Window;
use std::ops::RangeInclusive;

/// No instruction is longer.
pub(super) const LONGEST: usize = 16;

/// A copy of code that lies in no module.
pub(super) type Copied = Window<8192>;

/// The code that an unwind may look at.
pub(super) struct Code<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) cfi: &'a mut cfi::Context,
    pub(super) window: &'a mut Copied,
}

impl Code<'_> {
    /// Code from an address on: of a module up to the end of its segment, of other memory at least one
    /// instruction. `None` where nothing can be read.
    pub(super) fn at(&mut self, address: u64) -> Option<&[u8]> {
        match loadmap::code_at(self.snapshot, address) {
            Some(code) => Some(code),
            None if loadmap::locate(self.snapshot, address).is_some() => None,
            None => self.window.at(address, LONGEST),
        }
    }

    /// Whether a module has unwind information for an address.
    pub(super) fn is_described(&mut self, address: u64) -> bool {
        let located = loadmap::locate(self.snapshot, address);
        located.is_some_and(|l| {
            l.sections.is_some_and(|sections| {
                let address = address.wrapping_sub(l.bias);
                cfi::classify(&sections, address, self.cfi) != Method::None
            })
        })
    }

    /// Whether a call instruction ends at an address, or it is the end of a stack.
    pub(super) fn follows_call(&mut self, address: u64) -> bool {
        const LENGTHS: RangeInclusive<usize> = 2..=7;
        // The longest first, which needs the most bytes; fewer may be readable.
        stack_ends::at(address).is_some()
            || LENGTHS.rev().any(|length| {
                let code = address.checked_sub(length as u64).and_then(|at| self.at(at));
                code.and_then(|bytes| bytes.get(..length)).is_some_and(instructions::is_call)
            })
    }
}
