//! Columns of calls, which tell two calls of one line apart.
//!
//! A call is listed if it begins a parallel loop and its line has several calls of the same procedure.
//! Invariant: the keys of both lists ascend, without equal ones.

use super::ScopeId;

/// Columns, from 1, as line tables count them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Columns {
    /// Of inlined calls, by scope.
    pub scopes: Vec<(ScopeId, u32)>,
    /// Of other calls, by the address of the call's last byte.
    pub calls: Vec<(u64, u32)>,
}

impl Columns {
    /// The column at which a scope is called.
    pub fn of_scope(&self, scope: ScopeId) -> Option<u32> {
        find(&self.scopes, scope)
    }

    /// The column of the call whose last byte is at `address`.
    pub fn of_call(&self, address: u64) -> Option<u32> {
        find(&self.calls, address)
    }
}

fn find<K: Ord + Copy>(list: &[(K, u32)], key: K) -> Option<u32> {
    let found = list.binary_search_by_key(&key, |known| known.0).ok()?;
    Some(list[found].1)
}
