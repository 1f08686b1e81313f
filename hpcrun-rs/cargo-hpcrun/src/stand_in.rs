//! The stand-in for rayon-core: our runtime's sources, which this binary carries, its crates in the
//! order in which they are compiled, and where they are written to in the user's cache.
//!
//! Invariant: a folder under a name that states its content is complete, and holds exactly that.

use hpcrun_rs::{Failure, cache};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

include!(concat!(env!("OUT_DIR"), "/stand_in_files.rs"));

/// The symbol by which a linked program tells that the stand-in is in it.
pub(crate) const MARKER: &str = "work_stealing_rt_rayon_core";

/// The lines of rayon-core whose interface the stand-in has: (major, minor).
pub(crate) const SERVED: [(u64, u64); 2] = [(1, 12), (1, 13)];

/// Rust 1.MINOR is the oldest that compiles the stand-in.
pub(crate) const OLDEST_RUST_MINOR: u64 = 85;

/// One crate of the stand-in.
#[derive(Debug)]
pub(crate) struct Crate {
    /// As the compiler names it.
    pub(crate) name: &'static str,
    /// Its root file in the stand-in's folder.
    pub(crate) root: &'static str,
    /// Features that are on.
    pub(crate) features: &'static [&'static str],
    /// Those of the stand-in's crates that it uses; further ones come from rayon-core's own
    /// dependencies.
    pub(crate) uses: &'static [&'static str],
}

/// All crates of the stand-in use this edition.
pub(crate) const EDITION: &str = "2024";

/// What rayon-core's own dependencies provide.
pub(crate) const FROM_RAYON_CORE: [&str; 2] = ["crossbeam_deque", "crossbeam_utils"];

/// The crates below the stand-in itself, each after those that it uses.
pub(crate) const BELOW: [Crate; 4] = [
    Crate {
        name: "hpcrun_abi",
        root: "hpcrun-abi/src/lib.rs",
        features: &[],
        uses: &[],
    },
    Crate {
        name: "libc",
        root: "shims/libc.rs",
        features: &[],
        uses: &[],
    },
    Crate {
        name: "atomic_wait",
        root: "shims/atomic_wait.rs",
        features: &[],
        uses: &[],
    },
    Crate {
        name: "work_stealing_rt",
        root: "work-stealing-rt/src/lib.rs",
        features: &["default", "context"],
        uses: &["hpcrun_abi", "libc", "atomic_wait"],
    },
];

/// The crate that takes rayon-core's place.
pub(crate) const TOP: Crate = Crate {
    name: "rayon_core",
    root: "work-stealing-rt/rayon-core/src/lib.rs",
    features: &[],
    uses: &["work_stealing_rt"],
};

/// States the content: sixteen hexadecimal digits.
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
    // Names of our own first, then renamed: nobody else sees half of it.
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
        // Another of us may have been faster.
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

    /// The dependencies that a manifest of the repository names, those for loom and tests aside.
    fn dependencies(manifest: &str) -> BTreeSet<String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../work-stealing-rt")
            .join(manifest);
        let text = fs::read_to_string(&path).expect("the runtime's manifest is there");
        let mut names = BTreeSet::new();
        let mut is_ours = false;
        for line in text.lines() {
            if line.starts_with('[') {
                is_ours = line == "[dependencies]" || line.contains("\"linux\")'.dependencies");
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
        let runtime = &BELOW[3];
        assert_eq!(
            dependencies("Cargo.toml"),
            expected(runtime, &FROM_RAYON_CORE)
        );
        assert_eq!(dependencies("abi/Cargo.toml"), BTreeSet::new());
        assert_eq!(
            dependencies("rayon-core/Cargo.toml"),
            expected(&TOP, &[]),
            "a dependency that the stand-in lacks"
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
