//! Release builds of the workspace, and where their programs lie.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository's root.
pub(crate) fn workspace() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest)
}

/// The target directory in use: this program is `TARGET/PROFILE/xtask`.
pub(crate) fn target() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|e| format!("own path: {e}"))?;
    let target = own.ancestors().nth(2).ok_or("own path is too short")?;
    Ok(target.to_path_buf())
}

/// Runs a command; its failure is an error that names it.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|e| {
        format!(
            "{} cannot be run: {e}",
            command.get_program().to_string_lossy()
        )
    })?;
    if status.success() {
        Ok(())
    } else {
        Err(format!(
            "{} failed: {status}",
            command.get_program().to_string_lossy()
        ))
    }
}

/// Builds the tools, the fixtures and the example in release; returns where the programs lie.
pub(crate) fn release() -> Result<PathBuf, String> {
    let target = target()?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let packages = ["hpcrun-rs", "hpcprof-rs", "hpcstruct-rs", "hpcrun-fixtures"];
    let build = |arguments: &[&str]| {
        run(Command::new(&cargo)
            .current_dir(workspace())
            .env("CARGO_TARGET_DIR", &target)
            .args(["build", "--release"])
            .args(arguments))
    };
    build(&packages.map(|p| ["-p", p]).concat())?;
    build(&["-p", "work-stealing-rt", "--example", "cholesky"])?;
    Ok(target.join("release"))
}
