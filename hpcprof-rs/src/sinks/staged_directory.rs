//! Where a database goes: its default name, never over something else, whole or not at all.
//!
//! A database is built in a temporary directory beside its target and renamed when it is
//! complete, so a full disk or a kill leaves no half database under the target's name.

use crate::error::{Error, Result};
use crate::schema::FILE_NAME;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A database directory that is being written. Dropped before [`StagedDirectory::publish`], it vanishes.
#[derive(Debug)]
pub struct StagedDirectory {
    target: PathBuf,
    staging: TempDir,
    /// Folder and program of a target that the user did not name.
    default: Option<(PathBuf, String)>,
    replace: bool,
}

impl StagedDirectory {
    /// Prepares `target`. An existing directory is accepted when it is empty, or when it is a
    /// database and `force` is given.
    pub fn prepare(target: &Path, force: bool) -> Result<StagedDirectory> {
        let replace = check_target(target, force)?;
        let parent = folder_of(target);
        if !parent.exists() {
            std::fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
        }
        if target.file_name().is_none() {
            let remedy = "give -o the name of a new directory";
            return Err(Error::input(target, "does not name a directory", remedy));
        }
        Ok(StagedDirectory {
            target: target.to_owned(),
            staging: temporary_in(parent)?,
            default: None,
            replace,
        })
    }

    /// Prepares the default target for measurements of `program` in `folder`:
    /// `hpcrun-PROGRAM-database`, with `-2`, `-3` … when it exists.
    pub fn of_program(folder: &Path, program: &str) -> Result<StagedDirectory> {
        let mut staged = StagedDirectory::prepare(&default_target(folder, program), false)?;
        staged.default = Some((folder.to_owned(), program.to_owned()));
        Ok(staged)
    }

    /// Where to write.
    pub fn path(&self) -> &Path {
        self.staging.path()
    }

    /// Where to write the SQLite file.
    pub fn file(&self) -> PathBuf {
        self.staging.path().join(FILE_NAME)
    }

    /// The final directory.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Moves the finished database to its target; returns where that is.
    pub fn publish(mut self) -> Result<PathBuf> {
        const RENAME: &str = "rename the new database to";
        let old = match self.replace {
            true => {
                let old = temporary_in(folder_of(&self.target))?;
                std::fs::rename(&self.target, old.path()).map_err(Error::io(RENAME, &self.target))?;
                // Removed only when the new database is in place.
                Some(old.keep())
            }
            false => None,
        };
        while let Err(error) = std::fs::rename(self.staging.path(), &self.target) {
            let taken = [ErrorKind::AlreadyExists, ErrorKind::DirectoryNotEmpty];
            match &self.default {
                // Another process was faster.
                Some((folder, program)) if taken.contains(&error.kind()) => {
                    self.target = default_target(folder, program);
                }
                _ => return Err(Error::io(RENAME, &self.target)(error)),
            }
        }
        if let Some(old) = old {
            std::fs::remove_dir_all(&old).map_err(Error::io("remove", &old))?;
        }
        Ok(self.target)
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn temporary_in(parent: &Path) -> Result<TempDir> {
    let directory = tempfile::Builder::new().prefix(".hpcprof-").tempdir_in(parent);
    directory.map_err(Error::io("create a directory in", parent))
}

/// Returns whether `target` is a database that is to be replaced.
fn check_target(target: &Path, force: bool) -> Result<bool> {
    let Ok(metadata) = std::fs::symlink_metadata(target) else {
        return Ok(false);
    };
    let occupied = |problem, remedy| Err(Error::input(target, problem, remedy));
    if !metadata.is_dir() {
        return occupied("exists and is not a directory", "give -o another name");
    }
    let mut entries = std::fs::read_dir(target).map_err(Error::io("read", target))?;
    if entries.next().is_none() {
        return Ok(false);
    }
    if !target.join(FILE_NAME).is_file() {
        let problem = "exists, is not empty and is not a database";
        return occupied(problem, "give -o another name");
    }
    if !force {
        let remedy = "remove it, or give -o another name (hpcprof-rs --force replaces it)";
        return occupied("is a database already", remedy);
    }
    Ok(true)
}

/// The first default name that is free.
fn default_target(folder: &Path, program: &str) -> PathBuf {
    let numbered = |n| match n {
        1 => folder.join(format!("hpcrun-{program}-database")),
        n => folder.join(format!("hpcrun-{program}-database-{n}")),
    };
    let mut number = 1_u32;
    while numbered(number).symlink_metadata().is_ok() {
        number += 1;
    }
    numbered(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_meanwhile_is_left_to_who_was_faster() {
        let folder = tempfile::tempdir().expect("a folder");
        let staged = StagedDirectory::of_program(folder.path(), "p").expect("a free name");
        std::fs::write(staged.file(), "ours").expect("writable");
        let theirs = staged.target().to_owned();
        std::fs::create_dir(&theirs).expect("it was free");
        std::fs::write(theirs.join(FILE_NAME), "theirs").expect("as another process would");
        let ours = staged.publish().expect("another name is free");
        assert!(ours.ends_with("hpcrun-p-database-2"), "{}", ours.display());
        for (directory, text) in [(ours, "ours"), (theirs, "theirs")] {
            let found = std::fs::read_to_string(directory.join(FILE_NAME));
            assert_eq!(found.expect("a file"), text);
        }
    }
}
