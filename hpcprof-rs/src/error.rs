//! The one error type of the tool. Its display is one line that names the file, the problem
//! and, where there is one, the remedy; whatever the cause, nothing here panics.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a command could not be carried out.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    Io {
        /// What was being done, as in "read".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// An input file or directory is not what it should be.
    Input {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What the user can do.
        remedy: &'static str,
    },
    /// A program ended before its first sample.
    NoSample {
        /// The measurement directory.
        path: PathBuf,
        /// CPU time that it used, nanoseconds; 0 when unknown.
        cpu_ns: u64,
    },
    /// A database could not be read or written.
    Database {
        /// The database directory or file.
        path: PathBuf,
        /// What SQLite or a check of ours said.
        problem: String,
        /// What the user can do.
        remedy: &'static str,
    },
    /// The command line asks for something that is not there.
    Usage(String),
    /// Standard output is closed: nothing is left to do.
    OutputClosed,
}

/// Shorthand of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of standard output; a reader that has seen enough is none.
    pub fn output(source: std::io::Error) -> Error {
        if source.kind() == std::io::ErrorKind::BrokenPipe {
            return Error::OutputClosed;
        }
        Error::Io {
            action: "write to",
            path: PathBuf::from("standard output"),
            source,
        }
    }

    /// An [`Error::Io`] for `map_err`.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io {
            action,
            path,
            source,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Error::Io {
                action,
                path,
                source,
            } => {
                let remedy = match source.kind() {
                    std::io::ErrorKind::StorageFull => {
                        "; free some space, or give -o on another disk"
                    }
                    std::io::ErrorKind::PermissionDenied => {
                        "; change its permissions, or give another path"
                    }
                    std::io::ErrorKind::NotFound => "; check the path",
                    _ => "",
                };
                format!("cannot {action} {}: {source}{remedy}", path.display())
            }
            Error::Input {
                path,
                problem,
                remedy,
            }
            | Error::Database {
                path,
                problem,
                remedy,
            } => format!("{}: {problem}; {remedy}", path.display()),
            Error::NoSample { path, cpu_ns } => {
                let used = match *cpu_ns as f64 / 1e9 {
                    0.0 => String::new(),
                    seconds => format!(" (it used {seconds:.3} s of CPU time)"),
                };
                format!(
                    "{}: the program ended before its first sample{used}; measure a longer run, or at a higher rate (-e cpu-time@1000)",
                    path.display()
                )
            }
            Error::Usage(text) => text.clone(),
            Error::OutputClosed => "standard output is closed".to_owned(),
        };
        write!(f, "{}", one_line(&text))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Whether a character breaks a line or steers a terminal.
pub fn steers(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Replaces such characters: names come from files, arguments and programs.
pub fn one_line(text: &str) -> String {
    let plain = |c| if steers(c) { ' ' } else { c };
    text.chars().map(plain).collect()
}
