//! Decodes the effect of an x86-64 instruction on the stack pointer and on the words of the stack.
//!
//! Input: bytes of code. The decoder finds the length of every instruction. It distinguishes only
//! instructions that move or copy the stack pointer, save or restore a general register, or transfer control.
//! It does not check validity: the code has run.
//!
//! Source of the encodings: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2,
//! chapter 2 and appendix A.
//!
//! Async-signal-safe.

mod operands;

use operands::{Operands, Prefixes, Reader, operands};

/// A general register, by its number in instructions.
pub(super) type Register = u8;

/// `rsp`.
pub(super) const SP: Register = 4;
/// `rbp`.
pub(super) const FP: Register = 5;

/// A memory operand: base register plus displacement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    pub(super) base: Register,
    pub(super) displacement: i32,
}

/// The effect of an instruction. Distances count from its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    /// No effect that matters.
    None,
    /// A long `nop`, which compilers use to fill space between functions and before loops.
    Padding,
    Push(Option<Register>),
    Pop(Option<Register>),
    Add(Register, i32),
    And(Register, i32),
    Copy {
        to: Register,
        from: Register,
    },
    /// `lea`; no slot if the address has an index or no base.
    Address {
        to: Register,
        of: Option<Slot>,
    },
    /// `lea` relative to the instruction pointer.
    Near(Register, i32),
    Load {
        to: Register,
        from: Option<Slot>,
    },
    Store {
        to: Option<Slot>,
        from: Register,
    },
    /// Sets the register to a value that is not computed here.
    Change(Register),
    Leave,
    /// Calls a function at this distance, or an unknown one.
    Call(Option<i32>),
    /// Returns, and pops this many bytes of arguments.
    Return(u16),
    Jump(i32),
    Branch(i32),
    /// Jumps to the address in a word at a constant distance: a tail call through a pointer.
    JumpThrough,
    /// Jumps to the address in a register.
    JumpTo(Register),
    /// Jumps through a table or another pointer in memory.
    JumpAnywhere,
    /// Ends the path: a trap, or a far transfer.
    Stop,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Instruction {
    pub(super) length: usize,
    pub(super) effect: Effect,
}

struct Opcodes([u64; 4]);

impl Opcodes {
    /// By ranges: the first in the upper byte, the last in the lower one.
    const fn of(ranges: &[u16]) -> Opcodes {
        let mut words = [0; 4];
        let mut i = 0;
        while i < ranges.len() {
            let (mut code, last) = (ranges[i] >> 8, ranges[i] & 0xff);
            while code <= last {
                words[(code >> 6) as usize] |= 1 << (code & 63);
                code += 1;
            }
            i += 1;
        }
        Opcodes(words)
    }

    #[inline]
    fn has(&self, code: u8) -> bool {
        self.0[usize::from(code >> 6)] >> (code & 63) & 1 == 1
    }
}

/// One-byte opcodes with a ModRM byte.
const MODRM: Opcodes = Opcodes::of(&[
    0x0003, 0x080b, 0x1013, 0x181b, 0x2023, 0x282b, 0x3033, 0x383b, 0x6363, 0x6969, 0x6b6b, 0x808f, 0xc0c1,
    0xc6c7, 0xd0d3, 0xd8df, 0xf6f7, 0xfeff,
]);
/// One-byte opcodes with an immediate or distance of one byte.
const IMM8: Opcodes = Opcodes::of(&[
    0x0404, 0x0c0c, 0x1414, 0x1c1c, 0x2424, 0x2c2c, 0x3434, 0x3c3c, 0x6a6b, 0x7080, 0x8283, 0xa8a8, 0xb0b7,
    0xc0c1, 0xc6c6, 0xcdcd, 0xe0e7, 0xebeb,
]);
/// One-byte opcodes with an immediate of the operand's size, at most four bytes.
const IMM32: Opcodes = Opcodes::of(&[
    0x0505, 0x0d0d, 0x1515, 0x1d1d, 0x2525, 0x2d2d, 0x3535, 0x3d3d, 0x6869, 0x8181, 0xa9a9, 0xc7c7,
]);
/// Opcodes after 0F without a ModRM byte.
const NO_MODRM_0F: Opcodes = Opcodes::of(&[0x040c, 0x0e0e, 0x3037, 0x7777, 0x808f, 0xa0a2, 0xa8aa, 0xc8cf]);
/// Opcodes after 0F with an immediate of one byte.
const IMM8_0F: Opcodes = Opcodes::of(&[0x0f0f, 0x7073, 0xa4a4, 0xacac, 0xbaba, 0xc2c2, 0xc4c6]);

/// Decodes the first instruction of `code`; `None` if it is invalid or of an unsupported extension.
pub(super) fn decode(code: &[u8]) -> Option<Instruction> {
    let mut reader = Reader { code, at: 0 };
    let mut prefixes = Prefixes::default();
    let opcode = loop {
        match reader.byte()? {
            0x66 => prefixes.is_short = true,
            0x67 => prefixes.is_narrow = true,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0xf0 | 0xf2 | 0xf3 => {}
            rex @ 0x40..=0x4f => {
                // A REX prefix takes effect only right before the opcode.
                if is_prefix(reader.peek()?) {
                    continue;
                }
                prefixes.is_wide = rex & 8 != 0;
                prefixes.reg = (rex & 4) << 1;
                prefixes.index = (rex & 2) << 2;
                prefixes.base = (rex & 1) << 3;
                break reader.byte()?;
            }
            opcode => break opcode,
        }
    };
    let effect = match opcode {
        0x0f => escaped(&mut reader, prefixes)?,
        0xc4 | 0xc5 | 0x62 => vector(&mut reader, opcode)?,
        // AMD's XOP, which no processor has that was made since Zen.
        0x8f if reader.peek()? & 0x1f >= 8 => return None,
        // REX2, and opcodes that are invalid in 64-bit mode.
        0x06 | 0x07 | 0x0e | 0x16 | 0x17 | 0x1e | 0x1f | 0x27 | 0x2f | 0x37 | 0x3f | 0x60 | 0x61 | 0x82
        | 0x9a | 0xce | 0xd4 | 0xd5 | 0xd6 | 0xea => return None,
        _ => one_byte(&mut reader, prefixes, opcode)?,
    };
    // Pushes and pops of two bytes misalign the stack; no compiler emits them.
    if prefixes.is_short && matches!(effect, Effect::Push(_) | Effect::Pop(_)) {
        return None;
    }
    (reader.at <= 15).then_some(Instruction { length: reader.at, effect })
}

fn is_prefix(byte: u8) -> bool {
    matches!(
        byte,
        0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
    )
}

fn one_byte(reader: &mut Reader<'_>, prefixes: Prefixes, opcode: u8) -> Option<Effect> {
    if MODRM.has(opcode) {
        let operands = operands(reader, prefixes)?;
        let immediate = immediate(reader, prefixes, opcode, operands.group())?;
        return Some(with_operands(prefixes, opcode, operands, immediate));
    }
    let register = opcode & 7 | prefixes.base;
    Some(match opcode {
        0x50..=0x57 => Effect::Push(Some(register)),
        0x58..=0x5f => Effect::Pop(Some(register)),
        0x68 | 0x6a => {
            immediate(reader, prefixes, opcode, 0)?;
            Effect::Push(None)
        }
        0x9c => Effect::Push(None),
        0x9d => Effect::Pop(None),
        0x70..=0x7f | 0xe0..=0xe3 => Effect::Branch(reader.int8()?),
        0x90 => Effect::None,
        0x91..=0x97 => Effect::Change(register),
        0xa0..=0xa3 => {
            reader.skip(if prefixes.is_narrow { 4 } else { 8 })?;
            Effect::None
        }
        0xb8..=0xbf => {
            reader.skip(match (prefixes.is_wide, prefixes.is_short) {
                (true, _) => 8,
                (_, true) => 2,
                _ => 4,
            })?;
            Effect::Change(register)
        }
        0xc2 => {
            let low = reader.byte()?;
            Effect::Return(u16::from_le_bytes([low, reader.byte()?]))
        }
        0xc3 => Effect::Return(0),
        0xc9 => Effect::Leave,
        // `enter`, far returns, `iret`: current user code does not contain them.
        0xc8 | 0xca | 0xcb | 0xcf => return None,
        0xcc | 0xf1 | 0xf4 => Effect::Stop,
        0xe8 => Effect::Call(Some(reader.int32()?)),
        0xe9 => Effect::Jump(reader.int32()?),
        0xeb => Effect::Jump(reader.int8()?),
        _ => {
            immediate(reader, prefixes, opcode, 0)?;
            Effect::None
        }
    })
}

/// Reads the immediate of a one-byte opcode; 0 if it has none.
fn immediate(reader: &mut Reader<'_>, prefixes: Prefixes, opcode: u8, group: u8) -> Option<i32> {
    let is_test = group < 2;
    if IMM8.has(opcode) || (opcode == 0xf6 && is_test) {
        return reader.int8();
    }
    if IMM32.has(opcode) || (opcode == 0xf7 && is_test) {
        if prefixes.is_short && !prefixes.is_wide {
            let low = reader.byte()?;
            return Some(i32::from(i16::from_le_bytes([low, reader.byte()?])));
        }
        return reader.int32();
    }
    Some(0)
}

fn with_operands(prefixes: Prefixes, opcode: u8, o: Operands, immediate: i32) -> Effect {
    let is_wide = prefixes.is_wide;
    match (opcode, o.register) {
        (0x89, Some(to)) if is_wide => Effect::Copy { to, from: o.reg },
        (0x8b, Some(from)) if is_wide => Effect::Copy { to: o.reg, from },
        (0x89, None) if is_wide => Effect::Store { to: o.slot, from: o.reg },
        (0x8b, None) if is_wide => Effect::Load { to: o.reg, from: o.slot },
        (0x8d, None) if is_wide => match o.near {
            Some(distance) => Effect::Near(o.reg, distance),
            None => Effect::Address { to: o.reg, of: o.slot },
        },
        (0x81 | 0x83, Some(register)) if is_wide => match o.group() {
            0 => Effect::Add(register, immediate),
            4 => Effect::And(register, immediate),
            5 => Effect::Add(register, immediate.wrapping_neg()),
            7 => Effect::None,
            _ => Effect::Change(register),
        },
        // Arithmetic and moves into a register.
        (0x01 | 0x09 | 0x11 | 0x19 | 0x21 | 0x29 | 0x31 | 0x81 | 0x83 | 0x87 | 0x89 | 0x8c, Some(to)) => {
            Effect::Change(to)
        }
        (0x03 | 0x0b | 0x13 | 0x1b | 0x23 | 0x2b | 0x33 | 0x63 | 0x69 | 0x6b | 0x8b | 0x8d, _) => {
            Effect::Change(o.reg)
        }
        (0x87, None) => Effect::Change(o.reg),
        (0xc1 | 0xc7 | 0xd1 | 0xd3, Some(to)) => Effect::Change(to),
        (0xf7, Some(to)) if o.group() >= 2 && o.group() < 4 => Effect::Change(to),
        (0x8f, _) => Effect::Pop(o.register),
        (0xff, _) => match o.group() {
            0 | 1 => o.register.map_or(Effect::None, Effect::Change),
            2 => Effect::Call(None),
            4 if o.near.is_some() => Effect::JumpThrough,
            4 => o.register.map_or(Effect::JumpAnywhere, Effect::JumpTo),
            6 => Effect::Push(o.register),
            // Far calls and jumps.
            _ => Effect::Stop,
        },
        _ => Effect::None,
    }
}

/// Decodes an opcode after 0F.
fn escaped(reader: &mut Reader<'_>, prefixes: Prefixes) -> Option<Effect> {
    let opcode = reader.byte()?;
    if let 0x38 | 0x3a = opcode {
        reader.byte()?;
        operands(reader, prefixes)?;
        reader.skip(usize::from(opcode == 0x3a))?;
        return Some(Effect::None);
    }
    // Moves of control registers, which only the kernel uses; SSE4a with two immediates.
    if let 0x20..=0x23 | 0x78 = opcode {
        return None;
    }
    if NO_MODRM_0F.has(opcode) {
        return Some(match opcode {
            0x80..=0x8f => Effect::Branch(reader.int32()?),
            0x0b => Effect::Stop,
            0xa0 | 0xa8 => Effect::Push(None),
            0xa1 | 0xa9 => Effect::Pop(None),
            _ => Effect::None,
        });
    }
    let operands = operands(reader, prefixes)?;
    reader.skip(usize::from(IMM8_0F.has(opcode)))?;
    Some(match opcode {
        0x40..=0x4f | 0xaf | 0xb6..=0xb8 | 0xbc..=0xbf => Effect::Change(operands.reg),
        0x1f => Effect::Padding,
        0xb9 | 0xff => Effect::Stop,
        _ => Effect::None,
    })
}

/// Decodes a VEX or EVEX instruction.
fn vector(reader: &mut Reader<'_>, opcode: u8) -> Option<Effect> {
    let first = reader.byte()?;
    // These prefixes store the register bits inverted.
    let mut prefixes = Prefixes { reg: (!first & 0x80) >> 4, ..Prefixes::default() };
    let map = match opcode {
        0xc5 => 1,
        _ => {
            prefixes.index = (!first & 0x40) >> 3;
            prefixes.base = (!first & 0x20) >> 2;
            reader.skip(if opcode == 0x62 { 2 } else { 1 })?;
            first & if opcode == 0x62 { 7 } else { 0x1f }
        }
    };
    let code = reader.byte()?;
    let has_immediate = match map {
        1 => IMM8_0F.has(code),
        2 | 5 | 6 => false,
        3 => true,
        _ => return None,
    };
    if map == 1 && code == 0x77 {
        return Some(Effect::None);
    }
    operands(reader, prefixes)?;
    reader.skip(usize::from(has_immediate))?;
    Some(Effect::None)
}

#[cfg(test)]
mod tests;
