//! Columns of calls: what tells two calls of one line apart.
//!
//! Only calls that begin a parallel loop have one here, and of those only where the same procedure is
//! called at several columns of one line. Invariant: both lists ascend, without equal keys.

use super::ScopeId;

/// Columns, from 1, as line tables count them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Columns {
    /// Of the calls that inlined scopes stand for.
    pub scopes: Vec<(ScopeId, u32)>,
    /// Of calls out of line, by the address of the call's last byte.
    pub calls: Vec<(u64, u32)>,
}

impl Columns {
    /// Where a scope is called on its line.
    pub fn of_scope(&self, scope: ScopeId) -> Option<u32> {
        find(&self.scopes, scope)
    }

    /// Where the call is on its line whose last byte is at `address`.
    pub fn of_call(&self, address: u64) -> Option<u32> {
        find(&self.calls, address)
    }
}

fn find<K: Ord + Copy>(list: &[(K, u32)], key: K) -> Option<u32> {
    let found = list.binary_search_by_key(&key, |known| known.0).ok()?;
    Some(list[found].1)
}
