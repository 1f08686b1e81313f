//! The replacement for rayon-core: the sources of work-stealing-rt, which this binary contains.
//!
//! Lists the crates in the order of their compilation, and writes the sources to the user's cache. Invariant:
//! a folder whose name is a fingerprint is complete and has exactly that content.

use hpcrun_rs::{Failure, cache};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

include!(concat!(env!("OUT_DIR"), "/replacement_files.rs"));

/// A symbol that the replacement crate defines: a program that has it links the replacement.
pub(crate) const MARKER: &str = "work_stealing_rt_rayon_core";

/// The versions of rayon-core whose interface the replacement crate has: (major, minor).
pub(crate) const SERVED: [(u64, u64); 2] = [(1, 12), (1, 13)];

/// The oldest compiler that compiles the replacement crate is Rust 1.MINOR.
pub(crate) const OLDEST_RUST_MINOR: u64 = 85;

/// One of the crates that are compiled.
#[derive(Debug)]
pub(crate) struct Crate {
    /// As the compiler names it.
    pub(crate) name: &'static str,
    /// Its root file in the folder of sources.
    pub(crate) root: &'static str,
    /// Features that are on.
    pub(crate) features: &'static [&'static str],
    /// The crates of this list that it uses; others come from rayon-core's own dependencies.
    pub(crate) uses: &'static [&'static str],
}

/// The edition of all these crates.
pub(crate) const EDITION: &str = "2024";

/// The crates that rayon-core's own dependencies provide.
pub(crate) const FROM_RAYON_CORE: [&str; 2] = ["crossbeam_deque", "crossbeam_utils"];

/// The crates that the replacement crate needs, each after those that it uses.
pub(crate) const BELOW: [Crate; 2] = [
    Crate {
        name: "hpcrun_abi",
        root: "hpcrun-abi/src/lib.rs",
        features: &[],
        uses: &[],
    },
    Crate {
        name: "work_stealing_rt",
        root: "work-stealing-rt/src/lib.rs",
        features: &["default", "context"],
        uses: &["hpcrun_abi"],
    },
];

/// The crate that takes rayon-core's place.
pub(crate) const TOP: Crate = Crate {
    name: "rayon_core",
    root: "work-stealing-rt/rayon-core/src/lib.rs",
    features: &[],
    uses: &["work_stealing_rt"],
};

/// A fingerprint of the content: sixteen hexadecimal digits.
pub(crate) fn fingerprint() -> String {
    let bytes = FILES
        .iter()
        .flat_map(|(name, content)| name.bytes().chain([0]).chain(content.iter().copied()));
    format!("{:016x}", cache::fingerprint(bytes))
}

/// Writes the sources unless they are there, and returns their folder.
pub(crate) fn install() -> Result<PathBuf, Failure> {
    let name = format!("rayon-core-{}", fingerprint());
    cache::install("the runtime's sources", |folder| install_in(folder, &name))
}

fn install_in(folder: &Path, name: &str) -> Result<PathBuf, String> {
    cache::make(folder)?;
    let path = folder.join(name);
    if is_whole(&path) {
        return Ok(path);
    }
    // Written under a name of this process, then renamed: no other process sees a partial folder.
    let partial = folder.join(format!("{name}.{}", std::process::id()));
    let written = write(&partial).and_then(|()| {
        if path.exists() {
            let old = folder.join(format!("{name}.{}.old", std::process::id()));
            fs::rename(&path, &old)?;
            fs::remove_dir_all(&old)?;
        }
        fs::rename(&partial, &path)
    });
    if let Err(error) = written {
        // The partial folder may not exist; the error that matters is the first.
        let _ = fs::remove_dir_all(&partial);
        // Another process may have been faster.
        if !is_whole(&path) {
            return Err(error.to_string());
        }
    }
    Ok(path)
}

fn is_whole(folder: &Path) -> bool {
    let same = |(name, content): &(&str, &[u8])| {
        fs::read(folder.join(name)).is_ok_and(|found| found == *content)
    };
    FILES.iter().all(same)
}

fn write(folder: &Path) -> io::Result<()> {
    for (name, content) in &FILES {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(&path, content)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The dependencies that a manifest of the repository names, without those for loom, tests and systems
    /// other than Linux.
    fn dependencies(manifest: &str) -> BTreeSet<String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../work-stealing-rt")
            .join(manifest);
        let text = fs::read_to_string(&path).expect("the runtime's manifest is there");
        let mut names = BTreeSet::new();
        let mut is_ours = false;
        for line in text.lines() {
            if line.starts_with('[') {
                is_ours = line == "[dependencies]";
            } else if let Some(name) = line.split(['.', ' ', '=']).next().filter(|_| is_ours) {
                if !name.is_empty() && !name.starts_with('#') {
                    names.insert(name.replace('-', "_"));
                }
            }
        }
        names
    }

    #[test]
    fn the_crates_are_those_that_the_manifests_name() {
        let expected = |c: &Crate, more: &[&str]| -> BTreeSet<String> {
            c.uses.iter().chain(more).map(|n| (*n).to_owned()).collect()
        };
        let runtime = &BELOW[1];
        assert_eq!(
            dependencies("Cargo.toml"),
            expected(runtime, &FROM_RAYON_CORE)
        );
        assert_eq!(dependencies("abi/Cargo.toml"), BTreeSet::new());
        assert_eq!(
            dependencies("rayon-core/Cargo.toml"),
            expected(&TOP, &[]),
            "a dependency that the replacement lacks"
        );
    }

    #[test]
    fn every_root_is_carried_and_every_use_is_compiled_before() {
        let mut before = Vec::new();
        for c in BELOW.iter().chain([&TOP]) {
            assert!(FILES.iter().any(|(name, _)| *name == c.root), "{}", c.root);
            for used in c.uses {
                assert!(before.contains(used), "{} uses {used}", c.name);
            }
            before.push(c.name);
        }
    }

    #[test]
    fn a_damaged_copy_is_replaced() {
        let folder = std::env::temp_dir().join(format!("cargo-hpcrun-{}", std::process::id()));
        let path = install_in(&folder, "x").expect("it is written");
        assert!(is_whole(&path));
        fs::write(path.join(TOP.root), "").expect("the copy is ours");
        assert!(!is_whole(&path));
        assert_eq!(install_in(&folder, "x"), Ok(path.clone()));
        assert!(is_whole(&path));
        let left = fs::read_dir(&folder).expect("it is there").count();
        fs::remove_dir_all(&folder).expect("it is ours");
        assert_eq!(left, 1, "nothing partial is left");
    }
}
