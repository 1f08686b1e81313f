//! The source tree as the repository's own checks read it: files under version control or about to
//! be, manifests, and `use` paths.

use crate::tools::{check, workspace};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every file that is not ignored, relative to the root.
pub fn files() -> Vec<PathBuf> {
    let listing = check(Command::new("git").current_dir(workspace()).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
    ]));
    let files: Vec<PathBuf> =
        listing.lines().map(PathBuf::from).filter(|path| workspace().join(path).is_file()).collect();
    assert!(files.len() > 20, "the repository has files");
    files
}

/// Those files with one of these extensions.
pub fn files_with(extensions: &[&str]) -> Vec<PathBuf> {
    let wanted = |path: &PathBuf| {
        let extension = path.extension().and_then(|e| e.to_str());
        extension.is_some_and(|e| extensions.contains(&e))
    };
    files().into_iter().filter(wanted).collect()
}

/// A file's text, invalid UTF-8 replaced.
pub fn read(path: &Path) -> String {
    let bytes = std::fs::read(workspace().join(path));
    let bytes = bytes.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `cargo metadata` of the workspace, dependencies included.
pub fn metadata() -> serde_json::Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let text = check(Command::new(cargo).current_dir(workspace()).args([
        "metadata",
        "--format-version",
        "1",
        "--all-features",
    ]));
    serde_json::from_str(&text).expect("cargo metadata prints JSON")
}
