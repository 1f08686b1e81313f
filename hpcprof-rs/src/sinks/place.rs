//! Where a database goes: its default name, never over something else, whole or not at all.
//!
//! A database is built in a temporary directory beside its final place and renamed when it is
//! complete, so a full disk or a kill leaves no half database under the final name.

use crate::error::{Error, Result};
use crate::sinks::schema::FILE_NAME;
use std::path::{Path, PathBuf};

/// A database directory that is being written.
#[derive(Debug)]
pub struct Place {
    target: PathBuf,
    temporary: PathBuf,
    replace: bool,
    done: bool,
}

impl Place {
    /// Prepares `target`. An existing directory is accepted when it is empty, or when it is a
    /// database and `force` is given.
    pub fn prepare(target: &Path, force: bool) -> Result<Place> {
        let replace = check_target(target, force)?;
        let parent = match target.parent() {
            Some(p) if !p.as_os_str().is_empty() => p.to_owned(),
            _ => PathBuf::from("."),
        };
        if !parent.exists() {
            std::fs::create_dir_all(&parent).map_err(Error::io("create", &parent))?;
        }
        let name = target.file_name().ok_or_else(|| Error::Input {
            path: target.to_owned(),
            problem: "does not name a directory".to_owned(),
            remedy: "give -o the name of a new directory",
        })?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".tmp-{}", std::process::id()));
        let temporary = parent.join(hidden);
        std::fs::create_dir(&temporary).map_err(Error::io("create", &temporary))?;
        Ok(Place {
            target: target.to_owned(),
            temporary,
            replace,
            done: false,
        })
    }

    /// Where to write the SQLite file.
    pub fn file(&self) -> PathBuf {
        self.temporary.join(FILE_NAME)
    }

    /// The final directory.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Moves the finished database to its final place.
    pub fn finish(mut self) -> Result<PathBuf> {
        let rename = |from: &Path, to: &Path| {
            std::fs::rename(from, to).map_err(Error::io("rename the new database to", to))
        };
        if self.replace {
            let old = self.temporary.with_extension("old");
            rename(&self.target, &old)?;
            rename(&self.temporary, &self.target)?;
            std::fs::remove_dir_all(&old).map_err(Error::io("remove", &old))?;
        } else {
            rename(&self.temporary, &self.target)?;
        }
        self.done = true;
        Ok(self.target.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.done {
            // Nothing can be done about a failure here, and the error that led here is shown.
            let _ = std::fs::remove_dir_all(&self.temporary);
        }
    }
}

/// Returns whether `target` is a database that is to be replaced.
fn check_target(target: &Path, force: bool) -> Result<bool> {
    let Ok(metadata) = std::fs::symlink_metadata(target) else {
        return Ok(false);
    };
    let occupied = |problem: &str, remedy| {
        Err(Error::Input {
            path: target.to_owned(),
            problem: problem.to_owned(),
            remedy,
        })
    };
    if !metadata.is_dir() {
        return occupied("exists and is not a directory", "give -o another name");
    }
    let mut entries = std::fs::read_dir(target).map_err(Error::io("read", target))?;
    if entries.next().is_none() {
        return Ok(false);
    }
    if !target.join(FILE_NAME).is_file() {
        return occupied(
            "exists, is not empty and is not a database",
            "give -o another name",
        );
    }
    if !force {
        return occupied(
            "is a database already",
            "give --force to replace it, or -o another name",
        );
    }
    Ok(true)
}

/// The default database for measurements of `program`: `hpcrun-PROGRAM-database` in the current
/// directory, with `-2`, `-3` … when it exists.
pub fn default_target(program: &str) -> PathBuf {
    let base = format!("hpcrun-{program}-database");
    let mut candidate = PathBuf::from(&base);
    let mut number = 2_u32;
    while candidate.symlink_metadata().is_ok() {
        candidate = PathBuf::from(format!("{base}-{number}"));
        number += 1;
    }
    candidate
}
