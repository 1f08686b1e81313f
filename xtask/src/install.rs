//! Installs the four tools: one build for all of them, where `cargo install` would have one for each.

use crate::build::{self, target, workspace};
use clap::Args;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) const TOOLS: [&str; 4] = ["hpcrun-rs", "cargo-hpcrun", "hpcprof-rs", "hpcstruct-rs"];

#[derive(Args)]
pub(crate) struct Options {
    /// Install into DIR/bin (default: where `cargo install` does)
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let folder = root(options)?.join("bin");
    build::create(&folder)?;
    let built = built(&TOOLS)?;
    for tool in TOOLS {
        let to = folder.join(tool);
        let verb = if to.exists() { "replaced" } else { "installed" };
        put(&built.join(tool), &to).map_err(|e| format!("{}: {e}", to.display()))?;
        println!("{verb} {}", to.display());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    if !env::split_paths(&path).any(|entry| entry == folder) {
        println!("add {} to PATH to run them", folder.display());
    }
    Ok(())
}

/// Builds packages as users get them; returns the folder with their programs.
pub(crate) fn built(packages: &[&str]) -> Result<PathBuf, String> {
    let target = target()?;
    build::run(
        build::cargo()
            .current_dir(workspace())
            .env("CARGO_TARGET_DIR", &target)
            .args(["build", "--profile", "tools", "--locked"])
            .args(packages.iter().flat_map(|package| ["-p", package])),
    )?;
    Ok(target.join("tools"))
}

/// As cargo finds it, configuration files aside.
fn root(options: &Options) -> Result<PathBuf, String> {
    let variable = |name| env::var_os(name).map(PathBuf::from);
    let root = options.root.clone();
    root.or_else(|| variable("CARGO_INSTALL_ROOT"))
        .or_else(|| variable("CARGO_HOME"))
        .or_else(|| variable("HOME").map(|home| home.join(".cargo")))
        .ok_or_else(|| "HOME is not set: say where to with --root DIR".to_owned())
}

/// Under another name first: a tool that runs at this moment keeps its file.
fn put(from: &Path, to: &Path) -> std::io::Result<()> {
    let partial = to.with_extension(std::process::id().to_string());
    let put = fs::copy(from, &partial).and_then(|_| fs::rename(&partial, to));
    put.inspect_err(|_| {
        // What is left of it; the error that matters is the first.
        let _ = fs::remove_file(&partial);
    })
}
