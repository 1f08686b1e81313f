//! `cargo xtask rayon-tests`: rayon's own tests on this repository's `rayon-core`.
//!
//! One duty: take rayon and rayon-core as crates.io has them, put our `rayon-core` in the place of
//! theirs, and run the tests that they carry: all of rayon's (unit, integration, doc), and those
//! of rayon-core that reach public items only. Nothing of theirs is kept in the repository; the
//! copies live under `target/`.
//!
//! rayon-core's unit tests say `crate::`. They are compiled unchanged as modules of a crate whose
//! root is our public interface and two lines that stand for private helpers ([`HARNESS`]).

use crate::build::{copy, entries, read, run as run_command, workspace, write};
use crate::rayon_core;
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The versions whose tests are run: (rayon, rayon-core), newest first.
const VERSIONS: [(&str, &str); 2] = [("1.12.0", "1.13.0"), ("1.10.0", "1.12.1")];

/// The files of rayon-core's unit tests, and the modules that they become.
const UNIT_TESTS: [(&str, &str); 6] = [
    ("src/broadcast/test.rs", "broadcast_tests"),
    ("src/join/test.rs", "join_tests"),
    ("src/scope/test.rs", "scope_tests"),
    ("src/spawn/test.rs", "spawn_tests"),
    ("src/thread_pool/test.rs", "thread_pool_tests"),
    ("src/test.rs", "tests"),
];

/// Tests of rayon-core that reach its private parts, and why each cannot apply to another
/// implementation. They are cut out; everything else is compiled as it is.
const PRIVATE: [(&str, &str); 2] = [
    ("workers_stop", "asks rayon-core's Registry whether the threads have stopped"),
    ("sleeper_stop", "asks rayon-core's Registry whether the threads have stopped"),
];

/// What the unit tests find at `crate::` beside the public interface.
const HARNESS: &str = "\
//! rayon-core's unit tests on another implementation.
#![allow(unused_imports, dead_code, deprecated)]
pub use rayon_core::*;
/// In rayon-core a private wrapper of the standard library's function.
pub mod unwind {
    pub fn halt_unwinding<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(f))
    }
}
/// In rayon-core a private module.
pub mod join {
    pub use rayon_core::{join, join_context};
}
/// In rayon-core the private way into the global pool; publicly, `scope` leads there.
pub mod registry {
    pub fn in_worker<R: Send>(op: impl FnOnce((), bool) -> R + Send) -> R {
        rayon_core::scope(|_| op((), false))
    }
}
";

#[derive(Args)]
pub(crate) struct Options {
    /// Only the versions of the newest line
    #[arg(long)]
    pub(crate) newest: bool,
    /// Leave out the doc tests, which take the longest
    #[arg(long)]
    pub(crate) no_doc: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let work = workspace().join("target/rayon-tests");
    let versions = if options.newest { &VERSIONS[..1] } else { &VERSIONS[..] };
    let mut failed = Vec::new();
    for (rayon, core) in versions {
        let place = work.join(format!("rayon-{rayon}"));
        let sources = fetch(&work, rayon, core)?;
        let patch = place.join("patch");
        rayon_core::copy_as(core, &patch)?;
        let copy = place.join("rayon");
        prepare(&sources.rayon, &copy, &patch)?;
        println!("\n== rayon {rayon} on rayon-core {core} of this repository");
        failed.extend(test(&copy, &work, options).err());
        let copy = place.join("core");
        core_tests(&sources.core, &copy, &patch)?;
        println!("\n== rayon-core {core}: its public-API tests");
        for (name, reason) in PRIVATE {
            println!("left out: {name}: {reason}");
        }
        println!("left out: the unit tests inside src/latch.rs, src/sleep/: of private types");
        failed.extend(test(&copy, &work, options).err());
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// Where cargo keeps the two packages.
struct Sources {
    rayon: PathBuf,
    core: PathBuf,
}

/// Lets cargo download the two packages, with checksums and in its own cache.
fn fetch(work: &Path, rayon: &str, core: &str) -> Result<Sources, String> {
    let place = work.join(format!("fetch-{rayon}"));
    write(&place.join("src/lib.rs"), "//! Nothing.\n")?;
    let manifest = format!(
        "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n\
         [workspace]\n\n[dependencies]\nrayon = \"={rayon}\"\nrayon-core = \"={core}\"\n"
    );
    write(&place.join("Cargo.toml"), &manifest)?;
    run_command(cargo(&place, work).arg("fetch"))?;
    // The folder of every registry that cargo knows has the packages under these names.
    let registries = entries(&rayon_core::registries()?)?;
    let find = |package: String| {
        let mut places = registries.iter().map(|registry| registry.join(&package));
        let found = places.find(|path| path.join("Cargo.toml").is_file());
        found.ok_or_else(|| format!("cargo fetched {package}, but it is not in {registries:?}"))
    };
    Ok(Sources { rayon: find(format!("rayon-{rayon}"))?, core: find(format!("rayon-core-{core}"))? })
}

/// A copy of rayon that links our rayon-core.
fn prepare(package: &Path, place: &Path, patch: &Path) -> Result<(), String> {
    copy(package, place)?;
    let _ = fs::remove_file(place.join("Cargo.lock"));
    let manifest = place.join("Cargo.toml");
    let text = read(&manifest)?;
    let table = rayon_core::patch_table(patch);
    write(&manifest, format!("{text}\n[workspace]\n{table}"))
}

/// A crate with rayon-core's public-API tests.
fn core_tests(package: &Path, place: &Path, patch: &Path) -> Result<(), String> {
    copy(&package.join("tests"), &place.join("tests"))?;
    copy(&package.join("src/compile_fail"), &place.join("src/compile_fail"))?;
    let mut root = HARNESS.to_owned();
    root.push_str("mod compile_fail;\n");
    for (file, module) in UNIT_TESTS {
        let text = without_private(&read(&package.join(file))?)?;
        // Their `super::` is the module that they test; ours re-exports the same names.
        write(&place.join(format!("src/{module}/test.rs")), &text)?;
        write(
            &place.join(format!("src/{module}/mod.rs")),
            "//! The module that the tests call `super`.\npub use crate::*;\nmod test;\n",
        )?;
        root.push_str(&format!("#[cfg(test)]\nmod {module};\n"));
    }
    // The documentation's examples are rayon-core's own as well.
    for file in [
        "src/lib.rs",
        "src/join/mod.rs",
        "src/scope/mod.rs",
        "src/spawn/mod.rs",
        "src/thread_pool/mod.rs",
        "src/broadcast/mod.rs",
    ] {
        root.push_str(&examples(&read(&package.join(file))?, file));
    }
    write(&place.join("src/lib.rs"), &root)?;
    let theirs = read(&package.join("Cargo.toml"))?;
    // The tables of its development dependencies, for all targets and for some.
    let development: String = theirs
        .split("\n[")
        .filter(|table| table.lines().next().is_some_and(|l| l.contains("dev-dependencies")))
        .map(|table| format!("[{table}\n"))
        .collect();
    let manifest = format!(
        "[package]\nname = \"core-tests\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n[workspace]\n\n\
         [dependencies]\nrayon-core = {{ path = {patch:?} }}\n\n{development}\n\
         [dev-dependencies.crossbeam-utils]\nversion = \"0.8\"\n"
    );
    write(&place.join("Cargo.toml"), &manifest)
}

/// The text without the tests in [`PRIVATE`], each from its attribute to its closing brace.
fn without_private(text: &str) -> Result<String, String> {
    let mut text = text.to_owned();
    for (name, _) in PRIVATE {
        let Some(at) = text.find(&format!("fn {name}()")) else {
            continue;
        };
        let start = text[..at].rfind("#[test]").ok_or("a test without its attribute")?;
        let end = text[at..].find("\n}\n").ok_or("a test without an end")? + at + 3;
        text.replace_range(start..end, "");
    }
    Ok(text)
}

/// The documentation of a file, on items of our own, so that its examples are tested.
fn examples(text: &str, file: &str) -> String {
    let mut out = String::new();
    let mut count = 0;
    let mut block: Vec<&str> = Vec::new();
    for line in text.lines().chain([""]) {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        match doc {
            Some(doc) => block.push(doc),
            None if block.is_empty() => {}
            None => {
                if block.iter().any(|line| line.contains("```")) {
                    count += 1;
                    for line in &block {
                        out.push_str(&format!("///{line}\n"));
                    }
                    let name = file.replace(['/', '.'], "_").to_uppercase();
                    out.push_str(&format!("pub const {name}_{count}: () = ();\n"));
                }
                block.clear();
            }
        }
    }
    out
}

/// Runs the tests of the package in `place`.
fn test(place: &Path, work: &Path, options: &Options) -> Result<(), String> {
    let mut command = cargo(place, work);
    command.arg("test");
    if options.no_doc {
        command.args(["--lib", "--tests"]);
    }
    run_command(&mut command).map_err(|e| format!("{}: {e}", place.display()))
}

fn cargo(place: &Path, work: &Path) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command
        .current_dir(place)
        .env("CARGO_TARGET_DIR", work.join("target"))
        // The tests themselves take four times as long to compile with optimisation, and nobody debugs them;
        // on a runtime without it some take minutes.
        .args(["--config", "profile.dev.debug = 0"])
        .args(["--config", "profile.dev.package.'*'.opt-level = 1"])
        // Lints of another project's code are not ours to judge.
        .env("RUSTFLAGS", "--cap-lints=warn -Awarnings")
        .env("RUSTDOCFLAGS", "-Awarnings");
    command
}
