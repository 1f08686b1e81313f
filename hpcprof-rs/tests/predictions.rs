//! What a critical path predicts for numbers of workers.

use crate::critical_path::{GRAPHS, JOIN, MS, elements, json, ms, page, path_of, tracked};
use crate::support::*;
use hpc_formats::critical_path::Level;
use serde_json::json;

#[test]
fn predictions_lie_within_their_bounds() {
    for (graph, two_workers) in GRAPHS.into_iter().zip([80.0, 89.0, 65.0, 241.5]) {
        let database = database(&tracked(&graph));
        let path = json(&database, &[]);
        let predictions = elements(&path, "prediction");
        let workers: Vec<u64> = predictions.iter().filter_map(|p| p["workers"].as_u64()).collect();
        assert_eq!(workers, (0..=10).map(|n| 1 << n).collect::<Vec<_>>());
        for prediction in predictions {
            let [workers, seconds, lower, upper] = ["workers", "seconds", "lower", "upper"]
                .map(|key| prediction[key].as_f64().expect("a number"));
            let (work, span) = (graph.work as f64 / 1e3, graph.span as f64 / 1e3);
            assert!((lower - (work / workers).max(span)).abs() < 1e-12);
            assert!(lower <= seconds + 1e-12 && seconds <= upper);
        }
        // By the reference evaluator.
        assert_eq!(predictions[1]["upper"], json!(two_workers / 1e3));
        // One worker takes what is left of the work, any number of them the span.
        for (workers, left) in [("1", true), ("1000000000", false)] {
            for procedure in elements(&json(&database, &["--workers", workers]), "procedures") {
                let expected = match left {
                    true => graph.work - ms(&procedure["work"]),
                    false => ms(&procedure["zeroed_span"]),
                };
                let found = procedure["predicted"].as_f64().expect("a time");
                assert!((found - expected as f64 / 1e3).abs() < 1e-6, "{procedure}");
            }
        }
    }
}

/// `pre` and `post` are alone, the halves of the join are beside each other for 30 ms.
#[test]
fn levels_tell_what_workers_take() {
    let mut run = tracked(&JOIN);
    let level = |cores, time, work| Level { cores, time: time * MS, work: work * MS };
    path_of(&mut run).levels = vec![level(1, 35, 35), level(2, 30, 60)];
    let database = database(&run);
    let path = json(&database, &["--workers", "2"]);
    let levels = json!([{"cores": 1, "seconds": 0.035, "work": 0.035},
        {"cores": 2, "seconds": 0.03, "work": 0.06}]);
    assert_eq!(path["levels"], levels);
    let two = json!({"workers": 2, "seconds": 0.065, "lower": 0.065, "upper": 0.08});
    assert_eq!(path["prediction"][1], two);
    let page = page(&database, &["--workers", "2"]);
    let flat = page.split_whitespace().collect::<Vec<_>>().join(" ");
    has(&flat, "at least at most speed-up 1 95.000 95.000 95.000 1.00");
    has(&flat, " 2 65.000 65.000 80.000 1.46 ");
    has(&flat, "instead of 65.0 ms");
    let page = self::page(&database, &["--workers", "4"]);
    let more = page.split_whitespace().collect::<Vec<_>>().join(" ");
    has(
        &more,
        "with these threads or tasks, at most 2 at once, no number of cores is more than 1.5 times as fast as one",
    );
}

/// B has 50 of the span's 65; with half of it, A is the longer half of the join: 45, as without B.
#[test]
fn a_faster_procedure_has_bounds_or_what_was_followed() {
    let mut run = tracked(&JOIN);
    let faster = |run: &Run, name: &str| json(&database(run), &["--workers", "2", "--faster", name]);
    let near = |found: &serde_json::Value, ms: f64| {
        assert!((found.as_f64().expect("a number") * 1e3 - ms).abs() < 1e-9, "{found}, not {ms}");
    };
    let bounds = faster(&run, "leaf=2")["faster"][0].clone();
    assert_eq!((&bounds["name"], &bounds["exact"]), (&json!("app::leaf"), &json!(false)));
    for (of, least, most) in [("span", 45.0, 55.0), ("predicted", 57.5, 62.5)] {
        near(&bounds[of]["least"], least);
        near(&bounds[of]["most"], most);
    }
    let path = path_of(&mut run);
    path.faster = 5000;
    for procedure in &mut path.procedures {
        procedure.faster_span = procedure.zeroed_span;
    }
    let exact = faster(&run, "app::leaf=2")["faster"][0].clone();
    assert_eq!(exact["exact"], true);
    near(&exact["span"]["least"], 45.0);
    near(&exact["predicted"]["most"], 57.5);
    // A chord from what was followed is above, and one on to the whole time below.
    let other = faster(&run, "app::leaf=1.25")["faster"][0].clone();
    near(&other["span"]["least"], 55.0);
    near(&other["span"]["most"], 57.0);
    let database = database(&run);
    has(
        &page(&database, &["--faster", "leaf=2"]),
        "* with app::leaf 2 times as fast: span 45.0 ms instead of",
    );
    let error =
        tool(&["critical-path", text(&database), "--faster", "lea=2"]).expect_err("no such procedure");
    has(
        &error,
        "no procedure `lea` was sampled or marked; --faster takes what `critical-path` lists: `app::leaf`",
    );
}
