//! Our rayon-core in the place of the published one.

use crate::build::{copy, describe, read, workspace, write};
use std::path::{Path, PathBuf};

fn ours() -> PathBuf {
    workspace().join("work-stealing-rt/rayon-core")
}

/// What puts a rayon-core into a manifest.
pub(crate) fn patch_table(path: &Path) -> String {
    format!("\n[patch.crates-io]\nrayon-core = {{ path = {path:?} }}\n")
}

/// The same for ours.
pub(crate) fn our_patch_table() -> String {
    patch_table(&ours())
}

/// A copy of ours in a folder, which says that it is `version`.
pub(crate) fn copy_as(version: &str, folder: &Path) -> Result<(), String> {
    copy(&ours(), folder)?;
    let manifest = folder.join("Cargo.toml");
    let runtime = workspace().join("work-stealing-rt");
    let text = read(&manifest)?
        .replace("version = \"1.13.0\"", &format!("version = \"{version}\""))
        .replace("path = \"..\"", &format!("path = {runtime:?}"));
    write(&manifest, text)
}

/// An error unless a program is linked with ours, or with the published one, as wanted.
pub(crate) fn check(program: &Path, is_ours: bool) -> Result<(), String> {
    let bytes = std::fs::read(program).map_err(|e| describe(program, &e))?;
    let marker: &[u8] = b"work_stealing_rt_rayon_core";
    let marked = bytes.windows(marker.len()).any(|window| window == marker);
    match marked == is_ours {
        true => Ok(()),
        false => Err(format!("{}: linked with the wrong rayon-core", program.display())),
    }
}

/// Where cargo keeps the sources that it has downloaded.
pub(crate) fn registries() -> Result<PathBuf, String> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let home = home.ok_or("neither CARGO_HOME nor HOME is set")?;
    Ok(home.join("registry/src"))
}
