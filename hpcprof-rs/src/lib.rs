//! hpcprof-rs merges what was measured in all threads and processes of a run, attributes it to
//! source code, writes a database, and prints views of it.
//!
//! Data flow, in the order of the modules: [`sources`] read measurement directories and program
//! structure; [`passes`] turn them into the [`model`]; [`sinks`] write the database; [`views`]
//! read nothing but the database. [`run`] wires the pipeline.

#![forbid(unsafe_code)]

pub mod cli;
pub mod error;
pub mod model;
pub mod passes;
pub mod run;
pub mod sinks;
pub mod sources;
pub mod views;
