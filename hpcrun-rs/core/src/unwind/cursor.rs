//! Walks one physical stack, frame by frame.
//!
//! Async-signal-safe. `Cursor::place` turns a return address into a look-up address by subtracting one.

use super::loadmap::{self, Snapshot};
use super::native::{Callee, Native};
use super::registers::{Pointers, Registers};
use super::rule_cache::{Frame, Method, RuleCache};
use super::stack::{self, StackBounds, StackReader};
use super::{End, OwnerOf, Unwind};
use crate::{sandbox, system};
use hpc_formats::address::{CodeAddress, ModuleId};
use hpc_formats::loss::LossCause;

/// The state of an unwind. With memory and load map, it determines the rest of the unwind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    pub registers: Pointers,
    /// Whether the frame was interrupted (or suspended), rather than being in a call.
    pub is_exact: bool,
}

/// An unwind in progress: points at a frame, and can move to its caller.
pub struct Cursor<'a> {
    native: &'a mut Native,
    rules: &'a mut RuleCache,
    owner_of: OwnerOf,
    snapshot: &'a Snapshot,
    pub stack: &'a mut StackReader,
    registers: Pointers,
    frame: Frame,
    /// Whether the instruction pointer is that of an interrupted instruction rather than a return address.
    exact: bool,
    /// Number of steps to a lower address.
    descents: u32,
}

/// Maximal number of steps to a lower address in one unwind.
const MOST_DESCENTS: u32 = 64;

impl<'a> Cursor<'a> {
    /// Makes a cursor at an interrupted (or suspended) instruction. Call [`Self::start`] next.
    #[inline(always)] // large, so it is constructed in place
    pub fn new(
        unwind: &'a mut Unwind,
        snapshot: &'a Snapshot,
        registers: &Registers,
        bounds: StackBounds,
    ) -> Cursor<'a> {
        unwind.native.begin(registers);
        unwind.stack.begin(bounds);
        Cursor {
            native: &mut unwind.native,
            rules: &mut *unwind.rules,
            owner_of: unwind.owner_of,
            snapshot,
            stack: &mut unwind.stack,
            registers: Pointers::of(registers),
            frame: Frame {
                lookup: 0,
                code: CodeAddress::NONE,
                owner: 0,
                generation: 0,
                method: Method::None,
            },
            exact: true,
            descents: 0,
        }
    }

    /// Identifies the first frame.
    #[inline]
    pub fn start(&mut self) -> Result<(), End> {
        self.place()
    }

    /// Continues on another stack, at a suspended instruction there.
    pub fn restart(&mut self, registers: Registers, bounds: StackBounds) -> Result<(), End> {
        self.stack.set_bounds(bounds);
        self.native.begin(&registers);
        self.registers = Pointers::of(&registers);
        self.exact = true;
        self.place()
    }

    #[inline]
    pub fn frame(&self) -> Frame {
        self.frame
    }

    #[inline]
    pub fn sp(&self) -> u64 {
        self.registers.sp
    }

    /// The state of the unwind; `None` while it depends on more registers than a [`Position`] holds.
    #[inline]
    pub fn position(&self) -> Option<Position> {
        let is_all = !self.native.needs_more_registers();
        is_all.then_some(Position { registers: self.registers, is_exact: self.exact })
    }

    /// The generation of the load map in use; `None` while modules are being unloaded.
    #[inline]
    pub fn generation(&self) -> Option<u32> {
        loadmap::is_stable().then(|| self.snapshot.generation())
    }

    /// Finds the frame at the current registers.
    #[inline]
    fn place(&mut self) -> Result<(), End> {
        let ip = self.registers.ip;
        let lookup = if self.exact { ip } else { ip.wrapping_sub(1) };
        if loadmap::is_stable() {
            if let Some(frame) = self.rules.get(lookup, self.snapshot.generation()) {
                self.frame = frame;
                return Ok(());
            }
        }
        self.classify(lookup)
    }

    #[cold]
    #[inline(never)]
    fn classify(&mut self, lookup: u64) -> Result<(), End> {
        let Some(located) = loadmap::locate(self.snapshot, lookup) else {
            return self.place_outside(lookup);
        };
        let address = lookup.wrapping_sub(located.bias);
        let code = CodeAddress::new(located.id, address);
        let mut method = located
            .sections
            .as_ref()
            .map_or(Method::None, |sections| self.native.classify(sections, address));
        let function = located.sections.as_ref().and_then(|s| super::function_at(s, address));
        if loadmap::is_entry_code(lookup, &located, function) {
            method = Method::Root;
        }
        self.frame = self.frame_at(lookup, code, method);
        if located.registered && loadmap::is_stable() {
            self.rules.put(self.frame);
        }
        Ok(())
    }

    fn frame_at(&self, lookup: u64, code: CodeAddress, method: Method) -> Frame {
        let owner = (self.owner_of)(lookup, code.module());
        Frame { lookup, code, owner, generation: self.snapshot.generation(), method }
    }

    /// Identifies a frame outside of the modules. The processor was there, or a call returns there: else it
    /// is no frame.
    fn place_outside(&mut self, lookup: u64) -> Result<(), End> {
        if !self.exact && !self.native.follows_call(self.snapshot, self.registers.ip) {
            return Err(End::Broken(LossCause::UnknownModule));
        }
        loadmap::note_outside();
        let code = CodeAddress::new(ModuleId::UNKNOWN, lookup);
        self.frame = self.frame_at(lookup, code, Method::Generated);
        Ok(())
    }

    /// Whether the signal handler of this frame has returned, and what runs on its alternate stack is a
    /// coroutine that it has left there: the stack has been replaced since.
    #[cold]
    fn was_left(&mut self) -> bool {
        let sp = self.registers.sp;
        if stack::bounds_from(sp) != StackBounds::NONE || sandbox::refuses(libc::SYS_sigaltstack) {
            return false;
        }
        // What the stack is now is no word of it.
        self.stack.words.invalidate();
        // The handler has returned to the kernel's `ucontext`, whose third word on is the stack.
        let then = [16, 24, 32].map(|field| self.stack.peek(sp + field));
        let [Some(start), Some(flags), Some(size)] = then else { return false };
        let mut now = [0_u64; 3];
        let arguments = [0, now.as_mut_ptr() as usize, 0, 0, 0];
        // SAFETY: the kernel writes a `stack_t`, which is as large.
        let told = unsafe { system::call(libc::SYS_sigaltstack, arguments) } == 0;
        let is_disarmed = flags as u32 & 1 << 31 != 0;
        told && !is_disarmed && sp.wrapping_sub(start) < size && [now[0], now[2]] != [start, size]
    }

    pub fn advance(&mut self) -> Result<(), End> {
        let method = self.frame.method;
        if method == Method::Root || (method == Method::SignalFrame && self.was_left()) {
            return Err(End::Root);
        }
        let callee = Callee {
            snapshot: self.snapshot,
            registers: self.registers,
            lookup: self.frame.lookup,
            is_exact: self.exact,
            method,
        };
        let caller = self.native.step(&callee, self.stack)?;
        let exact = method == Method::SignalFrame;
        // A signal handler may run on a stack of its own, anywhere in memory, and so may a function that
        // its caller runs on another stack. A return address may be in a register, as in `vfork`: then the
        // stack pointer stays. Only a corrupt stack leads nowhere, or down again and again.
        if caller.sp <= self.registers.sp && !exact {
            self.descents += 1;
            let stays = caller.sp == self.registers.sp && caller.ip == self.registers.ip;
            if stays || self.descents > MOST_DESCENTS {
                return Err(End::Broken(LossCause::NoProgress));
            }
        }
        self.registers = caller;
        self.exact = exact;
        if caller.ip == 0 && !exact {
            return Err(End::Root);
        }
        self.place()
    }
}
