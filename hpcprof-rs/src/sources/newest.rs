//! Finds the newest measurements or database of a directory, for commands without an argument.

use crate::error::{Error, Result};
use crate::schema::FILE_NAME;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// `PROGRAM` of `hpcrun-PROGRAM-measurements`, `hpcrun-PROGRAM-measurements-2`, ….
pub fn program_of_directory(name: &str) -> Option<&str> {
    kind_of_directory(name, "-measurements")
}

fn kind_of_directory<'a>(name: &'a str, kind: &str) -> Option<&'a str> {
    let rest = name.strip_prefix("hpcrun-")?;
    let at = rest.rfind(kind)?;
    let number = &rest[at + kind.len()..];
    let numbered =
        number.strip_prefix('-').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    (at > 0 && (number.is_empty() || numbered)).then_some(&rest[..at])
}

/// The newest measurement directory or database in `directory`.
pub fn run_directory(directory: &Path) -> Result<PathBuf> {
    newest(
        directory,
        &["-measurements", "-database"],
        "holds no hpcrun-*-measurements and no hpcrun-*-database",
        "measure first with `hpcrun-rs PROGRAM`, or name a measurement directory",
    )
}

/// The newest database in `directory`.
pub fn database_directory(directory: &Path) -> Result<PathBuf> {
    newest(
        directory,
        &["-database"],
        "holds no hpcrun-*-database",
        "build one with `hpcprof-rs MEASUREMENTS`, or name a database",
    )
}

fn newest(directory: &Path, kinds: &[&str], problem: &str, remedy: &'static str) -> Result<PathBuf> {
    let mut best: Option<(SystemTime, PathBuf)> = None;
    let entries = std::fs::read_dir(directory).map_err(Error::io("read", directory))?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let shown = name.to_string_lossy();
        if !kinds.iter().any(|k| kind_of_directory(&shown, k).is_some()) {
            continue;
        }
        // A database's directory may be older than the database: its file says when it was built.
        let path = PathBuf::from(&name);
        let file = entry.path().join(FILE_NAME);
        let time = std::fs::metadata(&file)
            .or_else(|_| entry.metadata())
            .and_then(|m| m.modified())
            .unwrap_or(SystemTime::UNIX_EPOCH);
        let path = if directory == Path::new(".") { path } else { entry.path() };
        let candidate = (time, path);
        if best.as_ref().is_none_or(|b| *b < candidate) {
            best = Some(candidate);
        }
    }
    best.map(|b| b.1).ok_or_else(|| Error::Input {
        path: std::env::current_dir().unwrap_or_else(|_| directory.to_owned()),
        problem: problem.to_owned(),
        remedy,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_directory_names() {
        assert_eq!(program_of_directory("hpcrun-app-measurements"), Some("app"));
        assert_eq!(program_of_directory("hpcrun-my-app-measurements-12"), Some("my-app"));
        assert_eq!(program_of_directory("hpcrun-app-measurements-x"), None);
        assert_eq!(program_of_directory("hpcrun-app-database"), None);
        assert_eq!(program_of_directory("hpcrun--measurements"), None);
        assert_eq!(kind_of_directory("hpcrun-a-database-2", "-database"), Some("a"));
    }
}
