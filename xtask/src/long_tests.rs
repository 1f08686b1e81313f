//! The tests that no build runs: `cargo xtask nightly`, `torture`, `fuzz-seeds`.
//!
//! One duty: run cargo with what each of them needs. The tests themselves are in `tests/tests`.

use crate::{build, rayon_tests};
use std::process::Command;

/// What else the machine does meanwhile, as `tests/src/run.rs` names it.
const CONDITIONS: [&str; 3] = ["beside-busy", "slow-clock", "crowded"];

/// The tests whose truths hold under each of them.
const MODULES: [&str; 6] = ["scenarios::", "runtimes::", "node::", "truth::", "tag_shares::", "lifecycle::"];

#[derive(clap::Args)]
pub(crate) struct Nightly {
    /// For how long random fork-join trees are tried
    #[arg(long, default_value_t = 10)]
    minutes: u64,
}

#[derive(clap::Args)]
pub(crate) struct Torture {
    /// For how long
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// The first seed (default: by the clock)
    #[arg(long)]
    seed: Option<u64>,
}

/// Every check, whatever has changed, and the long tests.
pub(crate) fn nightly(options: &Nightly) -> Result<(), String> {
    build::run(
        Command::new(build::workspace().join(".ci/run"))
            .env("CARGO_TARGET_DIR", build::target()?)
            .env("HPCRUN_TEST_LONG", "1")
            .arg("--all"),
    )?;
    rayon_tests::run(&rayon_tests::Options { newest: false, no_doc: false })?;
    for condition in CONDITIONS {
        println!("\n== end-to-end tests: {condition}");
        build::run(end_to_end()?.env("HPCRUN_TEST_CONDITION", condition).args(MODULES))?;
    }
    torture(&Torture { minutes: options.minutes, seed: None })
}

/// The stress test of runtime and profiler, `tests/tests/torture.rs`, with a time and a seed. It prints each
/// run's seed, and stops at the first that fails.
pub(crate) fn torture(options: &Torture) -> Result<(), String> {
    let mut command = end_to_end()?;
    command.env("TORTURE_MINUTES", options.minutes.to_string());
    if let Some(seed) = options.seed {
        command.env("TORTURE_SEED", seed.to_string());
    }
    build::run(command.args(["--ignored", "--nocapture", "random_trees_for_a_long_time"]))
}

/// Real files for the fuzz targets to begin with: the ignored test of `tests/tests/mutations.rs` writes them
/// into `fuzz/corpus/`, where cargo-fuzz looks for them. They are made by our tools and the C compiler.
pub(crate) fn fuzz_seeds() -> Result<(), String> {
    let corpus = build::workspace().join("fuzz/corpus");
    let mut command = end_to_end()?;
    command.env("FUZZ_SEEDS", corpus);
    build::run(command.args(["--ignored", "--nocapture", "seeds_of_the_fuzz_targets"]))
}

/// The end-to-end tests; arguments say which.
fn end_to_end() -> Result<Command, String> {
    let mut command = build::cargo();
    command.current_dir(build::workspace()).env("CARGO_TARGET_DIR", build::target()?).args([
        "test",
        "-p",
        "hpcrun-tests",
        "--test",
        "end_to_end",
        "--",
    ]);
    Ok(command)
}
