//! Go's own table of functions and lines, `.gopclntab`, which stripped programs keep.
//!
//! Read as Go's `debug/gosym` describes it, since Go 1.18, for 64-bit modules in little-endian order. Inlined
//! calls are not read. Invariant: any bytes are input; what is damaged is absent.

use crate::input::image::Image;
use gimli::{EndianSlice, LittleEndian, Reader as _};
use object::{Object as _, ObjectSection as _};
use std::ops::Range;

/// Go 1.18, then Go 1.20, each with the bytes of an instruction's step and of a pointer.
const MAGIC: [[u8; 8]; 2] = [[0xf0, 0xff, 0xff, 0xff, 0, 0, 1, 8], [0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8]];

/// The table of a module.
#[derive(Debug)]
pub(crate) struct GoTable<'d> {
    data: &'d [u8],
    /// Address of the first function.
    text: u64,
    count: usize,
    /// Offsets in `data`: of names, of each unit's files, of file names, of values by address, of functions.
    names: usize,
    units: usize,
    files: usize,
    values: usize,
    functions: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct GoFunction<'d> {
    pub(crate) range: Range<u64>,
    pub(crate) name: &'d [u8],
    /// Where the table describes it.
    at: usize,
}

impl<'d> GoTable<'d> {
    /// The table, if the module has one; `pointer` is what a word of the loaded module holds.
    pub(crate) fn read(image: &Image<'d>, pointer: impl Fn(u64) -> Option<u64>) -> Option<GoTable<'d>> {
        let names = [".gopclntab", ".data.rel.ro.gopclntab"];
        let section = names.iter().find_map(|name| image.file.section_by_name(name))?;
        let data = section.data().ok()?;
        MAGIC.iter().any(|magic| data.starts_with(magic)).then_some(())?;
        let word = |number: usize| {
            let bytes = data.get(8 + 8 * number..)?.first_chunk()?;
            usize::try_from(u64::from_le_bytes(*bytes)).ok()
        };
        Some(GoTable {
            data,
            // A relocated word, where the module may lie anywhere.
            text: pointer(section.address().checked_add(24)?)?,
            count: word(0)?.min(data.len() / 8),
            names: word(3)?,
            units: word(4)?,
            files: word(5)?,
            values: word(6)?,
            functions: word(7)?,
        })
    }

    fn number(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.data.get(at..)?.first_chunk()?))
    }

    fn text(&self, table: usize, offset: u32) -> Option<&'d [u8]> {
        let rest = self.data.get(table.checked_add(offset as usize)?..)?;
        rest.split(|byte| *byte == 0).next()
    }

    /// All functions, by address.
    pub(crate) fn functions(&self) -> impl Iterator<Item = GoFunction<'d>> + '_ {
        (0..self.count).filter_map(|number| {
            let entry = self.functions.checked_add(8 * number)?;
            let address = |at| Some(self.text.wrapping_add(u64::from(self.number(at)?)));
            let at = self.functions.checked_add(self.number(entry + 4)? as usize)?;
            let name = self.text(self.names, self.number(at.checked_add(4)?)?)?;
            Some(GoFunction { range: address(entry)?..address(entry + 8)?, name, at })
        })
    }

    /// The lines of a function: code, the path of its file, and the line.
    pub(crate) fn lines(&self, of: &GoFunction<'d>) -> Vec<(Range<u64>, &'d [u8], u32)> {
        let field = |offset: usize| self.number(of.at.checked_add(offset)?);
        let steps = |offset| field(offset).map_or(Vec::new(), |at| self.steps(at));
        let (files, unit) = (steps(20), field(32).unwrap_or(0));
        let path = |file: u32| {
            let place = 4 * (unit.checked_add(file)? as usize);
            self.text(self.files, self.number(self.units.checked_add(place)?)?)
        };
        let (mut files, mut start) = (files.into_iter().peekable(), 0);
        let mut out = Vec::new();
        for (end, line) in steps(24) {
            while start < end {
                while files.next_if(|(end, _)| *end <= start).is_some() {}
                let Some((file_end, file)) = files.peek().copied() else { return out };
                let to = end.min(file_end);
                let code = of.range.start + u64::from(start)..of.range.start + u64::from(to);
                out.extend(path(file).filter(|_| code.end <= of.range.end).map(|p| (code, p, line)));
                start = to;
            }
        }
        out
    }

    /// Values by address: each with the offset in the function's code at which it ends.
    fn steps(&self, at: u32) -> Vec<(u32, u32)> {
        let mut out = Vec::new();
        let rest = self.values.checked_add(at as usize).and_then(|at| self.data.get(at..));
        let mut bytes = EndianSlice::new(rest.unwrap_or(&[]), LittleEndian);
        let (mut end, mut value) = (0_u32, -1_i32);
        while let (Ok(change), Ok(length)) = (bytes.read_uleb128(), bytes.read_uleb128()) {
            // Small numbers of either sign; none but the first is zero.
            if change == 0 && !out.is_empty() || length == 0 || out.len() > self.data.len() {
                break;
            }
            value = value.wrapping_add((change >> 1) as i32 ^ -((change & 1) as i32));
            end = end.saturating_add(u32::try_from(length).unwrap_or(u32::MAX));
            out.push((end, value as u32));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two functions at 0x1000: `a.f` of 8 bytes with two files, `a.g` of 4 bytes.
    fn bytes() -> Vec<u8> {
        let mut data = vec![0; 8];
        // Names.
        data.extend(b"a.f\0a.g\0");
        // The unit's files, then their paths.
        data.extend([0, 0, 0, 0, 5, 0, 0, 0]);
        data.extend(b"x.go\0y.go\0");
        // Values: files 0 to offset 6 and 1 to offset 8, lines 7 to 4, 5 to 8; file 0 and line 9 to 4.
        data.extend([2, 6, 2, 2, 0, 16, 4, 3, 4, 0, 2, 4, 0, 20, 4, 0]);
        let word = |n: u32| n.to_le_bytes();
        // Functions: offsets of code and of descriptions, then the end of the code.
        data.extend([0, 20, 8, 56, 12].map(word).concat());
        for [name, files, lines] in [[0, 0, 5], [4, 10, 13]] {
            data.extend([0, name, 0, 0, 0, files, lines, 0, 0].map(word).concat());
        }
        data
    }

    fn table(data: &[u8]) -> GoTable<'_> {
        let (names, units, files, values, functions) = (8, 16, 24, 34, 50);
        GoTable { data, text: 0x1000, count: 2, names, units, files, values, functions }
    }

    #[test]
    fn functions_have_their_names_and_lines() {
        let data = bytes();
        let table = table(&data);
        let functions: Vec<_> = table.functions().collect();
        let named = functions.iter().map(|f| (f.range.clone(), f.name));
        assert_eq!(named.collect::<Vec<_>>(), [(0x1000..0x1008, &b"a.f"[..]), (0x1008..0x100c, b"a.g")]);
        let lines =
            [(0x1000..0x1004, &b"x.go"[..], 7), (0x1004..0x1006, b"x.go", 5), (0x1006..0x1008, b"y.go", 5)];
        assert_eq!(table.lines(&functions[0]), lines);
        assert_eq!(table.lines(&functions[1]), [(0x1008..0x100c, &b"x.go"[..], 9)]);
    }

    #[test]
    fn any_bytes_are_a_table() {
        let sound = bytes();
        for at in 0..sound.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut data = sound.clone();
                data[at] = value;
                for data in [&data[..], &data[..at]] {
                    let table = table(data);
                    table.functions().for_each(|f| assert!(table.lines(&f).len() <= sound.len()));
                }
            }
        }
    }
}
