//! Per-thread memory of what is known about a code address: its module, its stepping method,
//! its owner among the agents. Direct-mapped, so look-up and insertion are a few instructions.
//!
//! Async-signal-safe.

use super::stepper::Method;
use crate::memory;
use hpc_formats::address::CodeAddress;

const SLOTS: usize = 4096;
/// Addresses that are equal above these bits are in slots near each other.
const REGION_BITS: u32 = 10;

/// What is known about one look-up address. Half a line of the cache, all of it in the same line.
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
    /// An empty table in a mapping of its own, which lives for ever as thread states do; too
    /// large to be made on a stack, and its pages appear when they are used.
    pub(super) fn map() -> Option<&'static mut RuleCache> {
        let base = memory::map_anonymous(size_of::<RuleCache>())?;
        // SAFETY: the mapping is ours, page-aligned, large enough, never unmapped; all bits zero
        // are a valid rule: address 0 of generation 0, which no snapshot has.
        Some(unsafe { base.cast::<RuleCache>().as_mut() })
    }

    /// Addresses of one function are in slots near each other, so that few pages of the table are in use at a time;
    /// functions far from each other are anywhere.
    #[inline]
    fn slot(lookup: u64) -> usize {
        let region = (lookup >> REGION_BITS).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        ((lookup >> 2) ^ region) as usize % SLOTS
    }

    /// The rule for an address, if it was classified in this generation of the load map.
    #[inline]
    pub(super) fn get(&self, lookup: u64, generation: u32) -> Option<Rule> {
        let rule = self.0[Self::slot(lookup)];
        (rule.lookup == lookup && rule.generation == generation).then_some(rule)
    }

    /// Keeps a rule, dropping the one in its slot.
    #[inline]
    pub(super) fn put(&mut self, rule: Rule) {
        self.0[Self::slot(rule.lookup)] = rule;
    }
}
