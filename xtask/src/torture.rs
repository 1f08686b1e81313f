//! `cargo xtask torture`: the stress test of runtime and profiler, for as long as is wanted.
//!
//! One duty: run the long test of `tests/tests/torture.rs` with a time and a seed. It prints each
//! run's seed, and stops at the first that fails.

use crate::build;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// For how long
    #[arg(long, default_value_t = 10)]
    pub(crate) minutes: u64,
    /// The first seed (default: by the clock)
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let mut command = build::cargo();
    command
        .current_dir(build::workspace())
        .env("CARGO_TARGET_DIR", build::target()?)
        .env("TORTURE_MINUTES", options.minutes.to_string())
        .args(["test", "-p", "hpcrun-tests", "--test", "end_to_end", "--"])
        .args(["--ignored", "--nocapture", "random_trees_for_a_long_time"]);
    if let Some(seed) = options.seed {
        command.env("TORTURE_SEED", seed.to_string());
    }
    build::run(&mut command)
}
