//! The frames of cooperating runtimes, found by the tables that they registered (hpcrun-abi).

use super::Owner;
use crate::activity;

pub(super) fn owner_of(lookup: u64) -> Option<Owner> {
    activity::runtimes().find_map(|(i, table)| {
        if lookup + 1 == table.boundary_return as u64 {
            return Some(Owner::Boundary(i as u8));
        }
        let text = table.text_start as u64..table.text_end as u64;
        text.contains(&lookup).then_some(Owner::Runtime(i as u8))
    })
}
