//! Programs that this process starts. A program that our library would break, or that could not load it, gets
//! an environment without it. One that is started with an environment of its own is lent what it needs to be
//! profiled, which its own library takes out again before the program sees it ([`take_out`]): `env -i env`
//! prints nothing. Who takes only our library out of `LD_PRELOAD` does not want to be profiled.
//! Every program that is not profiled is recorded in the process file.
//!
//! A `vfork` child calls this as well, on its parent's memory, so nothing of ours may change except our heap.

use hpc_formats::preload::{self, DEFAULT_PATH, LIBRARY_NAME, MPI_LIBRARY_NAME};
use hpcrun_core::{folder, session};
use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

/// A list of strings in libc's form, ended by a null pointer.
pub(crate) type Strings = *const *const c_char;

unsafe extern "C" {
    pub(crate) static mut environ: Strings;
}

pub(crate) fn own_environment() -> Strings {
    // SAFETY: libc's variable, read as libc's `execv` reads it.
    unsafe { environ }
}

/// The program that libc is asked to start.
#[derive(Clone, Copy)]
pub(crate) enum Program<'a> {
    Path(&'a CStr),
    /// By a name, which is searched in `PATH` unless it contains a slash.
    Name(&'a CStr),
    /// By a path relative to a descriptor's folder; if the path is empty, the descriptor's file.
    At(c_int, &'a CStr),
}

impl Program<'_> {
    /// Whether there is no such file, as in most of the folders in which a shell looks for a name.
    pub(crate) fn is_missing(self) -> bool {
        let Program::Path(path) = self else { return false };
        std::fs::metadata(OsStr::from_bytes(path.to_bytes())).is_err()
    }

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
    /// Without the sampler, or with what it lacked.
    Changed {
        list: Vec<*const c_char>,
        /// Strings to which `list` points.
        _made: Vec<CString>,
    },
}

impl Environment {
    pub(crate) fn as_ptr(&self) -> Strings {
        match self {
            Environment::Given(strings) => *strings,
            Environment::Changed { list, .. } => list.as_ptr(),
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
                return unsafe { change(given, None) };
            }
            return Environment::Given(given);
        }
        // SAFETY: the caller's promise.
        let has = |what: fn(&[u8]) -> bool| unsafe { strings(given) }.any(|s| what(s.to_bytes()));
        let Some(ours) = OURS.get().filter(|ours| ours.can_be_loaded()) else {
            session::note_unprofiled(&path, "started where the profiler's files are out of reach");
            // SAFETY: the caller's promise.
            return unsafe { change(given, None) };
        };
        if !has(is_setting) || folder::below().is_some() {
            // SAFETY: the caller's promise.
            return unsafe { change(given, Some(ours)) };
        }
        if !has(has_ours) {
            session::note_unprofiled(&path, "started without the profiler in LD_PRELOAD");
        }
        Environment::Given(given)
    }
}

/// What a profiled program needs in its environment.
struct Ours {
    /// Paths of our libraries.
    libraries: Vec<CString>,
    /// All but `LD_PRELOAD` and the measurement directory.
    settings: Vec<CString>,
    directory: OsString,
}

/// How the entries begin of the measurement directory and the preloaded libraries.
const OUTPUT: &[u8] = b"HPCRUN_RS_OUTPUT=";
const PRELOAD: &[u8] = b"LD_PRELOAD=";

static OURS: OnceLock<Ours> = OnceLock::new();

/// Says that the settings are lent. An odd number of strings that are taken out gets one more.
const LENT: [&CStr; 2] = [c"HPCRUN_RS_LENT=1", c"HPCRUN_RS_LENT_EVEN=1"];

impl Ours {
    /// Where a program that is started now finds its measurement directory.
    fn directory(&self) -> OsString {
        match folder::below() {
            None => self.directory.clone(),
            Some(below) => Path::new(&self.directory).join(below).into(),
        }
    }

    /// Whether a program that is started here could load our libraries and write its files: it may have
    /// become another user, or have another root.
    fn can_be_loaded(&self) -> bool {
        let reaches = |path: &CString, how| {
            // SAFETY: `path` is NUL-terminated.
            unsafe { libc::access(path.as_ptr(), how) == 0 }
        };
        let directory = CString::new(self.directory().into_vec());
        directory.is_ok_and(|directory| reaches(&directory, libc::W_OK | libc::X_OK))
            && self.libraries.iter().all(|library| reaches(library, libc::R_OK))
    }
}

/// Keeps what the process got for the programs that it will start. What was lent is taken out of the
/// environment: the program's own strings move up, and the words that become free before the kernel's
/// auxiliary vector become entries of it that are to be ignored.
///
/// # Safety
/// The environment must be the kernel's, and no other thread may exist.
pub(crate) unsafe fn take_out() {
    // SAFETY: libc's variable, which nobody else uses (the caller's promise).
    let list = unsafe { environ };
    // SAFETY: as above.
    let all: Vec<&CStr> = unsafe { strings(list) }.collect();
    let owned = |s: &&CStr| CString::from(*s);
    let is_kept = |s: &[u8]| is_setting(s) && !is_lent(s) && !s.starts_with(OUTPUT);
    let settings = all.iter().filter(|s| is_kept(s.to_bytes()));
    let preloaded = all.iter().filter_map(|s| s.to_bytes().strip_prefix(PRELOAD));
    let ours = preloaded.flat_map(libraries).filter(|library| is_ours(library));
    let directory = variable(list, OUTPUT).unwrap_or_default();
    let _ = OURS.set(Ours {
        libraries: ours.filter_map(|library| CString::new(library).ok()).collect(),
        settings: settings.map(owned).collect(),
        directory: OsStr::from_bytes(directory).to_owned(),
    });
    if !all.iter().any(|s| is_lent(s.to_bytes())) {
        return;
    }
    let mut kept: Vec<*const c_char> = Vec::new();
    for string in all.iter().filter(|s| !is_setting(s.to_bytes())) {
        match string.to_bytes().strip_prefix(PRELOAD).filter(|_| has_ours(string.to_bytes())) {
            None => kept.push(string.as_ptr()),
            // For ever: it is the program's environment.
            Some(list) => kept.extend(others(list).map(|others| others.into_raw().cast_const())),
        }
    }
    /// An entry of the auxiliary vector to be ignored: its kind and value.
    const IGNORED: [usize; 2] = [1, 0];
    let free = (0..all.len() - kept.len()).map(|i| ptr::without_provenance(IGNORED[i % 2]));
    let words = kept.iter().copied().chain([ptr::null()]).chain(free);
    for (i, word) in words.enumerate() {
        // SAFETY: the list has as many words, its null pointer included, and is writable memory.
        unsafe { list.cast_mut().add(i).write(word) };
    }
}

fn is_setting(entry: &[u8]) -> bool {
    entry.starts_with(b"HPCRUN_RS_") || is_collector(entry)
}

fn is_lent(entry: &[u8]) -> bool {
    LENT.iter().any(|lent| lent.to_bytes() == entry)
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

/// The environment without the sampler, or with what is lent.
///
/// # Safety
/// `given` must be null or a list of strings.
unsafe fn change(given: Strings, lent: Option<&Ours>) -> Environment {
    let mut list = Vec::new();
    let mut made = Vec::new();
    let mut place = 0;
    let mut preloaded: Vec<&[u8]> = Vec::new();
    for library in lent.iter().flat_map(|ours| &ours.libraries) {
        preloaded.push(library.to_bytes());
    }
    let ours = preloaded.len();
    // SAFETY: the caller's promise.
    for string in unsafe { strings(given) } {
        let text = string.to_bytes();
        if let Some(value) = text.strip_prefix(PRELOAD) {
            place = list.len();
            preloaded.extend(libraries(value).filter(|library| !is_ours(library)));
        } else if !is_setting(text) {
            list.push(string.as_ptr());
        }
    }
    if let Some(lent) = lent {
        // The program's own `LD_PRELOAD` stays.
        let taken_out = lent.settings.len() + 2 + usize::from(preloaded.len() == ours);
        let directory = [OUTPUT, lent.directory().as_bytes()].concat();
        made.extend(CString::new(directory));
        list.extend(lent.settings.iter().map(|s| s.as_ptr()));
        list.extend(LENT[..1 + taken_out % 2].iter().map(|s| s.as_ptr()));
    }
    made.extend(joined(&preloaded));
    list.splice(place..place, made.iter().map(|string| string.as_ptr()));
    list.push(ptr::null());
    Environment::Changed { list, _made: made }
}

/// Whether an environment entry names our library to TBB.
fn is_collector(entry: &[u8]) -> bool {
    entry.strip_prefix(b"INTEL_LIBITTNOTIFY64=").is_some_and(is_ours)
}

/// Whether an environment entry preloads our library.
fn has_ours(entry: &[u8]) -> bool {
    let value = entry.strip_prefix(PRELOAD);
    value.is_some_and(|v| libraries(v).any(is_ours))
}

/// `LD_PRELOAD` without our library; `None` if nothing remains.
fn others(value: &[u8]) -> Option<CString> {
    let kept: Vec<&[u8]> = libraries(value).filter(|l| !is_ours(l)).collect();
    joined(&kept)
}

/// An `LD_PRELOAD` of these libraries; `None` if there are none.
fn joined(libraries: &[&[u8]]) -> Option<CString> {
    let text = [PRELOAD, &libraries.join(&b':')[..]].concat();
    CString::new(text).ok().filter(|_| !libraries.is_empty())
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
