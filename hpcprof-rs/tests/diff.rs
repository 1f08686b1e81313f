//! The comparison of two databases, on runs whose differences are known.

use crate::support::program::{CALLER, LEAF, MAIN, MAIN_SERIAL, MEMCPY, SERIAL, START, run_of};
use crate::support::*;
use fastrand::Rng;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

fn shown(arguments: &[&str]) -> String {
    tool(arguments).expect("a comparison")
}

fn diff(a: &Path, b: &Path, arguments: &[&str]) -> Value {
    let (a, b) = (a.to_str().expect("a path"), b.to_str().expect("a path"));
    let output = shown(&[&["diff", a, b, "--format", "json"], arguments].concat());
    serde_json::from_str(&output).expect("JSON")
}

/// A number of samples whose mean is `mean`, as chance has it.
fn samples(random: &mut Rng, mean: f64) -> u64 {
    let normal: f64 = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
    (mean + normal * mean.sqrt()).round().max(0.0) as u64
}

/// A run in which `app::leaf`, `app::serial` and what that calls have so many samples.
fn a_run(random: &mut Rng, speed: f64, [leaf, serial, copy]: [f64; 3]) -> Run {
    run_of(|thread, entry| {
        let mut add = |path: &[_], mean: f64| {
            let node = thread.natives(entry, path);
            let count = samples(random, mean * speed);
            if count > 0 {
                thread.sample(node, count, 0.5);
            }
        };
        add(&[START, MAIN, CALLER, LEAF], leaf);
        add(&[START, MAIN_SERIAL, SERIAL], serial);
        add(&[START, MAIN_SERIAL, SERIAL, MEMCPY], copy);
    })
}

fn nodes(diff: &Value) -> BTreeMap<String, Value> {
    let all = diff["nodes"].as_array().expect("nodes").iter();
    all.map(|n| (n["key"].as_str().expect("a key").to_owned(), n.clone())).collect()
}

fn significant(diff: &Value) -> Vec<String> {
    let nodes = nodes(diff);
    let marked = nodes.values().filter(|n| n["significant"] == true);
    let mut names: Vec<String> = marked.map(|n| n["name"].as_str().expect("a name").to_owned()).collect();
    names.sort();
    names
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

const METRICS: [&str; 4] = ["work", "idleness", "overhead", "effort"];

#[test]
fn a_database_does_not_differ_from_itself() {
    for seed in 1..4 {
        let database = database(&random::run(seed, 3, 200));
        let diff = diff(&database, &database, &["--threshold", "0"]);
        assert_eq!(diff["nodes"], Value::Array(Vec::new()));
        assert_eq!(diff["procedures"], Value::Array(Vec::new()));
        for metric in METRICS {
            assert_eq!(number(&diff["totals"][metric]["difference"]), 0.0);
        }
    }
}

#[test]
fn the_other_way_round_is_the_opposite() {
    let mut compared = 0;
    for seed in 1..5 {
        let [a, b] = [seed, seed + 100].map(|seed| database(&random::run(seed, 3, 200)));
        let threshold = ["--threshold", ["0", "1"][seed as usize % 2]];
        let (forth, back) = (diff(&a, &b, &threshold), diff(&b, &a, &threshold));
        let (forth, back) = (nodes(&forth), nodes(&back));
        assert!(forth.keys().eq(back.keys()));
        for (one, other) in forth.values().zip(back.values()) {
            for metric in METRICS {
                let of = |side: &Value, field: &str| number(&side[field][metric]);
                assert_eq!(of(one, "difference"), -of(other, "difference"));
                assert_eq!(of(one, "a"), of(other, "b"));
                assert_eq!(of(one, "error"), of(other, "error"));
                let between = of(one, "b") - of(one, "a") - of(one, "difference");
                assert!(between.abs() < 1e-8, "{one}");
            }
            assert_eq!(one["significant"], other["significant"]);
            let swapped = match other["in"].as_str() {
                Some("a") => "b",
                Some("b") => "a",
                _ => "both",
            };
            assert_eq!(one["in"], swapped);
            compared += 1;
        }
    }
    assert!(compared > 300, "{compared}");
}

#[test]
fn what_changed_is_found_and_nothing_else() {
    let mut random = Rng::with_seed(2);
    let changed = ["_start", "app::caller", "app::leaf", "app::main"];
    let (before, after) = ([2000.0, 4000.0, 500.0], [3000.0, 4000.0, 500.0]);
    for _ in 0..5 {
        let a = database(&a_run(&mut random, 1.0, before));
        let b = database(&a_run(&mut random, 1.0, after));
        let diff = diff(&a, &b, &[]);
        let found = significant(&diff);
        // Around it the change is a smaller part.
        assert!(found.contains(&"app::leaf".to_owned()), "{found:?}");
        assert!(found.iter().all(|name| changed.contains(&name.as_str())), "{found:?}");
        let own = diff["procedures"].as_array().expect("procedures").iter();
        let own: Vec<&Value> = own.filter(|n| n["significant"] == true).map(|n| &n["name"]).collect();
        assert_eq!(own, ["app::leaf"], "{diff}");
        let leaf = nodes(&diff).into_values().find(|n| n["name"] == "app::leaf").expect("a node");
        let truth = 1000.0 * 0.005 * 1.5;
        let (difference, error) = (number(&leaf["difference"]["effort"]), number(&leaf["error"]["effort"]));
        assert!((difference - truth).abs() < 3.0 * error, "{difference} ± {error}");
    }
}

#[test]
fn equal_runs_do_not_differ_however_fast_the_machine_was() {
    let mut random = Rng::with_seed(3);
    for pair in 0..20 {
        let mut one = || {
            let speed = 1.0 + 0.15 * random.f64();
            database(&a_run(&mut random, speed, [2000.0, 4000.0, 50.0]))
        };
        let (a, b) = (one(), one());
        let diff = diff(&a, &b, &[]);
        assert_eq!(significant(&diff), [""; 0], "pair {pair}: {diff}");
    }
}

#[test]
fn several_runs_tell_small_differences_from_those_between_runs() {
    let mut random = Rng::with_seed(4);
    let mut set = |leaf: f64, spread: f64| {
        let runs: Vec<Run> = (0..6)
            .map(|run| {
                let speed = 1.0 + spread * (random.f64() - 0.5);
                let one = a_run(&mut random, speed, [leaf, 40_000.0, 500.0]);
                one.process(100 + run, IMAGE + u64::from(run))
            })
            .collect();
        let runs: Vec<[&Run; 1]> = runs.iter().map(|run| [run]).collect();
        let runs: Vec<&[&Run]> = runs.iter().map(|run| &run[..]).collect();
        build(&runs, &[])
    };
    let steady = [set(20_000.0, 0.0), set(21_500.0, 0.0)];
    let diff_of = |pair: &[Database; 2]| diff(&pair[0], &pair[1], &[]);
    let found = diff_of(&steady);
    assert_eq!((&found["a"]["runs"], &found["variation"]), (&Value::from(6), &Value::Null));
    assert!(significant(&found).contains(&"app::leaf".to_owned()), "{found}");
    assert!(!significant(&found).contains(&"app::serial".to_owned()), "{found}");
    let own = found["procedures"].as_array().expect("procedures").iter();
    let own: Vec<&Value> = own.filter(|n| n["significant"] == true).map(|n| &n["name"]).collect();
    assert_eq!(own, ["app::leaf"], "{found}");
    let total = &found["totals"]["effort"];
    assert!(number(&total["a"]) < 0.005 * 1.5 * 70_000.0, "the mean of a run: {total}");
    let noisy = [set(20_000.0, 0.5), set(21_500.0, 0.5)];
    assert_eq!(significant(&diff_of(&noisy)), [""; 0]);
}

#[test]
fn text_and_csv_say_the_same() {
    let mut random = Rng::with_seed(5);
    let a = database(&a_run(&mut random, 1.0, [2000.0, 4000.0, 0.0]));
    let b = database(&a_run(&mut random, 1.0, [6000.0, 4000.0, 500.0]));
    let [a_path, b_path] = [&a, &b].map(|d| d.to_str().expect("a path"));
    let text = shown(&["diff", a_path, b_path]);
    let compared = text.split("the advice for a").next().expect("a comparison");
    let row = |name: &str| compared.lines().find(|line| line.contains(name)).map(str::to_owned);
    let leaf = row("app::leaf  main.rs:40").expect("a row");
    let cells: Vec<&str> = leaf.split_whitespace().collect();
    let cells: Vec<f64> = cells[..4].iter().map(|cell| cell.parse().expect("a number")).collect();
    assert!((cells[1] - cells[0] - cells[2]).abs() < 0.002, "{leaf}");
    assert!(row("memcpy (only in b)").is_some(), "{text}");
    assert!(row("app::serial").is_none(), "{text}");
    let picture = shown(&["diff", a_path, b_path, "--format", "svg"]);
    has(&picture, "<title>app::leaf");
    let all = nodes(&diff(&a, &b, &[]));
    let csv = shown(&["diff", a_path, b_path, "--format", "csv"]);
    let mut csv = csv::Reader::from_reader(csv.as_bytes());
    let header = csv.headers().expect("a header").clone();
    let at = |name: &str| header.iter().position(|h| h == name).expect("a column");
    let mut rows = 0;
    for record in csv.records() {
        let record = record.expect("a row");
        let node = &all[&record[0]];
        for metric in METRICS {
            for column in ["a", "b", "difference", "error"] {
                let cell: f64 = record[at(&format!("{metric} ({column})"))].parse().expect("a number");
                assert_eq!(cell, number(&node[column][metric]));
            }
        }
        rows += 1;
    }
    assert_eq!(rows, all.len());
    let two = diff(&a, &b, &["--rows", "2"]);
    let most = |n: &Value| number(&n["difference"]["effort"]).abs();
    let least = nodes(&two).values().map(most).fold(f64::INFINITY, f64::min);
    assert_eq!((nodes(&two).len(), &two["more"]["nodes"]), (2, &Value::from(all.len() - 2)));
    let larger = all.values().filter(|n| most(n) > least + 1e-9).count();
    assert!(larger < 2, "{larger} differ more than what is kept");
}
