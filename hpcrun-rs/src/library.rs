//! Puts the preloaded library, which this binary carries, where the dynamic linker finds it: in
//! the user's cache, under a name that states its content.

use crate::failure::Failure;
use nix::unistd::{Uid, getuid};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The library's bytes.
const LIBRARY: &[u8] = include_bytes!(env!("HPCRUN_PRELOAD"));

/// Writes the library unless it is there, and returns its path.
pub(crate) fn install() -> Result<PathBuf, Failure> {
    let name = format!("libhpcrun_preload-{:016x}.so", fingerprint(LIBRARY));
    let mut reasons = Vec::new();
    for folder in candidates(getuid()) {
        match install_in(&folder, &name) {
            Ok(path) => return Ok(path),
            Err(reason) => reasons.push(format!("{}: {reason}", folder.display())),
        }
    }
    Err(Failure::own(format!(
        "no place for the preloaded library ({}); set XDG_CACHE_HOME to a folder that you can write",
        reasons.join("; ")
    )))
}

fn candidates(user: Uid) -> Vec<PathBuf> {
    let variable = |name| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let mut all = Vec::new();
    all.extend(variable("XDG_CACHE_HOME").map(|c| c.join("hpcrun-rs")));
    all.extend(variable("HOME").map(|h| h.join(".cache/hpcrun-rs")));
    all.push(std::env::temp_dir().join(format!("hpcrun-rs-{user}")));
    all
}

fn install_in(folder: &Path, name: &str) -> Result<PathBuf, String> {
    let text = |e: std::io::Error| e.to_string();
    // LD_PRELOAD is a list separated by spaces and colons.
    let separator = |c: &u8| matches!(c, b' ' | b':');
    if !folder.is_absolute() || folder.as_os_str().as_encoded_bytes().iter().any(separator) {
        return Err("not an absolute path without spaces and colons".to_owned());
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(text)?;
    let owner = fs::symlink_metadata(folder).map_err(text)?;
    if !owner.is_dir() || owner.uid() != getuid().as_raw() {
        return Err("belongs to another user".to_owned());
    }
    let path = folder.join(name);
    if fs::read(&path).is_ok_and(|found| found == LIBRARY) {
        return Ok(path);
    }
    // A name of our own first, then renamed: another launcher never sees half a library.
    let partial = folder.join(format!("{name}.{}", std::process::id()));
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o755)
        .open(&partial)
        .and_then(|mut file| file.write_all(LIBRARY))
        .and_then(|()| fs::rename(&partial, &path));
    if let Err(error) = written {
        // The partial file may not exist; the error that matters is the first.
        let _ = fs::remove_file(&partial);
        return Err(error.to_string());
    }
    Ok(path)
}

/// FNV-1a, for a name only; the content is compared byte by byte.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
    })
}
