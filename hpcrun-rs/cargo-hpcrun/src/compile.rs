//! The build: cargo as the user would run it, in a target folder of its own, with symbols, and with the
//! replacements that are wanted.
//!
//! Invariant: this program writes only below that target folder, so the user's own builds never find code
//! that was compiled with a replacement.

use crate::cli::Build;
use crate::configuration;
use crate::project::{Kind, Project};
use crate::replacement;
use crate::toolchain::cargo;
use crate::wrapper::{ENV_INNER, ENV_REPLACED, ENV_REPLACEMENT};
use cargo_metadata::Message;
use hpcrun_rs::Failure;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What was built.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) program: PathBuf,
    /// Where its shared libraries may lie.
    pub(crate) libraries: Vec<PathBuf>,
}

/// Our folder in the project's target folder.
pub(crate) fn own_folder(project: &Project) -> PathBuf {
    project.target_dir.join("hpcrun")
}

/// Builds the project's program, with replacements for these packages (`NAME@VERSION`) or with the locked
/// ones.
pub(crate) fn build(
    project: &Project,
    options: &Build,
    replaced: &[String],
    is_quiet: bool,
) -> Result<Built, Failure> {
    let sources = match replaced {
        [] => PathBuf::new(),
        _ => replacement::install()?,
    };
    let target = target_folder(project, !replaced.is_empty());
    let mut command = command(project, options, &target, is_quiet);
    let own = std::env::current_exe()
        .map_err(|e| Failure::own(format!("cannot find this program's own file: {e}")))?;
    command.env("RUSTC_WRAPPER", own).env(ENV_REPLACEMENT, sources).env(ENV_REPLACED, replaced.join(" "));
    match configuration::wrapper(options) {
        Some(inner) => command
            .env(ENV_INNER, inner)
            // Cargo would cache the inner wrapper's answers under this wrapper's name, and use them after the
            // inner one has changed.
            .env("CARGO_CACHE_RUSTC_INFO", "0"),
        None => command.env_remove(ENV_INNER),
    };
    let mut child =
        command.stdout(Stdio::piped()).spawn().map_err(|e| Failure::own(format!("cannot run cargo: {e}")))?;
    let messages = child.stdout.take().map(BufReader::new);
    let built = messages.map(|m| read(m, project)).transpose();
    let status = child.wait().map_err(|e| Failure::own(format!("lost track of cargo: {e}")))?;
    if !status.success() {
        return Err(Failure::own("cargo build failed, as it says above"));
    }
    let built = built.map_err(|e| Failure::own(format!("cargo's messages: {e}")))?;
    let program = built.as_ref().and_then(|(program, _)| program.clone());
    let program = program.ok_or_else(|| {
        Failure::own(format!("cargo built no program for --{} {}", project.kind, project.program))
    })?;
    let mut libraries = built.map(|(_, libraries)| libraries).unwrap_or_default();
    let folder = program.parent().unwrap_or(Path::new("/"));
    libraries.extend([folder.to_owned(), folder.join("deps")]);
    Ok(Built { program, libraries })
}

/// The target folder for the replacements' current content; folders for other contents are removed. Cargo
/// does not see that a package's source is replaced, so each content needs a folder of its own.
fn target_folder(project: &Project, is_patched: bool) -> PathBuf {
    let own = own_folder(project);
    if !is_patched {
        return own.join("stock");
    }
    let name = format!("replaced-{}", replacement::fingerprint());
    for entry in fs::read_dir(&own).into_iter().flatten().flatten() {
        let other = entry.file_name();
        let is_older = other.to_str().is_some_and(|o| {
            o.strip_prefix("replaced-").is_some_and(|digits| {
                digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit()) && o != name
            })
        });
        if is_older {
            // A folder that cannot be removed only takes space.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    own.join(name)
}

fn command(project: &Project, options: &Build, target: &Path, is_quiet: bool) -> Command {
    let profile = match (&options.profile, &project.kind) {
        (Some(name), _) => name.as_str(),
        (None, Kind::Bench) => "bench",
        (None, _) => "release",
    };
    let mut command = Command::new(cargo());
    command
        .args(["build", "--message-format=json-render-diagnostics"])
        .args(["--profile", profile])
        .arg("--manifest-path")
        .arg(&project.package.manifest_path)
        .arg(format!("--{}", project.kind))
        .arg(&project.program)
        .args(options.common())
        .args(options.of_build())
        .arg("--target-dir")
        .arg(target)
        // Newer cargos can keep the parts of a build apart from its products.
        .env("CARGO_BUILD_BUILD_DIR", target);
    if is_quiet {
        command.arg("--quiet");
    }
    symbols(&mut command, profile);
    command
}

/// Asks for symbols and line tables, whatever the profile says: samples are attributed by them.
fn symbols(command: &mut Command, profile: &str) {
    let prefix = format!("CARGO_PROFILE_{}", profile.to_uppercase().replace('-', "_"));
    let debug = format!("{prefix}_DEBUG");
    let has_lines = |value: &str| !matches!(value, "" | "0" | "none" | "false" | "line-directives-only");
    if !std::env::var(&debug).is_ok_and(|value| has_lines(&value)) {
        // With line tables only, inlined functions lack the names of inline modules.
        command.env(debug, "1");
    }
    command.env(format!("{prefix}_STRIP"), "none");
    command.env(format!("{prefix}_SPLIT_DEBUGINFO"), "off");
}

/// The program and the library folders from cargo's messages.
fn read(
    messages: impl std::io::BufRead,
    project: &Project,
) -> std::io::Result<(Option<PathBuf>, Vec<PathBuf>)> {
    let mut program = None;
    let mut libraries = Vec::new();
    for message in Message::parse_stream(messages) {
        match message? {
            Message::CompilerArtifact(artifact) => {
                let is_meant = artifact.package_id == project.package.id
                    && artifact.target.kind.contains(&project.kind)
                    && artifact.target.name == project.program;
                if let Some(path) = artifact.executable.filter(|_| is_meant) {
                    program = Some(path.into_std_path_buf());
                }
            }
            Message::BuildScriptExecuted(script) => {
                let paths = script.linked_paths.iter().map(|p| {
                    let text = p.as_str();
                    PathBuf::from(text.split_once('=').map_or(text, |(_, path)| path))
                });
                libraries.extend(paths);
            }
            _ => {}
        }
    }
    Ok((program, libraries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_asked_for_in_the_profile_that_is_built() {
        let mut command = Command::new("cargo");
        symbols(&mut command, "my-release");
        let set: Vec<_> = command.get_envs().collect();
        for (name, value) in [
            ("CARGO_PROFILE_MY_RELEASE_DEBUG", "1"),
            ("CARGO_PROFILE_MY_RELEASE_STRIP", "none"),
            ("CARGO_PROFILE_MY_RELEASE_SPLIT_DEBUGINFO", "off"),
        ] {
            assert!(set.contains(&(name.as_ref(), Some(value.as_ref()))), "{set:?}");
        }
    }
}
