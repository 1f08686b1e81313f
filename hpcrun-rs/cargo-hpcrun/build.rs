//! Lists the sources of the replacements for published crates, so that the binary contains them and an
//! installed `cargo-hpcrun` is complete.
//!
//! Output: `replacement_files.rs`, an array of (path in the replacement, bytes), sorted by path.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of Rust sources, relative to this package, and their names in the replacement.
const SOURCES: [(&str, &str); 6] = [
    ("../../work-stealing-rt/abi/src", "hpcrun-abi/src"),
    ("../api/src", "hpcrun-api/src"),
    ("../crossbeam-channel/src", "crossbeam-channel/src"),
    ("../tokio", "tokio"),
    ("../../work-stealing-rt/src", "work-stealing-rt/src"),
    ("../../work-stealing-rt/rayon-core/src", "work-stealing-rt/rayon-core/src"),
];

fn main() {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for (from, to) in SOURCES {
        let folder = here.join(from);
        println!("cargo::rerun-if-changed={}", folder.display());
        collect(&folder, to, &mut files);
    }
    files.sort();
    let mut text = format!("[(&str, &[u8]); {}] = [\n", files.len());
    for (name, path) in &files {
        writeln!(text, "    ({name:?}, include_bytes!({path:?})),").expect("a String grows");
    }
    text.push_str("];\n");
    let text = format!("pub(crate) static FILES: {text}");
    let out = PathBuf::from(variable("OUT_DIR")).join("replacement_files.rs");
    fs::write(&out, text).unwrap_or_else(|e| panic!("{}: {e}", out.display()));
}

/// Adds the Rust files below `folder` under the name `to`.
fn collect(folder: &Path, to: &str, files: &mut Vec<(String, PathBuf)>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.unwrap_or_else(|e| panic!("{}: {e}", folder.display())).path();
        let name = path.file_name().and_then(|n| n.to_str());
        let name = name.unwrap_or_else(|| panic!("{}: not UTF-8", path.display()));
        let to = format!("{to}/{name}");
        if path.is_dir() {
            collect(&path, &to, files);
        } else if name.ends_with(".rs") {
            files.push((to, path));
        }
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo did not set {name}"))
}
