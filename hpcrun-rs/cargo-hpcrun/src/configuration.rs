//! The parts of cargo's configuration (files, environment, `--config`) that matter here: the target, the
//! compiler's wrapper, and the environment that `cargo run` gives a program.
//!
//! Asks cargo itself, by `cargo config get`, whose output is unstable. A value that cannot be parsed counts
//! as not configured.

use crate::cli::Build;
use crate::toolchain::cargo;
use hpcrun_rs::Failure;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A configured text and its origin.
#[derive(Debug, PartialEq, Eq)]
struct Value {
    text: String,
    origin: String,
}

/// Checks that the build targets this machine.
pub(crate) fn check_target(build: &Build, host: &str) -> Result<(), Failure> {
    let is_host = |triple: &str| triple == host || triple == "host-tuple";
    if let Some(other) = &build.target {
        if is_host(other) {
            return Ok(());
        }
        return Err(Failure::own(format!(
            "--target {other}: only programs for this machine ({host}) can be run and profiled"
        )));
    }
    let targets = get("build.target", build);
    match targets.iter().find(|t| !is_host(&t.text)) {
        None => Ok(()),
        Some(Value { text, origin }) => Err(Failure::own(format!(
            "build.target is {text} by {origin}: only programs for this machine can be run and profiled: \
             add --target {host}"
        ))),
    }
}

/// The compiler's wrapper of the user's own builds, as cargo would find it: a name for PATH, or an absolute
/// path.
pub(crate) fn wrapper(build: &Build) -> Option<OsString> {
    let here = std::env::current_dir().unwrap_or_default();
    let found = match std::env::var_os("RUSTC_WRAPPER") {
        Some(given) => from(&here, &given),
        None => {
            let value = get("build.rustc-wrapper", build).into_iter().next()?;
            from(&folder(&value.origin, &here), OsStr::new(&value.text))
        }
    };
    Some(found).filter(|f| !f.is_empty())
}

/// What the section `[env]` adds to the environment of programs that cargo runs.
pub(crate) fn environment(build: &Build) -> Vec<(OsString, OsString)> {
    let section = ask(&["--format", "json"], "env", build);
    let Ok(section) = serde_json::from_str::<serde_json::Value>(&section) else {
        return Vec::new();
    };
    let variables = section["env"].as_object().into_iter().flatten();
    variables
        .filter_map(|(name, given)| {
            let Variable { text, is_forced, is_relative } = variable(given)?;
            if !is_forced && std::env::var_os(name).is_some() {
                return None;
            }
            let value = if is_relative {
                let here = std::env::current_dir().unwrap_or_default();
                let from = get(&format!("env.{name}.value"), build).into_iter().next();
                let base = from.map_or_else(|| here.clone(), |v| folder(&v.origin, &here));
                base.join(text).into_os_string()
            } else {
                text.into()
            };
            Some((name.into(), value))
        })
        .collect()
}

/// One variable of the section `[env]`.
#[derive(Debug, PartialEq, Eq)]
struct Variable<'a> {
    text: &'a str,
    /// It overrides the environment.
    is_forced: bool,
    /// A path, relative to the file that configures it.
    is_relative: bool,
}

/// `"TEXT"`, or a table with `value`, `force` and `relative`.
fn variable(given: &serde_json::Value) -> Option<Variable<'_>> {
    let is = |key: &str| given[key].as_bool().unwrap_or(false);
    Some(Variable {
        text: given.as_str().or_else(|| given["value"].as_str())?,
        is_forced: is("force"),
        is_relative: is("relative"),
    })
}

/// The runner that `cargo run` would use, which cannot be used here: its command line and its origin.
pub(crate) fn runner(build: &Build, host: &str) -> Option<(String, String)> {
    let words = get(&format!("target.{host}.runner"), build);
    let origin = words.first()?.origin.clone();
    let text: Vec<String> = words.into_iter().map(|w| w.text).collect();
    Some((text.join(" "), origin))
}

/// A program's name or path, where a path is relative to `folder`.
fn from(folder: &Path, program: &OsStr) -> OsString {
    if program.as_encoded_bytes().contains(&b'/') {
        folder.join(program).into_os_string()
    } else {
        program.to_owned()
    }
}

/// Relative paths of a file `FOLDER/.cargo/config.toml` are relative to `FOLDER`, others to the
/// current folder.
fn folder(origin: &str, here: &Path) -> PathBuf {
    let file = Path::new(origin);
    let folder = file.parent().and_then(Path::parent);
    folder.filter(|_| file.is_absolute()).unwrap_or(here).to_owned()
}

/// The texts under a key.
fn get(key: &str, build: &Build) -> Vec<Value> {
    parse(&ask(&["--show-origin"], key, build))
}

/// Cargo's answer for a key; empty if it is not set.
fn ask(options: &[&str], key: &str, build: &Build) -> String {
    let mut command = Command::new(cargo());
    command.args(["-Zunstable-options", "config", "get"]);
    command.args(options);
    for value in &build.config {
        command.args(["--config", value]);
    }
    // A stable cargo has the command too, behind this variable.
    let output = command.arg(key).env("RUSTC_BOOTSTRAP", "1").output();
    output.map_or_else(|_| String::new(), |o| String::from_utf8_lossy(&o.stdout).into_owned())
}

/// `KEY = "TEXT" # ORIGIN`, or a list with `"TEXT", # ORIGIN` on each line.
fn parse(text: &str) -> Vec<Value> {
    let value = |line: &str| {
        let (_, rest) = line.split_once('"')?;
        let (text, origin) = rest.split_once("\" # ").or_else(|| rest.split_once("\", # "))?;
        Some(Value { text: text.to_owned(), origin: origin.to_owned() })
    };
    text.lines().filter_map(value).collect()
}
