//! Physical unwinding: from a register state to the chain of frames, strictly by call frame
//! information where there is some. What it says of an address is looked up once; frames of the form that nearly all
//! have (`usual`) are stepped by it from then on, `cfi` evaluates the rest (stack-realigned functions, signal frames, CFA on
//! other registers) over the full register file. `bare` leaves a frame without information by following its machine code to the
//! return; where that cannot be done, the walk ends with a counted cause: the unwinder never guesses,
//! so no sample gets a wrong parent.
//!
//! Async-signal-safe after [`Unwind::new`].

mod bare;
mod cfi;
pub mod cursor;
pub mod loadmap;
pub mod registers;
mod rules;
pub mod stack;
mod stretches;
mod usual;
pub mod words;

pub use cursor::{Cursor, Frame, Position};
pub use registers::Registers;
pub use stack::StackBounds;

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
    cfi: Box<cfi::Context>,
    rules: &'static mut rules::RuleTable,
    stretches: &'static mut stretches::Stretches,
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
    pub fn new(owner_of: OwnerOf) -> Option<Unwind> {
        Some(Unwind {
            cfi: Box::new(cfi::Context::new_in()),
            rules: rules::RuleTable::map()?,
            stretches: stretches::Stretches::map()?,
            owner_of,
            scratch: stack::Scratch::new()?,
        })
    }
}
