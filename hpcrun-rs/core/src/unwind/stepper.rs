//! Steps from a frame to its caller: the interface that the cursor calls, and the choice between two
//! steppers.
//!
//! - [`native`](super::native), the default on x86-64, uses call frame information and machine code. It never
//!   guesses.
//! - [`framehop`](super::framehop), selected by `--unwinder framehop`, is the only stepper on other
//!   processors, and the reference that tests compare the native one with. It falls back to the frame pointer
//!   when call frame information fails.
//!
//! Async-signal-safe after [`Stepper::new`].

use super::End;
use super::callee::{Callee, Method};
use super::framehop::Framehop;
use super::loadmap::UnwindSections;
#[cfg(target_arch = "x86_64")]
use super::native::Native;
use super::registers::{Pointers, Registers};
use super::stack::StackReader;

/// A stepper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnwinderKind {
    /// Our own, for x86-64.
    Native,
    /// The crate framehop.
    Framehop,
}

impl UnwinderKind {
    /// The stepper that is used unless the user selects another.
    pub const DEFAULT: UnwinderKind =
        if cfg!(target_arch = "x86_64") { UnwinderKind::Native } else { UnwinderKind::Framehop };
}

/// The stepper of one thread.
#[allow(clippy::large_enum_variant)] // one per thread
pub(super) enum Stepper {
    #[cfg(target_arch = "x86_64")]
    Native(Native),
    Framehop(Framehop),
}

impl Stepper {
    /// Not async-signal-safe.
    pub(super) fn new(kind: UnwinderKind) -> Stepper {
        match kind {
            #[cfg(target_arch = "x86_64")]
            UnwinderKind::Native => Stepper::Native(Native::new()),
            _ => Stepper::Framehop(Framehop::new()),
        }
    }

    /// Starts an unwind, or continues it on another stack, with these registers.
    #[inline]
    pub(super) fn begin(&mut self, registers: &Registers) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Stepper::Native(native) => native.begin(registers),
            Stepper::Framehop(_) => {}
        }
    }

    /// Finds the method for the frames at a link-time address.
    pub(super) fn classify(&mut self, sections: &UnwindSections, address: u64) -> Method {
        match self {
            #[cfg(target_arch = "x86_64")]
            Stepper::Native(native) => native.classify(sections, address),
            Stepper::Framehop(_) => Method::Cfi,
        }
    }

    /// Whether the rest of the unwind depends on more registers than [`Pointers`].
    #[inline]
    pub(super) fn needs_more_registers(&self, is_exact: bool) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Stepper::Native(native) => native.needs_more_registers(),
            Stepper::Framehop(_) => is_exact,
        }
    }

    /// Computes the caller's registers.
    #[inline]
    pub(super) fn step(
        &mut self,
        callee: &Callee<'_>,
        stack: &mut StackReader<'_>,
    ) -> Result<Pointers, End> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Stepper::Native(native) => native.step(callee, stack),
            Stepper::Framehop(framehop) => framehop.step(callee, stack),
        }
    }
}
