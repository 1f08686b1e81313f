//! The one error type of the tool. It is shown as one line that names the file, the problem and,
//! where there is one, the remedy.

use hpc_formats::json::steers;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("cannot {action} {}: {source}{}", shown(path), remedy_of(source))]
    Io {
        /// What was being done, as in "read".
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A file, a directory or a database is not what it should be, or could not be written.
    #[error("{}: {}; {remedy}", shown(path), one_line(problem))]
    Input { path: PathBuf, problem: String, remedy: &'static str },
    #[error(
        "{}: the program ended before its first sample{}; \
         measure a longer run, or at a higher rate (-e cpu-time@1000)",
        shown(path), used(*cpu_ns)
    )]
    NoSample { path: PathBuf, cpu_ns: u64 },
    /// The command line asks for something that does not exist.
    #[error("{}", one_line(.0))]
    Usage(String),
    #[error("a condition does not hold")]
    NotHeld { status: u8 },
    #[error("standard output is closed")]
    OutputClosed,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn output(source: io::Error) -> Error {
        if source.kind() == ErrorKind::BrokenPipe {
            return Error::OutputClosed;
        }
        Error::io("write to", Path::new("standard output"))(source)
    }

    pub fn input(path: &Path, problem: impl Into<String>, remedy: &'static str) -> Error {
        Error::Input { path: path.to_owned(), problem: problem.into(), remedy }
    }

    /// An [`Error::Io`] for `map_err`.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io { action, path, source }
    }
}

fn shown(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

fn remedy_of(source: &io::Error) -> &'static str {
    match source.kind() {
        ErrorKind::StorageFull => "; free some space, or give -o on another disk",
        ErrorKind::PermissionDenied => "; change its permissions, or give another path",
        ErrorKind::NotFound => "; check the path",
        _ => "",
    }
}

fn used(cpu_ns: u64) -> String {
    match cpu_ns as f64 / 1e9 {
        0.0 => String::new(),
        seconds => format!(" (it used {seconds:.3} s of CPU time)"),
    }
}

/// Replaces characters that steer a terminal with spaces: names come from files, arguments and programs.
pub fn one_line(text: &str) -> String {
    let plain = |c| if steers(c) { ' ' } else { c };
    text.chars().map(plain).collect()
}

/// The same in XML.
pub fn xml(text: &str) -> String {
    let text = one_line(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}
