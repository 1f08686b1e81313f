//! Builds the preloaded libraries, which the launcher contains, so that an installed `hpcrun-rs` is complete.
//!
//! A second cargo builds them, with its own profile and target folder, from the same workspace and lock file.
//! All profiles of the launcher, and clippy, share that folder, so a library is compiled once; each has a
//! copy.

use std::env;
use std::hash::{DefaultHasher, Hasher};
use std::path::PathBuf;
use std::process::Command;

fn main() {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));
    // OUT_DIR is TARGET/PROFILE/build/PACKAGE/out.
    let target = out.ancestors().nth(4).unwrap_or(&out).join("hpcrun-preload");
    for source in [
        "preload",
        "core",
        "critical-path",
        "mpi",
        "../formats",
        "../work-stealing-rt/abi",
        "../Cargo.lock",
        "build.rs",
    ] {
        println!("cargo::rerun-if-changed={}", here.join(source).display());
    }
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args(["build", "--profile", "preload", "--lib", "--manifest-path"])
        .arg(here.join("Cargo.toml"))
        .args(["-p", "hpcrun-preload", "-p", "hpcrun-mpi"])
        .arg("--target-dir")
        .arg(&target)
        // The outer cargo's settings for this package must not reach the inner one.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_BUILD_TARGET");
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("building the preloaded library failed: {status}"),
        Err(error) => panic!("cannot run cargo for the preloaded library: {error}"),
    }
    for (file, name) in [("libhpcrun_preload.so", "PRELOAD"), ("libhpcrun_mpi.so", "MPI")] {
        let built = target.join("preload").join(file);
        let content = std::fs::read(&built).unwrap_or_else(|e| panic!("{}: {e}", built.display()));
        let library = out.join(file);
        std::fs::write(&library, &content).unwrap_or_else(|e| panic!("{}: {e}", library.display()));
        println!("cargo::rustc-env=HPCRUN_{name}={}", library.display());
        let mut hasher = DefaultHasher::new();
        hasher.write(&content);
        println!("cargo::rustc-env=HPCRUN_{name}_CONTENT={:016x}", hasher.finish());
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo did not set {name}"))
}
