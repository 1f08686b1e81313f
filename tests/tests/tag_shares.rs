//! Overhead tags at every level of optimisation, by gcc, clang and rustc: the seconds that are shown as
//! overhead against those that the program measured in tagged code, within 3 % and two samples.

use hpcrun_tests::run::{Spec, Truth, is_long};
use hpcrun_tests::tools::{can_run, check, folder, one_core, workspace};
use hpcrun_tests::view::{View, assert_close, value};
use std::path::Path;
use std::process::Command;

/// Samples a second.
const RATE: u32 = 1000;
/// Milliseconds of CPU time of the programs' unit.
const UNIT_MS: &str = "150";

fn near(what: &str, measured: f64, truth: f64) {
    let allowed = 0.03 * truth + 2.0 / f64::from(RATE);
    assert_close(what, measured, truth, allowed);
}

fn profile(test: &str, program: &Path) -> (View, Truth) {
    let run = Spec::new(test, program).arguments(&[UNIT_MS]).rate(RATE).succeed();
    (run.database().top_down(), run.truth())
}

/// The total of a metric against the sites that make it up.
fn total(what: &str, view: &View, truth: &Truth, metric: &str, sites: &[&str]) {
    let known = sites.iter().map(|s| truth.of(s, "work")).sum();
    let what = format!("{what}: {metric}");
    near(&what, value(&view.totals, metric), known);
}

fn c(compiler: &str, levels: &[&[&str]]) {
    let place = folder(&format!("tags-{compiler}"));
    for (i, flags) in levels.iter().enumerate() {
        let program = place.join(format!("overhead{i}"));
        check(
            Command::new(compiler)
                .current_dir(workspace().join("fixtures/c"))
                .args(["overhead.c", "-o"])
                .arg(&program)
                .args(*flags),
        );
        let (view, truth) = profile(&format!("tags-{compiler}-{i}"), &program);
        let what = format!("{compiler} {flags:?}");
        total(&what, &view, &truth, "work", &["useful"]);
        total(&what, &view, &truth, "overhead:sync", &["locked"]);
        total(&what, &view, &truth, "overhead:other", &["plain"]);
    }
}

#[test]
fn gcc_at_every_level() {
    if !can_run("gcc") {
        println!("SKIPPED: gcc is not installed; its marks were not measured");
        return;
    }
    let _cores = one_core();
    c(
        "gcc",
        &[
            &["-g", "-O0"],
            &["-g", "-O1"],
            &["-g", "-O2"],
            &["-g", "-O3"],
            &["-g1", "-O2"],
            &["-g", "-O2", "-flto"],
        ],
    );
}

#[test]
fn clang_at_every_level() {
    if !can_run("clang") {
        println!("SKIPPED: clang is not installed; its marks were not measured");
        return;
    }
    let _cores = one_core();
    c("clang", &[&["-g", "-O0"], &["-g", "-O1"], &["-g", "-O2"], &["-g", "-O3"], &["-g1", "-O2"]]);
    if can_run("ld.lld") {
        c("clang", &[&["-g", "-O2", "-flto", "-fuse-ld=lld"]]);
    } else {
        println!("SKIPPED: ld.lld is not installed; clang's link-time optimisation was not measured");
    }
}

#[test]
fn rustc_at_every_level() {
    let _cores = one_core();
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let levels: [&[&str]; 5] = [
        &["-Copt-level=0"],
        &["-Copt-level=1"],
        &["-Copt-level=2"],
        &["-Copt-level=3"],
        &["-Copt-level=3", "-Clto=fat", "-Ccodegen-units=1"],
    ];
    let place = folder("tags-rustc");
    let with_lines: &[usize] = if is_long() { &[0, 1, 2, 3, 4] } else { &[3] };
    let with_all: &[usize] = if is_long() { &[0, 1, 2, 3, 4] } else { &[0, 2, 4] };
    for (debug, of) in [("1", with_all), ("line-tables-only", with_lines)] {
        for i in of.iter().copied() {
            let flags = levels[i];
            let program = place.join(format!("tags-{debug}-{i}"));
            check(
                Command::new(&rustc)
                    .args(["--edition=2024", "--crate-name=tags", "-o"])
                    .arg(&program)
                    .arg(workspace().join("fixtures/tags/main.rs"))
                    .arg(format!("-Cdebuginfo={debug}"))
                    .args(flags),
            );
            let (view, truth) = profile(&format!("tags-rustc-{debug}-{i}"), &program);
            let what = format!("rustc {flags:?} -Cdebuginfo={debug}");
            total(&what, &view, &truth, "overhead:sync", &["with_file"]);
            // With line tables alone modules are read in the source, which is at hand.
            total(&what, &view, &truth, "overhead:alloc", &["with_module"]);
            total(&what, &view, &truth, "work", &["useful", "called_back"]);
        }
    }
}
