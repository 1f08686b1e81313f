//! `cargo xtask`: the repository's own commands.
//!
//! * `demo` ([`demo`]): from a clean clone to the views of the case study.
//! * `overhead` ([`overhead`]): what profiling costs, against an unprofiled program.

#![forbid(unsafe_code)]

mod build;
mod demo;
mod overhead;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The repository's own commands")]
struct Command {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build everything, profile the Cholesky example and print its views
    Demo(demo::Options),
    /// Measure what profiling costs and print a Markdown table
    Overhead(overhead::Options),
}

fn main() -> ExitCode {
    let result = match Command::parse().task {
        Task::Demo(options) => demo::run(&options),
        Task::Overhead(options) => overhead::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
