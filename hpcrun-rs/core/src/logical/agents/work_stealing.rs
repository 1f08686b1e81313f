//! The frames of cooperating runtimes, found by the tables that they registered (hpcrun-abi).

use super::spawner::{self, Spawner};
use crate::activity;
use crate::logical::path::PathRoot;
use crate::logical::walk::Walk;
use crate::unwind::Registers;
use hpc_formats::address::ModuleId;
use hpc_formats::loss::LossCause;
use hpcrun_abi::RuntimeTable;

const _: () = assert!(2 * activity::MAX_RUNTIMES <= super::TAGS as usize);

/// Twice the number of the runtime, and one more for its boundary.
pub(super) fn owns(lookup: u64, _: ModuleId) -> Option<u8> {
    activity::runtimes().find_map(|(i, table)| {
        if lookup + 1 == table.boundary_return as u64 {
            return Some(2 * i as u8 + 1);
        }
        let text = table.text_start as u64..table.text_end as u64;
        text.contains(&lookup).then_some(2 * i as u8)
    })
}

#[inline]
pub(super) fn step(walk: &mut Walk<'_>, tag: u8) {
    if tag % 2 == 0 {
        return walk.runtime_frame();
    }
    let table = activity::runtime(usize::from(tag / 2));
    match table.ok_or(PathRoot::Partial(LossCause::UnknownSpawner)).and_then(|t| spawner(walk, t)) {
        Ok(registers) => walk.continue_at(registers),
        Err(root) => walk.continue_under(root),
    }
}

/// The registers at the spawn of the boundary's task, or the root of the spawner's path.
fn spawner(walk: &mut Walk<'_>, table: &RuntimeTable) -> Result<Registers, PathRoot> {
    let unreadable = PathRoot::Partial(LossCause::UnreadableStack);
    let task = walk.word(table.task_slot as u64).ok_or(unreadable)?;
    let found = spawner::of_task(task, |address| walk.peek(address)).ok_or(unreadable)?;
    let Spawner { site, sp, fp, ip, is_in_stack } = found;
    for (i, word) in [site, sp, fp].into_iter().enumerate() {
        walk.depends_on(task + 8 * i as u64, word, is_in_stack);
    }
    if ip != 0 {
        return Ok(Registers::new(ip, sp, fp));
    }
    Err(match sp {
        0 => PathRoot::Partial(LossCause::UnknownSpawner),
        handle => PathRoot::Anchor { thread: (handle >> 32) as u32, node: handle as u32 },
    })
}
