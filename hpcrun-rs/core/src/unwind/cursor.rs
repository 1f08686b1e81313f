//! Walks one physical stack, frame by frame.
//!
//! Async-signal-safe. The return-address-minus-one of the whole project is in `Cursor::place`.

use super::bare;
use super::cfi::{self, Method};
use super::loadmap::{self, Located, Snapshot};
use super::registers::Registers;
use super::rules::{Rule, RuleTable};
use super::stack::{StackBounds, StackReader};
use super::stretches::Stretches;
use super::usual::Pointers;
use super::words::Words;
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
    cfi: &'a mut cfi::Context,
    rules: &'a mut RuleTable,
    stretches: &'a mut Stretches,
    owner_of: OwnerOf,
    snapshot: &'a Snapshot,
    stack: StackReader<'a>,
    /// Most steps need no other registers.
    registers: Pointers,
    /// The full register file, valid while only `cfi` has stepped since `start`.
    full: Option<Registers>,
    frame: Frame,
    /// Whether the instruction pointer is an interrupted instruction rather than a return address.
    exact: bool,
    start: Registers,
    /// As `exact`, at `start`.
    start_exact: bool,
    steps: u32,
    /// Bare frames left since `full` was last given up.
    bare_steps: u32,
}

/// Bare frames that are left with the full register file: parts of one kernel call each other with
/// conventions of their own. Then it is given up, so that a walk can go on in the way of the last one.
const FULL_BARE_STEPS: u32 = 4;

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
        Cursor {
            cfi: &mut unwind.cfi,
            rules: &mut *unwind.rules,
            stretches: &mut *unwind.stretches,
            owner_of: unwind.owner_of,
            snapshot,
            stack: StackReader::new(bounds, &mut unwind.scratch),
            registers: Pointers::of(&registers),
            full: Some(registers),
            frame: Frame {
                lookup: 0,
                code: CodeAddress::NONE,
                owner: 0,
                method: Method::None,
            },
            exact: true,
            start: registers,
            start_exact: true,
            steps: 0,
            bare_steps: 0,
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
        self.registers = Pointers::of(&registers);
        self.full = Some(registers);
        self.start = registers;
        self.start_exact = true;
        self.steps = 0;
        self.bare_steps = 0;
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
        if self.full.is_some() {
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
    pub fn words(&self) -> &Words {
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
        let generation = self.snapshot.generation();
        if loadmap::is_stable() {
            if let Some((method, code)) = self.stretches.get(lookup, generation) {
                self.know(lookup, code, method, true);
                return Ok(());
            }
        }
        let located =
            loadmap::locate(self.snapshot, lookup).ok_or(End::Broken(LossCause::UnknownModule))?;
        let address = lookup.wrapping_sub(located.bias);
        let code = CodeAddress::new(located.id, address);
        let (mut method, range) = match &located.sections {
            Some(sections) => cfi::classify(sections, address, self.cfi),
            None => (Method::None, address..address),
        };
        if method == Method::None && loadmap::is_entry_code(lookup, &located) {
            method = Method::Root;
        }
        let is_lasting = located.registered && loadmap::is_stable();
        if is_lasting {
            let absolute = |address: u64| address.wrapping_add(located.bias);
            let range = absolute(range.start)..absolute(range.end);
            self.stretches.put(lookup, code, range, generation, method);
        }
        self.know(lookup, code, method, is_lasting);
        Ok(())
    }

    /// The current frame is at an address of which all is known but the owner; `is_lasting`: and will be known next time.
    #[inline]
    fn know(&mut self, lookup: u64, code: CodeAddress, method: Method, is_lasting: bool) {
        let owner = (self.owner_of)(lookup, code.module());
        if is_lasting {
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
    }

    /// Moves to the caller.
    pub fn advance(&mut self) -> Result<(), End> {
        let sp = self.registers.sp;
        let mut exact = false;
        match self.frame.method {
            Method::Usual(usual) => {
                self.give_up_full();
                self.registers = usual.caller(self.registers, &mut self.stack)?;
            }
            Method::Cfi => self.step_cfi()?,
            Method::SignalFrame => {
                self.step_cfi().map_err(|end| match end {
                    End::Root => End::Root,
                    End::Broken(_) => End::Broken(LossCause::BadSignalFrame),
                })?;
                exact = true;
            }
            Method::Root => return Err(End::Root),
            Method::None => return self.step_bare(),
        }
        // A signal handler may run on a stack of its own, anywhere in memory.
        if self.registers.sp <= sp && !exact {
            return Err(End::Broken(LossCause::NoProgress));
        }
        if self.registers.ip == 0 {
            return Err(End::Root);
        }
        self.exact = exact;
        self.steps += 1;
        self.place()
    }

    /// From here on the walk depends on its position alone, and on the memory.
    #[inline]
    fn give_up_full(&mut self) {
        self.full = None;
        self.bare_steps = 0;
    }

    /// Moves to the caller of a frame without information, if its code leads there.
    #[cold]
    #[inline(never)]
    fn step_bare(&mut self) -> Result<(), End> {
        let sp = self.registers.sp;
        let mut code = ModuleCode {
            snapshot: self.snapshot,
            cfi: self.cfi,
        };
        let registers = self.full.unwrap_or_else(|| self.registers.alone());
        let caller = bare::caller(registers, self.exact, &mut code, &mut self.stack)
            .ok_or(End::Broken(LossCause::NoUnwindInfo))?;
        if caller.sp() <= sp {
            return Err(End::Broken(LossCause::NoProgress));
        }
        // What is not known of these is not known from here on; a walk that needs it ends.
        self.registers = Pointers::of(&caller);
        self.full = Some(caller);
        self.exact = false;
        self.place()?;
        if self.frame.method != Method::None {
            // A function of the ABI: it cannot go by what its callee might have changed.
            self.full.iter_mut().for_each(Registers::forget_volatile);
        }
        self.start = self.full.unwrap_or(caller);
        self.start_exact = false;
        self.steps = 0;
        self.bare_steps += 1;
        if self.bare_steps > FULL_BARE_STEPS {
            self.give_up_full();
        }
        Ok(())
    }

    /// Steps over the full register file. When a register is missing because
    /// frames below were stepped with three, those are stepped again here, from the start.
    #[cold]
    #[inline(never)]
    fn step_cfi(&mut self) -> Result<(), End> {
        let located = loadmap::locate(self.snapshot, self.frame.lookup)
            .ok_or(End::Broken(LossCause::UnknownModule))?;
        let first = self.step_located(&located, self.frame.lookup);
        if first != Err(End::Broken(LossCause::BadUnwindInfo)) || self.steps == 0 {
            return first;
        }
        self.replay()?;
        self.step_located(&located, self.frame.lookup)
    }

    fn step_located(&mut self, located: &Located, lookup: u64) -> Result<(), End> {
        let Some(sections) = &located.sections else {
            return Err(End::Broken(LossCause::NoUnwindInfo));
        };
        let mut full = self.full.unwrap_or_else(|| self.registers.alone());
        cfi::step(
            sections,
            lookup.wrapping_sub(located.bias),
            self.cfi,
            &mut full,
            &mut self.stack,
        )?;
        self.registers = Pointers::of(&full);
        self.full = Some(full);
        Ok(())
    }

    fn replay(&mut self) -> Result<(), End> {
        // From here on the way depends on registers of the first frame.
        self.stack.spoil();
        let target = (self.registers.sp, self.registers.ip);
        self.registers = Pointers::of(&self.start);
        self.full = Some(self.start);
        let mut exact = self.start_exact;
        for _ in 0..self.steps {
            let ip = self.registers.ip;
            let lookup = if exact { ip } else { ip.wrapping_sub(1) };
            let located = loadmap::locate(self.snapshot, lookup)
                .ok_or(End::Broken(LossCause::UnknownModule))?;
            let signal = located.sections.as_ref().is_some_and(|s| {
                let address = lookup.wrapping_sub(located.bias);
                cfi::classify(s, address, self.cfi).0 == Method::SignalFrame
            });
            self.step_located(&located, lookup)?;
            exact = signal;
        }
        if (self.registers.sp, self.registers.ip) == target {
            Ok(())
        } else {
            Err(End::Broken(LossCause::BadUnwindInfo))
        }
    }
}

/// The code of the modules in a snapshot.
struct ModuleCode<'a> {
    snapshot: &'a Snapshot,
    cfi: &'a mut cfi::Context,
}

impl bare::Code for ModuleCode<'_> {
    fn at(&mut self, address: u64) -> Option<&'static [u8]> {
        loadmap::code_at(self.snapshot, address)
    }

    fn is_described(&mut self, address: u64) -> bool {
        let located = loadmap::locate(self.snapshot, address);
        located.is_some_and(|l| {
            l.sections.is_some_and(|sections| {
                let address = address.wrapping_sub(l.bias);
                cfi::classify(&sections, address, self.cfi).0 != Method::None
            })
        })
    }
}
