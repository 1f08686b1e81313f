//! The processes that share the node's table: who they are, and the cores that they may use together.
//!
//! n is the number of cores in the union of their masks, limited by the largest of their CPU quotas. A
//! process keeps its mask here: that of all its threads, as it is now.
//!
//! A process is known by its id, the time, and the namespace in which its id holds (its *view*), so those of
//! containers that share a directory are told apart, and a program that was executed is its predecessor.
//! Only a process of the same view can tell that another is gone. Its entry is then removed by whoever
//! replaces its key first, who alone frees its slots.
//!
//! Async-signal-safe, except [`Identity::current`].

use super::node::{self, Header, Slot};
use crate::system;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Words of a mask: 2048 cores.
pub(super) const WORDS: usize = 32;
/// Key of an entry that is being removed.
const REMOVED: u64 = 1;

/// The process's CPU quota in whole cores; 0: not limited.
static QUOTA: AtomicU32 = AtomicU32::new(0);

/// Sets the process's CPU quota, in whole cores.
pub fn set_quota(cores: u32) {
    QUOTA.store(cores, Relaxed);
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    key: u64,
    /// 0: unknown, so that nobody can tell whether the process is gone.
    view: u64,
    process: u32,
}

impl Identity {
    pub(super) fn current() -> Identity {
        let view = std::fs::metadata("/proc/self/ns/pid").map_or(0, |file| file.ino());
        let process = std::process::id();
        let now = system::clock(libc::CLOCK_MONOTONIC);
        // Where the kernel keeps the image lies at random.
        // SAFETY: reads the auxiliary vector.
        let random = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
        let key = mix(mix(now ^ view) ^ random ^ u64::from(process)).max(2);
        Identity { key, view, process }
    }
}

/// Spreads the bits of a word (the finaliser of SplitMix64).
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The entry of one process; zeros: free.
#[repr(C, align(64))]
pub(super) struct Member {
    key: AtomicU64,
    view: AtomicU64,
    process: AtomicU32,
    quota: AtomicU32,
    mask: [AtomicU64; WORDS],
}

impl Member {
    /// Its id in the namespace of a process of this view, if it is the same.
    pub(super) fn process_in(&self, view: u64) -> Option<u32> {
        let is_known = view != 0 && self.view.load(Relaxed) == view && self.key.load(Acquire) > REMOVED;
        is_known.then(|| self.process.load(Relaxed))
    }

    pub(super) fn view(&self) -> u64 {
        self.view.load(Relaxed)
    }

    fn set_mask(&self, mask: &[u64; WORDS]) {
        for (word, new) in self.mask.iter().zip(mask) {
            word.store(*new, Relaxed);
        }
    }
}

/// Enters the calling process, as a user of no cores yet, and removes those that are gone: also its own
/// earlier images. The entry's index; `None` when all are taken.
pub(super) fn join(me: Identity) -> Option<u32> {
    let members = node::members();
    for (index, member) in (0..).zip(members.iter().take(node::used_members())) {
        let process = member.process_in(me.view);
        if process.is_some_and(|other| other == me.process || system::is_gone(other, other)) {
            remove(index, member);
        }
    }
    let taken = |m: &Member| m.key.compare_exchange(0, me.key, AcqRel, Relaxed).is_ok();
    let index = members.iter().position(taken)?;
    let member = &members[index];
    member.view.store(me.view, Relaxed);
    member.process.store(me.process, Relaxed);
    member.quota.store(QUOTA.load(Relaxed), Relaxed);
    node::header().members.fetch_max(index as u32 + 1, Relaxed);
    Some(index as u32)
}

/// Removes the entry with this index, because its process is gone.
pub(super) fn remove_gone(index: u32) {
    if let Some(member) = node::members().get(index as usize) {
        remove(index, member);
    }
}

fn remove(index: u32, member: &Member) {
    let key = member.key.load(Acquire);
    if key <= REMOVED || member.key.compare_exchange(key, REMOVED, AcqRel, Relaxed).is_err() {
        return;
    }
    node::used().iter().filter(|slot| slot.owner().0 == index).for_each(Slot::release);
    member.set_mask(&[0; WORDS]);
    member.view.store(0, Relaxed);
    member.key.store(0, Release);
    count();
}

/// Sets the cores of the process: those of these threads of it.
pub fn set_threads(threads: impl Iterator<Item = u32>) {
    let mut mask = [0; WORDS];
    threads.for_each(|thread| add_mask(thread, &mut mask));
    if let Some(me) = node::me() {
        me.set_mask(&mask);
        count();
    }
}

/// Sets the cores of another process of the run to those of its main thread, if it is one.
pub fn set_process(process: u32) {
    let Some(view) = node::me().map(Member::view) else { return };
    let members = node::members().iter().take(node::used_members());
    for member in members.filter(|m| m.process_in(view) == Some(process)) {
        let mut mask = [0; WORDS];
        add_mask(process, &mut mask);
        member.set_mask(&mask);
        count();
    }
}

fn add_mask(thread: u32, to: &mut [u64; WORDS]) {
    let mut mask = [0_u64; WORDS];
    let arguments = [thread as usize, size_of_val(&mask), &raw mut mask as usize, 0, 0];
    // SAFETY: the kernel writes at most the array's length, and the array outlives the call.
    if unsafe { system::call(libc::SYS_sched_getaffinity, arguments) } > 0 {
        to.iter_mut().zip(mask).for_each(|(word, more)| *word |= more);
    }
}

/// Takes the process's cores out of n, because it ends. Its entry stays until it is gone.
pub(super) fn forget_mask() {
    if let Some(me) = node::me() {
        me.set_mask(&[0; WORDS]);
        count();
    }
}

/// Counts n anew. Whoever sees another's change in between counts again, so the last change is in n.
fn count() {
    let Header { changes, cores, .. } = node::header();
    changes.fetch_add(1, SeqCst);
    loop {
        let before = changes.load(SeqCst);
        let (mut all, mut quota) = ([0; WORDS], 0);
        for member in node::members().iter().take(node::used_members()) {
            let mut is_user = false;
            for (word, more) in all.iter_mut().zip(&member.mask) {
                let more = more.load(SeqCst);
                is_user |= more != 0;
                *word |= more;
            }
            if is_user {
                let own = member.quota.load(Relaxed);
                quota = quota.max(if own == 0 { u32::MAX } else { own });
            }
        }
        let n = all.iter().map(|word| word.count_ones()).sum::<u32>().min(quota);
        // Without any process, what was in force remains.
        if n > 0 {
            cores.store(n, Relaxed);
        }
        if changes.load(SeqCst) == before {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_its_id_in_a_view_after_an_exec_too() {
        let (first, second) = (Identity::current(), Identity::current());
        assert_eq!((first.process, first.view), (second.process, second.view));
        assert!(first.view != 0 && first.key != second.key);
    }

    /// One mask is of one thread; that of a thread that does not exist adds nothing.
    #[test]
    fn masks_are_those_of_the_kernel() {
        let mut mask = [0; WORDS];
        add_mask(std::process::id(), &mut mask);
        let cores: u32 = mask.iter().map(|word| word.count_ones()).sum();
        assert!(cores as usize >= std::thread::available_parallelism().map_or(1, usize::from));
        let mut none = [0; WORDS];
        add_mask(u32::MAX >> 1, &mut none);
        assert_eq!(none, [0; WORDS]);
    }
}
