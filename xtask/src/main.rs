//! `cargo xtask`: the repository's own commands.
//!
//! * `demo` ([`demo`]): from a clean clone to the views of the case study.
//! * `overhead` ([`overhead`]): what profiling costs, against an unprofiled program.
//! * `rayon-tests` ([`rayon_tests`]): rayon's own tests on our `rayon-core`.

#![forbid(unsafe_code)]

mod build;
mod demo;
mod overhead;
mod rayon_tests;

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
    /// Run rayon's own tests on this repository's rayon-core
    RayonTests(rayon_tests::Options),
}

fn main() -> ExitCode {
    let result = match Command::parse().task {
        Task::Demo(options) => demo::run(&options),
        Task::Overhead(options) => overhead::run(&options),
        Task::RayonTests(options) => rayon_tests::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
