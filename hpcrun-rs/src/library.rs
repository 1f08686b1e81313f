//! Writes the preloaded libraries, which this binary contains, to the user's cache, where the dynamic linker
//! finds them. A name has a fingerprint of the content.

use crate::cache;
use crate::failure::Failure;
use hpc_formats::preload::{LIBRARY_NAME, MPI_LIBRARY_NAME};
use std::fs;
use std::path::{Path, PathBuf};

/// Writes the library unless it is there, and returns its path.
pub(crate) fn install() -> Result<PathBuf, Failure> {
    let name = format!("{LIBRARY_NAME}-{}.so", env!("HPCRUN_PRELOAD_CONTENT"));
    let content = include_bytes!(env!("HPCRUN_PRELOAD"));
    cache::install("the preloaded library", |folder| install_in(folder, &name, content))
}

/// The same for the one that observes MPI.
pub(crate) fn install_mpi() -> Result<PathBuf, Failure> {
    let name = format!("{MPI_LIBRARY_NAME}-{}.so", env!("HPCRUN_MPI_CONTENT"));
    let content = include_bytes!(env!("HPCRUN_MPI"));
    cache::install("the preloaded library", |folder| install_in(folder, &name, content))
}

fn install_in(folder: &Path, name: &str, content: &[u8]) -> Result<PathBuf, String> {
    // LD_PRELOAD is a list separated by spaces and colons.
    let separator = |c: &u8| matches!(c, b' ' | b':');
    if folder.as_os_str().as_encoded_bytes().iter().any(separator) {
        return Err("has spaces or colons in its path".to_owned());
    }
    let path = folder.join(name);
    // The content need not be compared: only this function creates files of this name, in a folder that
    // belongs to the user, and it writes them whole.
    if fs::metadata(&path).is_ok_and(|found| found.len() == content.len() as u64) {
        return Ok(path);
    }
    cache::put(&path, content)?;
    Ok(path)
}
