//! Conditions over metrics, on runs whose truth is known: no false alarms, losses found, doubt withheld.

use crate::support::program::{CALLER, LEAF, MAIN, MAIN_SERIAL, SERIAL, START, run_of};
use crate::support::*;
use fastrand::Rng;
use hpcprof_rs::catalogue::Catalogue;
use hpcprof_rs::checks::answer::{Answer, Outcome, answer};
use std::path::Path;

/// A run of so many samples. A part of them lies in `app::serial`, while the other core is idle.
fn a_run(random: &mut Rng, samples: u64, serial: f64) -> Run {
    let alone = (0..samples).filter(|_| random.f64() < serial).count() as u64;
    run_of(|thread, entry| {
        let node = thread.natives(entry, &[START, MAIN, CALLER, LEAF]);
        thread.sample(node, samples - alone, 0.0);
        let node = thread.natives(entry, &[START, MAIN_SERIAL, SERIAL]);
        thread.sample(node, alone, 1.0);
    })
}

/// The part of samples with an idle core by which idleness is this share of the effort.
fn part(share: f64) -> f64 {
    share / (1.0 - share)
}

fn answer_of(database: &Path, text: &str, baseline: Option<&Path>) -> Answer {
    let open = |path| Catalogue::open(path).expect("a database");
    answer(text, &open(database), baseline.map(open).as_ref()).expect("an answer")
}

#[test]
fn no_alarm_is_false_and_five_points_are_found() {
    let mut random = Rng::with_seed(36);
    let mut fails = |share: f64| {
        let runs = (0..100).map(|_| {
            let database = database(&a_run(&mut random, 1200, part(share)));
            answer_of(&database, "idleness/effort <= 0.2", None)
        });
        let all: Vec<Answer> = runs.collect();
        let outcome = |wanted| all.iter().filter(|of| of.outcome == wanted).count();
        (outcome(Outcome::Fails), outcome(Outcome::Holds))
    };
    // Just at the limit, and five points above it.
    assert_eq!(fails(0.2), (0, 100));
    let (found, _) = fails(0.25);
    assert!(found >= 95, "{found}");
}

#[test]
fn few_samples_neither_hold_nor_fail() {
    let mut random = Rng::with_seed(37);
    let run = a_run(&mut random, 60, part(0.2));
    let database = database(&run);
    let of = answer_of(&database, "idleness/effort <= 0.2", None);
    assert_eq!(of.outcome, Outcome::Withheld);
    has(&of.why.expect("a reason"), "too few samples");
    // What is far from the limit is certain all the same.
    for (text, outcome) in
        [("idleness/effort <= 0.9", Outcome::Holds), ("idleness/effort >= 0.9", Outcome::Fails)]
    {
        assert_eq!(answer_of(&database, text, None).outcome, outcome, "{text}");
    }
}

#[test]
fn times_are_compared_with_those_of_another_database() {
    let mut random = Rng::with_seed(38);
    let mut of = |samples, serial| database(&a_run(&mut random, samples, serial));
    let (before, after, slower) = (of(4000, 0.2), of(4000, 0.2), of(6000, 0.47));
    let ask = |head: &Database, text| answer_of(head, text, Some(&before));
    let serial = "work@app::serial <= 1.1 * baseline";
    assert_eq!(ask(&after, serial).outcome, Outcome::Holds);
    let failed = ask(&slower, serial);
    assert_eq!(failed.outcome, Outcome::Fails);
    let (value, limit) = (failed.value.expect("a value"), failed.limit.expect("a limit"));
    assert!((value - 14.1).abs() < 0.5 && (limit - 4.4).abs() < 0.3, "{failed:?}");
    // A single run of another speed fails in seconds only.
    assert_eq!(ask(&slower, "work@leaf <= 1.1 * baseline").outcome, Outcome::Holds);
    let of_both = "idleness@app::serial/effort <= baseline";
    assert_eq!(ask(&after, of_both).outcome, Outcome::Holds);
    assert_eq!(ask(&slower, of_both).outcome, Outcome::Fails);
    let text = refused(&before, "check work<=baseline");
    has(&text, "give --baseline DATABASE");
}

#[test]
fn several_runs_err_by_how_they_differ() {
    let mut random = Rng::with_seed(39);
    let mut set = |samples: u64, spread: f64| {
        let runs = (0..6).map(|run| {
            let speed = 1.0 + spread * (random.f64() - 0.5);
            let one = a_run(&mut random, (samples as f64 * speed) as u64, 0.2);
            one.process(100 + run, IMAGE + u64::from(run))
        });
        let runs: Vec<Run> = runs.collect();
        let runs: Vec<[&Run; 1]> = runs.iter().map(|run| [run]).collect();
        build(&runs.iter().map(|run| &run[..]).collect::<Vec<_>>(), &[])
    };
    let (steady, more, noisy) = (set(4000, 0.0), set(4400, 0.0), set(4400, 0.6));
    let text = "work <= 1.05 * baseline";
    assert_eq!(answer_of(&more, text, Some(&steady)).outcome, Outcome::Fails);
    assert_ne!(answer_of(&noisy, text, Some(&steady)).outcome, Outcome::Fails);
}

#[test]
fn a_run_that_others_slowed_down_does_not_fail() {
    let mut random = Rng::with_seed(40);
    let mut run = a_run(&mut random, 1200, part(0.5));
    let of = |run: &Run, text| answer_of(&database(run), text, None).outcome;
    let (strict, lax) = ("idleness/effort <= 0.2", "idleness/effort <= 0.6");
    run.end.as_mut().expect("an end").monotonic_ns = IMAGE + 12_000_000_000;
    assert_eq!((of(&run, strict), of(&run, lax)), (Outcome::Fails, Outcome::Holds));
    run.cpu().run_delay_ns = 6_000_000_000;
    assert_eq!((of(&run, strict), of(&run, lax)), (Outcome::Withheld, Outcome::Holds));
    // Missing seconds may be anything.
    run.cpu().process_ns = 9_000_000_000;
    assert_eq!((of(&run, strict), of(&run, lax)), (Outcome::Withheld, Outcome::Withheld));
}

#[test]
fn outcomes_are_exit_statuses_annotations_and_reports() {
    let mut random = Rng::with_seed(41);
    let database = database(&a_run(&mut random, 1200, part(0.3)));
    let run = |arguments: &[&str]| {
        let output = command(&database, &[&["check", text(&database)], arguments].concat());
        let shown = String::from_utf8(output.stdout).expect("text");
        (output.status.code(), shown, String::from_utf8(output.stderr).expect("text"))
    };
    let (holds, fails) = ("idleness/effort <= 0.5", "idleness/effort <= 0.1");
    let none = "work@app::serial/overhead <= 2";
    let status = |arguments: &[&str]| run(arguments).0;
    assert_eq!(status(&[holds]), Some(0));
    assert_eq!(status(&[holds, none]), Some(2));
    assert_eq!(status(&[holds, none, fails]), Some(1));
    for wrong in [&["work"][..], &["work <= 1", "--nothing"], &["0.1 < 0.2"], &["wrk <= 1"]] {
        let (status, _, message) = run(wrong);
        assert_eq!(status, Some(125), "{wrong:?}");
        assert!(!message.is_empty());
    }
    for (wrong, message) in [
        ("work@nowhere <= 1", "no context of `nowhere`"),
        ("span <= 1", "has no critical path"),
        ("work <= idleness/effort", "cannot compare seconds <= ratio"),
    ] {
        has(&run(&[wrong]).2, message);
    }
    let (_, json, _) = run(&[holds, fails, "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["schema"], "hpcprof-rs/check/1");
    assert_eq!(json["checks"][0]["outcome"], "holds");
    let idle = json["checks"][1]["value"].as_f64().expect("a value");
    assert!((idle - 0.3).abs() < 0.05, "{idle}");
    let (_, github, _) = run(&[holds, none, fails, "--format", "github"]);
    let starts: Vec<&str> = github.lines().map(|line| line.split(' ').next().unwrap_or("")).collect();
    assert_eq!(starts, ["::notice", "::warning", "::error"]);
    let (_, junit, _) = run(&[holds, none, fails, "--format", "junit"]);
    let junit = roxmltree::Document::parse(&junit).expect("XML");
    let suite = junit.root_element();
    assert_eq!((suite.attribute("tests"), suite.attribute("failures")), (Some("3"), Some("1")));
    let case = suite.children().filter(|c| c.is_element()).nth(2).expect("a case");
    assert_eq!(case.attribute("name"), Some(fails));
    assert!(case.children().any(|c| c.has_tag_name("failure")));
}
