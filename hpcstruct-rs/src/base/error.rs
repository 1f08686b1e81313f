//! Why a file could not be analysed, each with what the user can do about it.
//!
//! Damage inside an otherwise readable file is not an error: it becomes a note of the structure,
//! and everything that could still be read is kept.

use std::fmt;
use std::path::PathBuf;

/// Why there is no structure.
#[derive(Debug)]
#[non_exhaustive]
pub enum StructError {
    /// The file could not be opened or read.
    Read {
        /// Which file.
        path: PathBuf,
        /// The system's answer.
        error: std::io::Error,
    },
    /// The file could not be written.
    Write {
        /// Which file.
        path: PathBuf,
        /// The system's answer.
        error: std::io::Error,
    },
    /// The file is not ELF.
    NotElf(PathBuf),
    /// An ELF file that ends early, or whose headers contradict each other.
    BadElf {
        /// Which file.
        path: PathBuf,
        /// What the ELF reader met first.
        what: String,
    },
    /// An ELF file that is no load module: an object file or a core dump.
    NotLoadable {
        /// Which file.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// A module of the Linux kernel, whose code has no addresses before it is loaded.
    KernelModule(PathBuf),
    /// A rules file has a line that is no rule.
    Rules {
        /// Which file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The file was written to while it was read.
    WrittenTo(PathBuf),
    /// The file's build id is not the one that was measured.
    Changed(PathBuf),
    /// A measurement directory without a readable process file.
    NoMeasurements(PathBuf),
}

impl fmt::Display for StructError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StructError::Read { path, error } => {
                write!(f, "cannot read {}: {error}", path.display())
            }
            StructError::Write { path, error } => write!(
                f,
                "cannot write {}: {error}: choose another place with -o",
                path.display()
            ),
            StructError::NotElf(path) => write!(
                f,
                "{} is not an ELF file: give an executable, a shared library or a measurement directory",
                path.display()
            ),
            StructError::BadElf { path, what } => write!(
                f,
                "{} is a truncated or corrupt ELF file ({what}): build or copy it again",
                path.display()
            ),
            StructError::NotLoadable { path, kind } => write!(
                f,
                "{} is {kind}: give the executable or shared library that was linked from it",
                path.display()
            ),
            StructError::KernelModule(path) => {
                let path = path.display();
                write!(
                    f,
                    "{path} is a kernel module, whose code has no addresses yet: give it some, with ld \
                     -e 0 --unresolved-symbols=ignore-all -o module.elf {path}, and analyse module.elf"
                )
            }
            StructError::Rules { path, line, what } => write!(
                f,
                "{}:{line}: {what}: a rule is 'procedure|module|file GLOB CATEGORY'",
                path.display()
            ),
            StructError::WrittenTo(path) => write!(
                f,
                "{} was written to while it was read: try again when it is complete",
                path.display()
            ),
            StructError::Changed(path) => write!(
                f,
                "{} was rebuilt since the measurement: measure it again, or put the old file back",
                path.display()
            ),
            StructError::NoMeasurements(path) => write!(
                f,
                "{} has no readable process file: give a directory that hpcrun-rs wrote",
                path.display()
            ),
        }
    }
}

impl std::error::Error for StructError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StructError::Read { error, .. } | StructError::Write { error, .. } => Some(error),
            _ => None,
        }
    }
}
