//! Programs on rayon, as published and on work-stealing-rt: the views against what the programs
//! know of themselves (`fixtures/rayon`).

use hpcrun_tests::run::{Database, Run, Spec, Truth};
use hpcrun_tests::tools::{Rayon, exclusive_cores, rayon_program};
use hpcrun_tests::view::{Node, View, assert_close, value};
use serde_json::Value;

const RATE: u32 = 1000;

fn profile(rayon: Rayon, name: &str, arguments: &[&str]) -> (Run, Database) {
    let test = format!("rayon-{rayon:?}-{name}-{}", arguments.join("-"));
    let spec = Spec::new(&test, rayon_program(rayon, name));
    let run = spec.arguments(arguments).rate(RATE).succeed();
    let database = run.database();
    (run, database)
}

fn assert_within(what: &str, measured: f64, truth: f64, share: f64) {
    assert_near(what, measured, truth, share * truth);
}

/// `systematic`: an allowance in seconds beside that for the chance of sampling.
fn assert_near(what: &str, measured: f64, truth: f64, systematic: f64) {
    assert_close(what, measured, truth, systematic + chance(truth));
}

/// Seconds by which so many sampled ones may be off by chance.
fn chance(truth: f64) -> f64 {
    3.0 * (truth / f64::from(RATE)).sqrt()
}

#[test]
fn stock_workers_that_wait_are_idle_and_cost_nothing() {
    let _cores = exclusive_cores();
    // Whoever takes a core away from a worker for a while shifts what such short waits are charged to:
    // one run of three must be right.
    let mut faults = Vec::new();
    let right = (0..3).find_map(|_| {
        let (run, database) = profile(Rayon::Stock, "waits", &["2", "10000"]);
        let found = faults_of_waits(&database.top_down(), &run.truth());
        if found.is_empty() {
            return Some((run, database));
        }
        faults.push(found);
        None
    });
    let Some((run, database)) = right else {
        panic!("wrong three times: {faults:#?}");
    };
    let recorded = run.recorded();
    assert!(
        recorded.idle > 0.05,
        "workers spun while they waited, which no context is charged for: {recorded:?}"
    );
    let physical = database.view("top-down", &["--projection", "physical"]);
    physical.walk(&mut |_, node| {
        assert!(
            !node.name.ends_with("WorkerThread::find_work") && !node.name.ends_with("sleep::Sleep::sleep"),
            "a sample of a waiting worker was recorded: {}",
            node.name
        );
        if node.name.ends_with("WorkerThread::wait_until_cold") {
            let own = value(&node.exclusive, "work") + value(&node.exclusive, "overhead");
            assert_eq!(own, 0.0, "the scheduler's own loop is no work");
        }
    });
}

/// What the view says wrongly of the fixture `waits`.
fn faults_of_waits(view: &View, truth: &Truth) -> Vec<String> {
    view.assert_rooted(300);
    let sites = ["waits::short", "waits::long", "waits::pause"];
    let idleness: f64 = sites.iter().map(|s| truth.of(s, "idleness")).sum();
    let mut faults = Vec::new();
    for site in sites {
        for metric in ["work", "idleness"] {
            let (measured, truth) = (view.inclusive(site, metric), truth.of(site, metric));
            // What rayon does between two yields is no idleness of theirs, and the program's own clock
            // sees a worker as idle a little before and after. These few microseconds of each wait go
            // to one task or the other, so the allowance is a share of all idleness.
            let systematic = match metric {
                "work" => 0.08 * truth,
                _ => 0.12 * idleness,
            };
            if (measured - truth).abs() > systematic + chance(truth) {
                faults.push(format!("{site}, {metric}: {measured:.4} s, truth {truth:.4} s"));
            }
        }
    }
    faults
}

#[test]
fn stock_tasks_never_lie_under_an_unrelated_caller_and_the_reader_is_told() {
    let _cores = exclusive_cores();
    let (run, database) = profile(Rayon::Stock, "loops", &["2", "12"]);
    let (view, truth) = (database.top_down(), run.truth());
    view.assert_rooted(300);
    for site in ["light_leaf", "heavy_leaf", "inner_leaf", "serial"] {
        let site = format!("loops::{site}");
        let seconds = truth.of(&site, "work");
        assert_within(&site, view.inclusive(&site, "work"), seconds, 0.05);
    }
    let callers = ["loops::unequal", "loops::shared_loop", "loops::nested"];
    view.walk(&mut |above, node| {
        let of = |name: &str| {
            callers.iter().position(|caller| name == *caller || name.starts_with(&format!("{caller}::")))
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
    let _cores = exclusive_cores();
    let (run, database) = profile(Rayon::Stock, "joins", &["33"]);
    let (view, truth) = (database.top_down(), run.truth());
    let plain = truth.of("joins::plain", "work");
    let joined = truth.of("joins::joined", "work");
    assert_within("plain", view.inclusive("joins::plain", "work"), plain, 0.05);
    let (work, overhead) =
        (view.inclusive("joins::joined", "work"), view.inclusive("joins::joined", "overhead"));
    assert_within("joined", work + overhead, joined, 0.05);
    // The useful part is a few instructions between rayon's: the compiler schedules them into
    // each other, so that the boundary is known to some percent only.
    assert_within("overhead of join", overhead, joined - plain, 0.12);
}

/// The parallel loops of a view: (names above, node).
fn parallel_loops(view: &View) -> Vec<(Vec<String>, Node)> {
    let mut found = Vec::new();
    view.walk(&mut |above, node| {
        if node.kind == "parallel-loop" {
            let path = above.iter().map(|n| n.name.clone()).collect();
            let flat = Node { children: Vec::new(), ..node.clone() };
            found.push((path, flat));
        }
    });
    found
}

/// All effort lies under the program's `main`, whichever worker it was spent by.
fn assert_all_reach_main(view: &View, main: &str) {
    view.assert_rooted(300);
    assert_eq!(view.quality.spawnerless, 0, "every task has its spawner");
    for metric in ["work", "overhead", "idleness"] {
        let total = value(&view.totals, metric);
        let under = view.inclusive(main, metric);
        assert!(
            // What runs before and after `main` has samples, too.
            under >= 0.999 * total - 0.01,
            "{metric}: {under:.4} s of {total:.4} s under {main}"
        );
    }
}

/// The regions of these names are at such a place, and were executed so often.
fn assert_executions(database: &Database, expected: &[(&str, &str, u64)]) {
    let regions = database.text("regions", &["--format", "json"]);
    let regions: Value = serde_json::from_str(&regions).expect("JSON");
    let regions = regions["regions"].as_array().expect("regions");
    for (name, place, executions) in expected {
        let region = regions.iter().find(|r| r["name"] == *name);
        let region = region.expect("the loop is a region");
        assert_eq!(region["place"], *place, "{region}");
        assert_eq!(region["executions"], *executions, "{region}");
    }
}

#[test]
fn a_parallel_loop_is_one_node_with_the_right_share_on_1_to_4_workers() {
    let _cores = exclusive_cores();
    for workers in ["1", "2", "4"] {
        let rounds = 10;
        let (run, database) = profile(Rayon::Patched, "loops", &[workers, "10"]);
        let (view, truth) = (database.top_down(), run.truth());
        assert_all_reach_main(&view, "loops::main");
        let unequal = "par_iter().map(..).sum()";
        let shared = "into_par_iter().for_each(..)";
        let (outside, rows, chunks) =
            ("par_iter().for_each(..)", "par_iter_mut().for_each(..)", "par_chunks_mut(..).for_each(..)");
        for (site, path) in [
            ("light_leaf", &["unequal", unequal, "light_leaf"][..]),
            ("heavy_leaf", &["unequal", unequal, "heavy_leaf"]),
            ("many", &["many", "shared_loop", shared, "shared_leaf"]),
            ("few", &["few", "shared_loop", shared, "shared_leaf"]),
            ("inner_leaf", &["nested", rows, chunks, "inner_leaf"]),
            ("serial", &["serial"]),
            ("outside_leaf", &["outside", outside, "outside_leaf"]),
        ] {
            let is_loop = |part: &str| part.ends_with(')');
            let above: &[&str] = match site {
                "outside_leaf" => &["main"],
                _ => &["main", "run"],
            };
            let path: Vec<String> = above
                .iter()
                .chain(path)
                .map(|part| match is_loop(part) {
                    true => (*part).to_owned(),
                    false => format!("loops::{part}"),
                })
                .collect();
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            let seconds = truth.of(&format!("loops::{site}"), "work");
            let what = format!("{site} on {workers} workers");
            assert_within(&what, view.inclusive_under(&path, "work"), seconds, 0.05);
        }
        let found = parallel_loops(&view);
        let mut names: Vec<(&str, Option<u64>)> =
            found.iter().map(|(_, n)| (n.name.as_str(), n.line)).collect();
        names.sort_unstable();
        let line = |text: &str| {
            let source = include_str!("../../fixtures/rayon/src/bin/loops.rs");
            let at = source.lines().position(|l| l.contains(text));
            Some(at.expect("a line of the fixture") as u64 + 1)
        };
        let expected = [
            (shared, line("(0..n).into_par_iter()")),
            (shared, line("(0..n).into_par_iter()")),
            (chunks, line("row.par_chunks_mut(2)")),
            (unequal, line(".sum()")),
            (outside, line("items.par_iter().for_each")),
            (rows, line("rows.par_iter_mut()")),
        ];
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(names, expected, "one node a loop and caller");
        let counts = found.iter().find(|(_, n)| n.name == chunks);
        let counts = counts.and_then(|(_, n)| n.parallel_loop.clone());
        let counts = counts.expect("a loop node has counts");
        // Eight rows of four chunks: one worker splits each once, more split them to the end.
        let splits = rounds * 8 * if workers == "1" { 1 } else { 3 };
        assert_eq!(counts.splits, Some(splits), "{workers} workers: {counts:?}");
        assert_eq!(counts.shared_by, 1);
        let mean = counts.mean_task_seconds.expect("there are splits");
        let work = truth.of("loops::inner_leaf", "work");
        assert_within("mean task", mean * splits as f64, work, 0.05);
        assert_executions(
            &database,
            &[
                (unequal, "worker", rounds),
                (shared, "worker", 2 * rounds),
                (rows, "worker", rounds),
                (outside, "outside", 2 * rounds + 1),
            ],
        );
        if workers == "1" {
            assert_eq!(counts.steals, Some(0), "nobody steals from one worker");
        }
    }
}

#[test]
fn two_loops_of_one_line_are_told_apart() {
    let _cores = exclusive_cores();
    let (run, database) = profile(Rayon::Patched, "twins", &["2", "8"]);
    let (view, truth) = (database.top_down(), run.truth());
    assert_all_reach_main(&view, "twins::main");
    let found = parallel_loops(&view);
    assert_eq!(found.len(), 6, "{:?}", view.names());
    let leaves = |leaves: &[&'static str]| leaves.to_vec();
    for (caller, method, expected) in [
        ("types", "par_iter().map(..).sum()", leaves(&["light", "heavy"])),
        ("values", "par_iter().map(..).sum()", leaves(&["few", "many"])),
        ("nested", "par_iter().for_each(..)", leaves(&["inner", "inner"])),
    ] {
        let caller = format!("twins::{caller}");
        let mut loops: Vec<(u32, &Vec<String>, &Node)> = found
            .iter()
            .filter(|(above, _)| above.contains(&caller))
            .map(|(above, node)| {
                let column = node.name.strip_prefix(method);
                let column = column.and_then(|rest| rest.strip_prefix(" at column "));
                let column = column.unwrap_or_else(|| panic!("{} has a column", node.name));
                (column.parse().expect("a number"), above, node)
            })
            .collect();
        loops.sort_by_key(|(column, ..)| *column);
        assert_eq!(loops.len(), 2, "{caller}");
        assert_eq!(loops[0].2.line, loops[1].2.line, "{caller}");
        for ((_, above, node), leaf) in loops.iter().zip(expected) {
            let site = format!("twins::{leaf}");
            let mut path: Vec<&str> = above.iter().map(String::as_str).collect();
            path.push(&node.name);
            let seconds = truth.of(&site, "work");
            let measured = view.inclusive_under(&path, "work");
            assert_within(&format!("{} in {caller}", node.name), measured, seconds, 0.05);
        }
    }
}

#[test]
fn machinery_is_shown_when_asked_for_and_in_the_physical_projection() {
    let _cores = exclusive_cores();
    let (run, database) = profile(Rayon::Patched, "loops", &["2", "10"]);
    let truth = run.truth();
    let folded = database.top_down();
    for options in [&["--unfold"][..], &["--projection", "physical"]] {
        let view = database.view("top-down", options);
        assert_eq!(parallel_loops(&view).len(), 0, "{options:?}");
        let helper = |n: &String| n.contains("rayon::iter::plumbing::bridge_producer_consumer");
        assert!(view.names().iter().any(helper), "{options:?} shows how a loop is split");
        let leaf = view.inclusive("loops::inner_leaf", "work");
        let seconds = truth.of("loops::inner_leaf", "work");
        assert_within("inner_leaf", leaf, seconds, 0.05);
        for metric in &view.metrics {
            assert_eq!(value(&view.totals, metric), value(&folded.totals, metric));
        }
    }
    assert!(!folded.names().iter().any(|n| n.contains("rayon::")));
}

#[test]
fn every_kind_of_loop_is_named_and_a_recursion_of_the_programs_own_stays() {
    let _cores = exclusive_cores();
    let (run, database) = profile(Rayon::Patched, "kinds", &["2", "3"]);
    let (view, truth) = (database.top_down(), run.truth());
    assert_all_reach_main(&view, "kinds::main");
    for (caller, name, site) in [
        ("collect", "par_iter().copied().filter(..).map(..).collect()", "collected"),
        ("bridge", "par_bridge().for_each(..)", "bridged"),
        ("chunks", "par_chunks(..).map(..).sum()", "chunked"),
        ("sort_unstable", "par_sort_unstable_by_key(..)", "sorted"),
        ("sort_stable", "par_sort_by_key(..)", "merged"),
        ("reduce", "par_iter().copied().reduce(..)", "reduced"),
    ] {
        let (caller, site) = (format!("kinds::{caller}"), format!("kinds::{site}"));
        let path = ["kinds::main", "kinds::run", &caller, name, &site];
        let measured = view.inclusive_under(&path, "work");
        assert_within(name, measured, truth.of(&site, "work"), 0.08);
    }
    let found = parallel_loops(&view);
    assert_eq!(found.len(), 6, "{:?}", view.names());
    let mut deepest = 0;
    view.walk(&mut |above, node| {
        if node.name == "kinds::divided" {
            let own = above.iter().filter(|n| n.name == "kinds::divide").count();
            deepest = deepest.max(own);
            assert!(above.iter().all(|n| n.kind != "parallel-loop"));
        }
    });
    assert!(deepest >= 6, "the program's own recursion: {deepest} levels");
    let measured = view.inclusive("kinds::divided", "work");
    assert_within("divided", measured, truth.of("kinds::divided", "work"), 0.05);
}

#[test]
fn tasks_of_every_kind_lie_under_their_spawner() {
    let _cores = exclusive_cores();
    for workers in ["1", "3"] {
        let (run, database) = profile(Rayon::Patched, "tasks", &[workers]);
        let (view, truth) = (database.top_down(), run.truth());
        assert_all_reach_main(&view, "tasks::main");
        for site in ["scoped", "fifo", "detached", "broadcast", "installed"] {
            let site = format!("tasks::{site}");
            let path = ["tasks::main", &site, "tasks::task"];
            let measured = view.inclusive_under(&path, "work");
            let what = format!("{site} on {workers} workers");
            assert_within(&what, measured, truth.of(&site, "work"), 0.05);
        }
    }
}

#[test]
fn paths_cross_pools_threads_frames_that_are_gone_and_panics() {
    let _cores = exclusive_cores();
    for workers in ["1", "2", "3"] {
        let (run, database) = profile(Rayon::Patched, "crossings", &[workers]);
        let (view, truth) = (database.top_down(), run.truth());
        assert_all_reach_main(&view, "crossings::main");
        for path in [
            &["nested"][..],
            &["outliving"],
            &["broadcast"],
            &["contexts", "stayed"],
            &["contexts", "migrated"],
            &["adopted"],
            &["handled"],
            &["scoped"],
            &["panicking"],
            &["panicking", "unwound"],
            &["yielding"],
            &["bridged"],
        ] {
            let names = ["main"].iter().chain(path).chain(&["task"]);
            let names: Vec<String> = names.map(|name| format!("crossings::{name}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let last = names[path.len()];
            let mut seconds = truth.of(last, "work");
            if last == "crossings::panicking" {
                // Its guards' tasks lie under it, too.
                seconds += truth.of("crossings::unwound", "work");
            }
            let what = format!("{last} on {workers} workers");
            assert_within(&what, view.inclusive_under(&names, "work"), seconds, 0.05);
        }
        // Who knows that a task was stolen has it so on some workers, and not on one.
        let stolen = truth.of("crossings::migrated", "work");
        assert_eq!(stolen > 0.0, workers != "1", "{stolen} s on {workers} workers");
    }
}

#[test]
fn a_worker_that_is_blocked_in_a_task_is_idle() {
    let _cores = exclusive_cores();
    // Both of the program's pools are of one runtime, or of two; `cargo hpcrun` makes two copies of one.
    for rayon in [Rayon::Patched, Rayon::Stock] {
        let (run, database) = profile(rayon, "blocked", &[]);
        let what = format!("{rayon:?}");
        run.truth().assert_sites(&what, &database.top_down(), RATE, 0.03);
    }
}
