//! Reads the spawn context from a task's header and spawn site, without faulting.
//!
//! A boundary's frame stores the task in its slot. A corrupt unwind may mistake another frame for a boundary,
//! so the address is not trusted. The header is read directly if it lies in a known stack, the site if it was
//! read before; everything else is read through the kernel.
//!
//! Async-signal-safe.

use crate::unwind::{loadmap, stack};
use hpcrun_abi::{SpawnSite, TaskHeader};
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

/// The words of a task's header, in their order, and of its site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spawner {
    pub(super) site: u64,
    /// [`TaskHeader::sp`].
    pub(super) sp: u64,
    /// [`TaskHeader::fp`].
    pub(super) fp: u64,
    /// [`SpawnSite::ip`].
    pub(super) ip: u64,
    /// Whether the header lies in a known stack.
    pub(super) is_in_stack: bool,
}

// The layout that this file reads, and that `work_stealing` logs.
const _: () = assert!(
    offset_of!(TaskHeader, site) == 0
        && offset_of!(TaskHeader, sp) == 8
        && offset_of!(TaskHeader, fp) == 16
        && size_of::<TaskHeader>() == 24
        && offset_of!(SpawnSite, ip) == 0
);

/// Addresses of sites that were read before. Sites are statics, so they do not move.
static SITES: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// Forgets all sites, because a module is about to be unloaded. They are read through the kernel next time.
pub fn forget_sites() {
    for site in &SITES {
        site.store(0, Ordering::Relaxed);
    }
}

/// Reads the spawner of the task whose header is at `task`. `peek` reads a word of any memory; `None` when it
/// is not readable.
#[inline]
pub(super) fn of_task(task: u64, mut peek: impl FnMut(u64) -> Option<u64>) -> Option<Spawner> {
    let ([site, sp, fp], is_in_stack) = header(task, &mut peek)?;
    let known = &SITES[(site >> 4) as usize % SITES.len()];
    let is_stable = loadmap::is_stable();
    let ip = if is_stable && site != 0 && known.load(Ordering::Relaxed) == site {
        // SAFETY: the word was readable before. A site is a static of a module, and no module was unloaded
        // since: `forget_sites` runs before an unload. Any value is valid. (If two corrupt unwinds took the
        // same address for a site, it was readable at the first; this does not prove that it still is.)
        unsafe { (site as *const u64).read_unaligned() }
    } else {
        let ip = peek(site)?;
        if is_stable {
            known.store(site, Ordering::Relaxed);
        }
        ip
    };
    Some(Spawner { site, sp, fp, ip, is_in_stack })
}

#[inline]
fn header(task: u64, peek: &mut impl FnMut(u64) -> Option<u64>) -> Option<([u64; 3], bool)> {
    let end = task.checked_add(size_of::<TaskHeader>() as u64)?;
    if end <= stack::bounds_from(task).high {
        // SAFETY: the header lies between an address in a registered stack, whose thread lives, and the top
        // of that stack, so it is mapped and readable; any value is valid.
        return Some((unsafe { (task as *const [u64; 3]).read_unaligned() }, true));
    }
    let words = [peek(task)?, peek(task + 8)?, peek(task + 16)?];
    Some((words, false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::stack::StackReader;

    fn spawner(task: u64) -> Option<Spawner> {
        let mut reader = StackReader::new().expect("memory");
        of_task(task, |address| reader.peek(address))
    }

    #[test]
    fn a_task_header_names_its_spawner() {
        let site = Box::new(SpawnSite { ip: 77, entry: 1 });
        let task = Box::new(TaskHeader { site: &*site, sp: 5, fp: 6 });
        let address = std::ptr::from_ref(&*task) as u64;
        let expected =
            Spawner { site: std::ptr::from_ref(&*site) as u64, sp: 5, fp: 6, ip: 77, is_in_stack: false };
        // The second call takes the path of a known site.
        assert_eq!(spawner(address), Some(expected));
        assert_eq!(spawner(address), Some(expected));
    }

    #[test]
    fn an_invalid_task_is_refused_without_a_fault() {
        for task in [0, 8, 0x10_0000, 1 << 47, !0 - 30, !0 - 8, !0] {
            assert_eq!(spawner(task), None, "{task:#x}");
        }
        for site in [0_u64, 16, 1 << 47, !0 - 3] {
            let words = Box::new([site, 1, 2]);
            let task = std::ptr::from_ref(&*words) as u64;
            assert_eq!(spawner(task), None, "a site at {site:#x}");
        }
    }
}
