//! What the commands share: cargo, release builds of the workspace and where their programs lie, files.

use std::fs;
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
    let status = command
        .status()
        .map_err(|e| format!("{} cannot be run: {e}", command.get_program().to_string_lossy()))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{} failed: {status}", command.get_program().to_string_lossy()))
    }
}

/// Builds the tools, the fixtures and the example in release; returns where the programs lie.
pub(crate) fn release() -> Result<PathBuf, String> {
    let target = target()?;
    let packages = ["hpcrun-rs", "hpcprof-rs", "hpcstruct-rs", "hpcrun-fixtures"];
    let build = |arguments: &[&str]| {
        run(cargo()
            .current_dir(workspace())
            .env("CARGO_TARGET_DIR", &target)
            .args(["build", "--release"])
            .args(arguments))
    };
    build(&packages.map(|p| ["-p", p]).concat())?;
    build(&["-p", "work-stealing-rt", "--example", "cholesky"])?;
    Ok(target.join("release"))
}

/// The cargo that runs this.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The same command in a session of its own, which the scheduler prefers where that is allowed.
pub(crate) fn preferred(command: &Command) -> Command {
    const PREFER: &str = "(echo -20 >/proc/self/autogroup) 2>/dev/null; exec \"$@\"";
    let mut shield = Command::new("setsid");
    shield.args(["sh", "-c", PREFER, "sh"]).arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        shield.current_dir(folder);
    }
    let set = command.get_envs();
    shield.envs(set.filter_map(|(name, value)| Some((name, value?))));
    shield
}

/// What a command prints; its failure is an error that names it.
pub(crate) fn output_of(command: &mut Command, what: &str) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{what} cannot be run: {e}"))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{what}: {}\n{message}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A text file's contents.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| describe(path, &e))
}

/// Writes a file, and the folder that it lies in.
pub(crate) fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), String> {
    if let Some(folder) = path.parent() {
        create(folder)?;
    }
    fs::write(path, contents).map_err(|e| describe(path, &e))
}

/// Makes a folder, and those that it lies in, unless it is there.
pub(crate) fn create(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|e| describe(folder, &e))
}

pub(crate) fn remove(folder: &Path) -> Result<(), String> {
    match fs::remove_dir_all(folder) {
        Err(e) if folder.exists() => Err(describe(folder, &e)),
        _ => Ok(()),
    }
}

/// What is in a folder, in order.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let list = fs::read_dir(folder).map_err(|e| describe(folder, &e))?;
    let mut list: Vec<PathBuf> = list.flatten().map(|e| e.path()).collect();
    list.sort();
    Ok(list)
}

/// Copies a file, or a folder with all that is in it.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), String> {
    if !from.is_dir() {
        return write(to, fs::read(from).map_err(|e| describe(from, &e))?);
    }
    create(to)?;
    for entry in entries(from)? {
        copy(&entry, &to.join(entry.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

pub(crate) fn describe(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
