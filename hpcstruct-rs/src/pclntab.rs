//! The table of functions that every program of Go carries for its own runtime, also when it is stripped.
//!
//! Input: the section `.gopclntab`, as Go 1.16 and later write it. Invariants: no offset of the file is trusted;
//! a table of another form has no functions; ranges lie within the module's code.

use crate::image::Image;
use object::{Object as _, ObjectSection as _};
use std::ops::Range;

/// A function: its code and its name.
pub(crate) type Function<'d> = (Range<u64>, &'d [u8]);

/// Where programs have the table; in position-independent ones it is relocated.
const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

/// The form of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// Addresses of functions are stated in full (Go 1.16).
    Addresses,
    /// They are stated from the beginning of the code (Go 1.18, Go 1.20).
    Offsets,
}

/// The functions of `image`, by address.
pub(crate) fn functions<'d>(image: &Image<'d>) -> Vec<Function<'d>> {
    let table = |name: &&str| image.file.section_by_name(name)?.data().ok();
    let Some(data) = SECTIONS.iter().find_map(table) else {
        return Vec::new();
    };
    let text = image.file.section_by_name(".text");
    let mut found = read(data, text.map_or(0, |s| s.address())).unwrap_or_default();
    found.retain(|(range, _)| {
        let section = image.code_at(range.start);
        section.is_some_and(|(code, _)| range.end <= code.end)
    });
    found
}

/// The functions of a table; `text` is where the code begins when the table does not say so.
fn read(data: &[u8], text: u64) -> Option<Vec<Function<'_>>> {
    let form = match word(data, 0, 4)? as u32 {
        0xffff_fffa => Form::Addresses,
        0xffff_fff0 | 0xffff_fff1 => Form::Offsets,
        _ => return None,
    };
    // Zeros, the smallest instruction, the size of a pointer.
    if data.get(4..6)? != [0, 0] || *data.get(7)? != 8 {
        return None;
    }
    let field = |number: usize| word(data, 8 + 8 * number, 8);
    let at = |number: usize| data.get(usize::try_from(field(number)?).ok()?..);
    let count = usize::try_from(field(0)?).ok()?;
    let (start, names, functions, size) = match form {
        Form::Addresses => (0, at(2)?, at(6)?, 8),
        Form::Offsets => {
            let stated = field(2)?;
            let start = if stated == 0 { text } else { stated };
            (start, at(3)?, at(7)?, 4)
        }
    };
    // The list, which ends with an address alone.
    let list = functions.get(..count.checked_mul(2 * size)?.checked_add(size)?)?;
    let entry = |i: usize| start.checked_add(word(list, 2 * size * i, size)?);
    let function = |i: usize| {
        let range = entry(i)?..entry(i + 1)?;
        let record = usize::try_from(word(list, 2 * size * i + size, size)?).ok()?;
        // Behind the function's own address.
        let name = word(functions, record.checked_add(size)?, 4)?;
        let name = names.get(usize::try_from(name).ok()?..)?;
        let name = name.split(|b| *b == 0).next()?;
        (!range.is_empty() && !name.is_empty()).then_some((range, name))
    };
    Some((0..count).filter_map(function).collect())
}

/// A little-endian number of 4 or 8 bytes.
fn word(data: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = data.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of two functions, `a` of 16 bytes and `b` of 8.
    fn table(magic: u32, size: usize, start: u64) -> Vec<u8> {
        let number = |n: u64, size: usize| n.to_le_bytes()[..size].to_vec();
        let has_start = size == 4;
        let names = 8 + 8 * (7 + usize::from(has_start));
        let list = names + 4;
        let records = 5 * size;
        let mut out = number(u64::from(magic), 4);
        out.extend([0, 0, 1, 8]);
        let mut header = vec![2, 0];
        header.extend(has_start.then_some(start));
        header.extend([names as u64, 0, 0, 0, list as u64]);
        out.extend(header.iter().flat_map(|n| number(*n, 8)));
        out.extend(b"a\0b\0");
        let base = if has_start { 0 } else { start };
        let record = size + 4;
        for n in [
            base,
            records as u64,
            base + 16,
            (records + record) as u64,
            base + 24,
        ] {
            out.extend(number(n, size));
        }
        for (address, name) in [(base, 0), (base + 16, 2)] {
            out.extend(number(address, size));
            out.extend(number(name, 4));
        }
        out
    }

    #[test]
    fn both_forms_are_read() {
        let expected: [Function<'_>; 2] = [(0x1000..0x1010, b"a"), (0x1010..0x1018, b"b")];
        for (magic, size) in [(0xffff_fffa, 8), (0xffff_fff0, 4), (0xffff_fff1, 4)] {
            let table = table(magic, size, 0x1000);
            assert_eq!(read(&table, 7).expect("a table"), expected);
        }
        let unstated = table(0xffff_fff1, 4, 0);
        assert_eq!(read(&unstated, 0x1000).expect("a table"), expected);
    }

    #[test]
    fn what_is_cut_or_strange_has_no_functions_and_does_no_harm() {
        let whole = table(0xffff_fff1, 4, 0x1000);
        for length in 0..whole.len() {
            let found = read(&whole[..length], 0).unwrap_or_default();
            assert!(found.len() <= 2);
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] = 0xff;
            let found = read(&changed, 0).unwrap_or_default();
            assert!(found.iter().all(|(range, _)| !range.is_empty()));
        }
        assert_eq!(read(&table(0xffff_fffb, 8, 0), 0), None);
    }
}
