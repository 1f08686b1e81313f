//! Lists of address ranges in the form of DWARF 3 and 4, with addresses of eight bytes in little-endian order.
//!
//! Invariant: the ranges are those of gimli; a test compares the two.

use std::ops::Range;

/// Addresses from here on mark code that the linker dropped.
const FIRST_TOMBSTONE: u64 = u64::MAX - 1;

/// Hands the ranges of the list at `offset` of the section to `emit`; `base` is what they are
/// relative to. `None` where the list is damaged, after the ranges before that.
pub(super) fn read(
    section: &[u8],
    offset: usize,
    mut base: u64,
    mut emit: impl FnMut(Range<u64>),
) -> Option<()> {
    let mut rest = section.get(offset..)?;
    loop {
        let Some((pair, after)) = rest.split_first_chunk::<16>() else {
            // A list may end with the section.
            return rest.is_empty().then_some(());
        };
        rest = after;
        let (begin, end) = pair.split_at(8);
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |c| u64::from_le_bytes(*c));
        let (begin, end) = (word(begin), word(end));
        if begin == 0 && end == 0 {
            return Some(());
        }
        if begin == u64::MAX {
            base = end;
            continue;
        }
        let (begin, end) = (base.wrapping_add(begin), base.wrapping_add(end));
        if base < FIRST_TOMBSTONE && begin < FIRST_TOMBSTONE && begin < end {
            emit(begin..end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use gimli::{DebugAddr, DebugAddrBase, DebugRanges, DebugRngLists, EndianSlice, LittleEndian};
    use gimli::{Encoding, Format, RangeLists, RangeListsOffset};

    /// The ranges and whether the list is fine, by gimli.
    fn expected(section: &[u8], offset: usize, base: u64) -> (Vec<Range<u64>>, bool) {
        let lists = RangeLists::new(
            DebugRanges::new(section, LittleEndian),
            DebugRngLists::new(&[], LittleEndian),
        );
        let encoding = Encoding {
            address_size: 8,
            format: Format::Dwarf32,
            version: 4,
        };
        let addresses = DebugAddr::from(EndianSlice::new(&[], LittleEndian));
        let none = DebugAddrBase(0);
        let mut out = Vec::new();
        let offset = RangeListsOffset(offset);
        let Ok(mut list) = lists.ranges(offset, encoding, base, &addresses, none) else {
            return (out, false);
        };
        loop {
            match list.next() {
                Ok(Some(range)) => out.push(range.begin..range.end),
                Ok(None) => return (out, true),
                Err(_) => return (out, false),
            }
        }
    }

    #[test]
    fn lists_are_read_as_gimli_does() {
        let mut source = Random::new();
        let mut random = |n: u64| source.below(n);
        let mut fine = 0;
        for _ in 0..3000 {
            let mut section = Vec::new();
            for _ in 0..random(8) {
                let pair = match random(8) {
                    0 => (0, 0),
                    1 => (u64::MAX, random(0x10000)),
                    2 => (u64::MAX, u64::MAX - random(3)),
                    3 => (u64::MAX - random(4), u64::MAX - random(4)),
                    4 => (random(50), random(50)),
                    _ => (random(50), 50 + random(50)),
                };
                section.extend(pair.0.to_le_bytes());
                section.extend(pair.1.to_le_bytes());
            }
            section.truncate(section.len() - random(2) as usize * section.len().min(5));
            let offset = random(4) as usize * 8;
            let base = [0, 0x4000, u64::MAX - 1][random(3) as usize];
            let mut ranges = Vec::new();
            let told = read(&section, offset, base, |r| ranges.push(r)).is_some();
            assert_eq!((ranges, told), expected(&section, offset, base));
            fine += u32::from(told);
        }
        assert!(fine > 500, "{fine}");
    }
}
