//! Walks one physical stack, frame by frame, with either stepper.
//!
//! Async-signal-safe. The return-address-minus-one of the whole project is in `Cursor::place`.

use super::loadmap::{self, Snapshot};
use super::read_log::ReadLog;
use super::registers::{Pointers, Registers};
use super::rule_cache::{Rule, RuleCache};
use super::stack::{StackBounds, StackReader};
use super::stepper::{Callee, Method, Stepper};
use super::{End, OwnerOf, Unwind};
use hpc_formats::address::CodeAddress;
use hpc_formats::loss::LossCause;

/// A frame of the physical stack.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The absolute look-up address: the interrupted instruction, or the last byte of the call.
    pub lookup: u64,
    /// The same, normalised.
    pub code: CodeAddress,
    /// Who owns the frame, by [`super::OwnerOf`].
    pub owner: u8,
    method: Method,
}

/// Where a walk stands: with the memory, all that the rest of it depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// The frame pointer register.
    pub fp: u64,
    /// Whether the instruction was interrupted (or suspended) rather than in a call.
    pub is_exact: bool,
}

/// The walk: points at a frame, and can move to its caller.
pub struct Cursor<'a> {
    stepper: &'a mut Stepper,
    rules: &'a mut RuleCache,
    owner_of: OwnerOf,
    snapshot: &'a Snapshot,
    stack: StackReader<'a>,
    registers: Pointers,
    frame: Frame,
    /// Whether the instruction pointer is an interrupted instruction rather than a return address.
    exact: bool,
}

impl std::fmt::Debug for Cursor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor")
            .field("frame", &self.frame)
            .finish_non_exhaustive()
    }
}

impl<'a> Cursor<'a> {
    /// A cursor for an interrupted (or suspended) instruction; [`Self::start`] comes first.
    #[inline(always)] // it is large, and made in its place
    pub fn new(
        unwind: &'a mut Unwind,
        snapshot: &'a Snapshot,
        registers: Registers,
        bounds: StackBounds,
    ) -> Cursor<'a> {
        unwind.stepper.begin(&registers);
        Cursor {
            stepper: &mut unwind.stepper,
            rules: &mut *unwind.rules,
            owner_of: unwind.owner_of,
            snapshot,
            stack: StackReader::new(bounds, &mut unwind.scratch),
            registers: Pointers::of(&registers),
            frame: Frame {
                lookup: 0,
                code: CodeAddress::NONE,
                owner: 0,
                method: Method::None,
            },
            exact: true,
        }
    }

    /// Identifies the first frame.
    #[inline]
    pub fn start(&mut self) -> Result<(), End> {
        self.place()
    }

    /// Goes over to another stack, at a suspended instruction there.
    pub fn restart(&mut self, registers: Registers, bounds: StackBounds) -> Result<(), End> {
        self.stack.set_bounds(bounds);
        self.stepper.begin(&registers);
        self.registers = Pointers::of(&registers);
        self.exact = true;
        self.place()
    }

    /// The frame that the cursor points at.
    #[inline]
    pub fn frame(&self) -> Frame {
        self.frame
    }

    /// Stack pointer in that frame.
    #[inline]
    pub fn sp(&self) -> u64 {
        self.registers.sp
    }

    /// Where the walk stands; `None` while it depends on more registers than these.
    #[inline]
    pub fn position(&self) -> Option<Position> {
        if self.stepper.needs_more_registers(self.exact) {
            return None;
        }
        Some(Position {
            ip: self.registers.ip,
            sp: self.registers.sp,
            fp: self.registers.fp,
            is_exact: self.exact,
        })
    }

    /// What the walk has read.
    #[inline]
    pub fn words(&self) -> &ReadLog {
        self.stack.words()
    }

    /// The generation of the load map that the walk uses; `None` while modules come or go.
    #[inline]
    pub fn generation(&self) -> Option<u32> {
        loadmap::is_stable().then(|| self.snapshot.generation())
    }

    /// Notes a word of a structure, read directly, that the walk depends on.
    #[inline]
    pub fn note(&mut self, address: u64, value: u64, is_stack: bool) {
        self.stack.note(address, value, is_stack);
    }

    /// A word of the stack being walked.
    #[inline]
    pub fn read(&mut self, address: u64) -> Option<u64> {
        self.stack.read(address)
    }

    /// A word of any memory, or nothing when it is not readable; it is not noted.
    #[inline]
    pub fn peek(&mut self, address: u64) -> Option<u64> {
        self.stack.peek(address)
    }

    /// Identifies the frame at the current registers.
    #[inline]
    fn place(&mut self) -> Result<(), End> {
        let ip = self.registers.ip;
        let lookup = if self.exact { ip } else { ip.wrapping_sub(1) };
        if loadmap::is_stable() {
            if let Some(rule) = self.rules.get(lookup, self.snapshot.generation()) {
                self.frame = Frame {
                    lookup,
                    code: rule.code,
                    owner: rule.owner,
                    method: rule.method,
                };
                return Ok(());
            }
        }
        self.classify(lookup)
    }

    #[cold]
    #[inline(never)]
    fn classify(&mut self, lookup: u64) -> Result<(), End> {
        let located =
            loadmap::locate(self.snapshot, lookup).ok_or(End::Broken(LossCause::UnknownModule))?;
        let address = lookup.wrapping_sub(located.bias);
        let code = CodeAddress::new(located.id, address);
        let mut method = match &located.sections {
            Some(sections) => self.stepper.classify(sections, address),
            None => Method::None,
        };
        if method == Method::None && loadmap::is_entry_code(lookup, &located) {
            method = Method::Root;
        }
        let owner = (self.owner_of)(lookup, code.module());
        if located.registered && loadmap::is_stable() {
            self.rules.put(Rule {
                lookup,
                code,
                generation: self.snapshot.generation(),
                method,
                owner,
            });
        }
        self.frame = Frame {
            lookup,
            code,
            owner,
            method,
        };
        Ok(())
    }

    /// Moves to the caller.
    pub fn advance(&mut self) -> Result<(), End> {
        let method = self.frame.method;
        if method == Method::Root {
            return Err(End::Root);
        }
        let callee = Callee {
            snapshot: self.snapshot,
            registers: self.registers,
            lookup: self.frame.lookup,
            is_exact: self.exact,
            method,
        };
        let caller = self.stepper.step(&callee, &mut self.stack)?;
        let exact = method == Method::SignalFrame;
        // A signal handler may run on a stack of its own, anywhere in memory.
        if caller.sp <= self.registers.sp && !exact {
            return Err(End::Broken(LossCause::NoProgress));
        }
        self.registers = caller;
        self.exact = exact;
        if caller.ip == 0 {
            return Err(End::Root);
        }
        self.place()
    }
}
