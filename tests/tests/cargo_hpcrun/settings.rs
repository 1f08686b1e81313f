//! What users set, for cargo or for a package: it is heeded, and the program still has its lines.

use crate::project::{JOIN_MAIN, Outcome, Project, RAYON_MAIN, THREADS_MAIN, assert_rooted, logging_wrapper};
use hpcrun_tests::tools::{one_core, tool_path};
use std::fs;

#[test]
fn a_packages_own_profile_does_not_take_the_lines_away() {
    let _cores = one_core();
    let project = Project::of(
        "packages",
        "[dependencies]\nrayon-core = \"1.13\"\n\
             [profile.release.package.\"*\"]\ndebug = false\nopt-level = 3\n\
             [profile.release.package.packages]\ndebug = 0",
        JOIN_MAIN,
    )
    .locked();
    let outcome = project.run(&["-e", "cpu-time@1000"]).succeed();
    assert_eq!(outcome.ours(), [""; 0], "nothing needs to be said");
    assert!(outcome.stdout.contains("main.rs:"), "{outcome:#?}");
    assert_rooted(&project.database("hpcrun-packages-database"), "packages");
    // RUSTFLAGS no more than the profile.
    let plain = Project::of("flags", "", THREADS_MAIN).locked();
    let mut command = plain.bare(&["-q"]);
    let outcome = Outcome::of(command.env("RUSTFLAGS", "-C debuginfo=0")).succeed();
    assert!(outcome.stdout.contains("main.rs:"), "{outcome:#?}");
}

#[test]
fn a_program_on_the_shared_standard_library_finds_it() {
    let _cores = one_core();
    let project = Project::of("shared", "", THREADS_MAIN).locked();
    let mut command = project.bare(&["-q"]);
    command.env("RUSTFLAGS", "-C prefer-dynamic");
    let outcome = Outcome::of(command.env_remove("LD_LIBRARY_PATH")).succeed();
    assert!(outcome.stdout.contains("shared::burn"), "{outcome:#?}");
}

#[test]
fn cargos_configuration_is_heeded() {
    let _cores = one_core();
    let project = Project::of("configured", "[dependencies]\nrayon-core = \"1.13\"", JOIN_MAIN)
        .file(
            ".cargo/config.toml",
            "[build]\nrustc-wrapper = \"../wrapper.sh\"\ntarget-dir = \"what is built\"\n",
        )
        .locked();
    let (_, log) = logging_wrapper(&project);
    let outcome = Outcome::of(&mut project.bare(&["build"])).succeed();
    assert_eq!(outcome.ours(), [""; 0], "nothing needs to be said");
    assert!(outcome.stdout.contains("/what is built/"), "{outcome:#?}");
    let words = fs::read_to_string(&log).expect("the configured wrapper was run");
    assert!(words.contains("--crate-name work_stealing_rt "), "{words}");
    // The environment goes above it, with paths relative to the current folder.
    let mut command = project.bare(&["build", "--manifest-path", "../Cargo.toml"]);
    command.current_dir(project.folder.join("src"));
    fs::write(project.folder.join("src/none"), "").expect("it can be written");
    let broken = Outcome::of(command.env("RUSTC_WRAPPER", "./none"));
    let complaint = project.folder.join("src/./none").display().to_string();
    assert!(broken.stderr.contains(&complaint), "{broken:#?}");
    // What was wrong with a wrapper is forgotten with it.
    Outcome::of(command.env("RUSTC_WRAPPER", "")).succeed();

    let host = "x86_64-unknown-linux-gnu";
    let mut command = project.bare(&["build"]);
    command.env("CARGO_BUILD_TARGET", "wasm32-unknown-unknown");
    Outcome::of(&mut command).assert_clear(&["wasm32", "CARGO_BUILD_TARGET", "--target", host]);
    let config = "[build]\ntarget = [\"host-tuple\", \"wasm32-unknown-unknown\"]\n";
    let project = project.file(".cargo/config.toml", config);
    project.run(&["build"]).assert_clear(&["wasm32", "config.toml", "--target", host]);
}

#[test]
fn the_program_gets_the_configured_environment_and_a_runner_is_named() {
    let _cores = one_core();
    let project = Project::new("environment")
        .manifest("environment", "")
        .main(
            "src/main.rs",
            r#"
fn main() {
    for name in ["PLAIN_VALUE", "GIVEN_VALUE", "FORCED_VALUE", "PATH_VALUE", "CARGO_PKG_VERSION"] {
        println!("{name} {:?}", std::env::var(name));
    }
    println!("sum {:x}", (0..1000).fold(0u64, |sum, n| sum.wrapping_add(burn(n))));
}
"#,
        )
        .file(
            ".cargo/config.toml",
            "[env]\nPLAIN_VALUE = \"a 'b' # \\\"c\\\"\"\nGIVEN_VALUE = \"configured\"\n\
             FORCED_VALUE = { value = \"configured\", force = true }\n\
             PATH_VALUE = { value = \"some data\", relative = true }\n\
             [target.x86_64-unknown-linux-gnu]\nrunner = [\"other-runner\", \"-x\"]\n",
        )
        .locked();
    let before = project.files();
    let mut command = project.bare(&["--manifest-path", "../Cargo.toml", "-o", "../a-database"]);
    command.current_dir(project.folder.join("src")).env("GIVEN_VALUE", "given").env("FORCED_VALUE", "given");
    let outcome = Outcome::of(&mut command).succeed();
    for line in [
        r##"PLAIN_VALUE Ok("a 'b' # \"c\"")"##.to_owned(),
        r#"GIVEN_VALUE Ok("given")"#.to_owned(),
        r#"FORCED_VALUE Ok("configured")"#.to_owned(),
        format!("PATH_VALUE Ok({:?})", project.folder.join("some data")),
        r#"CARGO_PKG_VERSION Ok("0.3.0")"#.to_owned(),
    ] {
        assert!(outcome.stdout.lines().any(|l| l == line), "{line} in {outcome:#?}");
    }
    let ours = outcome.ours();
    let runner = ours.iter().filter(|l| l.contains("runner other-runner -x"));
    assert_eq!(runner.count(), 1, "{outcome:#?}");
    assert_eq!(project.files(), before, "the user's files are untouched");
}

#[test]
fn a_stripped_build_is_refused_in_words() {
    let _cores = one_core();
    let project = Project::of("stripped", "[dependencies]\nrayon = \"1.11\"", RAYON_MAIN).locked();
    let mut command = project.command(&[]);
    let outcome = Outcome::of(command.env("RUSTFLAGS", "-C strip=symbols"));
    outcome.assert_clear(&["without symbols", "RUSTFLAGS"]);
    assert!(tool_path("cargo-hpcrun").is_file());
}
