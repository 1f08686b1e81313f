//! The JSON of a report, as another reader understands it.

use critical_path::{Clock, Edge, Place, Settings, Site, Thread, Tracker, to_json};
use serde_json::{Value, json};

/// A second passes between two readings.
struct Seconds(u64);

impl Clock for Seconds {
    fn now(&mut self) -> u64 {
        self.0 += 1_000_000_000;
        self.0
    }
}

fn place(site: &Site) -> Place {
    Place {
        name: format!("f{} \"quoted\"\n", site.0),
        module: "program".to_owned(),
        file: "C:\\src\\main.rs".to_owned(),
        line: site.0 as u32,
    }
}

#[test]
fn another_reader_understands_it() {
    let tracker = Tracker::new(Settings::default());
    let mut thread = Thread::new(&tracker, Seconds(0), Site(1));
    let name = "crate::g\u{1}ö";
    let before = thread.enter(tracker.procedure(name));
    let forked = thread.copy(Site(2));
    thread.enter(before);
    let left = thread.begin(Some(forked), Site(3));
    thread.length();
    thread.length();
    thread.length();
    let ended = thread.end(left, Site(4));
    thread.merge(ended, Site(5), Edge::Join);
    thread.publish(Site(6));
    let mut report = tracker.report();
    report.wall = 1_500_000_000;
    report.quality.lost_edges = vec![("untracked".to_owned(), 2)];
    let json: Value = serde_json::from_str(&to_json(&report, place)).expect("JSON");

    // 2 before the fork, halves of 3 and 4, 1 after the join.
    assert_eq!(json["schema"], "hpcprof-rs/critical-path/1");
    assert_eq!(json["unit"], "seconds");
    assert_eq!(json["clock"], "cpu");
    assert_eq!((&json["work"], &json["span"]), (&json!(10.0), &json!(7.0)));
    assert_eq!(json["burdened_span"], json!(7.0));
    assert_eq!(json["wall"], json!(1.5));
    assert_eq!(json["parallelism"], json!(10.0 / 7.0));
    let workers: Vec<&Value> = list(&json["prediction"]).map(|p| &p["workers"]).collect();
    assert_eq!(
        (workers[0], workers[10], workers.len()),
        (&json!(1), &json!(1024), 11)
    );
    let two = json!({"workers": 2, "seconds": 8.5, "lower": 7.0, "upper": 8.5});
    assert_eq!(json["prediction"][1], two);
    let segments: Vec<(&Value, &Value)> = list(&json["segments"])
        .map(|s| (&s["edge"], &s["seconds"]))
        .collect();
    let expected = [("start", 2.0), ("spawn", 4.0), ("join", 1.0)];
    let expected = expected.map(|(edge, seconds)| (json!(edge), json!(seconds)));
    assert!(
        segments
            .iter()
            .copied()
            .eq(expected.iter().map(|(a, b)| (a, b)))
    );
    assert_eq!(json["segments"][0]["thread"], json!(0));
    let begin = &json["segments"][1]["begin"];
    assert_eq!(begin["name"], "f3 \"quoted\"\n");
    assert_eq!(begin["file"], "C:\\src\\main.rs");
    assert_eq!(begin["line"], json!(3));
    let procedure = &json["procedures"][0];
    // The second half inherits it. Without it both take 1 since the fork, and the join 1, after 1.
    assert_eq!(procedure["name"], name);
    assert_eq!(procedure["zeroed_span"], json!(4.0));
    assert_eq!(procedure["gain"], json!(3.0));
    assert_eq!(json["quality"]["lost_edges"], json!({"untracked": 2}));
    assert_eq!(json["quality"]["exact_edges"], json!(2));
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().expect("an array").iter()
}
