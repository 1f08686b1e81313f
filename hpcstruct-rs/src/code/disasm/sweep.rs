//! The linear sweep over a range of x86-64 code: finds the transfers of control.
//!
//! It continues behind bytes that are no instruction.

use super::control_transfer::{ControlTransfer, Decoded, Transfer};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// Instructions up to a jump, itself included, that are searched for what leads up to it.
pub(super) const WINDOW: usize = 24;

/// An address that an instruction loads into a register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lea {
    /// Offset of the instruction.
    pub(super) offset: u32,
    pub(super) register: Register,
    pub(super) address: u64,
}

/// A jump whose targets are in a table.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    /// Index of its transfer.
    pub(super) transfer: usize,
    /// Offsets of the instructions before it, the jump last; `u32::MAX` before the range's start.
    pub(super) window: [u32; WINDOW],
}

/// What a sweep finds; reused from range to range.
#[derive(Debug, Default)]
pub(super) struct Swept {
    /// Every `lea` of an address relative to the instruction.
    pub(super) leas: Vec<Lea>,
    pub(super) pending: Vec<Pending>,
}

impl Swept {
    /// Adds the eight-byte constants that are loaded into registers (`movabs`): addresses in the
    /// large code model. Returns whether there are any.
    pub(super) fn add_constants(&mut self, range: Range<'_>) -> bool {
        let before = self.leas.len();
        let mut decoder = range.decoder();
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            let offset = decoder.position() as u32;
            decoder.decode_out(&mut instruction);
            if instruction.code() == Code::Mov_r64_imm64 {
                self.leas.push(Lea {
                    offset,
                    register: instruction.op0_register(),
                    address: instruction.immediate64(),
                });
            }
        }
        self.leas.sort_by_key(|lea| lea.offset);
        self.leas.len() > before
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Range<'a> {
    pub(crate) bytes: &'a [u8],
    /// The same, and what follows.
    pub(crate) all: &'a [u8],
    /// Address of the first one.
    pub(crate) address: u64,
}

impl<'a> Range<'a> {
    /// A decoder at the first byte.
    fn decoder(&self) -> Decoder<'a> {
        Decoder::with_ip(64, self.bytes, self.address, DecoderOptions::NONE)
    }

    /// The instructions at `offsets`; offsets beyond the range are left out.
    pub(super) fn instructions(&self, offsets: &[u32]) -> Vec<Instruction> {
        let mut decoder = self.decoder();
        let known = offsets.iter().filter_map(|offset| {
            decoder.set_position(*offset as usize).ok()?;
            decoder.set_ip(self.address.wrapping_add(u64::from(*offset)));
            Some(decoder.decode())
        });
        known.collect()
    }

    /// Whether a call of `to`, right behind the call's end, is a retpoline's. Such a call returns
    /// to a trap for speculation that no program reaches; what it calls replaces the return address.
    fn catches_speculation(&self, end: u32, to: u64) -> bool {
        /// Bytes that the trap takes, padding included.
        const MOST: u64 = 32;
        let next = self.address.wrapping_add(u64::from(end));
        let distance = to.wrapping_sub(next);
        let is_near = distance > 0 && distance <= MOST;
        is_near
            && matches!(
                self.all.get(end as usize..),
                // `pause`, `lfence`, `int3`.
                Some([0xf3, 0x90, ..] | [0x0f, 0xae, 0xe8, ..] | [0xcc, ..])
            )
    }
}

/// Sweeps over a range and appends its transfers of control, tables not yet resolved.
pub(super) fn sweep(range: Range<'_>, swept: &mut Swept, out: &mut Decoded) {
    swept.leas.clear();
    swept.pending.clear();
    let mut decoder = range.decoder();
    let mut instruction = Instruction::default();
    // Offsets of the last instructions, as a ring: a power of two, as long as the window at least.
    const RING: usize = 32;
    let mut recent = [u32::MAX; RING];
    let mut count = 0;
    // Whether control cannot come from the instruction before.
    let mut stopped = false;
    while decoder.can_decode() {
        let offset = decoder.position() as u32;
        recent[count % RING] = offset;
        count += 1;
        decoder.decode_out(&mut instruction);
        let Some(flow) = flow(&instruction, stopped) else {
            stopped = false;
            if instruction.code() == Code::Lea_r64_m && instruction.is_ip_rel_memory_operand() {
                swept.leas.push(Lea {
                    offset,
                    register: instruction.op0_register(),
                    address: instruction.ip_rel_memory_address(),
                });
            }
            continue;
        };
        let end = decoder.position() as u32;
        let length = (end - offset) as u8;
        let flow = match flow {
            ControlTransfer::Call(to) if range.catches_speculation(end, to) => ControlTransfer::Jump(to),
            flow => flow,
        };
        stopped = match flow {
            ControlTransfer::Branch(_)
            | ControlTransfer::Call(_)
            | ControlTransfer::CallThrough(_)
            | ControlTransfer::CallAnywhere => false,
            ControlTransfer::Padding => stopped,
            _ => true,
        };
        if flow == ControlTransfer::Indirect {
            swept.pending.push(Pending {
                transfer: out.transfers.len(),
                window: std::array::from_fn(|i| recent[(count + RING - WINDOW + i) % RING]),
            });
        }
        match out.transfers.last_mut() {
            // Padding is one transfer, however many instructions it has.
            Some(last) if flow == ControlTransfer::Padding && last.flow == flow && last.end == offset => {
                last.end = end;
                last.length = last.length.saturating_add(length);
            }
            _ => out.transfers.push(Transfer { end, length, flow }),
        }
    }
}

/// Where control goes after an instruction; `None` = on. `stopped`: nothing falls into it.
#[inline]
fn flow(instruction: &Instruction, stopped: bool) -> Option<ControlTransfer> {
    let code = instruction.code();
    let near = || instruction.op0_kind() == OpKind::NearBranch64;
    let target = || instruction.near_branch_target();
    let through = || instruction.is_ip_rel_memory_operand();
    let slot = || instruction.ip_rel_memory_address();
    Some(match code.flow_control() {
        FlowControl::Next => match code {
            Code::INVALID | Code::Hlt => ControlTransfer::Stop,
            _ if stopped && is_padding(instruction) => ControlTransfer::Padding,
            _ => return None,
        },
        FlowControl::UnconditionalBranch if near() => ControlTransfer::Jump(target()),
        FlowControl::ConditionalBranch if near() => ControlTransfer::Branch(target()),
        FlowControl::Call if near() => ControlTransfer::Call(target()),
        FlowControl::IndirectCall if through() => ControlTransfer::CallThrough(slot()),
        FlowControl::IndirectCall => ControlTransfer::CallAnywhere,
        FlowControl::IndirectBranch if through() => ControlTransfer::JumpThrough(slot()),
        FlowControl::IndirectBranch => ControlTransfer::Indirect,
        FlowControl::Return => ControlTransfer::Return,
        FlowControl::Interrupt if code == Code::Int3 => ControlTransfer::Stop,
        FlowControl::Exception | FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
            ControlTransfer::Stop
        }
        FlowControl::XbeginXabortXend if matches!(code, Code::Xbegin_rel16 | Code::Xbegin_rel32) => {
            ControlTransfer::Branch(target())
        }
        // System calls come back.
        _ => return None,
    })
}

/// Bytes at the start of `bytes` that are no-operations, traps or zeros.
pub(crate) fn padding(bytes: &[u8]) -> usize {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    loop {
        let at = decoder.position();
        match bytes.get(at) {
            Some(0 | 0xcc) => {
                if decoder.set_position(at + 1).is_err() {
                    return at;
                }
            }
            Some(_) => {
                decoder.decode_out(&mut instruction);
                if !is_padding(&instruction) {
                    return at;
                }
            }
            None => return at,
        }
    }
}

fn is_padding(instruction: &Instruction) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Nop => true,
        // `xchg ax, ax` and `lea rsi, [rsi]`: older forms.
        Mnemonic::Xchg => instruction.op0_register() == instruction.op1_register(),
        Mnemonic::Lea => {
            instruction.memory_displacement64() == 0
                && instruction.memory_index() == Register::None
                && instruction.memory_base() == instruction.op0_register()
        }
        _ => false,
    }
}
