//! Actors under the profiler: a chain of messages beside fillers (T16) of known work, idleness and critical
//! path, in a program that follows its path itself, too.

use hpcrun_tests::run::Spec;
use hpcrun_tests::tools::{exclusive_cores, release};
use hpcrun_tests::view::{Node, assert_close, value};

/// A unit of the example: nanoseconds.
const UNIT: u64 = 4_000_000;
/// Units of all fillers, and of the chain, which has this many tasks.
const FILLERS: u64 = 200;
const CHAIN: u64 = 200;
const LINKS: usize = 20;

fn is_handler(name: &str) -> bool {
    name.contains("Node as work_stealing_actors::") && name.ends_with("::handle")
}

/// All handlers, each after those that led to it.
fn handlers<'n>(node: &'n Node, outer: &[&'n Node], found: &mut Vec<Vec<&'n Node>>) {
    let mut path = outer.to_vec();
    if is_handler(&node.name) {
        path.push(node);
        found.push(path.clone());
    }
    for child in &node.children {
        handlers(child, &path, found);
    }
}

#[test]
fn a_chain_of_messages_beside_fillers() {
    let _cores = exclusive_cores();
    let unit = format!("{}", UNIT / 1000);
    let spec = Spec::new("actors", release("truth")).arguments(&[&unit, "T16"]);
    let run = spec.rate(1000).critical_path("").succeed();
    let seconds = |units: u64| (units * UNIT) as f64 * 1e-9;
    let (fillers, chain) = (seconds(FILLERS), seconds(CHAIN));

    // Work is all tasks', idleness the chain's, for it runs alone after the fillers.
    let database = run.database();
    let view = database.top_down();
    view.assert_rooted(999);
    let total = |metric| value(&view.totals, metric);
    assert_close("work", total("work"), fillers + chain, 0.05 * (fillers + chain));
    assert_close("idleness", total("idleness"), chain, 0.05 * chain);

    // Each handler is called by its sender: the chain's by each other, the first of them by the program.
    let mut found = Vec::new();
    for root in &view.roots {
        handlers(root, &[], &mut found);
    }
    assert_eq!(found.iter().map(Vec::len).max(), Some(LINKS));
    for path in &found {
        let (node, left) = (path[path.len() - 1], LINKS + 1 - path.len());
        let all = if path.len() == 1 { fillers } else { 0.0 };
        let rest = chain * left as f64 / LINKS as f64;
        let what = format!("task {} of the chain", path.len());
        let work = value(&node.inclusive, "work");
        assert_close(&what, work, all + rest, 0.05 * (all + rest) + 0.005);
        let idleness = value(&node.inclusive, "idleness");
        assert_close(&what, idleness, rest, 0.05 * chain);
    }

    // What the program says of its path, and what the profiler says: neither counts a task twice.
    let own: serde_json::Value = serde_json::from_str(run.stdout().trim()).expect("JSON");
    let path = run.critical_path();
    for (what, tracked, truth) in [("work", path.work, fillers + chain), ("span", path.span, chain)] {
        let own = own[what].as_f64().expect("a number");
        assert_close(&format!("own {what}"), own, truth, 0.02 * truth);
        assert_close(what, tracked as f64 * 1e-9, truth, 0.02 * truth);
    }
    assert_eq!(path.quality.lost_edges, []);

    // In one look: the path goes from message to message of the chain, and would vanish with their handler.
    let text = database.text("critical-path", &[]);
    let chained = |line: &&str| line.contains(" x 19 ") && line.contains("dag.rs:");
    assert_eq!(text.lines().filter(chained).count(), 1, "{text}");
    let json = database.text("critical-path", &["--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let procedures = json["procedures"].as_array().expect("a list").iter();
    let handler = procedures.filter(|p| p["name"].as_str().is_some_and(is_handler));
    let gain: f64 = handler.filter_map(|p| p["gain"].as_f64()).sum();
    assert_close("gain", gain, chain, 0.05 * chain);
}

/// What a reduction makes of a value depends on who has contributed first.
#[test]
fn a_reduction_is_a_join() {
    let _cores = exclusive_cores();
    let unit = format!("{}", UNIT / 1000);
    let spec = Spec::new("actors-reduction", release("truth")).arguments(&[&unit, "reduction"]);
    let run = spec.critical_path("").succeed();
    let path = run.critical_path();
    let own: serde_json::Value = serde_json::from_str(run.stdout().trim()).expect("JSON");
    for (what, tracked, units) in [("work", path.work, 80), ("span", path.span, 75)] {
        let truth = (units * UNIT) as f64 * 1e-9;
        let own = own[what].as_f64().expect("a number");
        assert_close(&format!("own {what}"), own, truth, 0.02 * truth + 1e-3);
        assert_close(what, tracked as f64 * 1e-9, truth, 0.02 * truth + 1e-3);
    }
    assert_eq!(path.quality.lost_edges, []);
}
