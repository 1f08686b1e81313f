//! Landing pads: the call-site tables of `.gcc_except_table` (language-specific data areas).
//!
//! The format is that of GCC's personality routines (Itanium C++ ABI, exception handling tables),
//! which C++ and Rust compilers write. Invariants: any bytes are input; call sites are sorted by
//! address and do not overlap; a damaged table yields the call sites before the damage.

use super::loaded_image::LoadedImage;
use crate::symbols::unwind_table::Handler;
use gimli::{EndianSlice, LittleEndian, Reader as _};
use std::ops::Range;

/// Code whose calls may throw to one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Site {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) pad: u64,
}

/// Puts the sites of the code in `range` into `out`.
pub(crate) fn read(memory: &LoadedImage<'_>, handlers: &[Handler], range: &Range<u64>, out: &mut Vec<Site>) {
    out.clear();
    let first = handlers.partition_point(|h| h.end <= range.start);
    let inside = handlers[first..].iter().take_while(|h| h.start < range.end);
    for handler in inside {
        let _ = read_table(memory, handler, out);
    }
}

/// No value.
const OMIT: u8 = 0xff;

/// Appends the sites of one table that have a landing pad; `None` where it ends early.
fn read_table(memory: &LoadedImage<'_>, handler: &Handler, out: &mut Vec<Site>) -> Option<()> {
    let bytes = memory.bytes(handler.table)?;
    let mut table = Cursor {
        bytes: EndianSlice::new(bytes, LittleEndian),
        end: handler.table.wrapping_add(bytes.len() as u64),
    };
    let encoding = table.byte()?;
    let base = if encoding == OMIT { handler.start } else { table.pointer(encoding)? };
    if table.byte()? != OMIT {
        // Where the types of exceptions end: of no interest here.
        table.number()?;
    }
    let encoding = table.byte()?;
    let length = usize::try_from(table.number()?).ok()?;
    table.bytes.truncate(length).ok()?;
    let mut free_from = handler.start;
    while !table.bytes.is_empty() {
        let offset = table.value(encoding)?;
        let length = table.value(encoding)?;
        let pad = table.value(encoding)?;
        table.number()?;
        let start = handler.start.checked_add(offset)?;
        let end = start.checked_add(length)?;
        if start < free_from || end <= start || end > handler.end {
            return None;
        }
        free_from = end;
        if pad != 0 {
            let pad = base.wrapping_add(pad);
            match out.last_mut() {
                Some(last) if last.end == start && last.pad == pad => last.end = end,
                _ => out.push(Site { start, end, pad }),
            }
        }
    }
    Some(())
}

struct Cursor<'d> {
    bytes: EndianSlice<'d, LittleEndian>,
    /// Address of the table's end.
    end: u64,
}

impl Cursor<'_> {
    fn byte(&mut self) -> Option<u8> {
        self.bytes.read_u8().ok()
    }

    fn number(&mut self) -> Option<u64> {
        self.bytes.read_uleb128().ok()
    }

    /// A number in the form that the low half of a `DW_EH_PE` encoding names.
    fn value(&mut self, encoding: u8) -> Option<u64> {
        let bytes = &mut self.bytes;
        let value = match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => bytes.read_u64(),
            0x01 => bytes.read_uleb128(),
            0x02 => bytes.read_u16().map(u64::from),
            0x03 => bytes.read_u32().map(u64::from),
            0x0a => bytes.read_i16().map(|v| v as u64),
            0x0b => bytes.read_i32().map(|v| v as u64),
            _ => return None,
        };
        value.ok()
    }

    /// An address, absolute or relative to where it is stored.
    fn pointer(&mut self, encoding: u8) -> Option<u64> {
        let place = self.end.wrapping_sub(self.bytes.len() as u64);
        let value = self.value(encoding)?;
        match encoding & 0xf0 {
            0x00 => Some(value),
            0x10 => Some(place.wrapping_add(value)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sites of 0x1000..0x1100 by a table at 0x5000.
    fn sites(table: &[u8]) -> Vec<Site> {
        let memory = LoadedImage::of_bytes(0x5000, table);
        let handlers = [Handler { start: 0x1000, end: 0x1100, table: 0x5000 }];
        let mut out = Vec::new();
        read(&memory, &handlers, &(0x1000..0x1100), &mut out);
        out
    }

    fn site(start: u64, end: u64, pad: u64) -> Site {
        Site { start, end, pad }
    }

    #[test]
    fn pads_may_have_a_base_of_their_own() {
        let table = [
            0x1b, 0xff, 0xef, 0xff, 0xff, // pads from 0x5001 - 0x1001 = 0x4000
            0xff, 0x03, 13, // words
            0x08, 0, 0, 0, 0x08, 0, 0, 0, 0x40, 0, 0, 0, 0x00,
        ];
        assert_eq!(sites(&table), [site(0x1008, 0x1010, 0x4040)]);
    }

    #[test]
    fn tables_that_go_astray_end_there() {
        let good = [0x04, 0x05, 0x40, 0x00];
        for bad in [
            [0x02, 0x10, 0x40, 0x00], // backwards
            [0x10, 0x00, 0x40, 0x00], // empty
            [0x7f, 0xff, 0x03, 0x40], // out of the code
            [0xff, 0xff, 0xff, 0xff], // a number that does not end
        ] {
            let table = [&[0xff, 0xff, 0x01, 8], &good[..], &bad[..]].concat();
            assert_eq!(sites(&table), [site(0x1004, 0x1009, 0x1040)], "{bad:?}");
        }
        assert_eq!(sites(&[]), []);
        assert_eq!(sites(&[0x50, 1, 2, 3]), [], "a base of another kind");
        assert_eq!(sites(&[0xff, 0xff, 0x01, 0x7f, 4, 5, 6, 0]), [], "too long");
    }
}
