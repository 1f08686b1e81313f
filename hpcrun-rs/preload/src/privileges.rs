//! Programs that become another user, as servers do after their start: what they measure from then on must be
//! theirs to write. Nothing becomes writable for anybody that the measurement directory is not writable for.

use crate::real::real;
use hpcrun_core::session;
use hpcrun_core::threads::with_room;
use std::ffi::c_int;
use std::os::unix::fs::{MetadataExt, lchown};

/// Why something is missing; the analyser knows the text.
const REASON: &str = "another user than the measurement directory's owner";
/// As an argument: the user stays the same.
const SAME: libc::uid_t = libc::uid_t::MAX;

/// The process is about to have this effective user. If the measurement directory is writable for that user,
/// the process's own files become the user's too; else the report is told.
fn before(user: libc::uid_t) {
    // SAFETY: geteuid has no preconditions.
    if user == SAME || user == 0 || unsafe { libc::geteuid() } != 0 || !session::has_begun() {
        return;
    }
    let Some((directory, pid)) = session::measurements() else { return };
    let is_writable =
        |m: std::fs::Metadata| m.uid() == user && m.mode() & 0o200 != 0 || m.mode() & 0o002 != 0;
    if !std::fs::metadata(&directory).is_ok_and(is_writable) {
        let executable = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        session::note_unprofiled(&executable, REASON);
        return;
    }
    let own = [format!("process-{pid}-"), format!("thread-{pid}-")];
    for file in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
        let name = file.file_name();
        if own.iter().any(|own| name.as_encoded_bytes().starts_with(own.as_bytes())) {
            // What can't be given away is lost at its next growth, and counted then.
            let _ = lchown(file.path(), Some(user), None);
        }
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
