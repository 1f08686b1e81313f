//! The user's cache: the binaries write the files that they contain there.
//!
//! Invariant: a folder is used only if it belongs to the user, since its content is executed.

use crate::failure::Failure;
use crate::text;
use nix::unistd::getuid;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The cache folder, then the fallbacks. Root's programs may become other users, who must be able to read
/// what is preloaded into them.
fn folders() -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let mut all = Vec::new();
    all.extend(variable("XDG_CACHE_HOME").map(|c| c.join("hpcrun-rs")));
    all.extend(getuid().is_root().then(|| PathBuf::from("/var/cache/hpcrun-rs")));
    all.extend(variable("HOME").map(|h| h.join(".cache/hpcrun-rs")));
    all.push(std::env::temp_dir().join(format!("hpcrun-rs-{}", getuid())));
    all
}

/// Tries `put` with each of the folders until it succeeds. `what` names the content in the error message.
pub fn install(what: &str, put: impl Fn(&Path) -> Result<PathBuf, String>) -> Result<PathBuf, Failure> {
    let mut reasons = Vec::new();
    for folder in folders() {
        match put(&folder) {
            Ok(path) => return Ok(path),
            Err(reason) => reasons.push(format!("{}: {reason}", text::shown(&folder))),
        }
    }
    Err(Failure::own(format!(
        "no place for {what} ({}); set XDG_CACHE_HOME to a folder that you can write",
        reasons.join("; ")
    )))
}

/// Creates a folder that other users cannot write to, unless it exists. Refuses another user's folder, and a
/// relative path, as the program may change its directory.
pub fn make(folder: &Path) -> Result<(), String> {
    if !folder.is_absolute() {
        return Err("not an absolute path".to_owned());
    }
    fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(|e| e.to_string())?;
    let owner = fs::symlink_metadata(folder).map_err(|e| e.to_string())?;
    if !owner.is_dir() || owner.uid() != getuid().as_raw() {
        return Err("belongs to another user".to_owned());
    }
    Ok(())
}

/// Writes a file, under another name first: nobody sees a part of it.
pub fn put(file: &Path, content: &[u8]) -> Result<(), String> {
    make(file.parent().unwrap_or(file))?;
    let partial = file.with_extension(std::process::id().to_string());
    let written = fs::File::create(&partial)
        .and_then(|mut out| out.write_all(content).and_then(|()| out.sync_all()))
        .and_then(|()| fs::rename(&partial, file));
    written.map_err(|error| {
        // It may not exist; the error that matters is the first.
        let _ = fs::remove_file(&partial);
        error.to_string()
    })
}

/// FNV-1a, for file names only; it is no proof of the content.
pub fn fingerprint(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}
