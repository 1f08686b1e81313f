//! `cargo xtask`: the repository's own commands.

#![forbid(unsafe_code)]

mod build;
mod compare_runtimes;
mod demo;
mod dist;
mod install;
mod long_tests;
mod overhead;
mod rayon_core;
mod rayon_tests;
mod statistics;

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
    /// Build the four tools and install them
    Install(install::Options),
    /// Put the tools, their man pages and completions into an archive with a checksum
    Dist(dist::Options),
    /// Measure what profiling costs and print a Markdown table
    Overhead(overhead::Options),
    /// Write real files for the fuzz targets to begin with
    FuzzSeeds,
    /// Run rayon's own tests on this repository's rayon-core
    RayonTests(rayon_tests::Options),
    /// Compare our runtime with rayon, chili, TBB and OpenMP and print a Markdown table
    CompareRuntimes(compare_runtimes::Options),
    /// Run every check whatever has changed, all conditions, and the long tests
    Nightly(long_tests::Nightly),
    /// Random fork-join trees with panics in all places, profiled and judged
    Torture(long_tests::Torture),
}

fn main() -> ExitCode {
    let result = match Command::parse().task {
        Task::Demo(options) => demo::run(&options),
        Task::Install(options) => install::run(&options),
        Task::Dist(options) => dist::run(&options),
        Task::Overhead(options) => overhead::run(&options),
        Task::FuzzSeeds => long_tests::fuzz_seeds(),
        Task::RayonTests(options) => rayon_tests::run(&options),
        Task::CompareRuntimes(options) => compare_runtimes::run(&options),
        Task::Nightly(options) => long_tests::nightly(&options),
        Task::Torture(options) => long_tests::torture(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
