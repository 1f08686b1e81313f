//! Where the process's files are: in the measurement directory by its path, or in a folder that is held open,
//! once the process becomes another user, has another root or other mounts.
//!
//! Invariant: `HELD` is -1, or a descriptor of a folder that stays open as long as it is there.
//!
//! Async-signal-safe: [`place`].

use crate::descriptors::open_above_limit;
use crate::sandbox::refuses;
use crate::system;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed};

/// The folder that files are in; -1: the measurement directory by its path.
static HELD: AtomicI32 = AtomicI32::new(-1);
/// The measurement directory.
static TOP: AtomicI32 = AtomicI32::new(-1);
/// The user whose folder it is; 0: nobody's.
static USER: AtomicU32 = AtomicU32::new(0);

/// Where a file of the measurement directory is: a folder's descriptor, and the path from there.
#[inline]
pub fn place(path: &CStr) -> (i32, &CStr) {
    match HELD.load(Relaxed) {
        -1 => (libc::AT_FDCWD, path),
        held => {
            let bytes = path.to_bytes_with_nul();
            let start = bytes.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
            let name = bytes.get(start..).and_then(|name| CStr::from_bytes_with_nul(name).ok());
            (held, name.unwrap_or(path))
        }
    }
}

/// The descriptors that are held, with numbers that the program does not expect.
pub fn held() -> impl Iterator<Item = i32> {
    let top = TOP.load(Relaxed);
    let held = HELD.load(Relaxed);
    [Some(top), (held != top).then_some(held)].into_iter().flatten().filter(|fd| *fd >= 0)
}

/// The name below the measurement directory of the folder that files are in, if there is one.
pub fn below() -> Option<String> {
    match USER.load(Relaxed) {
        0 => None,
        user => Some(name_of(user)),
    }
}

fn name_of(user: u32) -> String {
    format!("{}{user}", hpc_formats::process::USER_FOLDER)
}

/// Whether files can be made in the measurement directory. Not async-signal-safe.
pub fn check(directory: &OsStr) -> std::io::Result<()> {
    let path = CString::new(directory.as_bytes())?;
    // SAFETY: `path` is NUL-terminated.
    match unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Holds the measurement directory open, since its path may soon lead elsewhere. Returns its descriptor.
/// Not async-signal-safe.
pub fn hold(directory: &OsStr) -> Option<i32> {
    if TOP.load(Relaxed) < 0 {
        let path = CString::new(directory.as_bytes()).ok()?;
        TOP.store(open_folder(libc::AT_FDCWD, &path)?, Relaxed);
        let _ = HELD.compare_exchange(-1, TOP.load(Relaxed), Relaxed, Relaxed);
    }
    Some(TOP.load(Relaxed))
}

fn open_folder(at: i32, path: &CStr) -> Option<i32> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let arguments = [at as usize, path.as_ptr() as usize, flags as usize, 0, 0];
    // SAFETY: `path` is NUL-terminated.
    open_above_limit(|| unsafe { system::call(libc::SYS_openat, arguments) } as i32).ok()
}

/// Makes a folder for a user, whom this process is about to become, and moves the files there that begin with
/// these words. False if that is not possible; nothing is changed then. Not async-signal-safe.
pub fn hand_over(directory: &OsStr, user: u32, own: &[String]) -> bool {
    const NEEDED: [i64; 5] =
        [libc::SYS_mkdirat, libc::SYS_fchown, libc::SYS_fchownat, libc::SYS_renameat, libc::SYS_getdents64];
    if NEEDED.into_iter().any(refuses) {
        return false;
    }
    let made = hold(directory).and_then(|top| {
        let name = CString::new(name_of(user)).ok()?;
        // SAFETY: `name` is NUL-terminated. It may exist already, if another process has made it.
        unsafe { libc::mkdirat(top, name.as_ptr(), 0o700) };
        let folder = open_folder(top, &name)?;
        // SAFETY: we have just opened the folder.
        if unsafe { libc::fchown(folder, user, libc::gid_t::MAX) } == 0 {
            return Some(folder);
        }
        system::close(folder);
        None
    });
    let Some(folder) = made else { return false };
    let before = HELD.swap(folder, Relaxed);
    USER.store(user, Relaxed);
    for name in names(before).iter().filter(|n| own.iter().any(|o| n.to_bytes().starts_with(o.as_bytes()))) {
        // SAFETY: both folders are open, and the name is NUL-terminated. A file that stays cannot grow, which
        // is counted then.
        unsafe {
            libc::renameat(before, name.as_ptr(), folder, name.as_ptr());
            let flags = libc::AT_SYMLINK_NOFOLLOW;
            libc::fchownat(folder, name.as_ptr(), user, libc::gid_t::MAX, flags);
        }
    }
    if before != TOP.load(Relaxed) {
        system::close(before);
    }
    true
}

fn names(folder: i32) -> Vec<CString> {
    let mut names = Vec::new();
    // SAFETY: the stream owns the descriptor that is opened for it, and is closed once. An entry is valid
    // until the next is read.
    unsafe {
        let copy = open_folder(folder, c".");
        let stream = copy.map_or(std::ptr::null_mut(), |copy| libc::fdopendir(copy));
        if stream.is_null() {
            return names;
        }
        while let Some(entry) = libc::readdir(stream).as_ref() {
            names.push(CStr::from_ptr(entry.d_name.as_ptr()).to_owned());
        }
        libc::closedir(stream);
    }
    names
}
