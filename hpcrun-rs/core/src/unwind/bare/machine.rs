//! The registers and the stack of a function as it goes on, as far as they are needed to find its way
//! out.
//!
//! Input: the registers at one instruction, and the effects of those that follow (`x86`). A value
//! that is not known stays unknown: nothing below the stack pointer that the machine began with is read,
//! as only what the function writes from here on counts there.
//!
//! Async-signal-safe.

use super::super::registers::Registers;
use super::super::stack::StackReader;
use super::x86::{Effect, FP, Register, SP, Slot};

/// DWARF's numbers of registers, by those in instructions.
const DWARF: [u16; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
/// rax and rdx, by instructions' numbers: what a callee returns. Others that the ABI gives to the callee
/// stay as they are: code that uses one after a call, without setting it, has a convention of its own
/// with that callee, as parts of one kernel do.
const RESULTS: [Register; 2] = [0, 2];
/// Most words that a function writes on its way out.
const MOST_WRITTEN: usize = 12;

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    registers: Registers,
    /// The stack pointer at the beginning.
    floor: u64,
    /// Words written since, last last: address and value.
    written: [(u64, Option<u64>); MOST_WRITTEN],
    count: usize,
}

impl Machine {
    pub(super) fn new(registers: Registers) -> Machine {
        Machine {
            registers,
            floor: registers.sp(),
            written: [(0, None); MOST_WRITTEN],
            count: 0,
        }
    }

    /// The value of a register, if known.
    #[inline]
    pub(super) fn get(&self, register: Register) -> Option<u64> {
        self.registers.get(DWARF[usize::from(register & 15)])
    }

    #[inline]
    fn set(&mut self, register: Register, value: Option<u64>) {
        let register = DWARF[usize::from(register & 15)];
        match value {
            Some(value) => self.registers.set(register, value),
            None => self.registers.forget(register),
        }
    }

    fn at(&self, slot: Option<Slot>) -> Option<u64> {
        let slot = slot?;
        let base = self.get(slot.base)?;
        Some(base.wrapping_add_signed(i64::from(slot.displacement)))
    }

    /// The word of the stack at an address.
    fn read(&self, address: u64, stack: &mut StackReader<'_>) -> Option<u64> {
        let written = self.written[..self.count].iter().rev();
        if let Some(&(_, value)) = written.into_iter().find(|(at, _)| *at == address) {
            return value;
        }
        // Other memory than the stack does not hold a stack pointer.
        let above = address.wrapping_sub(self.floor);
        (above < 1 << 32).then(|| stack.read(address)).flatten()
    }

    /// `None` when there is no space for it.
    fn write(&mut self, address: u64, value: Option<u64>) -> Option<()> {
        let written = &mut self.written;
        let known = written[..self.count].iter().position(|w| w.0 == address);
        let index = known.unwrap_or(self.count);
        *written.get_mut(index)? = (address, value);
        self.count = self.count.max(index + 1);
        Some(())
    }

    fn pop(&mut self, stack: &mut StackReader<'_>) -> Option<u64> {
        let sp = self.get(SP)?;
        self.set(SP, Some(sp.wrapping_add(8)));
        self.read(sp, stack)
    }

    /// Does what an instruction that ends at `next` does to registers and stack. `None` when its effect
    /// cannot be kept. Transfers of control are the caller's, save that a call returns.
    pub(super) fn apply(
        &mut self,
        effect: Effect,
        next: u64,
        stack: &mut StackReader<'_>,
    ) -> Option<()> {
        match effect {
            Effect::Near(to, distance) => {
                self.set(to, Some(next.wrapping_add_signed(distance.into())));
            }
            Effect::Push(register) => {
                let value = register.and_then(|r| self.get(r));
                let sp = self.get(SP).map(|sp| sp.wrapping_sub(8));
                self.set(SP, sp);
                if let Some(sp) = sp {
                    self.write(sp, value)?;
                }
            }
            Effect::Pop(register) => {
                let value = self.pop(stack);
                if let Some(register) = register {
                    self.set(register, value);
                }
            }
            Effect::Add(register, by) => {
                let value = self.get(register);
                self.set(register, value.map(|v| v.wrapping_add_signed(by.into())));
            }
            Effect::And(register, mask) => {
                let value = self.get(register);
                self.set(register, value.map(|v| v & i64::from(mask) as u64));
            }
            Effect::Copy { to, from } => self.set(to, self.get(from)),
            Effect::Address { to, of } => self.set(to, self.at(of)),
            Effect::Load { to, from } => {
                let value = self.at(from).and_then(|a| self.read(a, stack));
                self.set(to, value);
            }
            Effect::Store { to, from } => {
                // Only what is written to the stack can be a saved register.
                let Some(address) = self.at(to) else {
                    return Some(());
                };
                if address.wrapping_sub(self.lowest()) < 1 << 20 {
                    self.write(address, self.get(from))?;
                }
            }
            Effect::Change(register) => self.set(register, None),
            Effect::Leave => {
                self.set(SP, self.get(FP));
                let saved = self.pop(stack);
                self.set(FP, saved);
            }
            // The address of the next instruction, for code that needs it.
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

    /// The lowest address that the function may have for its own.
    fn lowest(&self) -> u64 {
        let red_zone = 128;
        let sp = self.get(SP).unwrap_or(self.floor);
        sp.min(self.floor).saturating_sub(red_zone)
    }

    /// Where the word at the top of the stack leads, and the registers once it has been popped: those
    /// of the caller, if the function returns here.
    pub(super) fn caller(
        mut self,
        arguments: u16,
        stack: &mut StackReader<'_>,
    ) -> Option<Registers> {
        let sp = self.get(SP)?;
        if sp < self.floor || sp % 8 != 0 {
            return None;
        }
        let ip = self.pop(stack)?;
        for register in RESULTS {
            self.set(register, None);
        }
        let mut caller = self.registers;
        caller.set_ip(ip);
        caller.set_sp(sp + 8 + u64::from(arguments));
        Some(caller)
    }
}
