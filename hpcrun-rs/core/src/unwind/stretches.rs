//! Per-thread memory of stretches of code whose frames are stepped in one way: the rows of call frame information, as far
//! as they lie in one block of code. So an address that is met for the first time, as many interrupted
//! instructions are, mostly needs no look at that information, which takes longer than all the rest of a walk.
//!
//! Async-signal-safe.

use super::cfi::Method;
use crate::memory;
use hpc_formats::address::CodeAddress;
use std::ops::Range;

/// Sets of two stretches, which fill a line of the cache.
const SETS: usize = 256;
/// A stretch ends where the block of so many bytes ends that it is in.
const BLOCK_BITS: u32 = 8;
/// Shorter ones, between a function's pushes and pops, would drive out the body's.
const SHORTEST: u64 = 16;

#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Stretch {
    /// Its first address; 0: there is none.
    start: u64,
    code: CodeAddress,
    generation: u32,
    method: Method,
    /// Its last address, from the first.
    last: u8,
}

const _: () = assert!(size_of::<Stretch>() == 32);

/// The table.
pub(super) struct Stretches([[Stretch; 2]; SETS]);

impl Stretches {
    /// An empty table in a mapping of its own, which lives for ever as thread states do.
    pub(super) fn map() -> Option<&'static mut Stretches> {
        let base = memory::map_anonymous(size_of::<Stretches>())?;
        // SAFETY: the mapping is ours, page-aligned, large enough, never unmapped; all bits zero are valid stretches.
        Some(unsafe { base.cast::<Stretches>().as_mut() })
    }

    #[inline]
    fn set(lookup: u64) -> usize {
        (lookup >> BLOCK_BITS) as usize % SETS
    }

    /// How a frame at this address is stepped, and the address normalised, if a stretch of this generation of the load
    /// map has it.
    #[inline]
    pub(super) fn get(&self, lookup: u64, generation: u32) -> Option<(Method, CodeAddress)> {
        let stretch = self.0[Self::set(lookup)].iter().find(|s| {
            s.start != 0
                && s.generation == generation
                && lookup.wrapping_sub(s.start) <= u64::from(s.last)
        })?;
        let beyond = lookup.wrapping_sub(stretch.start);
        let code = CodeAddress(stretch.code.0.wrapping_add(beyond));
        Some((stretch.method, code))
    }

    /// Keeps what is known of an address and of those around it in `range`. Of two stretches in the set the one that was
    /// put first is dropped.
    pub(super) fn put(
        &mut self,
        lookup: u64,
        code: CodeAddress,
        range: Range<u64>,
        generation: u32,
        method: Method,
    ) {
        let block = lookup >> BLOCK_BITS << BLOCK_BITS;
        let start = range.start.max(block);
        let end = range.end.min(block.saturating_add(1 << BLOCK_BITS));
        if !(start..end).contains(&lookup) || end - start < SHORTEST {
            return;
        }
        let set = &mut self.0[Self::set(lookup)];
        set[1] = set[0];
        set[0] = Stretch {
            start,
            code: CodeAddress(code.0.wrapping_sub(lookup - start)),
            generation,
            method,
            last: (end - start - 1) as u8,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::usual::Usual;
    use super::*;

    fn method(cfa: i64) -> Method {
        Method::Usual(Usual::new(false, cfa, None).unwrap())
    }

    #[test]
    fn addresses_of_a_stretch_share_what_is_known_of_one() {
        let table = Stretches::map().unwrap();
        table.put(0x5510, CodeAddress(0x1510), 0x5508..0x5540, 3, method(8));
        for lookup in 0x5508..0x5540 {
            let code = CodeAddress(lookup - 0x4000);
            assert_eq!(table.get(lookup, 3), Some((method(8), code)));
            assert_eq!(table.get(lookup, 4), None, "another load map");
        }
        assert_eq!(table.get(0x5507, 3), None);
        assert_eq!(table.get(0x5540, 3), None);
    }

    #[test]
    fn a_stretch_ends_with_its_block() {
        let table = Stretches::map().unwrap();
        table.put(0x55ff, CodeAddress(0x15ff), 0x5000..0x6000, 3, method(8));
        for (lookup, is_known) in [
            (0x54ff, false),
            (0x5500, true),
            (0x55ff, true),
            (0x5600, false),
        ] {
            assert_eq!(table.get(lookup, 3).is_some(), is_known, "{lookup:#x}");
        }
        assert_eq!(table.get(0x5500, 3).unwrap().1, CodeAddress(0x1500));
    }

    #[test]
    fn two_stretches_of_a_set_are_kept_and_short_ones_are_not() {
        let table = Stretches::map().unwrap();
        for (i, start) in [0x5500, 0x5540, 0x5580].into_iter().enumerate() {
            let method = method(8 * (i as i64 + 1));
            table.put(start, CodeAddress(start), start..start + 0x40, 1, method);
        }
        table.put(0x55c0, CodeAddress(0x55c0), 0x55c0..0x55cf, 1, method(64));
        let known = |lookup| table.get(lookup, 1).map(|known| known.0);
        assert_eq!(known(0x5500), None);
        assert_eq!(known(0x5540), Some(method(16)));
        assert_eq!(known(0x5580), Some(method(24)));
        assert_eq!(known(0x55c0), None);
    }

    #[test]
    fn what_does_not_hold_the_address_is_not_kept() {
        let table = Stretches::map().unwrap();
        table.put(0x5510, CodeAddress(0x5510), 0x5520..0x5540, 1, method(8));
        table.put(u64::MAX, CodeAddress(5), 0..u64::MAX, 1, method(8));
        assert_eq!(table.get(0x5510, 1), None);
        assert_eq!(table.get(0x5520, 1), None);
        assert_eq!(table.get(u64::MAX, 1), None);
    }
}
