//! The house rules of `hpcrun-rs/preload/GUEST.md`: a program under limits, in a sandbox, or with names and
//! privileges of its own runs as without the profiler, and the report has its seconds, or says what is
//! missing.

use hpc_formats::process::SHORT_EXTENSION;
use hpcrun_tests::run::{Run, Spec};
use hpcrun_tests::tools::{c_program, check, exclusive_cores};
use hpcrun_tests::view::assert_close;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// A shell's command, with the paths of the programs.
fn command(text: &str) -> String {
    ["house", "own_names"].into_iter().fold(text.to_owned(), |text, name| {
        text.replace(name, c_program(name).to_str().expect("a path in UTF-8"))
    })
}

/// Runs the program plainly and profiled, and compares status and output.
fn run_as_without_us(name: &str, limits: &str, rate: u32) -> Run {
    let command = command(limits);
    let plain = check(Command::new("sh").args(["-c", &command]));
    let spec = Spec::new(&format!("house-{name}-{rate}"), "/bin/sh").arguments(&["-c", &command]);
    let run = spec.rate(rate).succeed();
    assert_eq!(run.stdout(), plain, "{name} at {rate} Hz: {}", run.stderr());
    run
}

#[test]
fn limits_suffice_that_suffice_without_us() {
    let _cores = exclusive_cores();
    for rate in [200, 1000] {
        for (name, limits) in [
            ("memory", "ulimit -v 1500000; exec house memory"),
            ("descriptors", "ulimit -n 128; exec house descriptors"),
        ] {
            let run = run_as_without_us(name, limits, rate);
            let view = run.database().top_down();
            // Two threads, whose first samples come at random.
            let what = format!("{name} at {rate} Hz");
            assert_close(&what, view.inclusive("guest_work", "work"), 0.2, 0.05);
            assert_eq!(view.quality.rooted, view.quality.samples, "{what}: {:?}", view.quality);
        }
        run_as_without_us("file-size", "exec house file-size", rate);
        let view = run_as_without_us("no-more-files", "exec house no-more-files", rate).database().top_down();
        assert_close("no more files", view.inclusive("guest_work", "work"), 0.2, 0.05);
    }
}

#[test]
fn names_of_libc_are_the_programs() {
    let _cores = exclusive_cores();
    for rate in [200, 1000] {
        let run = run_as_without_us("own-names", "exec own_names", rate);
        let view = run.database().top_down();
        assert_close("own names", view.inclusive("guest_work", "work"), 0.2, 0.03);
        assert_eq!(view.quality.rooted, view.quality.samples, "{:?}", view.quality);
    }
}

/// A filter that ends the process at any call but five, and strict mode, in which nothing can be sampled.
#[test]
fn a_sandbox_meets_no_call_of_ours() {
    let _cores = exclusive_cores();
    for rate in [200, 1000] {
        let view = run_as_without_us("filter", "exec house filter", rate).database().top_down();
        assert_close("in a sandbox", view.inclusive("counted_work", "work"), 0.2, 0.06);
        assert_eq!(view.quality.rooted, view.quality.samples, "{:?}", view.quality);
    }
    let database = run_as_without_us("strict", "exec house strict", 1000).database();
    let said = String::from_utf8_lossy(&database.output.stderr).into_owned();
    assert!(said.contains("entered a sandbox"), "{said}");
    assert_eq!(database.top_down().inclusive("counted_work", "work"), 0.0);
}

/// Only root can become another user. Its threads, forks and programs go on as that user.
#[test]
fn who_becomes_another_user_is_sampled() {
    let _cores = exclusive_cores();
    let is_root = check(Command::new("id").arg("-u")).trim() == "0";
    for way in ["other-user", "other-root"].into_iter().filter(|_| is_root) {
        let run = run_as_without_us(way, &format!("exec house {way}"), 1000);
        let view = run.database().top_down();
        // Six threads and processes, whose first samples come at random.
        assert_close(way, view.inclusive("guest_work", "work"), 0.45, 0.04);
        assert_eq!(view.quality.rooted, view.quality.samples, "{way}: {:?}", view.quality);
    }
}

#[test]
fn programs_with_an_environment_of_their_own_are_sampled() {
    let _cores = exclusive_cores();
    for rate in [200, 1000] {
        let run = run_as_without_us("environments", "exec house environments", rate);
        let view = run.database().top_down();
        assert_close("environments", view.inclusive("guest_work", "work"), 0.5, 0.06);
        assert_eq!(view.quality.rooted, view.quality.samples, "{:?}", view.quality);
    }
}

/// Functions that libc calls in threads that it makes itself.
#[test]
fn threads_of_libc_are_sampled() {
    let _cores = exclusive_cores();
    for rate in [200, 1000] {
        let run = run_as_without_us("notifications", "exec house notifications", rate);
        let view = run.database().top_down();
        assert_close("notifications", view.inclusive("guest_work", "work"), 0.4, 0.05);
        assert_eq!(view.quality.rooted, view.quality.samples, "{:?}", view.quality);
    }
}

/// To make a file takes longer than many a short process, so those without a sample share one.
#[test]
fn short_processes_share_a_file() {
    let _cores = exclusive_cores();
    let many = "for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; (exit 3); /no/true 2>/dev/null; done; \
                house memory";
    let run = run_as_without_us("short", many, 200);
    for own in run.files("hpcproc") {
        let profile =
            own.to_string_lossy().replace("/process-", "/thread-").replace(".hpcproc", "-1.hpcprofile");
        assert!(Path::new(&profile).exists(), "{profile}");
    }
    let processes = run.processes();
    let images = processes.iter().map(|p| (p.start.pid, p.start.image));
    let images: BTreeSet<_> = images.collect();
    assert_eq!(images.len(), processes.len(), "{processes:?}");
    assert!(images.len() > 20 && run.files(SHORT_EXTENSION).len() == 1, "{images:?}");
    assert!(processes.iter().all(|p| p.end.is_some()), "{processes:?}");
}
