//! Why a pool could not be made.
//!
//! One error type, whose messages name the remedy if there is one.

use core::fmt;
use std::ffi::OsString;
use std::io;

/// Why a pool could not be made.
#[derive(Debug)]
pub struct ThreadPoolBuildError(Cause);

#[derive(Debug)]
pub(super) enum Cause {
    GlobalExists,
    AlreadyInPool,
    Variable(&'static str, OsString),
    Thread(io::Error),
}

impl From<Cause> for ThreadPoolBuildError {
    fn from(cause: Cause) -> Self {
        ThreadPoolBuildError(cause)
    }
}

impl fmt::Display for ThreadPoolBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            // The two texts that programs written for rayon may compare.
            Cause::GlobalExists => f.write_str("The global thread pool has already been initialized."),
            Cause::AlreadyInPool => f.write_str("The current thread is already part of another thread pool."),
            Cause::Variable(name, text) => {
                write!(f, "{name} is {text:?}; set it to a number of threads, or unset it")
            }
            Cause::Thread(error) => {
                write!(f, "a worker thread could not be started ({error}); ask for fewer threads")
            }
        }
    }
}

impl std::error::Error for ThreadPoolBuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            Cause::Thread(error) => Some(error),
            _ => None,
        }
    }
}
