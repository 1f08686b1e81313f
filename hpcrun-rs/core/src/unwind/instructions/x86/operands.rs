//! The parts around an opcode: prefixes, and operands encoded in a ModRM byte.

use super::{Register, Slot};

pub(super) struct Reader<'a> {
    pub(super) code: &'a [u8],
    pub(super) at: usize,
}

impl Reader<'_> {
    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.code.get(self.at).copied()
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    pub(super) fn int8(&mut self) -> Option<i32> {
        Some(i32::from(self.byte()? as i8))
    }

    pub(super) fn int32(&mut self) -> Option<i32> {
        let bytes = self.code.get(self.at..)?.first_chunk()?;
        self.at += 4;
        Some(i32::from_le_bytes(*bytes))
    }

    pub(super) fn skip(&mut self, bytes: usize) -> Option<()> {
        self.at += bytes;
        (self.at <= self.code.len()).then_some(())
    }
}

#[derive(Clone, Copy, Default)]
pub(super) struct Prefixes {
    /// 66: operands of two bytes.
    pub(super) is_short: bool,
    /// 67: addresses of four bytes.
    pub(super) is_narrow: bool,
    /// REX.W: operands of eight bytes.
    pub(super) is_wide: bool,
    /// Added to the register number in `reg`.
    pub(super) reg: u8,
    /// Added to the number of an index register.
    pub(super) index: u8,
    /// Added to the register number in `rm`, in a base, or in the opcode.
    pub(super) base: u8,
}

/// Operands encoded in a ModRM byte.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    pub(super) reg: Register,
    /// The operand in `rm`, if it is a register.
    pub(super) register: Option<Register>,
    /// The operand in `rm`, if it is memory at a base register plus displacement.
    pub(super) slot: Option<Slot>,
    /// The operand in `rm`, if it is memory at this distance from the instruction's end.
    pub(super) near: Option<i32>,
}

impl Operands {
    /// The opcode extension in `reg`.
    pub(super) fn group(&self) -> u8 {
        self.reg & 7
    }
}

pub(super) fn operands(reader: &mut Reader<'_>, prefixes: Prefixes) -> Option<Operands> {
    let modrm = reader.byte()?;
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let mut operands =
        Operands { reg: modrm >> 3 & 7 | prefixes.reg, register: None, slot: None, near: None };
    if mode == 3 {
        operands.register = Some(rm | prefixes.base);
        return Some(operands);
    }
    let mut base = Some(rm | prefixes.base);
    let mut has_index = false;
    let mut has_word = mode == 2;
    if rm == 4 {
        let sib = reader.byte()?;
        base = Some(sib & 7 | prefixes.base);
        has_index = sib >> 3 & 7 | prefixes.index != 4;
        if mode == 0 && sib & 7 == 5 {
            base = None;
            has_word = true;
        }
    } else if mode == 0 && rm == 5 {
        base = None;
        has_word = true;
    }
    let displacement = match mode {
        1 => reader.int8()?,
        _ if has_word => reader.int32()?,
        _ => 0,
    };
    if !prefixes.is_narrow {
        let slot = base.map(|base| Slot { base, displacement });
        operands.slot = slot.filter(|_| !has_index);
        operands.near = (mode == 0 && rm == 5).then_some(displacement);
    }
    Some(operands)
}
