//! Why a file could not be analysed, each with what the user can do about it.
//!
//! Damage inside an otherwise readable file is not an error: it becomes a note of the structure,
//! and everything that could still be read is kept.

use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why there is no structure.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // Of fields, whose names say what they are.
pub enum StructError {
    /// The file could not be opened or read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        error: std::io::Error,
    },
    /// The file could not be written.
    #[error("cannot write {}: {error}: choose another place with -o", path.display())]
    Write {
        path: PathBuf,
        #[source]
        error: std::io::Error,
    },
    /// The file is not ELF.
    #[error(
        "{} is not an ELF file: give an executable, a shared library or a measurement directory",
        .0.display()
    )]
    NotElf(PathBuf),
    /// An ELF file that ends early, or whose headers contradict each other.
    #[error(
        "{} is a truncated or corrupt ELF file ({what}): build or copy it again",
        path.display()
    )]
    BadElf { path: PathBuf, what: String },
    /// An ELF file that is no load module: an object file or a core dump.
    #[error(
        "{} is {kind}: give the executable or shared library that was linked from it",
        path.display()
    )]
    NotLoadable { path: PathBuf, kind: &'static str },
    /// A module of the Linux kernel, whose code has no addresses before it is loaded.
    #[error(
        "{path} is a kernel module, whose code has no addresses yet: give it some, with ld \
         -e 0 --unresolved-symbols=ignore-all -o module.elf {path}, and analyse module.elf",
        path = .0.display()
    )]
    KernelModule(PathBuf),
    /// A rules file has a line that is no rule.
    #[error(
        "{}:{line}: {what}: a rule is 'procedure|module|file GLOB CATEGORY'",
        path.display()
    )]
    Rules { path: PathBuf, line: usize, what: &'static str },
    /// The file was written to while it was read.
    #[error(
        "{} was written to while it was read: try again when it is complete",
        .0.display()
    )]
    WrittenTo(PathBuf),
    /// The file's build id is not the one that was measured.
    #[error(
        "{} was rebuilt since the measurement: measure it again, or put the old file back",
        .0.display()
    )]
    Changed(PathBuf),
    /// A measurement directory without a readable process file.
    #[error(
        "{} has no readable process file: give a directory that hpcrun-rs wrote",
        .0.display()
    )]
    NoMeasurements(PathBuf),
}

impl StructError {
    /// Of a failure to read `path`.
    pub fn reading(path: &Path) -> impl Fn(std::io::Error) -> StructError {
        |error| StructError::Read { path: path.to_owned(), error }
    }

    /// Of a failure to write `path`.
    pub fn writing(path: &Path) -> impl Fn(std::io::Error) -> StructError {
        |error| StructError::Write { path: path.to_owned(), error }
    }
}
