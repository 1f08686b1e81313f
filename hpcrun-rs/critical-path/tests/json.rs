//! The JSON of a report, as another reader understands it.

use critical_path::{Clock, Edge, Place, Settings, Site, Thread, Tracker, to_json};
use hpc_formats::critical_path::Level;
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
        name: format!("f{} \"quoted\"\n\u{202e}", site.0),
        file: "C:\\src\\main.rs".to_owned(),
        line: site.0 as u32,
        ..Place::default()
    }
}

#[test]
fn another_reader_understands_it() {
    let mut settings = Settings::default();
    (settings.spawn_cost, settings.message_cost) = (0, 0);
    let tracker = Tracker::new(settings);
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
    report.levels = [(1, 4, 4), (2, 3, 6)]
        .map(|(cores, time, work)| Level { cores, time: time * 1_000_000_000, work: work * 1_000_000_000 })
        .into();
    report.quality.lost_edges = vec![("untracked".to_owned(), 2)];
    let text = to_json(&report, place);
    assert!(text.contains("f3 \\\"quoted\\\"\\u000a\\u202e"), "{text}");
    let json: Value = serde_json::from_str(&text).expect("JSON");

    // 2 before the fork, halves of 3 and 4, 1 after the join.
    let at = |line: u32| {
        let name = format!("f{line} \"quoted\"\n\u{202e}");
        json!({"name": name, "module": null, "file": "C:\\src\\main.rs", "line": line})
    };
    let segment = |edge: &str, seconds: f64, begin, end| {
        json!({"kind": "activity", "rank": null, "thread": 0, "seconds": seconds, "share": seconds / 7.0,
            "count": 1, "edge": edge, "begin": at(begin), "end": at(end)})
    };
    let level = |cores, seconds, work| json!({"cores": cores, "seconds": seconds, "work": work});
    // The second half inherits it. Without it both take 1 since the fork, and the join 1, after 1.
    let procedure = json!({"name": name, "module": null, "file": null, "line": null, "work": 6.0,
        "on_path": 5.0, "share": 5.0 / 7.0, "zeroed_span": 4.0, "gain": 3.0});
    let members = [
        ("schema", json!("hpcprof-rs/critical-path/1")),
        ("unit", json!("seconds")),
        ("clock", json!("cpu")),
        ("complete", json!(false)),
        ("work", json!(10.0)),
        ("span", json!(7.0)),
        ("burdened_span", json!(7.0)),
        ("wall", json!(1.5)),
        ("parallelism", json!(10.0 / 7.0)),
        ("levels", json!([level(1, 4.0, 4.0), level(2, 3.0, 6.0)])),
        (
            "segments",
            json!([segment("start", 2.0, 1, 2), segment("spawn", 4.0, 3, 4), segment("join", 1.0, 5, 6)]),
        ),
        ("procedures", json!([procedure])),
        (
            "quality",
            json!({"resyncs": 0, "lost_edges": {"untracked": 2}, "exact_edges": 2, "woken_edges": 0,
                   "grains": 0}),
        ),
    ];
    for (member, expected) in members {
        assert_eq!(json[member], expected, "{member}");
    }
    let two = json!({"workers": 2, "seconds": 7.0, "lower": 7.0, "upper": 8.5});
    assert_eq!(json["prediction"][1], two);
}
