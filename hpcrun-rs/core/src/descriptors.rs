//! Numbers for our descriptors that the program's limit does not count: above the soft limit, which is raised
//! for an instant. A program under `ulimit -n` opens as many files as without us, and finds the numbers that
//! it expects.
//!
//! A limit so high that no program comes near it is left as it is. Where a limit cannot be raised there are
//! no descriptors; callers have a source without one.
//!
//! Async-signal-safe.

use crate::system;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64};

/// No descriptor of ours is below: programs may expect small numbers, or close the first 1024.
const LOWEST: u64 = 1024;
/// Number of descriptors that there may be above the limit.
const ROOM: u64 = 4096;
/// A soft limit that is not raised. A fork copies a table as long as the highest number.
const AMPLE: u64 = 16 << 10;

/// Held while the limit is raised.
static LOCK: AtomicBool = AtomicBool::new(false);
/// The limit to put back: soft and hard; valid while `IS_RAISED`.
static LIMIT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static IS_RAISED: AtomicBool = AtomicBool::new(false);
/// The lowest descriptor of ours that there was.
static FIRST: AtomicI32 = AtomicI32::new(i32::MAX);

#[inline]
pub fn may_be_ours(descriptor: i32) -> bool {
    descriptor >= FIRST.load(Relaxed)
}

/// Opens a descriptor and gives it a number that the limit does not count. `open` returns the descriptor, or
/// a negative error. Errors are those of the operating system.
pub fn open_above_limit(open: impl FnOnce() -> i32) -> Result<i32, i32> {
    if !lock() {
        return Err(libc::EAGAIN);
    }
    let moved = raise().and_then(|from| {
        let descriptor = open();
        if descriptor < 0 {
            return Err(-descriptor);
        }
        let arguments = [descriptor as usize, libc::F_DUPFD_CLOEXEC as usize, from as usize, 0, 0];
        // SAFETY: we have just opened the descriptor.
        let moved = unsafe { system::call(libc::SYS_fcntl, arguments) } as i32;
        system::close(descriptor);
        if moved < 0 { Err(-moved) } else { Ok(moved) }
    });
    put_back();
    LOCK.store(false, Release);
    moved.inspect(|moved| {
        FIRST.fetch_min(*moved, Relaxed);
    })
}

/// Waits for some hundred microseconds at most: a signal handler may have interrupted the holder.
fn lock() -> bool {
    system::within(4, || (!LOCK.swap(true, Acquire)).then_some(())).is_some()
}

/// Raises the soft limit if the program could come near it. Returns the number from which on there is room.
fn raise() -> Result<u64, i32> {
    let old = limit(None)?;
    if old.rlim_cur >= AMPLE {
        return Ok(LOWEST);
    }
    let from = old.rlim_cur.max(LOWEST);
    let wanted = from + ROOM;
    LIMIT[0].store(old.rlim_cur, Relaxed);
    LIMIT[1].store(old.rlim_max, Relaxed);
    IS_RAISED.store(true, Release);
    // A privileged process may raise the hard limit, too; another has what there is of it.
    let most = libc::rlimit { rlim_cur: wanted, rlim_max: old.rlim_max.max(wanted) };
    let allowed = libc::rlimit { rlim_cur: old.rlim_max.min(wanted), rlim_max: old.rlim_max };
    if limit(Some(most)).is_ok() {
        return Ok(from);
    }
    match allowed.rlim_cur > from && limit(Some(allowed)).is_ok() {
        true => Ok(from),
        false => Err(libc::EMFILE),
    }
}

fn put_back() {
    if IS_RAISED.load(Acquire) {
        let [soft, hard] = [&LIMIT[0], &LIMIT[1]].map(|limit| limit.load(Relaxed));
        let _ = limit(Some(libc::rlimit { rlim_cur: soft, rlim_max: hard }));
        IS_RAISED.store(false, Release);
    }
}

/// Puts the limit back in a forked child, if another thread of the parent had just raised it.
pub fn enter_child() {
    put_back();
    LOCK.store(false, Release);
}

fn limit(new: Option<libc::rlimit>) -> Result<libc::rlimit, i32> {
    system::limit(libc::RLIMIT_NOFILE, new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_above_the_limit_which_stays_as_it_was() {
        let before = limit(None).unwrap();
        let low = libc::rlimit { rlim_cur: 100, rlim_max: before.rlim_max };
        limit(Some(low)).unwrap();
        // SAFETY: duplicates standard error.
        let opened = open_above_limit(|| unsafe { libc::dup(2) });
        let after = limit(Some(before)).unwrap();
        let opened = opened.unwrap();
        assert!(opened >= 1024 && may_be_ours(opened) && !may_be_ours(opened - 1));
        assert_eq!((after.rlim_cur, after.rlim_max), (100, before.rlim_max));
        system::close(opened);
    }
}
