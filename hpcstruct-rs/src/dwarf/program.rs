//! Runs usual line programs.
//!
//! Input: a line program. Invariant: the rows are those of gimli; a program with anything unusual in it
//! (damage, instructions of several operations, entries of files, instructions that are not known, addresses of
//! another size or byte order) is refused as a whole and left to gimli. A test compares the two.

use super::Reader;
use gimli::IncompleteLineProgram;

/// The state of the machine that a program drives, when it states a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct State {
    /// Address of the code.
    pub(super) address: u64,
    /// Index of the file.
    pub(super) file: u64,
    /// Line; 0 = none.
    pub(super) line: u64,
    /// Whether the row is the end of a sequence: one past its last address.
    pub(super) is_end: bool,
}

const START: State = State {
    address: 0,
    file: 1,
    line: 1,
    is_end: false,
};

/// Addresses from here on mark code that the linker dropped.
const FIRST_TOMBSTONE: u64 = u64::MAX - 1;

/// Hands all rows to `emit`; `None` when the program has to be run by gimli. Rows that were handed
/// out until then are void.
pub(super) fn run(
    program: &IncompleteLineProgram<Reader<'_>>,
    little_endian: bool,
    mut emit: impl FnMut(&State),
) -> Option<()> {
    let header = program.header();
    let usual = header.address_size() == 8
        && header.maximum_operations_per_instruction() == 1
        && header.line_range() > 0
        && little_endian;
    if !usual {
        return None;
    }
    let buffer = header.raw_program_buf();
    let mut code = Cursor(buffer.slice());
    let opcode_base = header.opcode_base();
    let length = u64::from(header.minimum_instruction_length());
    let line_range = header.line_range();
    let steps = special_steps(opcode_base, header.line_base(), line_range);
    let mut state = START;
    let mut is_dropped = false;
    while let Some(opcode) = code.next() {
        // Rows are handed out in one place: `emit` is inlined there.
        let mut has_row = false;
        if opcode >= opcode_base {
            let (advance, lines) = steps[usize::from(opcode)];
            add_line(&mut state.line, i64::from(lines));
            if !is_dropped {
                let bytes = length * u64::from(advance);
                state.address = state.address.checked_add(bytes)?;
            }
            has_row = true;
        } else {
            match opcode {
                0 => {
                    let size = usize::try_from(code.unsigned()?).ok()?;
                    let (inside, rest) = code.0.split_at_checked(size)?;
                    code.0 = rest;
                    match inside {
                        [1, ..] => {
                            state.is_end = true;
                            has_row = true;
                        }
                        [2, address @ ..] => {
                            let address = u64::from_le_bytes(*address.first_chunk()?);
                            is_dropped = address < state.address || address >= FIRST_TOMBSTONE;
                            if !is_dropped {
                                state.address = address;
                            }
                        }
                        // The discriminator: of no interest, but it may be damaged.
                        [4, value @ ..] => {
                            Cursor(value).unsigned()?;
                        }
                        _ => return None,
                    }
                }
                1 => has_row = true,
                2 => {
                    let advance = code.unsigned()?;
                    if !is_dropped {
                        let bytes = length.wrapping_mul(advance);
                        state.address = state.address.checked_add(bytes)?;
                    }
                }
                3 => add_line(&mut state.line, code.signed()?),
                4 => state.file = code.unsigned()?,
                // Columns and instruction sets.
                5 | 12 => {
                    code.unsigned()?;
                }
                // Marks of statements, blocks, prologues and epilogues.
                6 | 7 | 10 | 11 => {}
                8 => {
                    let adjusted = 255 - opcode_base;
                    if !is_dropped {
                        let bytes = length * u64::from(adjusted / line_range);
                        state.address = state.address.checked_add(bytes)?;
                    }
                }
                9 => {
                    let (low, high) = (code.next()?, code.next()?);
                    if !is_dropped {
                        let bytes = u64::from(u16::from_le_bytes([low, high]));
                        state.address = state.address.checked_add(bytes)?;
                    }
                }
                _ => return None,
            }
        }
        if has_row && !is_dropped {
            emit(&state);
        }
        if state.is_end {
            state = START;
            is_dropped = false;
        }
    }
    Some(())
}

/// By opcode from `base` on: operations and lines that it advances by.
fn special_steps(base: u8, line_base: i8, line_range: u8) -> [(u8, i16); 256] {
    let mut steps = [(0, 0); 256];
    let line_base = i16::from(line_base);
    let (mut operations, mut lines) = (0u8, 0u8);
    for step in steps.iter_mut().skip(usize::from(base)) {
        *step = (operations, line_base + i16::from(lines));
        lines = lines.wrapping_add(1);
        if lines == line_range {
            // After the last opcode it may not fit, nor is it asked for.
            (operations, lines) = (operations.wrapping_add(1), 0);
        }
    }
    steps
}

/// Lines do not go below 0.
fn add_line(line: &mut u64, by: i64) {
    *line = if by < 0 {
        line.saturating_sub(by.unsigned_abs())
    } else {
        line.wrapping_add(by.unsigned_abs())
    };
}

/// What is left of a program.
struct Cursor<'d>(&'d [u8]);

impl Cursor<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A LEB128 number of at most 63 bits, and how many bits it has.
    #[inline(always)]
    fn number(&mut self) -> Option<(u64, u32)> {
        let (mut value, mut bits) = (0u64, 0);
        loop {
            let byte = self.next()?;
            value |= u64::from(byte & 0x7f) << bits;
            bits += 7;
            if byte & 0x80 == 0 {
                return Some((value, bits));
            }
            if bits == 63 {
                return None;
            }
        }
    }

    fn unsigned(&mut self) -> Option<u64> {
        self.number().map(|(value, _)| value)
    }

    fn signed(&mut self) -> Option<i64> {
        let (value, bits) = self.number()?;
        let unused = 64 - bits;
        Some((value << unused) as i64 >> unused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use gimli::{DebugLine, DebugLineOffset, EndianSlice, RunTimeEndian};

    #[test]
    fn special_opcodes_advance_as_the_standard_says() {
        for (base, line_base, range) in [(13, -5, 14), (1, -128, 1), (10, -3, 255), (255, 0, 7)] {
            let steps = special_steps(base, line_base, range);
            for opcode in base..=255 {
                let adjusted = opcode - base;
                let lines = i16::from(line_base) + i16::from(adjusted % range);
                assert_eq!(steps[usize::from(opcode)], (adjusted / range, lines));
            }
        }
    }

    /// A table of version 4 with one file and this program.
    fn table(program: &[u8]) -> Vec<u8> {
        let mut head = vec![1, 1, 1, (-5i8) as u8, 14, 13];
        head.extend([0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1]);
        head.push(0);
        head.extend(b"a.rs\0\0\0\0\0");
        let mut out = vec![4, 0];
        out.extend((head.len() as u32).to_le_bytes());
        out.extend(head);
        out.extend(program);
        let mut all = (out.len() as u32).to_le_bytes().to_vec();
        all.extend(out);
        all
    }

    /// The rows of a program, here and by gimli; `None` where it is refused here.
    fn both(program: &[u8]) -> (Option<Vec<State>>, Option<Vec<State>>) {
        let table = table(program);
        let section = DebugLine::new(&table, RunTimeEndian::Little);
        let _: &DebugLine<EndianSlice<'_, RunTimeEndian>> = &section;
        let program = section.program(DebugLineOffset(0), 8, None, None);
        let program = program.expect("a header");
        let mut rows = Vec::new();
        let told = run(&program, true, |state| rows.push(*state));
        let mut expected = Vec::new();
        let mut all = program.rows();
        let fine = loop {
            match all.next_row() {
                Ok(None) => break true,
                Err(_) => break false,
                Ok(Some((_, row))) => expected.push(State {
                    address: row.address(),
                    file: row.file_index(),
                    line: row.line().map_or(0, |l| l.get()),
                    is_end: row.end_sequence(),
                }),
            }
        };
        (told.map(|()| rows), fine.then_some(expected))
    }

    fn address(value: u64) -> Vec<u8> {
        let mut out = vec![0, 9, 2];
        out.extend(value.to_le_bytes());
        out
    }

    #[test]
    fn usual_programs_are_run_as_gimli_does() {
        let mut program = address(0x1000);
        program.extend([
            3, 0x90, 0x01, 5, 9, 10, 1, 0x4b, 0xff, 13, 8, 4, 3, 6, 2, 0x85, 0x02,
        ]);
        program.extend([
            0x91, 3, 0x7b, 0xa2, 9, 0x10, 0x02, 1, 0, 2, 4, 7, 0x20, 11, 7, 12, 2,
        ]);
        program.extend([0, 1, 1]);
        // Dropped code, at a mark and at an address before.
        program.extend(address(u64::MAX));
        program.extend([0x4b, 0x4b, 2, 7, 8, 0, 1, 1]);
        program.extend(address(0x5000));
        program.extend([0x4b, 3, 0x80, 0x7f, 0x4b]);
        program.extend(address(0x10));
        program.extend([0x4b, 9, 1, 0, 1]);
        program.extend(address(0x6000));
        program.extend([0x4c, 0, 1, 1]);
        let (told, expected) = both(&program);
        assert!(told.as_ref().is_some_and(|rows| rows.len() > 10));
        assert_eq!(told, expected);
    }

    #[test]
    fn what_is_unusual_is_refused_and_nothing_else_differs() {
        for program in [
            &[0, 3, 3, b'x', 0][..],
            &[0, 2, 0x80, 1],
            &[2],
            &[2, 0x80],
            &[0, 9, 1],
            &[0],
            &[0, 0],
            &[3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0],
        ] {
            assert_eq!(both(program).0, None, "{program:?}");
        }
        let mut source = Random::new();
        let mut random = || source.next();
        let mut told = 0;
        for _ in 0..3000 {
            let mut program = Vec::new();
            for _ in 0..random() % 12 {
                match random() % 8 {
                    0 => program.extend(address(random() % 0x4000)),
                    1 => program.extend(address(u64::MAX - random() % 4)),
                    2 => program.extend([0, 1, 1]),
                    3 => program.push(random() as u8),
                    4 => program.extend([2, random() as u8 & 0x7f]),
                    5 => program.extend([3, random() as u8 & 0x7f]),
                    _ => program.push(13 + (random() % 243) as u8),
                }
            }
            let (here, there) = both(&program);
            told += u32::from(here.is_some());
            assert!(here.is_none() || here == there, "{program:?}");
        }
        assert!(told > 1500, "{told}");
    }
}
