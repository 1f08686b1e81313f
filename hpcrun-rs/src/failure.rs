//! Failures of the launcher: one line each, with the remedy, and the exit status.

use crate::text;
use std::fmt;
use std::io;
use std::path::Path;

/// Why the program was not run.
#[derive(Debug)]
pub enum Failure {
    /// The launcher failed: status 125.
    Own(String),
    /// The program exists but cannot be executed: status 126.
    NotExecutable(String),
    /// There is no such program: status 127.
    NotFound(String),
}

impl Failure {
    /// A failure of the launcher. The text is one line, with the remedy.
    pub fn own(text: impl Into<String>) -> Failure {
        Failure::Own(text.into())
    }

    /// From the error of an attempt to execute the program.
    pub(crate) fn exec(program: &Path, error: &io::Error) -> Failure {
        let text = format!("cannot run {}: {error}", text::shown(program));
        match error.kind() {
            io::ErrorKind::NotFound => Failure::NotFound(text),
            _ => Failure::NotExecutable(text),
        }
    }

    /// The exit status for this failure.
    pub fn status(&self) -> u8 {
        match self {
            Failure::Own(_) => 125,
            Failure::NotExecutable(_) => 126,
            Failure::NotFound(_) => 127,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failure::Own(text) | Failure::NotExecutable(text) | Failure::NotFound(text)) = self;
        f.write_str(text)
    }
}
