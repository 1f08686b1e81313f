//! Waiting for locks: each holder is charged with what others waited until it released the lock, as the
//! program itself measured it, and nothing else is.

use hpcrun_tests::run::{Run, Spec};
use hpcrun_tests::tools::{c_program, exclusive_cores};
use hpcrun_tests::view::{View, assert_close, value};

const METRIC: &str = "lock-wait";

/// Runs a program, and checks the sites of its truth and that little else is charged.
fn profile(test: &str, spec: Spec) -> (Run, View) {
    let run = spec.lock_wait().succeed();
    let view = run.database().view("top-down", &["--metric", METRIC]);
    assert!(view.metrics.iter().any(|name| name == METRIC));
    let truth = run.truth();
    for (site, values) in &truth.sites {
        let waited = value(values, METRIC);
        let what = format!("{test}: {site}");
        assert_close(&what, view.inclusive(site, METRIC), waited, 0.05 * waited + 1e-3);
    }
    (run, view)
}

#[test]
fn the_holder_of_each_kind_of_lock_is_charged() {
    let _cores = exclusive_cores();
    for kind in
        ["mutex", "c11", "timed", "condition", "writers", "readers", "read-held", "spin", "futex", "released"]
    {
        let spec = Spec::new(&format!("locks-{kind}"), c_program("locks"));
        let (run, view) = profile(kind, spec.arguments(&[kind]));
        let truth = run.truth().total(METRIC);
        assert!(truth > 0.1, "{kind}: nobody waited");
        // The waiters themselves hold the lock for a moment, one after another.
        let total = value(&view.totals, METRIC);
        let of_waiters = view.inclusive("waiter", METRIC);
        assert_close(kind, total - of_waiters, truth, 0.05 * truth + 1e-3);
    }
}

#[test]
fn the_holder_of_each_lock_of_the_standard_library_and_of_parking_lot_is_charged() {
    let _cores = exclusive_cores();
    for kind in [
        "mutex",
        "writers",
        "readers",
        "read-held",
        "parked-mutex",
        "parked-writers",
        "parked-readers",
        "parked-read-held",
    ] {
        let spec = Spec::fixture(&format!("contended-{kind}"), "contended");
        let (run, _) = profile(kind, spec.arguments(&[kind]));
        assert!(run.truth().total(METRIC) > 0.1, "{kind}: nobody waited");
    }
}

#[test]
fn locks_that_nobody_waits_for_and_futexes_that_are_no_locks_charge_nothing() {
    let _cores = exclusive_cores();
    for kind in ["alone", "event"] {
        let spec = Spec::new(&format!("locks-{kind}"), c_program("locks"));
        let (_, view) = profile(kind, spec.arguments(&[kind]));
        assert_eq!(value(&view.totals, METRIC), 0.0, "{kind}");
        assert_eq!(view.quality.unknown_lock_wait_seconds, 0.0, "{kind}");
    }
}

/// A run without the metric has neither its values nor its figures.
#[test]
fn the_metric_is_off_unless_it_is_asked_for() {
    let _cores = exclusive_cores();
    let spec = Spec::new("locks-off", c_program("locks")).arguments(&["mutex"]);
    let view = spec.succeed().database().top_down();
    assert!(!view.metrics.iter().any(|name| name == METRIC));
    assert_eq!(view.quality.unknown_lock_wait_seconds, 0.0);
}
