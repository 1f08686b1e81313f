//! Where a database goes: its default name, never over something else, whole or not at all.
//!
//! A database is built in a temporary directory beside its final place and renamed when it is
//! complete, so a full disk or a kill leaves no half database under the final name.

use crate::error::{Error, Result};
use crate::sinks::schema::FILE_NAME;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A database directory that is being written.
#[derive(Debug)]
pub struct Place {
    target: PathBuf,
    temporary: PathBuf,
    /// Of a place that was not asked for by name: folder and program.
    default: Option<(PathBuf, String)>,
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
            default: None,
            replace,
            done: false,
        })
    }

    /// Prepares the default place for measurements of `program` in `folder`:
    /// `hpcrun-PROGRAM-database`, with `-2`, `-3` … when it exists.
    pub fn of_program(folder: &Path, program: &str) -> Result<Place> {
        let mut place = Place::prepare(&default_target(folder, program), false)?;
        place.default = Some((folder.to_owned(), program.to_owned()));
        Ok(place)
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
            while let Err(error) = std::fs::rename(&self.temporary, &self.target) {
                let is_taken = matches!(
                    error.kind(),
                    ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty
                );
                // Another process was faster.
                match &self.default {
                    Some((folder, program)) if is_taken => {
                        self.target = default_target(folder, program);
                    }
                    _ => {
                        return Err(Error::io("rename the new database to", &self.target)(error));
                    }
                }
            }
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

/// The first default name that is free.
fn default_target(folder: &Path, program: &str) -> PathBuf {
    let base = format!("hpcrun-{program}-database");
    let mut candidate = folder.join(&base);
    let mut number = 2_u32;
    while candidate.symlink_metadata().is_ok() {
        candidate = folder.join(format!("{base}-{number}"));
        number += 1;
    }
    candidate
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_meanwhile_is_left_to_who_was_faster() {
        let folder = std::env::temp_dir().join(format!("hpcprof-place-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("it is fresh");
        let place = Place::of_program(&folder, "p").expect("a place");
        std::fs::write(place.file(), "ours").expect("the place is ours");
        let theirs = place.target().to_owned();
        std::fs::create_dir(&theirs).expect("it was free");
        std::fs::write(theirs.join(FILE_NAME), "theirs").expect("as another process would");
        let ours = place.finish().expect("another name is free");
        let read = |path: &Path| std::fs::read_to_string(path.join(FILE_NAME)).ok();
        let found = [read(&ours), read(&theirs)];
        std::fs::remove_dir_all(&folder).expect("it is ours");
        assert!(ours.ends_with("hpcrun-p-database-2"), "{}", ours.display());
        assert_eq!(found, ["ours", "theirs"].map(|t| Some(t.to_owned())));
    }
}
