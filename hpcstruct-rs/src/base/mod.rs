//! What every room builds on: errors, threads, strings, progress.

pub(crate) mod error;
pub mod parallel;
pub(crate) mod progress;
pub(crate) mod strings;
