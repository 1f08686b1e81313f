//! Lengths and transfers of control of the usual x86-64 instructions, by tables.
//!
//! Input: sixteen bytes of code. Nine in ten instructions of a sweep only need a length, which a
//! full decoder takes several times as long to tell. Everything that is rare, or whose validity depends on
//! more than the opcode (system instructions, x87, VEX and EVEX, locks, odd prefixes), is left to the full
//! decoder. Invariant: what is told here is what `iced_x86` tells; a test compares them over all
//! combinations of prefixes, opcodes and operands that are told here.
//!
//! Source of the encodings: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2,
//! chapter 2 and appendix A.

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

// What an instruction is, in one number: a sweep only looks at the length of most.
/// Nothing of interest.
pub(super) const PLAIN: u8 = 0;
/// Only a full decoder can tell; so is the length.
pub(super) const UNKNOWN: u8 = 1;
const JCC8: u8 = 2;
const JMP8: u8 = 3;
const JCC: u8 = 4;
const JMP: u8 = 5;
const CALL: u8 = 6;
const RET: u8 = 7;
// Of these the next number is the same relative to the instruction.
const LEA: u8 = 8;
const LEA_RELATIVE: u8 = 9;
const CALL_ANYWHERE: u8 = 10;
const CALL_THROUGH: u8 = 11;
const JUMP_ANYWHERE: u8 = 12;
const JUMP_THROUGH: u8 = 13;
const TRAP: u8 = 14;
/// `nop` with operands.
const NOP: u8 = 15;

// What follows an opcode.
/// Operands follow.
const MODRM: u8 = 0x80;
/// An immediate of one byte.
const IMM8: u8 = 0x20;
/// An immediate of the operand's size, of four bytes at most.
const IMM: u8 = 0x40;
/// An immediate of up to eight bytes.
const WIDE: u8 = 0x60;
// Forms that depend on more, beside the classes from 2 on; in the low bits.
/// Not told here.
const ABSENT: u8 = 1;
/// Only the first of the group.
const FIRST: u8 = 16;
/// Only the first two of the group.
const FIRST_TWO: u8 = 17;
/// Tests have an immediate, others of the group none.
const TEST: u8 = 18;
/// Shifts: the seventh is an alias.
const SHIFT: u8 = 19;
/// Increments, calls, jumps, pushes.
const FF: u8 = 20;
/// Bit tests: the last four of the group.
const LAST_FOUR: u8 = 21;
/// `nop`, unless a prefix makes it something else.
const ONE_NOP: u8 = 22;
const SPECIAL: u8 = 0x1f;

/// The form of every opcode of one byte, then of every one after 0F.
const FORMS: [u8; 512] = both(one(), two());
/// Mandatory prefixes that an opcode may have: bits none, 66, F3, F2.
const PREFIXES: [u8; 512] = both(first_prefixes(), prefixes());

const fn both(first: [u8; 256], second: [u8; 256]) -> [u8; 512] {
    let mut t = [0; 512];
    let mut i = 0;
    while i < 256 {
        t[i] = first[i];
        t[256 + i] = second[i];
        i += 1;
    }
    t
}

const fn set(mut table: [u8; 256], from: usize, to: usize, form: u8) -> [u8; 256] {
    let mut i = from;
    while i <= to {
        table[i] = form;
        i += 1;
    }
    table
}

const fn one() -> [u8; 256] {
    let mut t = [ABSENT; 256];
    // Arithmetic: two directions, two sizes, two with immediates.
    let mut row = 0;
    while row < 0x40 {
        t = set(t, row, row + 3, PLAIN | MODRM);
        t = set(t, row + 4, row + 4, PLAIN | IMM8);
        t = set(t, row + 5, row + 5, PLAIN | IMM);
        row += 8;
    }
    t = set(t, 0x50, 0x5f, PLAIN);
    t = set(t, 0x63, 0x63, PLAIN | MODRM);
    t = set(t, 0x68, 0x68, PLAIN | IMM);
    t = set(t, 0x69, 0x69, PLAIN | MODRM | IMM);
    t = set(t, 0x6a, 0x6a, PLAIN | IMM8);
    t = set(t, 0x6b, 0x6b, PLAIN | MODRM | IMM8);
    t = set(t, 0x70, 0x7f, JCC8 | IMM8);
    t = set(t, 0x80, 0x80, PLAIN | MODRM | IMM8);
    t = set(t, 0x81, 0x81, PLAIN | MODRM | IMM);
    t = set(t, 0x83, 0x83, PLAIN | MODRM | IMM8);
    t = set(t, 0x84, 0x8b, PLAIN | MODRM);
    t = set(t, 0x8d, 0x8d, LEA | MODRM);
    t = set(t, 0x90, 0x90, ONE_NOP);
    t = set(t, 0x98, 0x99, PLAIN);
    t = set(t, 0xa4, 0xa7, PLAIN);
    t = set(t, 0xa8, 0xa8, PLAIN | IMM8);
    t = set(t, 0xa9, 0xa9, PLAIN | IMM);
    t = set(t, 0xaa, 0xaf, PLAIN);
    t = set(t, 0xb0, 0xb7, PLAIN | IMM8);
    t = set(t, 0xb8, 0xbf, PLAIN | WIDE);
    t = set(t, 0xc0, 0xc1, SHIFT | MODRM | IMM8);
    t = set(t, 0xc3, 0xc3, RET);
    t = set(t, 0xc6, 0xc6, FIRST | MODRM | IMM8);
    t = set(t, 0xc7, 0xc7, FIRST | MODRM | IMM);
    t = set(t, 0xc9, 0xc9, PLAIN);
    t = set(t, 0xcc, 0xcc, TRAP);
    t = set(t, 0xd0, 0xd3, SHIFT | MODRM);
    t = set(t, 0xe8, 0xe8, CALL | IMM);
    t = set(t, 0xe9, 0xe9, JMP | IMM);
    t = set(t, 0xeb, 0xeb, JMP8 | IMM8);
    t = set(t, 0xf6, 0xf6, TEST | MODRM | IMM8);
    t = set(t, 0xf7, 0xf7, TEST | MODRM | IMM);
    t = set(t, 0xfe, 0xfe, FIRST_TWO | MODRM);
    set(t, 0xff, 0xff, FF | MODRM)
}

const fn two() -> [u8; 256] {
    let mut t = [ABSENT; 256];
    t = set(t, 0x0b, 0x0b, TRAP);
    t = set(t, 0x10, 0x11, PLAIN | MODRM);
    t = set(t, 0x1f, 0x1f, NOP | MODRM);
    t = set(t, 0x28, 0x29, PLAIN | MODRM);
    t = set(t, 0x2a, 0x2a, PLAIN | MODRM);
    t = set(t, 0x2c, 0x2f, PLAIN | MODRM);
    t = set(t, 0x40, 0x4f, PLAIN | MODRM);
    t = set(t, 0x51, 0x51, PLAIN | MODRM);
    t = set(t, 0x54, 0x5f, PLAIN | MODRM);
    t = set(t, 0x60, 0x6f, PLAIN | MODRM);
    t = set(t, 0x70, 0x70, PLAIN | MODRM | IMM8);
    t = set(t, 0x74, 0x76, PLAIN | MODRM);
    t = set(t, 0x7e, 0x7f, PLAIN | MODRM);
    t = set(t, 0x80, 0x8f, JCC | IMM);
    t = set(t, 0x90, 0x9f, PLAIN | MODRM);
    t = set(t, 0xa3, 0xa3, PLAIN | MODRM);
    t = set(t, 0xa4, 0xa4, PLAIN | MODRM | IMM8);
    t = set(t, 0xa5, 0xa5, PLAIN | MODRM);
    t = set(t, 0xab, 0xab, PLAIN | MODRM);
    t = set(t, 0xac, 0xac, PLAIN | MODRM | IMM8);
    t = set(t, 0xad, 0xad, PLAIN | MODRM);
    t = set(t, 0xaf, 0xb1, PLAIN | MODRM);
    t = set(t, 0xb3, 0xb3, PLAIN | MODRM);
    t = set(t, 0xb6, 0xb7, PLAIN | MODRM);
    t = set(t, 0xb8, 0xb8, PLAIN | MODRM);
    t = set(t, 0xba, 0xba, LAST_FOUR | MODRM | IMM8);
    t = set(t, 0xbb, 0xbf, PLAIN | MODRM);
    t = set(t, 0xc0, 0xc1, PLAIN | MODRM);
    t = set(t, 0xc6, 0xc6, PLAIN | MODRM | IMM8);
    t = set(t, 0xc8, 0xcf, PLAIN);
    t = set(t, 0xd4, 0xd4, PLAIN | MODRM);
    t = set(t, 0xdb, 0xdb, PLAIN | MODRM);
    t = set(t, 0xdf, 0xdf, PLAIN | MODRM);
    t = set(t, 0xeb, 0xeb, PLAIN | MODRM);
    t = set(t, 0xef, 0xef, PLAIN | MODRM);
    set(t, 0xfa, 0xfe, PLAIN | MODRM)
}

const fn first_prefixes() -> [u8; 256] {
    let mut t = [0b1111; 256];
    // The prefix of the operand's size makes other instructions of jumps, calls and returns.
    t = set(t, 0x70, 0x7f, 0b1101);
    t = set(t, 0x90, 0x90, 0b0011);
    t = set(t, 0xc3, 0xc3, 0b1101);
    t = set(t, 0xe8, 0xe9, 0b1101);
    t = set(t, 0xeb, 0xeb, 0b1101);
    set(t, 0xff, 0xff, 0b1101)
}

const fn prefixes() -> [u8; 256] {
    // General instructions take any prefix.
    let mut t = [0b1111; 256];
    t = set(t, 0x0b, 0x0b, 0b0001);
    t = set(t, 0x28, 0x29, 0b0011);
    t = set(t, 0x2e, 0x2f, 0b0011);
    t = set(t, 0x54, 0x57, 0b0011);
    t = set(t, 0x5b, 0x5b, 0b0111);
    t = set(t, 0x60, 0x6b, 0b0011);
    t = set(t, 0x6c, 0x6d, 0b0010);
    t = set(t, 0x6e, 0x6e, 0b0011);
    t = set(t, 0x6f, 0x6f, 0b0111);
    t = set(t, 0x74, 0x76, 0b0011);
    t = set(t, 0x7e, 0x7f, 0b0111);
    t = set(t, 0x80, 0x8f, 0b1101);
    // `popcnt` is nothing without its prefix.
    t = set(t, 0xb8, 0xb8, 0b0100);
    t = set(t, 0xc6, 0xc6, 0b0011);
    t = set(t, 0xd4, 0xd4, 0b0011);
    t = set(t, 0xdb, 0xdb, 0b0011);
    t = set(t, 0xdf, 0xdf, 0b0011);
    t = set(t, 0xeb, 0xeb, 0b0011);
    t = set(t, 0xef, 0xef, 0b0011);
    set(t, 0xfa, 0xfe, 0b0011)
}

const NO_PREFIX: u8 = 0b0001;
const SIZE_PREFIX: u8 = 0b0010;

/// Bytes of a ModRM byte and what it says follows, save the displacement of a SIB byte without base.
const OPERANDS: [u8; 256] = operands();

const fn operands() -> [u8; 256] {
    let mut t = [1; 256];
    let mut modrm = 0;
    while modrm < 0xc0 {
        let (mode, rm) = (modrm >> 6, modrm & 7);
        if rm == 4 {
            t[modrm] += 1;
        }
        t[modrm] += match mode {
            0 if rm == 5 => 4,
            0 => 0,
            1 => 1,
            _ => 4,
        };
        modrm += 1;
    }
    t
}

/// The class of every form, by the middle bits of the byte after the opcode.
const CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut t = [UNKNOWN; 256];
    let mut i = 0;
    while i < 256 {
        let (form, group) = ((i >> 3) as u8, i & 7);
        t[i] = match (form, group) {
            (ABSENT, _) => UNKNOWN,
            (NOP, 1..) => UNKNOWN,
            (0..=NOP, _) => form,
            (ONE_NOP, _) => NOP,
            (FIRST, 0) | (FIRST_TWO, 0 | 1) | (TEST, 0 | 2..) => PLAIN,
            (SHIFT, 0..=5 | 7) | (LAST_FOUR, 4..) | (FF, 0 | 1 | 6) => PLAIN,
            (FF, 2) => CALL_ANYWHERE,
            (FF, 4) => JUMP_ANYWHERE,
            _ => UNKNOWN,
        };
        i += 1;
    }
    t
}

/// Bytes of immediates: none, one, of the operand's size, wide; for operands of the usual size, of
/// eight bytes, of two.
const IMMEDIATES: [u8; 16] = [0, 1, 4, 4, 0, 1, 4, 8, 0, 1, 2, 2, 0, 0, 0, 0];

/// Whether a byte is a prefix that is told here.
const fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0x2e | 0x3e | 0x64 | 0x65 | 0x66 | 0xf2 | 0xf3)
}

/// Length and class of the instruction that `window` begins with. Of an unknown one the length means
/// nothing.
///
/// Nearly free of branches: what comes next in code is hard to guess, and a wrong guess costs more
/// than all of this.
#[inline(always)]
pub(super) fn head(window: &[u8; WINDOW]) -> (u32, u8) {
    let [b0, b1, b2, b3, b4, b5, b6, b7, ..] = *window;
    // What is not read yet: what comes up to the operands is at most seven bytes.
    let mut rest = u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7]);
    let mut end = 0u32;
    let mut mandatory = NO_PREFIX;
    // One prefix of each kind at most, as compilers have them.
    if is_prefix(b0) {
        if matches!(rest as u8, 0x2e | 0x3e | 0x64 | 0x65) {
            rest >>= 8;
            end += 1;
        }
        let found = match rest as u8 {
            0x66 => SIZE_PREFIX,
            0xf3 => 0b0100,
            0xf2 => 0b1000,
            _ => 0,
        };
        if found != 0 {
            mandatory = found;
            rest >>= 8;
            end += 1;
        }
    }
    let has_rex = u32::from(rest as u8 & 0xf0 == 0x40);
    let rex = rest as u8 & 0u8.wrapping_sub(has_rex as u8);
    rest >>= 8 * has_rex;
    end += has_rex;
    let has_escape = u32::from(rest as u8 == 0x0f);
    rest >>= 8 * has_escape;
    end += has_escape;
    let opcode = (has_escape << 8) as usize | usize::from(rest as u8);
    let form = FORMS[opcode];
    let special = form & SPECIAL;
    let (modrm, sib) = ((rest >> 8) as u8, (rest >> 16) as u8);
    let no_base = modrm & 0xc7 == 4 && sib & 7 == 5;
    let operands = u32::from(OPERANDS[usize::from(modrm)]) + 4 * u32::from(no_base);
    let is_wide = rex >> 3 & 1;
    let is_short = u8::from(mandatory == SIZE_PREFIX) & !is_wide;
    let size = form >> 5 & 3 | is_wide << 2 | is_short << 3;
    let no_immediate = special == TEST && modrm & 0x30 != 0;
    let immediate = u32::from(IMMEDIATES[usize::from(size)]);
    end += 1
        + (operands & 0u32.wrapping_sub(u32::from(form & MODRM != 0)))
        + (immediate & u32::from(no_immediate).wrapping_sub(1));
    let class = CLASSES[usize::from(special << 3 | modrm >> 3 & 7)];
    let is_relative = modrm & 0xc7 == 5;
    let is_memory = modrm < 0xc0;
    let wrong = (PREFIXES[opcode] & mandatory == 0)
        | (special == ONE_NOP) & (rex & 1 != 0)
        | (class == LEA) & !is_memory;
    let class = match class {
        CALL_ANYWHERE | JUMP_ANYWHERE => class | u8::from(is_relative),
        LEA if is_relative && is_wide != 0 => LEA_RELATIVE,
        LEA => PLAIN,
        other => other,
    };
    (end, if wrong { UNKNOWN } else { class })
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
        // Prefix, opcode, register, distance.
        LEA_RELATIVE => Kind::Lea(last(5) >> 3 & 7 | (last(7) & 4) << 1, far()),
        CALL_ANYWHERE => Kind::CallAnywhere,
        CALL_THROUGH => Kind::CallThrough(far()),
        JUMP_ANYWHERE => Kind::JumpAnywhere,
        JUMP_THROUGH => Kind::JumpThrough(far()),
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
        let prefixes: [&[u8]; 12] = [
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
