//! Programs that become another user, as servers do after their start, or get another root or other mounts:
//! what they measure from then on goes into a folder that is held open, and is theirs to write. Nothing of
//! the measurement directory becomes writable for anybody else.

use crate::real::real;
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

macro_rules! interpose {
    ($($name:ident($symbol:literal, $($argument:ident),*) by $user:expr;)*) => { $(
        /// Interposed; see the module.
        ///
        /// # Safety
        /// As for libc's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: libc::uid_t),*) -> c_int {
            with_room(|| before($user));
            // SAFETY: libc's own function, same arguments.
            unsafe { interpose!(@real $symbol, $($argument),*) }
        }
    )* };
    (@real $symbol:literal, $a:ident) => {
        real!($symbol: fn(libc::uid_t) -> c_int)($a)
    };
    (@real $symbol:literal, $a:ident, $b:ident) => {
        real!($symbol: fn(libc::uid_t, libc::uid_t) -> c_int)($a, $b)
    };
    (@real $symbol:literal, $a:ident, $b:ident, $c:ident) => {
        real!($symbol: fn(libc::uid_t, libc::uid_t, libc::uid_t) -> c_int)($a, $b, $c)
    };
}

interpose! {
    setuid(c"setuid", user) by user;
    seteuid(c"seteuid", effective) by effective;
    setreuid(c"setreuid", user, effective) by effective;
    setresuid(c"setresuid", user, effective, saved) by effective;
}

/// Makes a call that gives the process another root or other mounts.
pub(crate) fn moving<T>(call: impl FnOnce() -> T) -> T {
    with_room(session::hold_folder);
    call()
}

/// Interposed; see the module.
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chroot(path: *const c_char) -> c_int {
    // SAFETY: libc's own function, same argument.
    moving(|| unsafe { real!(c"chroot": fn(*const c_char) -> c_int)(path) })
}

/// Interposed; see the module.
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    // SAFETY: libc's own function, same argument.
    moving(|| unsafe { real!(c"unshare": fn(c_int) -> c_int)(flags) })
}

/// Interposed; see the module.
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setns(namespace: c_int, kind: c_int) -> c_int {
    // SAFETY: libc's own function, same arguments.
    moving(|| unsafe { real!(c"setns": fn(c_int, c_int) -> c_int)(namespace, kind) })
}
