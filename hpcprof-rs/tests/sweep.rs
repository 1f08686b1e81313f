//! Why a program does not scale, on runs whose losses are known.

use crate::support::program::{CALLER, LEAF, MAIN, MAIN_SERIAL, SERIAL, START, run_of};
use crate::support::schema::Schema;
use crate::support::*;
use serde_json::Value;

/// A run on so many workers: `app::serial` has as many samples while all others idle, `app::leaf` on all of
/// them; and the run lasts so long beyond that.
fn a_run(workers: u32, serial: u64, parallel: u64, waiting_ms: u64) -> Run {
    let mut run = run_of(|thread, entry| {
        let node = thread.natives(entry, &[START, MAIN_SERIAL, SERIAL]);
        thread.sample(node, serial, f64::from(workers) - 1.0);
        let node = thread.natives(entry, &[START, MAIN, CALLER, LEAF]);
        thread.sample(node, parallel, 0.0);
    });
    run.start.cores = workers;
    let end = run.end.as_mut().expect("an end");
    let area = (serial * u64::from(workers) + parallel) * PERIOD_NS;
    end.monotonic_ns = IMAGE + area / u64::from(workers) + waiting_ms * 1_000_000;
    (end.cores, end.mean_cores) = (workers, f64::from(workers));
    run
}

#[test]
fn losses_add_up_and_lead_to_their_places() {
    // On two workers `leaf` takes half as long again, and a tenth of a second is lost in sleep.
    let runs = [a_run(1, 200, 1000, 0), a_run(2, 200, 1500, 100), a_run(4, 200, 1000, 0)];
    let databases = runs.each_ref().map(database);
    let paths = databases.each_ref().map(|of| text(of));
    let all = tool(&[&["sweep"], &paths[..], &["--format", "json"]].concat()).expect("a sweep");
    let all: Value = serde_json::from_str(&all).expect("JSON");
    assert_eq!(Schema::read("sweep").problems(&all), [""; 0]);
    let number = |of: &Value| of.as_f64().expect("a number");
    let steps = all["steps"].as_array().expect("steps");
    let area = |step: &Value| number(&step["workers"]) * number(&step["wall"]);
    for (step, losses) in steps.iter().zip([[0.0; 3], [1.0, 2.5, 0.2], [3.0, 0.0, 0.0]]) {
        let lost = &step["lost"];
        for (cause, known) in ["idleness", "work", "waiting"].into_iter().zip(losses) {
            assert!((number(&lost[cause]) - known).abs() < 0.01, "{cause}: {step}");
        }
        let parts = ["idleness", "work", "waiting", "overhead"].map(|cause| number(&lost[cause]));
        let total = area(step) - area(&steps[0]);
        assert!((parts.iter().sum::<f64>() - total).abs() <= total * 0.03 + 1e-9, "{step}");
        let wall = number(&step["wall"]) * number(&step["speed_up"]);
        assert!((wall - number(&steps[0]["wall"])).abs() < 1e-6);
    }
    let places = |step: usize| {
        let places = steps[step]["places"].as_array().expect("places").iter();
        places.map(|of| of["name"].as_str().expect("a name")).collect::<Vec<_>>()
    };
    assert_eq!(places(1), ["app::leaf", "app::serial"]);
    assert_eq!(places(2), ["app::serial"]);
    let shown = tool(&[&["sweep"], &paths[..]].concat()).expect("a sweep");
    has(&shown, "lost on 4 workers");
    let picture = tool(&[&["sweep"], &paths[..], &["--format", "svg"]].concat()).expect("a picture");
    has(&picture, "<title>more work: 2.500 s</title>");
    has(&picture, "2 workers, ");
    let wrong = tool(&["sweep", paths[1], paths[0]]).expect_err("a wrong order");
    has(&wrong, "the least first");
}
