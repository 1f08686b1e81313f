//! What is printed as JSON is as the schemas of `docs/schemas` say: all members that they require, and none
//! that they do not name.

use crate::critical_path::{JOIN, tracked};
use crate::parallel_loops::{SOURCE, two_loops};
use crate::support::program::full_run;
use crate::support::schema::Schema;
use crate::support::*;
use serde_json::{Value, json};

#[track_caller]
fn check(schema: &str, what: &str, text: &str) {
    let value: Value = serde_json::from_str(text).expect("JSON");
    let problems = Schema::read(schema).problems(&value);
    assert!(problems.is_empty(), "{what}: {problems:#?}");
}

#[test]
fn json_is_as_its_schema_says() {
    let (full, path, loops) =
        (database(&full_run()), database(&tracked(&JOIN)), database(&two_loops(SOURCE)));
    for (database, schema, line) in [
        (&full, "view", "top-down --format json"),
        (&full, "view", "top-down --format json --flat --lines --std-inlined"),
        (&full, "view", "top-down --format json --statistics"),
        (&full, "view", "bottom-up --format json --metric idleness/work"),
        (&full, "view", "flat --format json --projection physical --threshold 5"),
        (&path, "view", "top-down --format json --metric on_path"),
        (&loops, "view", "top-down --format json --statistics --depth 3"),
        (&full, "threads", "threads --format json"),
        (&full, "threads", "threads --format json --rows 1"),
        (&full, "threads", "threads --format json --metric idleness/work"),
        (&path, "critical-path", "critical-path --format json"),
        (&path, "critical-path", "critical-path --format json --rows 1"),
        (&path, "critical-path", "critical-path --faster leaf=2 --format json"),
        (&loops, "regions", "regions --format json"),
        (&full, "advice", "advise --format json"),
        (&loops, "advice", "advise --format json"),
        (&full, "check", "check idleness/effort<=1 --format json"),
    ] {
        check(schema, line, &show(database, line));
    }
    let parts = |line: &str| -> Value { serde_json::from_str(&show(&path, line)).expect("JSON") };
    let (all, one) = (parts("critical-path --format json"), parts("critical-path --format json --rows 1"));
    for list in ["segments", "procedures", "near"] {
        let [all, kept] = [&all, &one].map(|of| of[list].as_array().expect("a list").len());
        assert_eq!((kept, &one["more"][list]), (all.min(1), &json!(all - kept)), "{list}");
    }
    let few = show(&full, "top-down --format json --flat --rows 3");
    check("view", "--rows", &few);
    let few: Value = serde_json::from_str(&few).expect("JSON");
    let is_whole = |node: &&Value| node["kind"] != "pruned";
    assert_eq!(few["nodes"].as_array().expect("nodes").iter().filter(is_whole).count(), 3, "{few}");
    let diff = tool(&["diff", text(&full), text(&path), "--format", "json"]).expect("a diff");
    check("diff", "diff", &diff);
    let empty = tool(&["diff", text(&full), text(&full), "--format", "json"]).expect("a diff");
    check("diff", "diff of equals", &empty);
}

#[test]
fn a_schema_finds_what_is_wrong() {
    let schema = Schema::read("check");
    let good = json!({"schema": "hpcprof-rs/check/1", "confidence": 0.99, "checks": [{
        "condition": "work <= 1", "outcome": "holds", "unit": "seconds", "value": 0.5, "limit": 1,
        "interval": 0.1, "why": null}]});
    assert_eq!(schema.problems(&good), [""; 0]);
    for (member, value, problem) in [
        ("outcome", json!("maybe"), "$.checks[0].outcome: \"maybe\" is none of"),
        ("value", json!("0.5"), "$.checks[0].value: \"0.5\" is no"),
        ("interval", json!(null), "$.checks[0].interval: null is no"),
        ("new", json!(1), "$.checks[0].new: it is in no schema"),
    ] {
        let mut bad = good.clone();
        bad["checks"][0][member] = value;
        has(&schema.problems(&bad).join("; "), problem);
    }
    let mut bad = good.clone();
    bad["schema"] = json!("hpcprof-rs/check/2");
    bad["checks"][0].as_object_mut().expect("an object").remove("limit");
    let problems = schema.problems(&bad).join("; ");
    has(&problems, "$.checks[0]: \"limit\" is missing");
    has(&problems, "\"hpcprof-rs/check/2\" is not");
}
