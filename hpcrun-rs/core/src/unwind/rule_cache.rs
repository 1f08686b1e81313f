//! Rule cache: per thread, the module, unwind method and owner of code addresses. It is direct-mapped, so
//! look-up and insertion take a few instructions.
//!
//! Async-signal-safe.

use super::callee::Method;
use crate::memory;
use hpc_formats::address::CodeAddress;

const SLOTS: usize = 4096;
/// Addresses that are equal above these bits get slots close to each other.
const REGION_BITS: u32 = 10;

/// The entry of one look-up address. The alignment keeps it within one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct Rule {
    pub(super) lookup: u64,
    pub(super) code: CodeAddress,
    pub(super) generation: u32,
    pub(super) method: Method,
    pub(super) owner: u8,
}

const _: () = assert!(size_of::<Rule>() == 32);

/// The table.
pub(super) struct RuleCache([Rule; SLOTS]);

impl RuleCache {
    /// Maps an empty table. The table is too large for a stack, and the kernel allocates its pages on first
    /// use. The mapping is never freed, like thread states.
    pub(super) fn map() -> Option<&'static mut RuleCache> {
        let base = memory::map_anonymous(size_of::<RuleCache>())?;
        // SAFETY: we own the mapping; it is page-aligned, large enough and never unmapped. All bits zero are
        // a valid rule: address 0 of generation 0, which no snapshot has.
        Some(unsafe { base.cast::<RuleCache>().as_mut() })
    }

    /// Addresses of one function get slots close to each other, so that a sample touches few pages of the
    /// table. The hash spreads distant functions over the whole table.
    #[inline]
    fn slot(lookup: u64) -> usize {
        let region = (lookup >> REGION_BITS).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        ((lookup >> 2) ^ region) as usize % SLOTS
    }

    /// The entry for an address, if it was made in this generation of the load map.
    #[inline]
    pub(super) fn get(&self, lookup: u64, generation: u32) -> Option<Rule> {
        let rule = self.0[Self::slot(lookup)];
        (rule.lookup == lookup && rule.generation == generation).then_some(rule)
    }

    /// Stores an entry and drops the previous one of its slot.
    #[inline]
    pub(super) fn put(&mut self, rule: Rule) {
        self.0[Self::slot(rule.lookup)] = rule;
    }
}
