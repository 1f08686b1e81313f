//! The profiler is a guest in the program: whatever the program does with its signals, masks and stacks, it
//! runs as it does alone, and its seconds are there. The rules are in `hpcrun-rs/preload/GUEST.md`.

use hpcrun_tests::run::Spec;
use hpcrun_tests::tools::{c_program, check, exclusive_cores};
use std::process::Command;

/// One kind of the fixture at both rates, which have different signals: the same output but for the truth,
/// and the work of each site.
fn runs_as_alone(kind: &str) {
    let _cores = exclusive_cores();
    let program = c_program("guest");
    let said = |output: &str| -> Vec<String> {
        output.lines().filter(|line| !line.starts_with('{')).map(str::to_owned).collect()
    };
    for rate in [200, 1000] {
        let run =
            Spec::new(&format!("guest-{kind}-{rate}"), &program).arguments(&[kind]).rate(rate).succeed();
        let alone = check(Command::new(&program).arg(kind));
        assert!(said(&alone).len() > 4, "{kind} says little: {alone}");
        for (ours, alone) in said(&run.stdout()).iter().zip(said(&alone)) {
            assert_eq!(*ours, alone, "{kind} at {rate} Hz: {}", run.stdout());
        }
        assert_eq!(said(&run.stdout()).len(), said(&alone).len(), "{kind} at {rate} Hz");
        let view = run.database().top_down();
        let is_rooted = view.unrooted() * 100 <= view.quality.samples;
        assert!(is_rooted || kind != "coroutines", "{:?}", view.quality);
        for (site, values) in &run.truth().sites {
            let (truth, work) = (values["work"], view.inclusive(site, "work"));
            // Samples come at random between the sites, which take turns of some milliseconds.
            let period = 1.0 / f64::from(rate);
            let allowed = 0.02 * truth + 3.5 * (truth * period).sqrt() + 3.0 * period;
            assert!((work - truth).abs() < allowed, "{kind} at {rate} Hz: {site} {work} s of {truth} s");
        }
    }
}

#[test]
fn alternate_stacks_are_the_programs_own() {
    runs_as_alone("stacks");
}

#[test]
fn hooks_need_no_more_stack_than_libc() {
    runs_as_alone("coroutines");
}

#[test]
fn handlers_run_as_the_kernel_runs_them() {
    runs_as_alone("handlers");
}

#[test]
fn every_door_to_an_action_is_watched() {
    runs_as_alone("doors");
}

#[test]
fn code_with_blocked_signals_is_sampled() {
    runs_as_alone("masks");
}

#[test]
fn a_traced_process_has_no_stops_of_ours() {
    runs_as_alone("traced");
}

/// A thread of a forked child may begin while another of the parent's loads libraries.
#[test]
fn forks_do_not_wait_for_the_parents_loader() {
    runs_as_alone("loads");
}
