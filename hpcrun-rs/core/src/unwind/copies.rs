//! Copies of modules whose files go while the program runs: deleted, replaced, or never in a folder (memfd).
//! They are made in the measurement directory, so that the code can be named. Not async-signal-safe.
//!
//! What is mapped can be read by `/proc/self/exe`, by the program's own descriptor, or, with the right to do
//! so, by `/proc/self/map_files`. A file that was overwritten in its place cannot be had any more.

use crate::maps;
use crate::system;
use crate::unwind::loadmap::{Module, executable_path};
use hpc_formats::address::ModuleId;
use hpc_formats::process::{Stamp, bytes_of};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Files larger than this are not copied.
const LARGEST: u64 = 1 << 30;

/// A file's identity and content, as far as the kernel tells; the default if there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Identity {
    fn new(file: &Metadata) -> Identity {
        Identity {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
        }
    }

    /// Of the file at a module's path.
    pub fn at(path: &str) -> Identity {
        std::fs::metadata(path_of(path)).map_or(Identity::default(), |m| Identity::new(&m))
    }

    /// What the process file tells of it.
    pub fn stamp(self) -> Stamp {
        let (seconds, ns) = self.modified;
        let modified_ns = (seconds as u64 * 1_000_000_000).wrapping_add(ns as u64);
        Stamp { size: self.size, modified_ns }
    }

    /// Whether the same file has another content now.
    fn was_overwritten(self, now: Identity) -> bool {
        (self.device, self.inode) == (now.device, now.inode) && self != now && self.inode != 0
    }
}

/// Copies those of the modules whose files have gone; returns the names of the copies.
pub fn make(directory: &OsStr, modules: &[Module]) -> Vec<(ModuleId, String)> {
    modules.iter().filter_map(|m| Some((m.id, copy(directory, m)?))).collect()
}

fn copy(directory: &OsStr, module: &Module) -> Option<String> {
    if module.path.starts_with('[') {
        return None;
    }
    // Another process sees another file there, or none.
    let is_own = ["/proc/", "/dev/", "/memfd:"].iter().any(|p| module.path.starts_with(p));
    let now = Identity::at(&module.path);
    if module.file.was_overwritten(now) || (now == module.file && now.inode != 0 && !is_own) {
        return None;
    }
    let mut file = source(module)?;
    let found = Identity::new(&file.metadata().ok()?);
    if found.size > largest() {
        return None;
    }
    let name = format!("module-{:x}-{:x}-{:x}.elf", found.inode, found.size, found.modified.0);
    let to = Path::new(directory).join(&name);
    if !to.exists() {
        // Others may be about to make the same copy: it appears as a whole.
        // SAFETY: getpid has no preconditions.
        let own = to.with_extension(format!("{}", unsafe { libc::getpid() }));
        let made = fill(&own, &mut file, found.size).and_then(|()| std::fs::rename(&own, &to));
        if made.is_err() {
            let _ = std::fs::remove_file(&own);
            return None;
        }
    }
    Some(name)
}

/// Keeps the map of generated code that the process writes for perf, by the name that it has there. What is
/// not yet written of it follows, unless it can only be copied.
pub fn keep_perf_map(directory: &OsStr, pid: u32, image: u64) {
    let map = PathBuf::from(format!("/tmp/perf-{pid}.map"));
    let to = Path::new(directory).join(format!("perf-{pid}-{image}.map"));
    let size = std::fs::metadata(&map).map_or(0, |m| m.len());
    if size > 0 && std::fs::hard_link(&map, &to).is_err() && size <= largest() {
        let _ = File::open(&map).and_then(|mut file| fill(&to, &mut file, size));
    }
}

/// The file that is mapped.
fn source(module: &Module) -> Option<File> {
    let is_it = |file: &File| {
        let found = file.metadata().map(|m| Identity::new(&m));
        found.is_ok_and(|f| module.file.inode == 0 || f == module.file)
    };
    let open = |path: &Path| File::open(path).ok().filter(is_it);
    let executable = || (module.path == executable_path()).then(|| open("/proc/self/exe".as_ref()));
    let mapped = || {
        let m = maps::at(module.start)?;
        open(format!("/proc/self/map_files/{:x}-{:x}", m.start, m.end).as_ref())
    };
    let own = || if module.file.inode == 0 { None } else { open(&path_of(&module.path)) };
    executable().flatten().or_else(mapped).or_else(own)
}

/// The largest file that is copied: the process's own limit counts, beyond which the kernel ends it.
fn largest() -> u64 {
    system::limit(libc::RLIMIT_FSIZE, None).map_or(0, |limit| limit.rlim_cur.min(LARGEST))
}

fn fill(path: &Path, from: &mut File, size: u64) -> io::Result<()> {
    let mut to = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    match io::copy(&mut from.take(size), &mut to)? {
        n if n == size => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn path_of(text: &str) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes_of(text)))
}
