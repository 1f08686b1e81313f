//! What is known of the usual x86-64 opcodes with their prefixes, worked out when this is compiled.
//!
//! Source of the encodings: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2,
//! chapter 2 and appendix A.

// What an instruction is, in one number: a sweep only looks at the length of most.
/// Nothing of interest.
pub(super) const PLAIN: u8 = 0;
/// Only a full decoder can tell; so is the length.
pub(super) const UNKNOWN: u8 = 1;
pub(super) const JCC8: u8 = 2;
pub(super) const JMP8: u8 = 3;
pub(super) const JCC: u8 = 4;
pub(super) const JMP: u8 = 5;
pub(super) const CALL: u8 = 6;
pub(super) const RET: u8 = 7;
pub(super) const TRAP: u8 = 8;
/// `nop` with operands.
pub(super) const NOP: u8 = 9;
/// `nop`, unless a prefix makes it something else.
pub(super) const ONE_NOP: u8 = 10;
/// `lea` relative to the instruction; others are plain.
pub(super) const LEA: u8 = 11;
/// Increments, calls, jumps, pushes.
pub(super) const FF: u8 = 12;
// Groups, which are plain where they are told.
/// Only the first of the group.
pub(super) const FIRST: u8 = 13;
/// Only the first two of the group.
pub(super) const FIRST_TWO: u8 = 14;
/// Shifts: the seventh is an alias.
pub(super) const SHIFT: u8 = 15;
/// Bit tests: the last four of the group.
pub(super) const LAST_FOUR: u8 = 16;
/// Tests have an immediate, others of the group none.
pub(super) const TEST: u8 = 17;
pub(super) const SPECIAL: u8 = 0x1f;

// What follows an opcode.
/// Operands follow.
pub(super) const MODRM: u8 = 0x80;
/// An immediate of one byte.
pub(super) const IMM8: u8 = 0x20;
/// An immediate of the operand's size, of four bytes at most.
pub(super) const IMM: u8 = 0x40;
/// An immediate of up to eight bytes.
pub(super) const WIDE: u8 = 0x60;

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
pub(super) const OPERANDS: [u8; 256] = operands();

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
pub(super) const HAS_OPERANDS: u32 = 1 << 4;
/// A test, whose immediate depends on its group.
pub(super) const IS_TEST: u32 = 1 << 5;
/// From here on a bit for each value of three bits of the byte after the opcode: whether such
/// an instruction is told.
pub(super) const TOLD: u32 = 8;
/// The class.
pub(super) const CLASS: u32 = 16;
/// How far those three bits are shifted.
pub(super) const SHIFT_OF_BITS: u32 = 24;

/// By prefix (none, 66, F3, F2), then by the operand's width, then by opcode.
pub(super) static KNOWN: [u32; 4096] = known();

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

/// What kind of prefix a byte is: 0 = none; 1 to 3 as in [`KNOWN`].
pub(super) static PREFIX: [u8; 256] = prefix_bytes();
pub(super) const SEGMENT: u8 = 4;

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
