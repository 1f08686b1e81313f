//! Physical unwinding: from a register state to the chain of frames.
//!
//! One walk ([`cursor`]) asks a `stepper` for each frame's caller; what is known of an address is kept in
//! `rules`. Where no stepper knows a caller the walk ends with a counted cause.
//!
//! Async-signal-safe after [`Unwind::new`].

#[cfg(target_arch = "x86_64")]
mod cfi;
pub mod cursor;
mod framehop;
#[cfg(target_arch = "x86_64")]
mod instructions;
pub mod loadmap;
#[cfg(target_arch = "x86_64")]
mod native;
#[cfg_attr(target_arch = "aarch64", path = "registers_aarch64.rs")]
pub mod registers;
mod rule_cache;
pub mod stack;
// Some of what the walk says only the native stepper asks.
pub mod read_log;
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

/// Where a walk ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The outermost frame of the stack: its return address is undefined.
    Root,
    /// The walk cannot go on.
    Broken(LossCause),
}

/// Decides which agent owns a frame: `(look-up address, module) -> owner`. Pure; called once per
/// address and [`loadmap`] generation, the result is cached.
pub type OwnerOf = fn(u64, ModuleId) -> u8;

/// What a thread needs to unwind: caches and scratch space, allocated when the thread starts.
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
    /// Allocates the caches. Not async-signal-safe. `None` when memory cannot be had.
    pub fn new(kind: UnwinderKind, owner_of: OwnerOf) -> Option<Unwind> {
        Some(Unwind {
            stepper: stepper::Stepper::new(kind),
            rules: rule_cache::RuleCache::map()?,
            owner_of,
            scratch: stack::Scratch::new()?,
        })
    }
}
