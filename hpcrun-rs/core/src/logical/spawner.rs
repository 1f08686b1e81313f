//! Reading what a task says of its spawner.
//!
//! One duty: the words of a task's header and of its spawn site, read so that nothing can fault. A boundary's
//! frame keeps a task in its slot, but a walk that lost its way before may take for such a frame what is
//! none. The header is read directly where it lies in a stack that is known, the site where it was read
//! before; all else through the kernel.
//!
//! Async-signal-safe.

use crate::unwind::{loadmap, stack};
use hpcrun_abi::{SpawnSite, TaskHeader};
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

/// A task's header, in its order, and what its site says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spawner {
    /// Address of the spawn site.
    pub(super) site: u64,
    /// [`TaskHeader::sp`].
    pub(super) sp: u64,
    /// [`TaskHeader::fp`].
    pub(super) fp: u64,
    /// [`SpawnSite::ip`].
    pub(super) ip: u64,
    /// Whether the header lies in a stack that is known.
    pub(super) is_in_stack: bool,
}

// As they are read here, and noted in `cursor`.
const _: () = assert!(
    offset_of!(TaskHeader, site) == 0
        && offset_of!(TaskHeader, sp) == 8
        && offset_of!(TaskHeader, fp) == 16
        && size_of::<TaskHeader>() == 24
        && offset_of!(SpawnSite, ip) == 0
);

/// Sites that were read, by their addresses: statics, which stay where they are.
static SITES: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// A module is about to go: sites are read through the kernel until they are known again.
pub fn forget_sites() {
    for site in &SITES {
        site.store(0, Ordering::Relaxed);
    }
}

/// The spawner of the task whose header is at `task`. `peek` reads a word of any memory, or says that it
/// cannot be read.
#[inline]
pub(super) fn of_task(task: u64, mut peek: impl FnMut(u64) -> Option<u64>) -> Option<Spawner> {
    let ([site, sp, fp], is_in_stack) = header(task, &mut peek)?;
    let known = &SITES[(site >> 4) as usize % SITES.len()];
    let is_stable = loadmap::is_stable();
    let ip = if is_stable && site != 0 && known.load(Ordering::Relaxed) == site {
        // SAFETY: it was readable as a site before, which are statics of modules, and no module has gone
        // since: sites are forgotten before one goes (`forget_sites`). (What two walks that lost their way
        // took for the same site was readable at the first; nothing more is known of it.) Any bits are a
        // number.
        unsafe { (site as *const u64).read_unaligned() }
    } else {
        let ip = peek(site)?;
        if is_stable {
            known.store(site, Ordering::Relaxed);
        }
        ip
    };
    Some(Spawner {
        site,
        sp,
        fp,
        ip,
        is_in_stack,
    })
}

#[inline]
fn header(task: u64, peek: &mut impl FnMut(u64) -> Option<u64>) -> Option<([u64; 3], bool)> {
    let end = task.checked_add(size_of::<TaskHeader>() as u64)?;
    if end <= stack::bounds_from(task).high {
        // SAFETY: between an address in the stack of a thread that lives and the stack's top: mapped and
        // readable. Any bits are numbers.
        return Some((unsafe { (task as *const [u64; 3]).read_unaligned() }, true));
    }
    let words = [peek(task)?, peek(task + 8)?, peek(task + 16)?];
    Some((words, false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::stack::{Scratch, StackBounds, StackReader};

    fn spawner(task: u64) -> Option<Spawner> {
        let mut scratch = Scratch::new().expect("memory");
        let mut reader = StackReader::new(StackBounds::NONE, &mut scratch);
        of_task(task, |address| reader.peek(address))
    }

    #[test]
    fn a_task_says_who_made_it() {
        let site = Box::new(SpawnSite { ip: 77, entry: 1 });
        let task = Box::new(TaskHeader {
            site: &*site,
            sp: 5,
            fp: 6,
        });
        let address = std::ptr::from_ref(&*task) as u64;
        let expected = Spawner {
            site: std::ptr::from_ref(&*site) as u64,
            sp: 5,
            fp: 6,
            ip: 77,
            is_in_stack: false,
        };
        // The second time the site is known.
        assert_eq!(spawner(address), Some(expected));
        assert_eq!(spawner(address), Some(expected));
    }

    #[test]
    fn what_is_no_task_is_told_and_does_not_fault() {
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
