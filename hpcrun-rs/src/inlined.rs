//! With `--critical-path`: the table of inlined procedures of the program and the libraries that it is linked
//! with. It is made once for the same files, and kept with the analyser's structures in the user's cache.

use crate::cache;
use hpc_formats::inlined::Builder;
use nix::fcntl::{Flock, FlockArg};
use object::{Object, ObjectSection, ReadCache};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The path of the table, if there is one, and what it lacks. `directory`: where it lies if it is not kept.
pub(crate) fn table(program: &Path, directory: &Path) -> (Option<PathBuf>, Vec<String>) {
    let interpreter = fs::canonicalize(program).ok().and_then(|program| {
        let interpreter = interpreter(&program)?;
        Some((interpreter, program))
    });
    let Some((interpreter, program)) = interpreter else {
        // A script: nothing is known of what it starts.
        return (None, Vec::new());
    };
    let mut modules = libraries(&interpreter, &program);
    modules.push(program);
    let name = format!("{:016x}.inlined", key(&modules));
    let cache = hpcstruct_rs::cache::Cache::of_user();
    let kept = cache.as_ref().map(|cache| cache.folder().join(&name));
    let known = || kept.clone().filter(|kept| kept.exists());
    if let Some(kept) = known() {
        return (Some(kept), Vec::new());
    }
    // The ranks of a job start at the same time: one makes it, the others wait for it.
    let _lock = kept.as_deref().and_then(lock);
    if let Some(kept) = known() {
        return (Some(kept), Vec::new());
    }
    let mut builder = Builder::default();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut lacks = Vec::new();
    for module in &modules {
        if let Err(error) = hpcstruct_rs::inlined::add(&mut builder, module, threads) {
            lacks.push(format!("{LACK}: {error}"));
        }
    }
    let table = builder.finish();
    let own = directory.join(&name);
    let places = [kept.filter(|_| lacks.is_empty()), Some(own)];
    let mut places = places.into_iter().flatten();
    let place = places.find(|place| cache::put(place, &table).is_ok());
    if place.is_none() {
        lacks.push(format!("{LACK}: there is no place for the table"));
    }
    (place, lacks)
}

/// The lock of whoever makes a table in this table's folder.
fn lock(table: &Path) -> Option<Flock<fs::File>> {
    let folder = table.parent()?;
    cache::make(folder).ok()?;
    let file = fs::File::create(folder.join("inlined.lock")).ok()?;
    Flock::lock(file, FlockArg::LockExclusive).ok()
}

const LACK: &str = "the span without an inlined procedure will not be known";

/// The dynamic linker that the program names.
fn interpreter(program: &Path) -> Option<PathBuf> {
    let bytes = ReadCache::new(fs::File::open(program).ok()?);
    let file = object::File::parse(&bytes).ok()?;
    let path = file.section_by_name(".interp")?.data().ok()?;
    let path = path.split(|b| *b == 0).next()?;
    Some(Path::new(OsStr::from_bytes(path)).to_owned())
}

/// The libraries that the dynamic linker finds for the program, which does not run.
fn libraries(interpreter: &Path, program: &Path) -> Vec<PathBuf> {
    let mut list = Command::new(interpreter);
    list.arg("--list").arg(program).stdin(Stdio::null());
    let Ok(listed) = list.output() else {
        return Vec::new();
    };
    // NAME => PATH (ADDRESS), or PATH (ADDRESS).
    let path = |line: &[u8]| {
        let line = String::from_utf8_lossy(line).into_owned();
        let path = line.split(" => ").last()?.rsplit_once(" (")?.0.trim();
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    let lines = listed.stdout.split(|b| *b == b'\n');
    lines.filter_map(path).collect()
}

/// What the table depends on: the files, and this program.
fn key(modules: &[PathBuf]) -> u64 {
    let own = std::env::current_exe().ok();
    let files = own.iter().chain(modules).flat_map(|file| {
        let stamp = fs::metadata(file).map_or([0; 4], |m| {
            let size = m.len() as i64;
            [size, m.mtime(), m.mtime_nsec(), m.ino() as i64]
        });
        let stamp = stamp.into_iter().flat_map(i64::to_le_bytes);
        file.as_os_str().as_bytes().iter().copied().chain(stamp)
    });
    cache::fingerprint(files)
}
