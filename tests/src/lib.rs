//! What the end-to-end tests share: building the tools and the fixtures once, running a program
//! under the profiler, reading the views back, and comparing them with a program's own truth.
//!
//! * [`tools`]: release builds of the tools, the fixtures and the C programs, and the lock that
//!   keeps two measuring tests from running at once.
//! * [`run`]: one profiled run, its measurement directory and its database.
//! * [`view`]: the JSON of a view as FORMATS.md states it, and the checks that hold for every view.
//! * [`graph`]: activity graphs, and their longest paths.
//! * [`elf`]: ELF files around mutants of debug information.
//! * [`parsers`]: what a parser must do with any bytes.
//! * [`seeds`]: real files of every kind that is parsed.
//! * [`repository`]: the source tree as the repository's own checks read it.
//!
//! Helpers panic with a message that says what went wrong: they run inside tests only.

#![forbid(unsafe_code)]

pub mod elf;
pub mod graph;
pub mod parsers;
pub mod repository;
pub mod run;
pub mod seeds;
pub mod tools;
pub mod view;
