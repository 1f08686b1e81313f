//! The replacements for published crates: sources that this binary contains.
//!
//! Lists the crates in the order of their compilation, and writes the sources to the user's cache, in a
//! folder whose name is a fingerprint of them.

use hpcrun_rs::{Failure, cache};
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

include!(concat!(env!("OUT_DIR"), "/replacement_files.rs"));

/// A published package, and what is compiled in its place.
#[derive(Debug)]
pub(crate) struct Replacement {
    /// The package's name.
    pub(crate) package: &'static str,
    /// The versions whose interface the replacement has: major, minors, least patch.
    pub(crate) served: (u64, RangeInclusive<u64>, u64),
    /// Which these are, and how to get one.
    pub(crate) advice: &'static str,
    /// What a program lacks without the replacement.
    pub(crate) lack: &'static str,
    /// That is an error, unless the user wants it so.
    pub(crate) is_required: bool,
    /// The crates that the replacement needs, each after those that it uses.
    pub(crate) below: &'static [Crate],
    /// The crate that takes the package's place.
    pub(crate) top: Crate,
    /// What the replacement is told (`--cfg`) if the version is older than this patch.
    pub(crate) before_patch: Option<(u64, &'static str)>,
    /// The crate that takes the package's place is the package's own, with this change.
    pub(crate) change: Option<Change>,
    /// Part of the names of symbols that the package has, published or not.
    pub(crate) published: &'static str,
    /// What the replacement defines or contains: part of the names of symbols.
    pub(crate) marker: &'static str,
}

type Names = &'static [&'static str];

/// One of the crates that are compiled.
#[derive(Debug)]
pub(crate) struct Crate {
    /// As the compiler names it.
    pub(crate) name: &'static str,
    /// Its root file in the folder of sources; empty: the replaced package's own, as it is.
    pub(crate) root: &'static str,
    /// Features that are on, if it has a root file.
    pub(crate) features: Names,
    /// The crates listed before it that it uses.
    pub(crate) uses: Names,
    /// The crates that it uses of those that the replaced package depends on.
    pub(crate) given: Names,
}

/// A change to one file of a published package. Without all of the texts in it, the package stays as it is.
#[derive(Debug)]
pub(crate) struct Change {
    /// The file, beside the package's root file.
    pub(crate) file: &'static str,
    /// Texts in it, and those that take their places.
    pub(crate) texts: &'static [(&'static str, &'static str)],
    /// A module that is added to the file: its name, and its file in the folder of sources.
    pub(crate) module: (&'static str, &'static str),
}

impl Change {
    /// The file with the change; `folder`: of the sources.
    pub(crate) fn apply(&self, text: &str, folder: &Path) -> Option<String> {
        let mut changed = text.to_owned();
        for (old, new) in self.texts {
            let at = changed.rfind(old)?;
            changed.replace_range(at..at + old.len(), new);
        }
        let (name, file) = self.module;
        let path = folder.join(file);
        changed += &format!("\n#[path = {:?}]\npub(crate) mod {name};\n", path.to_str()?);
        Some(changed)
    }
}

/// The edition of all crates with a root file.
pub(crate) const EDITION: &str = "2024";

/// The oldest compiler that compiles the replacements is Rust 1.MINOR.
pub(crate) const OLDEST_RUST_MINOR: u64 = 85;

impl Crate {
    /// One of the hpcrun-rs workspace.
    const fn own(name: &'static str, root: &'static str, uses: Names, given: Names) -> Crate {
        Crate { name, root, features: &[], uses, given }
    }
}

const ABI: Crate = Crate::own("hpcrun_abi", "hpcrun-abi/src/lib.rs", &[], &[]);
const API: Crate = Crate::own("hpcrun_api", "hpcrun-api/src/lib.rs", &["hpcrun_abi"], &[]);
const RUNTIME: Crate = Crate {
    features: &["default", "context"],
    ..Crate::own(
        "work_stealing_rt",
        "work-stealing-rt/src/lib.rs",
        &["hpcrun_abi"],
        &["crossbeam_deque", "crossbeam_utils"],
    )
};

/// rayon-core, on top of work-stealing-rt.
pub(crate) const RAYON: Replacement = Replacement {
    package: "rayon-core",
    served: (1, 12..=13, 0),
    advice: "1.12 and 1.13 are served: `cargo update -p rayon-core --precise 1.13.0`",
    lack: "stolen tasks would lie under workers",
    is_required: true,
    below: &[ABI, RUNTIME],
    top: Crate::own("rayon_core", "work-stealing-rt/rayon-core/src/lib.rs", &["work_stealing_rt"], &[]),
    before_patch: None,
    change: None,
    published: "rayon_core",
    marker: "work_stealing_rt_rayon_core",
};

/// crossbeam-channel, on top of the published crate under another name.
pub(crate) const CHANNEL: Replacement = Replacement {
    package: "crossbeam-channel",
    served: (0, 5..=5, 15),
    advice: "0.5.15 or a later 0.5 is served: `cargo update -p crossbeam-channel`",
    lack: "critical paths do not go through its channels",
    is_required: false,
    below: &[ABI, API, Crate::own("published_crossbeam_channel", "", &[], &["crossbeam_utils"])],
    top: Crate::own(
        "crossbeam_channel",
        "crossbeam-channel/src/lib.rs",
        &["hpcrun_api", "published_crossbeam_channel"],
        &[],
    ),
    before_patch: Some((16, "never_is_not_const")),
    change: None,
    published: "crossbeam_channel",
    marker: "published_crossbeam_channel",
};

/// tokio, whose tasks say who has spawned them.
pub(crate) const TOKIO: Replacement = Replacement {
    package: "tokio",
    served: (1, 43..=54, 0),
    advice: "1.43 to 1.54 are served: `cargo update -p tokio`",
    lack: "its tasks are not under who has spawned them",
    is_required: false,
    below: &[ABI, API],
    top: Crate::own("tokio", "", &["hpcrun_api"], &[]),
    before_patch: None,
    change: Some(Change {
        file: "util/trace.rs",
        texts: &[
            ("_id: u64) -> Fut {", "_id: u64) -> hpcrun::Task<Fut> {"),
            ("// nop\n            task\n", "hpcrun::blocking::<Fn, Fut>(task)\n"),
            ("_id: u64) -> F {", "_id: u64) -> hpcrun::Task<F> {"),
            ("// nop\n            task\n", "hpcrun::task(task)\n"),
        ],
        module: ("hpcrun", "tokio/task.rs"),
    }),
    published: "5tokio7runtime",
    marker: "hpcrun_api4idle",
};

/// All of them.
pub(crate) static ALL: [Replacement; 3] = [RAYON, CHANNEL, TOKIO];

/// A fingerprint of the content: sixteen hexadecimal digits.
pub(crate) fn fingerprint() -> String {
    let bytes =
        FILES.iter().flat_map(|(name, content)| name.bytes().chain([0]).chain(content.iter().copied()));
    format!("{:016x}", cache::fingerprint(bytes))
}

/// Writes the sources unless they are there, and returns their folder.
pub(crate) fn install() -> Result<PathBuf, Failure> {
    let name = format!("replacements-{}", fingerprint());
    cache::install("the replacements' sources", |folder| install_in(folder, &name))
}

fn install_in(folder: &Path, name: &str) -> Result<PathBuf, String> {
    let path = folder.join(name);
    for (file, content) in &FILES {
        let file = path.join(file);
        if !fs::read(&file).is_ok_and(|found| found == *content) {
            cache::put(&file, content)?;
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_tokio_gets_its_change_whole_or_not_at_all() {
        let text = "fn task<F>(task: F, _id: u64) -> F {\n            // nop\n            task\n        }\n\
                    fn blocking_task<Fn, Fut>(task: Fut, _id: u64) -> Fut {\n            // nop\n            \
                    task\n        }\n";
        let change = TOKIO.change.as_ref().expect("tokio is changed");
        let changed = change.apply(text, Path::new("/s")).expect("all is there");
        for part in [
            "fn task<F>(task: F, _id: u64) -> hpcrun::Task<F> {\n            hpcrun::task(task)\n",
            "-> hpcrun::Task<Fut> {\n            hpcrun::blocking::<Fn, Fut>(task)\n",
            "#[path = \"/s/tokio/task.rs\"]\npub(crate) mod hpcrun;",
        ] {
            assert!(changed.contains(part), "{part} in {changed}");
        }
        assert_eq!(change.apply(&text[..100], Path::new("/s")), None);
    }

    #[test]
    fn a_damaged_copy_is_replaced() {
        let folder = std::env::temp_dir().join(format!("cargo-hpcrun-{}", std::process::id()));
        let path = install_in(&folder, "x").expect("it is written");
        let damaged = path.join(RAYON.top.root);
        fs::write(&damaged, "").expect("the copy is ours");
        assert_eq!(install_in(&folder, "x"), Ok(path.clone()));
        for (name, content) in &FILES {
            assert_eq!(fs::read(path.join(name)).expect("it is there"), *content);
        }
        let beside = damaged.parent().expect("a folder").read_dir().expect("it is there");
        let is_source = |file: fs::DirEntry| file.path().extension().is_some_and(|e| e == "rs");
        assert!(beside.flatten().all(|file| file.path().is_dir() || is_source(file)));
        let left = fs::read_dir(&folder).expect("it is there").count();
        fs::remove_dir_all(&folder).expect("it is ours");
        assert_eq!(left, 1, "nothing partial is left");
    }
}
