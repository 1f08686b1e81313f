//! hpcprof-rs merges what was measured in all threads and processes of a run, attributes it to
//! source code, writes a database, and prints views of it.
//!
//! [`build`] and [`run`] wire both pipelines, whose passes ARCHITECTURE.md lists. Views read the database
//! only (for regions also the machine's calibration), so it can be moved and kept.
//!
//! | to change | begin at |
//! |---|---|
//! | an option | `cli` (of exports `exports/mod`), `run` |
//! | a table or a column of the catalogue | `schema`; `sinks/database` writes, `catalogue` reads |
//! | a column of a Parquet file | `sinks/columns` writes, `catalogue/{contexts,thread_values}` read |
//! | a metric | `model/metrics`; `passes/merge/shard` counts it |
//! | which frames are folded | `views/fold` |
//! | what a name says: a runtime, a library, a wait | `table.txt` of hpcstruct-rs's room `known` |
//! | a column of a view | `render/text`, `render/csv`, `render/json` |
//! | a format of other profilers | a file in `exports`, a row in `exports/mod` |
//! | a verdict, a line of the first screen | `advice/efficiency`, `advice/quality`, `advice/first_screen` |
//! | advice | `advice/findings` |
//! | a condition of `check` | `checks/condition`, `checks/answer` |
//! | what a sweep says | `sweep` |
//! | whose code a row is about | `advice/owners`, `advice/rows` |
//! | a worker of a task runtime that hides callers | `model/workers` |
//! | a library of parallel loops, a parallel construct | `passes/parallel_loops/rules`, `regions/construct` |
//! | a warning of damaged input | `sources/measurements`, `passes/merge/shard` |

#![forbid(unsafe_code)]
// The library is there for the command, its tests and cargo-hpcrun: names that speak need no sentence.
#![allow(missing_docs)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod advice;
pub mod build;
pub mod catalogue;
pub mod checks;
pub mod cli;
pub mod error;
pub mod exports;
pub mod metrics;
pub mod model;
pub mod page;
pub mod pager;
pub mod passes;
pub mod regions;
pub mod render;
pub mod run;
pub mod schema;
pub mod sinks;
pub mod sources;
pub mod sweep;
pub mod table;
pub mod terminal;
pub mod timeline;
pub mod views;
