//! Physical unwinding: from a register state to the chain of frames.
//!
//! A [`cursor`] walks one stack. For each frame it asks the `stepper` for the caller. The rule cache keeps
//! the module, the unwind method and the owner of each code address. When the stepper finds no caller, the
//! unwind ends with a counted cause.
//!
//! Async-signal-safe after [`Unwind::new`].

#[cfg(target_arch = "x86_64")]
mod cfi;
// Some of what the cursor says only the native stepper asks.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
mod callee;
pub mod cursor;
mod framehop;
#[cfg(target_arch = "x86_64")]
mod instructions;
pub mod loadmap;
#[cfg(target_arch = "x86_64")]
mod native;
pub mod read_log;
#[cfg_attr(target_arch = "aarch64", path = "registers_aarch64.rs")]
pub mod registers;
mod rule_cache;
pub mod stack;
// Only the native stepper uses all that the interface offers.
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables, dead_code))]
mod stepper;
#[cfg(target_arch = "x86_64")]
mod unwind_rule;

pub use cursor::{Cursor, Frame, Position};
pub use registers::Registers;
pub use stack::StackBounds;
pub use stepper::UnwinderKind;

use hpc_formats::address::ModuleId;
use hpc_formats::loss::LossCause;

/// Why an unwind ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It reached the outermost frame of the stack, whose return address is undefined.
    Root,
    /// It cannot find the next caller.
    Broken(LossCause),
}

#[cfg(target_arch = "x86_64")]
use cfi::function_at;

/// Only the native stepper reads functions' bounds.
#[cfg(not(target_arch = "x86_64"))]
fn function_at(_: &loadmap::UnwindSections, _: u64) -> Option<u64> {
    None
}

/// Decides which agent owns a frame: `(look-up address, module) -> owner`. Pure. The unwinder calls it once
/// for an address and [`loadmap`] generation, and caches the result.
pub type OwnerOf = fn(u64, ModuleId) -> u8;

/// The unwinder of one thread: caches and scratch space, allocated when the thread starts.
pub struct Unwind {
    stepper: stepper::Stepper,
    rules: &'static mut rule_cache::RuleCache,
    owner_of: OwnerOf,
    scratch: stack::Scratch,
}

impl std::fmt::Debug for Unwind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unwind").finish_non_exhaustive()
    }
}

impl Unwind {
    /// Allocates the caches. Not async-signal-safe. `None` when memory cannot be allocated.
    pub fn new(kind: UnwinderKind, owner_of: OwnerOf) -> Option<Unwind> {
        Some(Unwind {
            stepper: stepper::Stepper::new(kind),
            rules: rule_cache::RuleCache::map()?,
            owner_of,
            scratch: stack::Scratch::new()?,
        })
    }
}
