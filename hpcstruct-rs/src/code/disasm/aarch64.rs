//! Transfers of control in AArch64 code, jump tables included.
//!
//! Input: little-endian words, whatever the data's byte order. Branches are classified by the masks
//! of the Arm Architecture Reference Manual (DDI 0487, C4.1.65 "Branches, Exception Generating and
//! System instructions"). A jump table is recognised by the instructions before its `br`: the
//! addition of base and entry, the load of the entry, the addresses of table and base, and the
//! comparison that bounds the index.

use super::control_transfer::{
    ControlTransfer, Decoded, Entry, Table, Transfer, Within, read_table,
};
use super::loaded_image::LoadedImage;

/// Words before a jump that are searched for what leads up to it.
const WINDOW: usize = 512;

const NOP: u32 = 0xd503_201f;

/// Bytes at the start of `bytes` that are no-operations or zeros.
pub(crate) fn padding(bytes: &[u8]) -> usize {
    let words = bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    4 * words.take_while(|word| matches!(*word, 0 | NOP)).count()
}

/// Decodes `bytes`, which lie at `address`, and appends the transfers of control.
pub(crate) fn decode(
    bytes: &[u8],
    address: u64,
    memory: &LoadedImage<'_>,
    within: Within<'_>,
    out: &mut Decoded,
) {
    let words = bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let mut stopped = false;
    for (i, word) in words.enumerate() {
        let at = address.wrapping_add(4 * i as u64);
        let flow = match classify(word, at) {
            Some(flow) => flow,
            None if stopped && word == NOP => ControlTransfer::Padding,
            None => {
                stopped = false;
                continue;
            }
        };
        let end = 4 * (i as u32 + 1);
        let flow = match flow {
            ControlTransfer::Indirect => {
                let first = out.targets.len() as u32;
                let from = i.saturating_sub(WINDOW);
                let before = Before {
                    bytes: &bytes[4 * from..4 * i],
                    address: address.wrapping_add(4 * from as u64),
                };
                match table(before, word >> 5 & 31) {
                    Some(table) => {
                        let count = read_table(memory, &table, within, u64::MAX, out);
                        if count > 0 { ControlTransfer::Table { first, count } } else { flow }
                    }
                    None => flow,
                }
            }
            other => other,
        };
        stopped = match flow {
            ControlTransfer::Branch(_)
            | ControlTransfer::Call(_)
            | ControlTransfer::CallAnywhere => false,
            ControlTransfer::Padding => stopped,
            _ => true,
        };
        out.transfers.push(Transfer { end, length: 4, flow });
    }
}

/// The slot that a linkage stub jumps through: ADRP and LDR, maybe after BTI.
pub(crate) fn stub(memory: &LoadedImage<'_>, address: u64) -> Option<u64> {
    let mut page = None;
    for i in 0..4u64 {
        let at = address.checked_add(4 * i)?;
        let word = memory.number(at, 4)? as u32;
        if word & 0x9f00_0000 == 0x9000_0000 {
            page = Some((at & !0xfff).wrapping_add(page_number(word) << 12));
        } else if word & 0xffc0_0000 == 0xf940_0000 {
            return Some(page?.wrapping_add(u64::from(word >> 10 & 0xfff) * 8));
        }
    }
    None
}

/// `word`'s bits `low..low + bits` as a signed number of words, in bytes.
fn displacement(word: u32, low: u32, bits: u32) -> u64 {
    let value = (word << (32 - low - bits)) as i32 >> (32 - bits);
    (i64::from(value) * 4) as u64
}

/// The transfer that a word is.
pub(crate) fn classify(word: u32, at: u64) -> Option<ControlTransfer> {
    let to = |low, bits| at.wrapping_add(displacement(word, low, bits));
    Some(match word >> 24 {
        0x14..=0x17 => ControlTransfer::Jump(to(0, 26)),
        0x94..=0x97 => ControlTransfer::Call(to(0, 26)),
        // B.cond and BC.cond; the conditions 14 and 15 always hold.
        0x54 if word & 0xe == 0xe => ControlTransfer::Jump(to(5, 19)),
        0x54 => ControlTransfer::Branch(to(5, 19)),
        // CBZ and CBNZ, then TBZ and TBNZ, of 32 and 64 bits.
        0x34 | 0x35 | 0xb4 | 0xb5 => ControlTransfer::Branch(to(5, 19)),
        0x36 | 0x37 | 0xb6 | 0xb7 => ControlTransfer::Branch(to(5, 14)),
        // By register, with or without pointer authentication: bits 21 and 22 tell which.
        0xd6 | 0xd7 => match word >> 21 & 7 {
            0 => ControlTransfer::Indirect,
            1 => ControlTransfer::CallAnywhere,
            _ => ControlTransfer::Return,
        },
        // BRK and HLT.
        0xd4 if matches!(word >> 21 & 7, 1 | 2) && word & 0x1f == 0 => ControlTransfer::Stop,
        // UDF.
        0x00 if word >> 16 == 0 => ControlTransfer::Stop,
        _ => return None,
    })
}

/// The words before a jump.
#[derive(Clone, Copy)]
struct Before<'a> {
    bytes: &'a [u8],
    address: u64,
}

impl<'a> Before<'a> {
    fn len(self) -> usize {
        self.bytes.len() / 4
    }

    fn word(self, i: usize) -> Option<u32> {
        let b = self.bytes.get(4 * i..4 * i + 4)?;
        Some(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    fn first(self, n: usize) -> Before<'a> {
        Before { bytes: &self.bytes[..(4 * n).min(self.bytes.len())], address: self.address }
    }

    fn at(self, i: usize) -> u64 {
        self.address.wrapping_add(4 * i as u64)
    }

    /// The last word that writes `register`, with its index. Comparisons, stores and branches write
    /// none.
    fn definition(self, register: u32) -> Option<(usize, u32)> {
        (0..self.len()).rev().find_map(|i| {
            let word = self.word(i)?;
            // STR (unsigned immediate), STR (register), STP.
            let is_store = word & 0x3bc0_0000 == 0x3900_0000
                || word & 0x3be0_0c00 == 0x3820_0800
                || word & 0x3840_0000 == 0x2800_0000;
            let writes = word & 31 == register && !is_store && classify(word, 0).is_none();
            writes.then_some((i, word))
        })
    }

    /// The constant that a register holds: by ADR, or ADRP and ADD.
    fn constant(self, register: u32) -> Option<u64> {
        let (i, word) = self.definition(register)?;
        match word & 0x9f00_0000 {
            0x1000_0000 => return Some(self.at(i).wrapping_add(page_number(word))),
            0x9000_0000 => {
                return Some((self.at(i) & !0xfff).wrapping_add(page_number(word) << 12));
            }
            _ => {}
        }
        // ADD (immediate), 64 bits.
        if word & 0xff80_0000 != 0x9100_0000 {
            return None;
        }
        let low = u64::from(word >> 10 & 0xfff);
        let low = if word >> 22 & 1 == 1 { low << 12 } else { low };
        let page = self.first(i).constant(word >> 5 & 31)?;
        Some(page.wrapping_add(low))
    }
}

/// The immediate of ADR and ADRP, sign-extended from 21 bits.
fn page_number(word: u32) -> u64 {
    let value = (word >> 5 & 0x7_ffff) << 2 | word >> 29 & 3;
    (i64::from((value << 11) as i32 >> 11)) as u64
}

/// The table behind `br target`.
fn table(before: Before<'_>, target: u32) -> Option<Table> {
    let (at, word) = before.definition(target)?;
    let before = before.first(at);
    // LDR (register), 64 bits, index shifted by 3: a table of addresses.
    if word & 0xffe0_0c00 == 0xf860_0800 && word >> 12 & 1 == 1 {
        return Some(Table {
            address: before.constant(word >> 5 & 31)?,
            entry: Entry::Absolute,
            count: bound(before, word >> 16 & 31),
        });
    }
    let (base, entry) = (word >> 5 & 31, word >> 16 & 31);
    // ADD (shifted register) by LSL, or ADD (extended register), 64 bits.
    if word & 0xffe0_0000 == 0x8b00_0000 {
        let shift = word >> 10 & 63;
        return relative(before, base, entry, shift, false)
            .or_else(|| relative(before, entry, base, 0, false).filter(|_| shift == 0));
    }
    if word & 0xffe0_0000 == 0x8b20_0000 {
        // The options from 4 on extend with the sign.
        return relative(before, base, entry, word >> 10 & 7, word >> 15 & 1 == 1);
    }
    None
}

/// The table whose entries, of register `entry`, are shifted and added to `base`.
fn relative(
    before: Before<'_>,
    base: u32,
    entry: u32,
    shift: u32,
    extended: bool,
) -> Option<Table> {
    let (at, load) = before.definition(entry)?;
    // LDRB, LDRH, LDRSB, LDRSH, LDRSW, LDR (32 bits), all by register.
    let is_load = load & 0x3f20_0c00 == 0x3820_0800 && load >> 22 & 3 != 0;
    let (size, kind) = (load >> 30, load >> 22 & 3);
    if !is_load || size == 3 || shift > 3 {
        return None;
    }
    Some(Table {
        address: before.first(at).constant(load >> 5 & 31)?,
        entry: Entry::Relative {
            base: before.constant(base)?,
            bytes: 1 << size,
            shift: shift as u8,
            signed: kind >= 2 || extended,
        },
        count: bound(before.first(at), load >> 16 & 31),
    })
}

/// The number of values that an index may have: `cmp index, #n` and `b.hi`, or `b.ls`.
fn bound(before: Before<'_>, index: u32) -> Option<u64> {
    let mut index = index;
    let mut condition = None;
    for i in (0..before.len()).rev() {
        let word = before.word(i)?;
        if word >> 24 == 0x54 {
            condition = match word & 0xf {
                // HI and LS, then HS and LO.
                8 | 9 => Some(1),
                2 | 3 => Some(0),
                _ => condition,
            };
        }
        // SUBS (immediate) to the zero register.
        if word & 0x7f80_001f == 0x7100_001f && word >> 5 & 31 == index {
            return u64::from(word >> 10 & 0xfff).checked_add(condition?);
        }
        // MOV (register): ORR with the zero register.
        if word & 31 == index && word & 0x7fe0_ffe0 == 0x2a00_03e0 {
            index = word >> 16 & 31;
        } else if before.first(i + 1).definition(index).is_some_and(|d| d.0 == i) {
            return None;
        }
    }
    None
}
