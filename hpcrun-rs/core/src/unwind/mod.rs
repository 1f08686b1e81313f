//! Physical unwinding: from a register state to the chain of frames.
//!
//! A [`cursor`] walks one stack. For each frame it asks `native` for the caller. The rule cache keeps
//! the module, the unwind method and the owner of each code address. When that finds none, the
//! unwind ends with a counted cause.
//!
//! Async-signal-safe after [`Unwind::new`].

mod cfi;
mod code;
pub mod copies;
pub mod cursor;
mod instructions;
pub mod loadmap;
mod native;
pub mod read_log;
pub mod registers;
mod rule_cache;
pub mod stack;
pub mod stack_ends;
mod unwind_rule;
pub(crate) mod window;

pub use cursor::{Cursor, Position};
pub use registers::{Pointers, Registers};
pub use rule_cache::Frame;
pub use stack::StackBounds;

use hpc_formats::address::ModuleId;
use hpc_formats::loss::LossCause;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It reached the outermost frame of the stack, whose return address is undefined.
    Root,
    /// It cannot find the next caller.
    Broken(LossCause),
}

use cfi::function_at;

/// Decides which agent owns a frame: `(look-up address, module) -> owner`. Pure. The unwinder calls it once
/// for an address and [`loadmap`] generation, and caches the result.
pub type OwnerOf = fn(u64, ModuleId) -> u8;

/// The unwinder of one thread: caches and scratch space, allocated when the thread starts.
pub struct Unwind {
    native: native::Native,
    rules: &'static mut rule_cache::RuleCache,
    owner_of: OwnerOf,
    stack: stack::StackReader,
}

impl Unwind {
    /// Allocates the caches. Not async-signal-safe. `None` when memory cannot be allocated.
    pub fn new(owner_of: OwnerOf) -> Option<Unwind> {
        Some(Unwind {
            native: native::Native::new(),
            rules: rule_cache::RuleCache::map()?,
            owner_of,
            stack: stack::StackReader::new()?,
        })
    }
}
