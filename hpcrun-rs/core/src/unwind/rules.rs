//! Per-thread memory of what is known about a code address: its module, its stepping method,
//! its owner among the agents. Direct-mapped, so look-up and insertion are a few instructions.
//!
//! Async-signal-safe.

use super::cfi::Method;
use hpc_formats::address::CodeAddress;

const SLOTS: usize = 4096;

/// What is known about one look-up address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) lookup: u64,
    pub(super) code: CodeAddress,
    pub(super) generation: u32,
    pub(super) method: Method,
    pub(super) owner: u8,
}

const EMPTY: Rule = Rule {
    lookup: 0,
    code: CodeAddress::NONE,
    generation: 0,
    method: Method::None,
    owner: 0,
};

/// Mixes an address; every bit of the result depends on the lower bits of the address.
#[inline]
pub(super) fn hash(lookup: u64) -> u64 {
    lookup.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

/// The table.
pub(super) struct RuleTable([Rule; SLOTS]);

impl RuleTable {
    /// An empty table.
    pub(super) fn boxed() -> Box<RuleTable> {
        Box::new(RuleTable([EMPTY; SLOTS]))
    }

    #[inline]
    fn slot(lookup: u64) -> usize {
        (hash(lookup) >> 12) as usize % SLOTS
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
