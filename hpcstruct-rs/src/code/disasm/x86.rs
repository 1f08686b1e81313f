//! Transfers of control in x86-64 code, jump tables included.
//!
//! The sweep ([`super::sweep`]) is linear: compilers keep data out of the code. A jump table is
//! recognised by the instructions before its jump, in address order: the addition of base and entry,
//! the load of the entry, the `lea` of the base, and the comparison that bounds the index. A base
//! that was computed further away (hoisted out of a loop, spilled) is searched among all `lea` of
//! the range, then among the eight-byte constants of the large code model. It is accepted if its
//! first entry leads into the procedure.

use super::control_transfer::{ControlTransfer, Decoded, Entry, Table, Within, read_table};
use super::loaded_image::LoadedImage;
use super::sweep::{self, Lea, Swept, WINDOW};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::cell::Cell;

/// Reused from range to range.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    swept: Swept,
    bases: Vec<u64>,
    /// What the last [`decode`] found.
    pub(crate) decoded: Decoded,
}

impl Scratch {
    /// Addresses that the code of the last range loads into registers.
    pub(crate) fn loaded(&self) -> impl Iterator<Item = u64> {
        self.swept.leas.iter().map(|lea| lea.address)
    }
}

/// Decodes the code of a range; forgets what was before.
pub(crate) fn decode(
    range: sweep::Range<'_>,
    memory: &LoadedImage<'_>,
    within: Within<'_>,
    scratch: &mut Scratch,
) {
    let Scratch { swept, bases, decoded: out } = scratch;
    out.start(range.bytes.len());
    sweep::sweep(range, swept, out);
    if swept.pending.is_empty() {
        return;
    }
    let misses_base = resolve(range, memory, within, (swept, bases), out);
    if misses_base && swept.add_constants(range) {
        resolve(range, memory, within, (swept, bases), out);
    }
}

/// Finds the tables of jumps that have none yet; returns whether the base of one was not found.
fn resolve(
    range: sweep::Range<'_>,
    memory: &LoadedImage<'_>,
    within: Within<'_>,
    (swept, bases): (&Swept, &mut Vec<u64>),
    out: &mut Decoded,
) -> bool {
    bases.clear();
    bases.extend(swept.leas.iter().map(|l| l.address));
    bases.sort_unstable();
    bases.dedup();
    let misses_base = Cell::new(false);
    for pending in &swept.pending {
        if out.transfers[pending.transfer].flow != ControlTransfer::Indirect {
            continue;
        }
        let window = range.instructions(&pending.window);
        let resolver = Resolver {
            memory,
            within,
            leas: &swept.leas,
            bases,
            jump: pending.window[WINDOW - 1],
            misses_base: &misses_base,
        };
        let first = out.targets.len() as u32;
        let count = resolver.resolve(&window, out);
        if count > 0 {
            out.transfers[pending.transfer].flow = ControlTransfer::Table { first, count };
        }
    }
    misses_base.get()
}

/// The slot that a linkage stub jumps through: `jmp [rip + slot]`, maybe after `endbr64`.
pub(crate) fn stub(memory: &LoadedImage<'_>, address: u64) -> Option<u64> {
    const LONGEST: usize = 32;
    let bytes = memory.bytes(address)?;
    let bytes = &bytes[..bytes.len().min(LONGEST)];
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    for _ in 0..3 {
        let instruction = decoder.decode();
        match instruction.code().flow_control() {
            FlowControl::Next => {}
            FlowControl::IndirectBranch if instruction.is_ip_rel_memory_operand() => {
                return Some(instruction.ip_rel_memory_address());
            }
            _ => return None,
        }
    }
    None
}

/// What is needed to find the table of one jump.
struct Resolver<'a, 'd> {
    memory: &'a LoadedImage<'d>,
    within: Within<'a>,
    leas: &'a [Lea],
    /// Every address that a `lea` of the range names, sorted: where a table may begin.
    bases: &'a [u64],
    /// Offset of the jump.
    jump: u32,
    /// Set when the base of a table is not found.
    misses_base: &'a Cell<bool>,
}

impl Resolver<'_, '_> {
    /// Appends the targets of the jump that ends `window`; 0 when it has no table.
    fn resolve(&self, window: &[Instruction], out: &mut Decoded) -> u32 {
        let Some((jump, before)) = window.split_last() else {
            return 0;
        };
        if jump.op0_kind() == OpKind::Memory {
            return self.absolute(jump, before, out);
        }
        if jump.op0_kind() != OpKind::Register {
            return 0;
        }
        let mut register = jump.op0_register();
        for (i, instruction) in before.iter().enumerate().rev() {
            if !writes(instruction, register) {
                continue;
            }
            match (instruction.mnemonic(), instruction.op1_kind()) {
                (Mnemonic::Add, OpKind::Register) => {
                    let parts = [register, instruction.op1_register()];
                    return self.relative(parts, &before[..i], out);
                }
                (Mnemonic::Mov, OpKind::Register) => register = instruction.op1_register(),
                (Mnemonic::Mov, OpKind::Memory) => {
                    return self.absolute(instruction, &before[..i], out);
                }
                _ => return 0,
            }
        }
        0
    }

    /// `jmp [table + index * 8]`, or a load of the same form.
    fn absolute(&self, load: &Instruction, before: &[Instruction], out: &mut Decoded) -> u32 {
        if load.memory_index_scale() != 8 || load.memory_index() == Register::None {
            return 0;
        }
        let displacement = load.memory_displacement64();
        let count = bound(before, load.memory_index());
        let table = |address| Table { address, entry: Entry::Absolute, count };
        if load.memory_base() == Register::None {
            return self.read(&table(displacement), out);
        }
        self.by_base(load.memory_base(), |base| table(base.wrapping_add(displacement)), out)
    }

    /// `parts` are added up: one is the base, the other an entry of four bytes, or of eight in the large
    /// code model.
    fn relative(&self, parts: [Register; 2], before: &[Instruction], out: &mut Decoded) -> u32 {
        for (i, load) in before.iter().enumerate().rev() {
            let is_entry = parts.iter().any(|part| writes(load, *part));
            if !is_entry || load.op1_kind() != OpKind::Memory {
                continue;
            }
            let bytes = match (load.mnemonic(), load.memory_index_scale()) {
                (Mnemonic::Movsxd, 4) => 4,
                (Mnemonic::Mov, 8) => 8,
                (Mnemonic::Movsxd, _) => return 0,
                (Mnemonic::Mov, _) => return self.unscaled(load, &before[..i], out),
                // The base may be computed between the load and the addition.
                _ => continue,
            };
            if load.memory_index() == Register::None {
                return 0;
            }
            let count = bound(&before[..i], load.memory_index());
            let table = |address| distances(address, bytes, count);
            if load.memory_base() == Register::None {
                return 0;
            }
            let displacement = load.memory_displacement64();
            return self.by_base(load.memory_base(), |base| table(base.wrapping_add(displacement)), out);
        }
        0
    }

    /// Code that is not optimised loads an entry by `mov eax, [table + scaled index]` and extends
    /// it afterwards; the index comes from memory.
    fn unscaled(&self, load: &Instruction, before: &[Instruction], out: &mut Decoded) -> u32 {
        let scaled = load.memory_index_scale() == 1 && load.memory_index() != Register::None;
        if !scaled || load.op0_register().size() != 4 || load.memory_displacement64() != 0 {
            return 0;
        }
        let compare = before.iter().rposition(|i| i.mnemonic() == Mnemonic::Cmp);
        let count = compare.and_then(|at| {
            let above = before.get(at + 1)?.mnemonic() == Mnemonic::Ja;
            let most = immediate(&before[at]).filter(|_| above)?;
            (most & 0xffff_ffff).checked_add(1)
        });
        let table = |address| distances(address, 4, count);
        self.by_base(load.memory_base(), table, out)
    }

    /// Tries the `lea` of `register` nearest before the jump, then further ones, then those of other
    /// registers (the base was moved or spilled).
    fn by_base(&self, register: Register, table: impl Fn(u64) -> Table, out: &mut Decoded) -> u32 {
        const TRIES: usize = 64;
        let split = self.leas.partition_point(|l| l.offset < self.jump);
        let (before, after) = self.leas.split_at(split);
        let near = || before.iter().rev().chain(after);
        let same = near().filter(|l| l.register == register).take(TRIES);
        let other = near().filter(|l| l.register != register).take(TRIES);
        for lea in same.chain(other) {
            let read = self.read(&table(lea.address), out);
            if read > 0 {
                return read;
            }
        }
        self.misses_base.set(true);
        0
    }

    fn read(&self, table: &Table, out: &mut Decoded) -> u32 {
        let next = self.bases.partition_point(|b| *b <= table.address);
        let limit = self.bases.get(next).copied().unwrap_or(u64::MAX);
        read_table(self.memory, table, self.within, limit, out)
    }
}

/// Whether an instruction's first operand is `register`, or a part of it that clears the rest.
fn writes(instruction: &Instruction, register: Register) -> bool {
    let plain = matches!(
        instruction.mnemonic(),
        Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push | Mnemonic::Bt | Mnemonic::Call
    );
    !plain
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().full_register() == register.full_register()
}

/// A table of signed distances from its own beginning, each `bytes` long.
fn distances(address: u64, bytes: u8, count: Option<u64>) -> Table {
    Table { address, entry: Entry::Relative { base: address, bytes }, count }
}

/// The number of values that an index may have, where a comparison or a mask in `before` says so.
fn bound(before: &[Instruction], index: Register) -> Option<u64> {
    let mut index = index.full_register();
    let mut condition = None;
    for instruction in before.iter().rev() {
        let first =
            instruction.op0_kind() == OpKind::Register && instruction.op0_register().full_register() == index;
        match instruction.mnemonic() {
            Mnemonic::Ja | Mnemonic::Jbe => condition = Some(1),
            Mnemonic::Jae | Mnemonic::Jb => condition = Some(0),
            Mnemonic::Cmp if first => {
                return (immediate(instruction)? & 0xffff_ffff).checked_add(condition?);
            }
            Mnemonic::And if first => return immediate(instruction)?.checked_add(1),
            Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsxd if first => {
                if instruction.op1_kind() != OpKind::Register {
                    return None;
                }
                index = instruction.op1_register().full_register();
            }
            _ if writes(instruction, index) => return None,
            _ => {}
        }
    }
    None
}

fn immediate(instruction: &Instruction) -> Option<u64> {
    matches!(
        instruction.op1_kind(),
        OpKind::Immediate8
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64
    )
    .then(|| instruction.immediate(1))
}
