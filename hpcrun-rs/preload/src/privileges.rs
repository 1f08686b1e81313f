//! Programs that become another user, as servers do after their start, or get another root or other mounts:
//! what they measure from then on goes into a folder that is held open, and is theirs to write. Nothing of
//! the measurement directory becomes writable for anybody else.

use crate::real::interpose;
use hpcrun_core::session;
use hpcrun_core::threads::with_room;
use std::ffi::{c_char, c_int};

/// Why something is missing; the analyser knows the text.
const REASON: &str = "another user than the measurement directory's owner";
/// As an argument: the user stays the same.
const SAME: libc::uid_t = libc::uid_t::MAX;

/// The process is about to have this effective user. If it can't give its files away, the report is told.
fn before(user: libc::uid_t) {
    // SAFETY: geteuid has no preconditions.
    if user == SAME || user == 0 || unsafe { libc::geteuid() } != 0 || !session::has_begun() {
        return;
    }
    if !session::hand_over(user) {
        let executable = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        session::note_unprofiled(&executable, REASON);
    }
}

/// Makes a call that gives the process another root or other mounts.
pub(crate) fn moving<T>(call: impl FnOnce() -> T) -> T {
    with_room(session::hold_folder);
    call()
}

/// Makes a call by which the process gets this effective user.
fn becoming(user: libc::uid_t, call: impl FnOnce() -> c_int) -> c_int {
    with_room(|| before(user));
    call()
}

type User = libc::uid_t;

interpose! {
    setuid(user: User) -> c_int: |call| becoming(user, call);
    seteuid(effective: User) -> c_int: |call| becoming(effective, call);
    setreuid(user: User, effective: User) -> c_int: |call| becoming(effective, call);
    setresuid(user: User, effective: User, saved: User) -> c_int: |call| becoming(effective, call);
    chroot(path: *const c_char) -> c_int: |call| moving(call);
    unshare(flags: c_int) -> c_int: |call| moving(call);
    setns(namespace: c_int, kind: c_int) -> c_int: |call| moving(call);
}
