//! `cargo xtask nightly`: every check, whatever has changed, and the long tests.

use crate::{build, rayon_tests, torture};
use std::process::Command;

/// What else the machine does meanwhile, as `tests/src/run.rs` names it.
const CONDITIONS: [&str; 3] = ["beside-busy", "slow-clock", "crowded"];

/// The tests whose truths hold under each of them.
const MODULES: [&str; 6] = ["scenarios::", "runtimes::", "node::", "truth::", "tag_shares::", "lifecycle::"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// For how long random fork-join trees are tried
    #[arg(long, default_value_t = 10)]
    minutes: u64,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let target = build::target()?;
    let root = build::workspace();
    build::run(
        Command::new(root.join(".ci/run"))
            .env("CARGO_TARGET_DIR", &target)
            .env("HPCRUN_TEST_LONG", "1")
            .arg("--all"),
    )?;
    rayon_tests::run(&rayon_tests::Options { newest: false, no_doc: false })?;
    for condition in CONDITIONS {
        println!("\n== end-to-end tests: {condition}");
        build::run(
            build::cargo()
                .current_dir(root)
                .env("CARGO_TARGET_DIR", &target)
                .env("HPCRUN_TEST_CONDITION", condition)
                .args(["test", "-p", "hpcrun-tests", "--test", "end_to_end", "--"])
                .args(MODULES),
        )?;
    }
    torture::run(&torture::Options { minutes: options.minutes, seed: None })
}
