//! Programs on rayon, as published and on work-stealing-rt: the views against what the programs
//! know of themselves (`fixtures/rayon`).

use hpcrun_tests::run::{Database, Run, Spec, Truth};
use hpcrun_tests::tools::{Rayon, machine, rayon_program};
use hpcrun_tests::view::{View, value};

const RATE: u32 = 1000;

fn profile(rayon: Rayon, name: &str, arguments: &[&str]) -> (Run, Database) {
    let test = format!("rayon-{rayon:?}-{name}-{}", arguments.join("-"));
    let spec = Spec::new(&test, rayon_program(rayon, name));
    let run = spec.arguments(arguments).rate(RATE).succeed();
    let database = run.database();
    (run, database)
}

fn truth_of(truth: &Truth, site: &str, metric: &str) -> f64 {
    let values = truth.sites.get(site);
    value(values.unwrap_or_else(|| panic!("no site {site}")), metric)
}

fn assert_within(what: &str, measured: f64, truth: f64, share: f64) {
    let tolerance = share * truth + 3.0 * (truth / f64::from(RATE)).sqrt();
    assert!(
        (measured - truth).abs() <= tolerance,
        "{what}: measured {measured:.4} s, truth {truth:.4} s, allowed {tolerance:.4} s"
    );
}

fn assert_rooted(view: &View) {
    let quality = &view.quality;
    assert!(quality.samples > 300, "there are samples: {quality:?}");
    assert!(
        quality.rooted as f64 >= 0.999 * quality.samples as f64,
        "not rooted: {quality:?}"
    );
}

#[test]
fn stock_workers_that_wait_are_idle_and_cost_nothing() {
    let _machine = machine();
    let (run, database) = profile(Rayon::Stock, "waits", &["2", "10000"]);
    let (view, truth) = (database.top_down(), run.truth());
    assert_rooted(&view);
    for site in ["waits::short", "waits::long", "waits::pause"] {
        let near = |metric, share| {
            let seconds = truth_of(&truth, site, metric);
            assert_within(site, view.inclusive(site, metric), seconds, share);
        };
        near("work", 0.08);
        // What rayon does between two spins is no idleness of theirs, and the program's own
        // clock sees a worker as idle a little before and after.
        near("idleness", 0.12);
    }
    let recorded = run.recorded();
    assert!(
        recorded.idle > 0.05,
        "workers spun while they waited, which no context is charged for: {recorded:?}"
    );
    let physical = database.view("top-down", &["--projection", "physical"]);
    physical.walk(&mut |_, node| {
        assert!(
            !node.name.ends_with("WorkerThread::find_work")
                && !node.name.ends_with("sleep::Sleep::sleep"),
            "a sample of a waiting worker was recorded: {}",
            node.name
        );
        if node.name.ends_with("WorkerThread::wait_until_cold") {
            let own = value(&node.exclusive, "work") + value(&node.exclusive, "overhead");
            assert_eq!(own, 0.0, "the scheduler's own loop is no work");
        }
    });
}

#[test]
fn stock_tasks_never_lie_under_an_unrelated_caller_and_the_reader_is_told() {
    let _machine = machine();
    let (run, database) = profile(Rayon::Stock, "loops", &["2", "12"]);
    let (view, truth) = (database.top_down(), run.truth());
    assert_rooted(&view);
    for site in ["light_leaf", "heavy_leaf", "inner_leaf", "serial"] {
        let site = format!("loops::{site}");
        let seconds = truth_of(&truth, &site, "work");
        assert_within(&site, view.inclusive(&site, "work"), seconds, 0.05);
    }
    let callers = ["loops::unequal", "loops::shared_loop", "loops::nested"];
    view.walk(&mut |above, node| {
        let of = |name: &str| {
            callers
                .iter()
                .position(|caller| name == *caller || name.starts_with(&format!("{caller}::")))
        };
        if let Some(own) = of(&node.name) {
            let other = above.iter().find_map(|n| of(&n.name).filter(|i| *i != own));
            assert_eq!(other, None, "{} under another loop", node.name);
        }
    });
    let quality = &view.quality;
    assert!(
        quality.spawnerless as f64 >= 0.95 * quality.samples as f64,
        "stock rayon tells no task's spawner: {quality:?}"
    );
    let screen = String::from_utf8_lossy(&database.output.stdout);
    let told = screen
        .lines()
        .any(|line| line.contains("no caller above their task") && line.contains("cargo hpcrun"));
    assert!(told, "the reader is told:\n{screen}");
}

#[test]
fn what_a_join_costs_is_overhead() {
    let _machine = machine();
    let (run, database) = profile(Rayon::Stock, "joins", &["37"]);
    let (view, truth) = (database.top_down(), run.truth());
    let plain = truth_of(&truth, "joins::plain", "work");
    let joined = truth_of(&truth, "joins::joined", "work");
    assert_within("plain", view.inclusive("joins::plain", "work"), plain, 0.05);
    let (work, overhead) = (
        view.inclusive("joins::joined", "work"),
        view.inclusive("joins::joined", "overhead"),
    );
    assert_within("joined", work + overhead, joined, 0.05);
    // The useful part is a few instructions between rayon's: the compiler schedules them into
    // each other, so that the boundary is known to some percent only.
    assert_within("overhead of join", overhead, joined - plain, 0.12);
}
