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
const TRAP: u8 = 8;
/// `nop` with operands.
const NOP: u8 = 9;
/// `nop`, unless a prefix makes it something else.
const ONE_NOP: u8 = 10;
/// `lea` relative to the instruction; others are plain.
const LEA: u8 = 11;
/// Increments, calls, jumps, pushes.
const FF: u8 = 12;
// Groups, which are plain where they are told.
/// Only the first of the group.
const FIRST: u8 = 13;
/// Only the first two of the group.
const FIRST_TWO: u8 = 14;
/// Shifts: the seventh is an alias.
const SHIFT: u8 = 15;
/// Bit tests: the last four of the group.
const LAST_FOUR: u8 = 16;
/// Tests have an immediate, others of the group none.
const TEST: u8 = 17;
const SPECIAL: u8 = 0x1f;

// What follows an opcode.
/// Operands follow.
const MODRM: u8 = 0x80;
/// An immediate of one byte.
const IMM8: u8 = 0x20;
/// An immediate of the operand's size, of four bytes at most.
const IMM: u8 = 0x40;
/// An immediate of up to eight bytes.
const WIDE: u8 = 0x60;

/// The form of every opcode of one byte, then of every one after 0F.
const FORMS: [u8; 512] = both(one(), two());
/// Prefixes that an opcode may have: bits none, 66, F3, F2.
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
    let mut t = [UNKNOWN; 256];
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
    let mut t = [UNKNOWN; 256];
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

// What is known of an opcode with its prefixes, in one number. The lowest four bits are the bytes
// of the immediate.
const HAS_OPERANDS: u32 = 1 << 4;
/// A test, whose immediate depends on its group.
const IS_TEST: u32 = 1 << 5;
/// From here on a bit for each value of three bits of the byte after the opcode: whether such
/// an instruction is told.
const TOLD: u32 = 8;
/// The class.
const CLASS: u32 = 16;
/// How far those three bits are shifted.
const SHIFT_OF_BITS: u32 = 24;

/// By prefix (none, 66, F3, F2), then by the operand's width, then by opcode.
static KNOWN: [u32; 4096] = known();

const fn known() -> [u32; 4096] {
    let mut t = [0; 4096];
    let mut i = 0;
    while i < 4096 {
        let (prefix, is_wide, opcode) = (i >> 10, i >> 9 & 1 == 1, i & 511);
        let form = FORMS[opcode];
        let is_short = prefix == 1 && !is_wide;
        let immediate = match (form & WIDE, is_wide, is_short) {
            (0, ..) => 0,
            (IMM8, ..) => 1,
            (_, _, true) => 2,
            (WIDE, true, _) => 8,
            _ => 4,
        };
        let special = form & SPECIAL;
        // A group is told by the middle bits; of `lea` the upper ones must not name a register.
        let (shift, told) = match special {
            UNKNOWN => (3, 0),
            LEA => (5, 0b0011_1111),
            NOP | FIRST => (3, 0b0000_0001),
            FIRST_TWO => (3, 0b0000_0011),
            TEST => (3, 0b1111_1101),
            SHIFT => (3, 0b1011_1111),
            LAST_FOUR => (3, 0b1111_0000),
            FF => (3, 0b0101_0111),
            _ => (3, 0b1111_1111),
        };
        let told = if PREFIXES[opcode] & 1 << prefix == 0 {
            0
        } else {
            told
        };
        let class = match special {
            FIRST | FIRST_TWO | TEST | SHIFT | LAST_FOUR => PLAIN,
            other => other,
        };
        t[i] = immediate
            | if form & MODRM != 0 { HAS_OPERANDS } else { 0 }
            | if special == TEST { IS_TEST } else { 0 }
            | told << TOLD
            | (class as u32) << CLASS
            | shift << SHIFT_OF_BITS;
        i += 1;
    }
    t
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

/// What kind of prefix a byte is: 0 = none; 1 to 3 as in [`KNOWN`].
static PREFIX: [u8; 256] = prefix_bytes();
const SEGMENT: u8 = 4;

const fn prefix_bytes() -> [u8; 256] {
    let mut t = [0; 256];
    t[0x2e] = SEGMENT;
    t[0x3e] = SEGMENT;
    t[0x64] = SEGMENT;
    t[0x65] = SEGMENT;
    t[0x66] = 1;
    t[0xf3] = 2;
    t[0xf2] = 3;
    t
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
