//! Lengths of plain x86-64 instructions, by tables.
//!
//! A plain instruction neither transfers control nor loads an address relative to itself, so the
//! sweep needs only its length, which a full decoder takes several times as long to find. The tables
//! cover the usual general and SSE instructions. Everything that is rare, or whose validity depends
//! on more than the opcode (system instructions, x87, VEX and EVEX, locks, odd prefixes), has no
//! length here. Invariant: a length is that of `iced_x86`; a test compares all combinations of
//! prefixes, opcodes and operands that have one.
//!
//! Source of the encodings: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2,
//! chapter 2 and appendix A.

/// Bytes that [`plain_length`] looks at: an instruction has at most 15.
pub(super) const WINDOW: usize = 16;

/// The length of the instruction that `window` begins with; 0 = ask a full decoder.
///
/// Nearly free of branches: the next instruction is hard to predict, and a misprediction costs more
/// than all of this.
#[inline(always)]
pub(super) fn plain_length(window: &[u8; WINDOW]) -> usize {
    let mut rest = window.first_chunk().map_or(0, |c| u64::from_le_bytes(*c));
    let (mut before, mut prefix) = (0, 0);
    if PREFIX[usize::from(rest as u8)] != 0 {
        (before, prefix) = prefixes_of(window);
        let after = window.get(before as usize..).and_then(<[u8]>::first_chunk);
        rest = after.map_or(0, |c| u64::from_le_bytes(*c));
    }
    // Half of all instructions have a REX prefix: no branch.
    let has_rex = u32::from(rest & 0xf0 == 0x40);
    let rex = rest as u32 & 0u32.wrapping_sub(has_rex);
    rest >>= 8 * has_rex;
    let has_escape = u32::from(rest & 0xff == 0x0f);
    rest >>= 8 * has_escape;
    let opcode = (rest & 0xff | u64::from(has_escape) << 8) as usize;
    let is_wide = (rex >> 3 & 1) as usize;
    let known = KNOWN[(prefix << 10 | is_wide << 9 | opcode) % KNOWN.len()];
    rest >>= 8;
    let modrm = rest as u8;
    if known >> TOLD >> (modrm >> (known >> SHIFT_OF_BITS) & 7) & 1 == 0 {
        return 0;
    }
    // A SIB byte without a base has a displacement.
    let no_base = u32::from(rest & 0x07c7 == 0x0504);
    let operands = u32::from(OPERANDS[usize::from(modrm)]) + 4 * no_base;
    let has_operands = u32::from(known & HAS_OPERANDS != 0);
    let immediate = known & 15;
    let mut length = before + has_rex + has_escape + 1 + immediate;
    length += operands & 0u32.wrapping_sub(has_operands);
    if known & IS_TEST != 0 && modrm & 0x30 != 0 {
        length -= immediate;
    }
    // `lea` relative to the instruction is not plain.
    let is_relative_lea = known & IS_LEA != 0 && modrm & 0xc7 == 5;
    if is_relative_lea { 0 } else { length as usize }
}

/// How many prefixes an instruction has, and which one matters. More than three, or different ones
/// that matter, end before the opcode, which then has no length.
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

// The form of an opcode. The lowest bits say which instructions of its group are plain.
/// None: only a full decoder can tell.
const NONE: u8 = 0;
const ALL: u8 = 1;
/// All but those relative to the instruction.
const LEA: u8 = 2;
/// Increments and pushes, not calls and jumps.
const FF: u8 = 3;
/// Only the first of the group.
const FIRST: u8 = 4;
/// Only the first two of the group.
const FIRST_TWO: u8 = 5;
/// Shifts: the seventh is an alias.
const SHIFT: u8 = 6;
/// Bit tests: the last four of the group.
const LAST_FOUR: u8 = 7;
/// Tests have an immediate, others of the group none.
const TEST: u8 = 8;
const GROUP: u8 = 0x1f;
// What follows the opcode.
/// Operands follow.
const MODRM: u8 = 0x80;
/// An immediate of one byte.
const IMM8: u8 = 0x20;
/// An immediate of the operand's size, of four bytes at most.
const IMM: u8 = 0x40;
/// An immediate of up to eight bytes.
const WIDE: u8 = 0x60;

/// A table with `value` for each opcode of the ranges `rows`, both ends included.
const fn fill(rest: u8, rows: &[(usize, usize, u8)]) -> [u8; 256] {
    let mut table = [rest; 256];
    let mut row = 0;
    while row < rows.len() {
        let (mut opcode, last, value) = rows[row];
        while opcode <= last {
            table[opcode] = value;
            opcode += 1;
        }
        row += 1;
    }
    table
}

/// Forms of the opcodes of one byte; of arithmetic only the first eight.
const ONE: [u8; 256] = fill(
    NONE,
    &[
        (0x00, 0x03, ALL | MODRM),
        (0x04, 0x04, ALL | IMM8),
        (0x05, 0x05, ALL | IMM),
        (0x50, 0x5f, ALL),
        (0x63, 0x63, ALL | MODRM),
        (0x68, 0x68, ALL | IMM),
        (0x69, 0x69, ALL | MODRM | IMM),
        (0x6a, 0x6a, ALL | IMM8),
        (0x6b, 0x6b, ALL | MODRM | IMM8),
        (0x80, 0x80, ALL | MODRM | IMM8),
        (0x81, 0x81, ALL | MODRM | IMM),
        (0x83, 0x83, ALL | MODRM | IMM8),
        (0x84, 0x8b, ALL | MODRM),
        (0x8d, 0x8d, LEA | MODRM),
        (0x90, 0x90, ALL),
        (0x98, 0x99, ALL),
        (0xa4, 0xa7, ALL),
        (0xa8, 0xa8, ALL | IMM8),
        (0xa9, 0xa9, ALL | IMM),
        (0xaa, 0xaf, ALL),
        (0xb0, 0xb7, ALL | IMM8),
        (0xb8, 0xbf, ALL | WIDE),
        (0xc0, 0xc1, SHIFT | MODRM | IMM8),
        (0xc6, 0xc6, FIRST | MODRM | IMM8),
        (0xc7, 0xc7, FIRST | MODRM | IMM),
        (0xc9, 0xc9, ALL),
        (0xd0, 0xd3, SHIFT | MODRM),
        (0xf6, 0xf6, TEST | MODRM | IMM8),
        (0xf7, 0xf7, TEST | MODRM | IMM),
        (0xfe, 0xfe, FIRST_TWO | MODRM),
        (0xff, 0xff, FF | MODRM),
    ],
);

/// Forms of the opcodes after 0F.
const TWO: [u8; 256] = fill(
    NONE,
    &[
        (0x10, 0x11, ALL | MODRM),
        (0x1f, 0x1f, FIRST | MODRM),
        (0x28, 0x2a, ALL | MODRM),
        (0x2c, 0x2f, ALL | MODRM),
        (0x40, 0x4f, ALL | MODRM),
        (0x51, 0x51, ALL | MODRM),
        (0x54, 0x6f, ALL | MODRM),
        (0x70, 0x70, ALL | MODRM | IMM8),
        (0x74, 0x76, ALL | MODRM),
        (0x7e, 0x7f, ALL | MODRM),
        (0x90, 0x9f, ALL | MODRM),
        (0xa3, 0xa3, ALL | MODRM),
        (0xa4, 0xa4, ALL | MODRM | IMM8),
        (0xa5, 0xa5, ALL | MODRM),
        (0xab, 0xab, ALL | MODRM),
        (0xac, 0xac, ALL | MODRM | IMM8),
        (0xad, 0xad, ALL | MODRM),
        (0xaf, 0xb1, ALL | MODRM),
        (0xb3, 0xb3, ALL | MODRM),
        (0xb6, 0xb8, ALL | MODRM),
        (0xba, 0xba, LAST_FOUR | MODRM | IMM8),
        (0xbb, 0xc1, ALL | MODRM),
        (0xc6, 0xc6, ALL | MODRM | IMM8),
        (0xc8, 0xcf, ALL),
        (0xd4, 0xd4, ALL | MODRM),
        (0xdb, 0xdb, ALL | MODRM),
        (0xdf, 0xdf, ALL | MODRM),
        (0xeb, 0xeb, ALL | MODRM),
        (0xef, 0xef, ALL | MODRM),
        (0xfa, 0xfe, ALL | MODRM),
    ],
);

// Prefixes that an opcode may have: bits none, 66, F3, F2. General instructions take any.
const ONE_PREFIXES: [u8; 256] = fill(0b1111, &[(0x90, 0x90, 0b0011), (0xff, 0xff, 0b1101)]);
const TWO_PREFIXES: [u8; 256] = fill(
    0b1111,
    &[
        (0x28, 0x29, 0b0011),
        (0x2e, 0x2f, 0b0011),
        (0x54, 0x57, 0b0011),
        (0x5b, 0x5b, 0b0111),
        (0x60, 0x6b, 0b0011),
        (0x6c, 0x6d, 0b0010),
        (0x6e, 0x6e, 0b0011),
        (0x6f, 0x6f, 0b0111),
        (0x74, 0x76, 0b0011),
        (0x7e, 0x7f, 0b0111),
        // `popcnt` is nothing without its prefix.
        (0xb8, 0xb8, 0b0100),
        (0xc6, 0xc6, 0b0011),
        (0xd4, 0xd4, 0b0011),
        (0xdb, 0xdb, 0b0011),
        (0xdf, 0xdf, 0b0011),
        (0xeb, 0xeb, 0b0011),
        (0xef, 0xef, 0b0011),
        (0xfa, 0xfe, 0b0011),
    ],
);

/// Bytes of a ModRM byte and what follows it, save the displacement of a SIB byte without base.
const OPERANDS: [u8; 256] = operands();

const fn operands() -> [u8; 256] {
    let mut table = [1; 256];
    let mut modrm = 0;
    while modrm < 0xc0 {
        let (mode, rm) = (modrm >> 6, modrm & 7);
        if rm == 4 {
            table[modrm] += 1;
        }
        table[modrm] += match mode {
            0 if rm == 5 => 4,
            0 => 0,
            1 => 1,
            _ => 4,
        };
        modrm += 1;
    }
    table
}

// What is known of an opcode with its prefixes. The lowest four bits are the bytes of the immediate.
const HAS_OPERANDS: u32 = 1 << 4;
/// A test, whose immediate depends on its group.
const IS_TEST: u32 = 1 << 5;
const IS_LEA: u32 = 1 << 6;
/// From here on a bit for each value of three bits of the ModRM byte: whether such an instruction
/// is plain.
const TOLD: u32 = 8;
/// How far those three bits are shifted.
const SHIFT_OF_BITS: u32 = 24;

/// By prefix (none, 66, F3, F2), then by the operand's width, then by escape and opcode.
static KNOWN: [u32; 4096] = known();

const fn known() -> [u32; 4096] {
    let mut table = [0; 4096];
    let mut i = 0;
    while i < 4096 {
        let (prefix, is_wide, opcode) = (i >> 10, i >> 9 & 1 == 1, i & 255);
        let (form, prefixes) = match i >> 8 & 1 {
            // Arithmetic repeats every eight opcodes.
            0 if opcode < 0x40 => (ONE[opcode & 7], ONE_PREFIXES[opcode & 7]),
            0 => (ONE[opcode], ONE_PREFIXES[opcode]),
            _ => (TWO[opcode], TWO_PREFIXES[opcode]),
        };
        let immediate = match (form & WIDE, is_wide) {
            (0, _) => 0,
            (IMM8, _) => 1,
            (WIDE, true) => 8,
            (_, false) if prefix == 1 => 2,
            _ => 4,
        };
        // The middle bits of the ModRM byte choose within a group; `lea` of a register is invalid.
        let (shift, told) = match form & GROUP {
            NONE => (3, 0),
            LEA => (5, 0b0011_1111),
            FIRST => (3, 0b0000_0001),
            FIRST_TWO => (3, 0b0000_0011),
            TEST => (3, 0b1111_1101),
            SHIFT => (3, 0b1011_1111),
            LAST_FOUR => (3, 0b1111_0000),
            FF => (3, 0b0100_0011),
            _ => (3, 0b1111_1111),
        };
        if prefixes & 1 << prefix != 0 {
            table[i] = immediate
                | if form & MODRM != 0 { HAS_OPERANDS } else { 0 }
                | if form & GROUP == TEST { IS_TEST } else { 0 }
                | if form & GROUP == LEA { IS_LEA } else { 0 }
                | told << TOLD
                | shift << SHIFT_OF_BITS;
        }
        i += 1;
    }
    table
}

const SEGMENT: u8 = 4;
/// What kind of prefix a byte is: 0 = none; 1 to 3 as in [`KNOWN`].
static PREFIX: [u8; 256] = fill(
    0,
    &[
        (0x2e, 0x2e, SEGMENT),
        (0x3e, 0x3e, SEGMENT),
        (0x64, 0x65, SEGMENT),
        (0x66, 0x66, 1),
        (0xf3, 0xf3, 2),
        (0xf2, 0xf2, 3),
    ],
);

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Code, Decoder, DecoderOptions, FlowControl};

    /// Whether the instruction has a length here, which then is that of the full decoder.
    fn check(window: &[u8; WINDOW]) -> bool {
        let length = plain_length(window);
        if length == 0 {
            return false;
        }
        let instruction = Decoder::with_ip(64, window, 0x1000, DecoderOptions::NONE).decode();
        let code = instruction.code();
        let is_plain = code.flow_control() == FlowControl::Next
            && !matches!(code, Code::INVALID | Code::Hlt)
            && !(code == Code::Lea_r64_m && instruction.is_ip_rel_memory_operand());
        assert!(is_plain, "{window:02x?}: {code:?}");
        assert_eq!(length, instruction.len(), "{window:02x?}: {code:?}");
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
}
