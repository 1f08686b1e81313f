//! `cargo xtask fuzz-seeds`: real files for the fuzz targets to begin with.
//!
//! One duty: have the ignored test of `tests/tests/mutations.rs` write them into `fuzz/corpus/`, where
//! cargo-fuzz looks for them. They are made by our tools and the C compiler; none is kept in the repository.

use crate::build;

pub(crate) fn run() -> Result<(), String> {
    build::run(
        build::cargo()
            .current_dir(build::workspace())
            .env("CARGO_TARGET_DIR", build::target()?)
            .env("FUZZ_SEEDS", build::workspace().join("fuzz/corpus"))
            .args(["test", "-q", "-p", "hpcrun-tests", "--test", "end_to_end"])
            .args(["--", "--ignored", "--nocapture", "seeds_of_the_fuzz_targets"]),
    )
}
