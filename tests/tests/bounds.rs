//! Samples that would take long, and samples that come late: a program is not held up, and time of which the
//! place is unknown goes to no place.

use hpcrun_tests::run::{Run, Spec};
use hpcrun_tests::tools::{c_program, exclusive_cores};
use hpcrun_tests::view::assert_close;

fn run(what: &str, rate: u32) -> Run {
    let name = format!("bounds-{what}-{rate}");
    Spec::new(&name, c_program("bounds")).arguments(&[what]).rate(rate).succeed()
}

/// `hidden_work` has no sample but the one that comes when they may come again.
#[test]
fn time_that_was_held_back_goes_to_a_context_that_says_so() {
    let _cores = exclusive_cores();
    // A program can only switch perf off, which is used above the kernel's tick.
    for (what, rate) in [("mask", 200), ("mask", 1000), ("prctl", 1000)] {
        let view = run(what, rate).database().top_down();
        let work = |name| view.inclusive(name, "work");
        let what = format!("{what} at {rate} Hz");
        assert_close(&format!("{what}: held back"), work("partial:held-back"), 0.5, 0.03);
        assert_close(&format!("{what}: before"), work("before_it"), 0.3, 0.03);
        assert_close(&format!("{what}: after"), work("after_it"), 0.3, 0.03);
        assert_close(&format!("{what}: hidden"), work("hidden_work"), 0.0, 0.03);
    }
}

/// That of a thread is below what created it.
#[test]
fn time_that_was_held_back_is_its_threads() {
    let _cores = exclusive_cores();
    let view = run("thread", 200).database().top_down();
    let held = view.inclusive_under(&["in_thread", "partial:held-back"], "work");
    assert_close("held back", held, 0.5, 0.03);
    assert_close("all of it", view.inclusive("partial:held-back", "work"), held, 0.0);
}

/// A wait has that part of its time in which nobody worked.
#[test]
fn waits_while_nobody_works_are_known_by_their_places() {
    let _cores = exclusive_cores();
    let database = run("still", 200).database();
    let view = database.view("top-down", &["--metric", "standstill"]);
    let waited = |name| view.inclusive(name, "standstill");
    assert_close("sleeps", waited("sleeps"), 0.3, 0.05);
    assert_close("while a thread works", waited("in_thread"), 0.0, 0.03);
    let screen = String::from_utf8_lossy(&database.output.stdout).into_owned();
    assert!(screen.contains("of that in sleeps"), "{screen}");
}

/// There are no samples either, but the place is known.
#[test]
fn a_long_system_call_has_its_time() {
    let _cores = exclusive_cores();
    for rate in [200, 1000] {
        let view = run("kernel", rate).database().top_down();
        let work = view.inclusive("in_kernel", "work");
        assert!((0.45..0.9).contains(&work), "{rate} Hz: {work}");
        assert_eq!(view.inclusive("partial:held-back", "work"), 0.0);
    }
}

#[test]
fn the_paths_of_a_deep_stack_are_whole() {
    let _cores = exclusive_cores();
    for rate in [200, 1000] {
        let view = run("deep", rate).database().top_down();
        assert_close("deep", view.inclusive("hidden_work", "work"), 1.0, 0.1);
        assert_eq!(view.quality.rooted, view.quality.samples, "{:?}", view.quality);
    }
}
