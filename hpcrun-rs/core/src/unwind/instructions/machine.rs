//! Tracks the registers and the stack of a function, as far as needed to find its return.
//!
//! Input: the registers at one instruction, and the effects of the following instructions (`x86`). A value
//! that is unknown stays unknown. The machine never reads memory below its initial stack pointer: there, only
//! words that the function writes along the path count.
//!
//! Async-signal-safe.

use super::super::registers::Registers;
use super::super::stack::StackReader;
use super::x86::{Effect, FP, Register, SP, Slot};

/// DWARF numbers of registers, indexed by their numbers in instructions.
const DWARF: [u16; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
/// rax and rdx by their numbers in instructions: the registers that return values. Other registers that the
/// ABI lets a callee change are kept. Code that uses one after a call, without setting it, has a convention
/// of its own with that callee, as functions of one hand-written kernel do.
const RESULTS: [Register; 2] = [0, 2];
/// Maximal number of words that a function writes along the path.
const MOST_WRITTEN: usize = 12;
/// Maximal number of words that a path depends on.
const MOST_DEPENDS: usize = 6;
/// Maximal distance, in bytes, of saved registers from the stack pointer.
const LARGEST_FRAME: u64 = 1 << 20;

fn displace(base: u64, slot: Slot) -> u64 {
    base.wrapping_add_signed(i64::from(slot.displacement))
}

/// Registers and stack at one point of a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    registers: Registers,
    /// The initial stack pointer.
    floor: u64,
    /// Words written since, in order of their first write: address and value.
    written: [(u64, Option<u64>); MOST_WRITTEN],
    count: usize,
    /// The address that each register's value was loaded from; 0 if it was not loaded.
    sources: [u64; 16],
    /// Addresses of words that the stack pointer or the choice of the path depends on.
    depends: [u64; MOST_DEPENDS],
    depends_count: usize,
}

impl Machine {
    pub(super) fn new(registers: Registers) -> Machine {
        Machine {
            registers,
            floor: registers.sp(),
            written: [(0, None); MOST_WRITTEN],
            count: 0,
            sources: [0; 16],
            depends: [0; MOST_DEPENDS],
            depends_count: 0,
        }
    }

    /// The value of a register, if known.
    #[inline]
    fn get(&self, register: Register) -> Option<u64> {
        self.registers.get(DWARF[usize::from(register & 15)])
    }

    /// Sets a register to a value that does not depend on memory.
    #[inline]
    fn set(&mut self, register: Register, value: Option<u64>) {
        self.set_from(register, value, 0);
    }

    /// Sets a register; `source` is the address that the value was loaded from.
    fn set_from(&mut self, register: Register, value: Option<u64>, source: u64) {
        self.sources[usize::from(register & 15)] = source;
        if register == SP {
            self.depend(source);
        }
        let register = DWARF[usize::from(register & 15)];
        match value {
            Some(value) => self.registers.set(register, value),
            None => self.registers.forget(register),
        }
    }

    fn source(&self, register: Register) -> u64 {
        self.sources[usize::from(register & 15)]
    }

    /// Records that the result depends on the word at `source`; 0 means no word.
    fn depend(&mut self, source: u64) {
        if source == 0 || self.depends[..self.depends_count.min(MOST_DEPENDS)].contains(&source) {
            return;
        }
        if let Some(free) = self.depends.get_mut(self.depends_count) {
            *free = source;
        }
        self.depends_count += 1;
    }

    /// The value of a register that the path depends on from here.
    pub(super) fn decide_by(&mut self, register: Register) -> Option<u64> {
        self.depend(self.source(register));
        self.get(register)
    }

    fn at(&mut self, slot: Option<Slot>) -> Option<u64> {
        let slot = slot?;
        Some(displace(self.decide_by(slot.base)?, slot))
    }

    fn read(&self, address: u64, stack: &mut StackReader) -> Option<u64> {
        let written = self.written[..self.count].iter().rev();
        if let Some(&(_, value)) = written.into_iter().find(|(at, _)| *at == address) {
            return value;
        }
        // Memory farther away holds no saved registers, and may be costly to read.
        let above = address.wrapping_sub(self.floor);
        (above < LARGEST_FRAME).then(|| stack.peek(address)).flatten()
    }

    /// Writes a word; `None` when there is no space for it.
    fn write(&mut self, address: u64, from: Option<Register>) -> Option<()> {
        let value = from.and_then(|register| self.decide_by(register));
        let written = &mut self.written;
        let known = written[..self.count].iter().position(|w| w.0 == address);
        let index = known.unwrap_or(self.count);
        *written.get_mut(index)? = (address, value);
        self.count = self.count.max(index + 1);
        Some(())
    }

    /// Pops a word: its address, and its value if known.
    fn pop(&mut self, stack: &mut StackReader) -> (u64, Option<u64>) {
        let Some(sp) = self.get(SP) else {
            return (0, None);
        };
        self.set(SP, Some(sp.wrapping_add(8)));
        (sp, self.read(sp, stack))
    }

    /// Applies the effect of an instruction that ends at `next`. `None` when the effect cannot be tracked.
    /// The caller handles transfers of control, except calls, which are assumed to return.
    pub(super) fn apply(&mut self, effect: Effect, next: u64, stack: &mut StackReader) -> Option<()> {
        match effect {
            Effect::Near(to, distance) => {
                self.set(to, Some(next.wrapping_add_signed(distance.into())));
            }
            Effect::Push(register) => {
                let sp = self.get(SP).map(|sp| sp.wrapping_sub(8));
                if let Some(sp) = sp {
                    self.write(sp, register)?;
                }
                self.set(SP, sp);
            }
            Effect::Pop(register) => {
                let (source, value) = self.pop(stack);
                if let Some(register) = register {
                    self.set_from(register, value, source);
                }
            }
            Effect::Add(register, by) => {
                let value = self.get(register);
                let value = value.map(|v| v.wrapping_add_signed(by.into()));
                self.set_from(register, value, self.source(register));
            }
            Effect::And(register, mask) => {
                let value = self.get(register).map(|v| v & i64::from(mask) as u64);
                self.set_from(register, value, self.source(register));
            }
            Effect::Copy { to, from } => self.set_from(to, self.get(from), self.source(from)),
            Effect::Address { to, of } => {
                let value = self.at(of);
                self.set(to, value);
            }
            Effect::Load { to, from } => {
                let address = self.at(from);
                let value = address.and_then(|a| self.read(a, stack));
                self.set_from(to, value, address.unwrap_or(0));
            }
            Effect::Store { to, from } => {
                // Saved registers are only in the stack, so other stores are ignored.
                let Some(address) = self.at(to) else {
                    return Some(());
                };
                if address.wrapping_sub(self.lowest()) < LARGEST_FRAME {
                    self.write(address, Some(from))?;
                }
            }
            Effect::Change(register) => self.set(register, None),
            Effect::Leave => {
                self.set_from(SP, self.get(FP), self.source(FP));
                let (source, saved) = self.pop(stack);
                self.set_from(FP, saved, source);
            }
            // Position-independent code gets the address of the next instruction this way.
            Effect::Call(Some(0)) => self.apply(Effect::Push(None), next, stack)?,
            Effect::Call(_) => {
                for register in RESULTS {
                    self.set(register, None);
                }
            }
            Effect::None
            | Effect::Padding
            | Effect::Return(_)
            | Effect::Jump(_)
            | Effect::Branch(_)
            | Effect::JumpThrough
            | Effect::JumpTo(_)
            | Effect::JumpAnywhere
            | Effect::Stop => {}
        }
        Some(())
    }

    /// The lowest stack address that the function may use: the red zone included.
    fn lowest(&self) -> u64 {
        let red_zone = 128;
        let sp = self.get(SP).unwrap_or(self.floor);
        sp.min(self.floor).saturating_sub(red_zone)
    }

    /// Returns from the function: reads the return address at the top of the stack, and computes the
    /// registers of the caller. Logs all words that they depend on.
    pub(super) fn caller(mut self, arguments: u16, stack: &mut StackReader) -> Option<Registers> {
        let sp = self.get(SP)?;
        if sp < self.floor || sp % 8 != 0 {
            return None;
        }
        self.depend(self.source(FP));
        match self.depends.get(..self.depends_count) {
            Some(depends) => {
                for word in depends {
                    stack.read(*word);
                }
            }
            None => stack.words.invalidate(),
        }
        let (place, ip) = self.pop(stack);
        let ip = ip?;
        stack.read(place);
        for register in RESULTS {
            self.set(register, None);
        }
        let mut caller = self.registers;
        caller.set_ip(ip);
        caller.set_sp(sp.wrapping_add(8 + u64::from(arguments)));
        Some(caller)
    }
}
