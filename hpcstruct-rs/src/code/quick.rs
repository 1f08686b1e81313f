//! Lengths and transfers of control of the usual x86-64 instructions, by tables.
//!
//! Input: sixteen bytes of code. Nine in ten instructions of a sweep only need a length, which a
//! full decoder takes several times as long to tell. Everything that is rare, or whose validity depends on
//! more than the opcode (system instructions, x87, VEX and EVEX, locks, odd prefixes), is left to the full
//! decoder. Invariant: what is told here is what `iced_x86` tells; a test compares them over all
//! combinations of prefixes, opcodes and operands that are told here.
//! [`super::opcodes`] has the tables.

use super::opcodes::{
    CALL, CLASS, FF, HAS_OPERANDS, IS_TEST, JCC, JCC8, JMP, JMP8, KNOWN, LEA, NOP, ONE_NOP,
    OPERANDS, PREFIX, RET, SEGMENT, SHIFT_OF_BITS, SPECIAL, TOLD, TRAP,
};
pub(super) use super::opcodes::{PLAIN, UNKNOWN};

/// Bytes that [`head`] looks at: an instruction has at most 15.
pub(super) const WINDOW: usize = 16;

/// What an instruction does to the flow of control, or to a register that a jump table may need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Nothing.
    Plain,
    /// Nothing, and it is one of those that fill up space.
    Nop,
    /// Jumps this far from its end.
    Jump(i32),
    /// The same under a condition.
    Branch(i32),
    /// Calls what lies this far from its end.
    Call(i32),
    /// Calls what the word this far from its end holds.
    CallThrough(i32),
    /// Calls anything else.
    CallAnywhere,
    /// Jumps to what the word this far from its end holds.
    JumpThrough(i32),
    /// Jumps anywhere else.
    JumpAnywhere,
    /// Returns.
    Return,
    /// Ends everything.
    Stop,
    /// `lea` of what lies this far from its end into a register of 64 bits.
    Lea(u8, i32),
}

/// The prefixes of an instruction and what follows.
#[derive(Clone, Copy)]
struct Opcode {
    /// Bytes before the opcode.
    before: u32,
    /// Index in [`KNOWN`].
    index: usize,
    /// Whether there is a prefix with an extension of the operand's register.
    is_extended: bool,
    /// What comes after the opcode.
    rest: u64,
}

impl Opcode {
    /// What comes up to the operands is at most seven bytes.
    #[inline(always)]
    fn read(window: &[u8; WINDOW]) -> Opcode {
        let mut rest = window.first_chunk().map_or(0, |c| u64::from_le_bytes(*c));
        let (mut before, mut prefix) = (0u32, 0);
        if PREFIX[usize::from(rest as u8)] != 0 {
            (before, prefix) = prefixes_of(window);
            let after = window.get(before as usize..).and_then(<[u8]>::first_chunk);
            rest = after.map_or(0, |c| u64::from_le_bytes(*c));
        }
        // Half of all instructions have it: no branch.
        let has_rex = u32::from(rest & 0xf0 == 0x40);
        let rex = rest as u32 & 0u32.wrapping_sub(has_rex);
        rest >>= 8 * has_rex;
        let has_escape = u32::from(rest & 0xff == 0x0f);
        rest >>= 8 * has_escape;
        let low = (rest & 0xff | u64::from(has_escape) << 8) as usize;
        let is_wide = (rex >> 3 & 1) as usize;
        Opcode {
            before: before + has_rex + has_escape,
            index: (prefix << 10 | is_wide << 9 | low) % KNOWN.len(),
            is_extended: rex & 1 != 0,
            rest: rest >> 8,
        }
    }
}

/// How many prefixes an instruction has, and which one matters. More than three, or different ones
/// that matter, end before the opcode, and then nothing is told.
fn prefixes_of(window: &[u8; WINDOW]) -> (u32, usize) {
    let (mut count, mut known) = (0, 0);
    for byte in &window[..3] {
        let found = PREFIX[usize::from(*byte)];
        if found == 0 || found != SEGMENT && known != 0 && found != known {
            break;
        }
        if found != SEGMENT {
            known = found;
        }
        count += 1;
    }
    (count, usize::from(known))
}

/// Length and class of the instruction that `window` begins with. Of an unknown one the length means
/// nothing.
///
/// Nearly free of branches: what comes next in code is hard to guess, and a wrong guess costs more
/// than all of this.
#[inline(always)]
pub(super) fn head(window: &[u8; WINDOW]) -> (u32, u8) {
    let opcode = Opcode::read(window);
    let known = KNOWN[opcode.index];
    let modrm = opcode.rest as u8;
    // A SIB byte without a base has a displacement.
    let no_base = u32::from(opcode.rest & 0x07c7 == 0x0504);
    let operands = u32::from(OPERANDS[usize::from(modrm)]) + 4 * no_base;
    let has_operands = u32::from(known & HAS_OPERANDS != 0);
    let mut length =
        opcode.before + 1 + (known & 15) + (operands & 0u32.wrapping_sub(has_operands));
    if known >> TOLD >> (modrm >> (known >> SHIFT_OF_BITS) & 7) & 1 == 0 {
        return (0, UNKNOWN);
    }
    if known & IS_TEST != 0 && modrm & 0x30 != 0 {
        length -= known & 15;
    }
    let class = (known >> CLASS) as u8 & SPECIAL;
    let is_near = (class == LEA) & (modrm & 0xc7 != 5);
    (length, if is_near { PLAIN } else { class })
}

/// Whether a plain instruction may be one of the older forms of padding: an exchange or a `lea`.
pub(super) fn may_pad(window: &[u8; WINDOW]) -> bool {
    matches!(Opcode::read(window).index & 511, 0x86 | 0x87 | 0x8d)
}

/// What an instruction of a known class does: `window` begins with it, it has `length` bytes.
#[inline]
pub(super) fn kind(class: u8, window: &[u8; WINDOW], length: u32) -> Kind {
    // A distance is what an instruction ends with.
    let last = |i: u32| window[length.wrapping_sub(i) as usize % WINDOW];
    let near = || i32::from(last(1) as i8);
    let far = || i32::from_le_bytes([last(4), last(3), last(2), last(1)]);
    match class {
        JCC8 => Kind::Branch(near()),
        JMP8 => Kind::Jump(near()),
        JCC => Kind::Branch(far()),
        JMP => Kind::Jump(far()),
        CALL => Kind::Call(far()),
        RET => Kind::Return,
        TRAP => Kind::Stop,
        NOP => Kind::Nop,
        ONE_NOP if !Opcode::read(window).is_extended => Kind::Nop,
        // Prefix, opcode, register, distance.
        LEA if length >= 7 && last(7) & 0xf8 == 0x48 => {
            Kind::Lea(last(5) >> 3 & 7 | (last(7) & 4) << 1, far())
        }
        FF => {
            let modrm = Opcode::read(window).rest as u8;
            match (modrm >> 3 & 7, modrm & 0xc7 == 5) {
                (2, true) => Kind::CallThrough(far()),
                (2, false) => Kind::CallAnywhere,
                (4, true) => Kind::JumpThrough(far()),
                (4, false) => Kind::JumpAnywhere,
                _ => Kind::Plain,
            }
        }
        _ => Kind::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

    const IP: u64 = 0x10_0000_0000;

    /// Length and kind of an instruction.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct Quick {
        length: u8,
        kind: Kind,
    }

    fn read(window: &[u8; WINDOW]) -> Option<Quick> {
        let (length, class) = head(window);
        (class != UNKNOWN).then(|| Quick {
            length: length as u8,
            kind: kind(class, window, length),
        })
    }

    /// The same by the full decoder.
    fn full(window: &[u8]) -> (Quick, Instruction) {
        let instruction = Decoder::with_ip(64, window, IP, DecoderOptions::NONE).decode();
        let code = instruction.code();
        let near = instruction.op0_kind() == OpKind::NearBranch64;
        let far = |address: u64| address.wrapping_sub(instruction.next_ip()) as i32;
        let to = || far(instruction.near_branch_target());
        let relative = instruction.is_ip_rel_memory_operand();
        let slot = || far(instruction.ip_rel_memory_address());
        let kind = match code.flow_control() {
            _ if code == Code::INVALID => Kind::Stop,
            FlowControl::UnconditionalBranch if near => Kind::Jump(to()),
            FlowControl::ConditionalBranch if near => Kind::Branch(to()),
            FlowControl::Call if near => Kind::Call(to()),
            FlowControl::IndirectCall if relative => Kind::CallThrough(slot()),
            FlowControl::IndirectCall => Kind::CallAnywhere,
            FlowControl::IndirectBranch if relative => Kind::JumpThrough(slot()),
            FlowControl::IndirectBranch => Kind::JumpAnywhere,
            FlowControl::Return => Kind::Return,
            FlowControl::Interrupt | FlowControl::Exception => Kind::Stop,
            _ if code == Code::Lea_r64_m && relative => {
                Kind::Lea(instruction.op0_register().number() as u8, slot())
            }
            _ if instruction.mnemonic() == Mnemonic::Nop => Kind::Nop,
            _ => Kind::Plain,
        };
        let length = instruction.len() as u8;
        (Quick { length, kind }, instruction)
    }

    fn check(window: &[u8; WINDOW]) -> bool {
        let Some(quick) = read(window) else {
            return false;
        };
        let (expected, instruction) = full(window);
        assert!(
            instruction.code() != Code::INVALID,
            "{window:02x?} is no instruction"
        );
        assert_eq!(quick, expected, "{window:02x?}: {:?}", instruction.code());
        true
    }

    #[test]
    fn all_forms_are_what_the_full_decoder_says() {
        let prefixes: [&[u8]; 17] = [
            &[],
            &[0x66],
            &[0xf2],
            &[0xf3],
            &[0x2e],
            &[0x3e],
            &[0x64],
            &[0x65],
            &[0x2e, 0x66],
            &[0x64, 0xf3],
            &[0x3e, 0xf2],
            &[0x66, 0x66],
            &[0x66, 0x2e],
            &[0x66, 0x66, 0x2e],
            &[0xf3, 0x66],
            &[0xf3, 0x2e, 0xf3],
            &[0x66, 0x66, 0x66, 0x2e],
        ];
        let rexes: [&[u8]; 4] = [&[], &[0x41], &[0x48], &[0x4f]];
        let mut told = 0u32;
        for prefix in prefixes {
            for rex in rexes {
                for opcode in 0..0x200u32 {
                    for modrm in 0..=255u8 {
                        let mut window = [0x9d; WINDOW];
                        let escape: &[u8] = if opcode < 0x100 { &[] } else { &[0x0f] };
                        let head = [prefix, rex, escape, &[opcode as u8, modrm]].concat();
                        window[..head.len()].copy_from_slice(&head);
                        // Each base of a SIB byte with a displacement of its own.
                        window[head.len()] = 0x20 | modrm >> 3 & 7;
                        told += u32::from(check(&window));
                    }
                }
            }
        }
        assert!(told > 1 << 21, "only {told} told");
    }

    #[test]
    fn most_code_is_told() {
        let path = std::env::current_exe().expect("a path");
        let data = std::fs::read(path).expect("readable");
        let elf = object::File::parse(&*data).expect("an ELF file");
        use object::{Object as _, ObjectSection as _};
        if elf.architecture() != object::Architecture::X86_64 {
            return;
        }
        let text = elf.section_by_name(".text").expect("code");
        let code = text.data().expect("in the file");
        let code = &code[..code.len().min(1 << 20)];
        let (mut at, mut told, mut all) = (0, 0u32, 0u32);
        while let Some(window) = code.get(at..at + WINDOW) {
            let window = window.try_into().expect("sixteen bytes");
            told += u32::from(check(window));
            all += 1;
            at += usize::from(full(window).0.length);
        }
        assert!(told * 10 > all * 9, "{told} of {all}");
    }
}
