//! Programs that this process starts. A program that our library would break gets an environment without it.
//! Every program that is not profiled is recorded in the process file.
//!
//! A `vfork` child calls this as well, on its parent's memory, so nothing of ours may change except our heap.

use hpc_formats::preload::{self, DEFAULT_PATH, LIBRARY_NAME, MPI_LIBRARY_NAME};
use hpcrun_core::session;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A list of strings in libc's form, ended by a null pointer.
pub(crate) type Strings = *const *const c_char;

unsafe extern "C" {
    pub(crate) static mut environ: Strings;
}

/// The process's environment.
pub(crate) fn own_environment() -> Strings {
    // SAFETY: libc's variable, read as libc's `execv` reads it.
    unsafe { environ }
}

/// The program that libc is asked to start.
#[derive(Clone, Copy)]
pub(crate) enum Program<'a> {
    /// By its path.
    Path(&'a CStr),
    /// By a name, which is searched in `PATH` unless it contains a slash.
    Name(&'a CStr),
    /// By a path relative to a descriptor's folder; if the path is empty, the descriptor's file.
    At(c_int, &'a CStr),
}

impl Program<'_> {
    fn path(self, search: &OsStr) -> Option<PathBuf> {
        let path = |text: &CStr| PathBuf::from(OsStr::from_bytes(text.to_bytes()));
        match self {
            Program::Name(name) if !name.to_bytes().contains(&b'/') => {
                preload::find(OsStr::from_bytes(name.to_bytes()), search)
            }
            Program::At(fd, at) if fd != libc::AT_FDCWD => {
                let folder = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
                Some(if at.is_empty() { folder } else { folder.join(path(at)) })
            }
            Program::Path(text) | Program::Name(text) | Program::At(_, text) => Some(path(text)),
        }
    }
}

/// The environment of a started program.
pub(crate) enum Environment {
    /// Unchanged.
    Given(Strings),
    /// Without the sampler.
    Stripped {
        list: Vec<*const c_char>,
        /// The remaining `LD_PRELOAD`, which `list` points to.
        _preloaded: Option<CString>,
    },
}

impl Environment {
    pub(crate) fn as_ptr(&self) -> Strings {
        match self {
            Environment::Given(strings) => *strings,
            Environment::Stripped { list, .. } => list.as_ptr(),
        }
    }

    /// The environment for a program that is about to be started.
    ///
    /// # Safety
    /// `given` must be null or a list of strings.
    pub(crate) unsafe fn of(program: Program<'_>, given: Strings) -> Environment {
        if !session::has_begun() {
            return Environment::Given(given);
        }
        let search = variable(own_environment(), b"PATH=").unwrap_or(DEFAULT_PATH.as_bytes());
        let search = OsStr::from_bytes(search);
        let path = program.path(search).filter(|p| preload::is_program(p));
        let Some(path) = path else {
            return Environment::Given(given);
        };
        if let Some(found) = preload::obstacle(&path, search) {
            session::note_unprofiled(&found.executable, &found.obstacle.reason());
            if found.obstacle.breaks() {
                // SAFETY: the caller's promise.
                return unsafe { strip(given) };
            }
        // SAFETY: the caller's promise.
        } else if !unsafe { strings(given) }.any(|s| has_ours(s.to_bytes())) {
            session::note_unprofiled(
                &path,
                "started with an environment that lacks the profiler's",
            );
        }
        Environment::Given(given)
    }
}

/// Iterates over the strings of a list.
///
/// # Safety
/// `list` must be null or a list of strings that outlives the result.
unsafe fn strings<'a>(list: Strings) -> impl Iterator<Item = &'a CStr> {
    let nth = move |i: usize| {
        // SAFETY: the caller's promise; the iterator stops at the null pointer, so `i` is within the list.
        unsafe {
            let string = *list.add(i);
            (!string.is_null()).then(|| CStr::from_ptr(string))
        }
    };
    (0..).take_while(move |_| !list.is_null()).map_while(nth)
}

/// The value of a variable; `name` ends with the equals sign.
fn variable<'a>(list: Strings, name: &[u8]) -> Option<&'a [u8]> {
    // SAFETY: callers pass the process's own environment, which libc reads in the same call.
    unsafe { strings(list) }.find_map(|s| s.to_bytes().strip_prefix(name))
}

/// # Safety
/// `given` must be a list of strings.
unsafe fn strip(given: Strings) -> Environment {
    let mut list = Vec::new();
    let mut preloaded = None;
    // SAFETY: the caller's promise.
    for string in unsafe { strings(given) } {
        let text = string.to_bytes();
        if let Some(value) = text.strip_prefix(b"LD_PRELOAD=") {
            preloaded = others(value);
        } else if !text.starts_with(b"HPCRUN_RS_") && !is_collector(text) {
            list.push(string.as_ptr());
        }
    }
    list.extend(preloaded.as_ref().map(|p| p.as_ptr()));
    list.push(std::ptr::null());
    Environment::Stripped { list, _preloaded: preloaded }
}

/// Whether an environment entry names our library to TBB.
fn is_collector(entry: &[u8]) -> bool {
    entry.strip_prefix(b"INTEL_LIBITTNOTIFY64=").is_some_and(is_ours)
}

/// Whether an environment entry preloads our library.
fn has_ours(entry: &[u8]) -> bool {
    let value = entry.strip_prefix(b"LD_PRELOAD=");
    value.is_some_and(|v| libraries(v).any(is_ours))
}

/// `LD_PRELOAD` without our library; `None` if nothing remains.
fn others(value: &[u8]) -> Option<CString> {
    let kept: Vec<&[u8]> = libraries(value).filter(|l| !is_ours(l)).collect();
    let text = [b"LD_PRELOAD=", &kept.join(&b':')[..]].concat();
    CString::new(text).ok().filter(|_| !kept.is_empty())
}

fn libraries(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let separated = list.split(|b| matches!(b, b' ' | b':'));
    separated.filter(|library| !library.is_empty())
}

fn is_ours(library: &[u8]) -> bool {
    let name = library.rsplit(|b| *b == b'/').next();
    let ours = [LIBRARY_NAME, MPI_LIBRARY_NAME];
    name.is_some_and(|n| ours.iter().any(|our| n.starts_with(our.as_bytes())))
}
