//! Writes measurement directories of any size, for merges to be timed, and prints their totals:
//! `cargo bench -p hpcprof-rs --bench synthetic -- --threads 10000 -o DIR`.

#![allow(missing_docs)]

#[path = "../tests/support/mod.rs"]
#[allow(dead_code)]
mod support;

use clap::Parser;
use std::path::PathBuf;
use support::synthetic::{Shape, write};

#[derive(Parser)]
#[command(name = "synthetic")]
struct Options {
    /// Threads of a run
    #[arg(long, default_value_t = 64)]
    threads: u32,
    /// Different contexts of the program
    #[arg(long, default_value_t = 10_000)]
    contexts: u32,
    /// Frames of the longest call paths
    #[arg(long, default_value_t = 25)]
    depth: u32,
    /// Procedures of the program
    #[arg(long, default_value_t = 3000)]
    procedures: u32,
    /// Runs: with more than one, DIR has a measurement directory for each
    #[arg(long, default_value_t = 1)]
    runs: u32,
    /// What chance starts from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory to write, which must not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// What cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let options = Options::parse();
    let Options { threads, contexts, depth, procedures, seed, .. } = options;
    assert!(!options.output.exists(), "{} exists", options.output.display());
    let shape = Shape { threads, contexts, depth, procedures, share: 0.2, seed };
    for run in 0..options.runs {
        let directory = match options.runs {
            1 => options.output.clone(),
            _ => options.output.join(format!("run-{:04}", run + 1)),
        };
        println!("{}: {:?}", directory.display(), write(&shape, run, &directory));
    }
}
