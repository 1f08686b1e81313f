//! From a frame to its caller: what the walk asks, and the two that answer.
//!
//! [`native`](super::native), the default on x86-64, goes by call frame information and the code, and never
//! guesses. [`framehop`](super::framehop) is selectable (`--unwinder framehop`), the only one on other
//! processors, and what the tests compare the other with; it goes by the frame pointer where call frame
//! information fails it.
//!
//! Async-signal-safe after [`Stepper::new`].

use super::End;
use super::framehop::Framehop;
use super::loadmap::{Snapshot, UnwindSections};
#[cfg(target_arch = "x86_64")]
use super::native::Native;
use super::registers::{Pointers, Registers};
use super::stack::StackReader;
#[cfg(target_arch = "x86_64")]
use super::unwind_rule::UnwindRule;

/// Who steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnwinderKind {
    /// Our own rules, on x86-64.
    Native,
    /// The crate framehop.
    Framehop,
}

impl UnwinderKind {
    /// The one that is used unless another is asked for.
    pub const DEFAULT: UnwinderKind = if cfg!(target_arch = "x86_64") {
        UnwinderKind::Native
    } else {
        UnwinderKind::Framehop
    };
}

/// How the frames at one address are stepped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)] // zero, which empty caches hold: the first
pub(super) enum Method {
    /// By few registers and two distances.
    #[cfg(target_arch = "x86_64")]
    Rule(UnwindRule),
    /// By call frame information.
    Cfi,
    /// As `Cfi`; the caller was interrupted, so its address is exact.
    SignalFrame,
    /// The return address is undefined: the outermost frame.
    Root,
    /// There is no information for this address.
    None,
}

/// The frame whose caller is wanted.
pub(super) struct Callee<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) registers: Pointers,
    /// Its look-up address.
    pub(super) lookup: u64,
    /// Whether it was interrupted, rather than being in a call.
    pub(super) is_exact: bool,
    pub(super) method: Method,
}

/// See the module's description.
#[allow(clippy::large_enum_variant)] // a thread has one
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

    /// A walk begins, or goes over to another stack, with these registers.
    #[inline]
    pub(super) fn begin(&mut self, registers: &Registers) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Stepper::Native(native) => native.begin(registers),
            Stepper::Framehop(_) => {}
        }
    }

    /// How frames at an address, as the module states it, are stepped.
    pub(super) fn classify(&mut self, sections: &UnwindSections, address: u64) -> Method {
        match self {
            #[cfg(target_arch = "x86_64")]
            Stepper::Native(native) => native.classify(sections, address),
            Stepper::Framehop(_) => Method::Cfi,
        }
    }

    /// Whether the rest of the walk depends on more registers than [`Pointers`].
    #[inline]
    pub(super) fn needs_more_registers(&self, is_exact: bool) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Stepper::Native(native) => native.needs_more_registers(),
            Stepper::Framehop(_) => is_exact,
        }
    }

    /// The caller's registers.
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
