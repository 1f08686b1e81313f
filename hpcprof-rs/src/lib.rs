//! hpcprof-rs merges what was measured in all threads and processes of a run, attributes it to
//! source code, writes a database, and prints views of it.
//!
//! To build a database, [`sources`] read measurement directories and program structure, [`passes`] turn
//! them into the [`model`], and [`sinks`] write it by the [`schema`].
//!
//! To show a database, the [`catalogue`] reads it, [`metrics`] derive further ones from its own, [`views`]
//! arrange its contexts as trees, [`render`] prints them, [`exports`] write other profilers' formats,
//! [`regions`] tell the overheads of parallel regions apart, and [`advice`] says what the figures mean. Only
//! the database is read (for regions also the machine's calibration), so it can be moved and kept.
//!
//! [`build`] and [`run`] wire both pipelines.

#![forbid(unsafe_code)]

pub mod advice;
pub mod build;
pub mod catalogue;
pub mod cli;
pub mod error;
pub mod exports;
pub mod metrics;
pub mod model;
pub mod passes;
pub mod regions;
pub mod render;
pub mod run;
pub mod schema;
pub mod sinks;
pub mod sources;
pub mod table;
pub mod views;
