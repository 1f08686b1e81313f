//! Critical paths of programs with threads: the fixtures' graphs of known activity, whose nodes say what they
//! really took. Work, span, each procedure's time on the path and the span without it agree with the graph,
//! whatever the scheduler did.

use hpc_formats::critical_path::{CriticalPath, Procedure, Site};
use hpcrun_tests::graph::{Graph, Node, Times};
use hpcrun_tests::run::{Condition, Run, Spec};
use hpcrun_tests::tools::{Rayon, c_program, exclusive_cores, rayon_program, release};
use std::collections::BTreeSet;

/// The fixtures' unit, nanoseconds.
const UNIT: u64 = 2_000_000;

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 * 1e-9
}

/// Within 2 %, and what it takes to create and end a thread for each of some.
fn is_close(found: f64, truth: f64, threads: usize) -> bool {
    (found - truth).abs() <= 0.02 * truth + 300e-6 * (threads + 1) as f64
}

/// What is wrong with a path.
fn faults(path: &CriticalPath, graph: &Graph, times: &Times, threads: usize) -> Vec<String> {
    let mut faults = Vec::new();
    let mut check = |what: String, found: u64, truth: f64| {
        if !is_close(seconds(found), truth, threads) {
            faults.push(format!("{what}: {:.6} s, truth {truth:.6} s", seconds(found)));
        }
    };
    let (span, on_path) = graph.longest(times, None);
    check("work".into(), path.work, times.total(None));
    check("span".into(), path.span, span);
    let names: BTreeSet<&str> = graph.0.iter().map(|((name, _), _)| *name).collect();
    for name in names {
        let Some(procedure) = procedure(path, name) else {
            check(format!("{name}'s work"), 0, times.total(Some(name)));
            continue;
        };
        let own = on_path.iter().filter(|node| node.0 == name);
        let own: f64 = own.map(|node| times.of(*node)).sum();
        check(format!("{name}'s work"), procedure.work, times.total(Some(name)));
        check(format!("{name} on the path"), procedure.on_path, own);
        let zeroed = graph.longest(times, Some(name)).0;
        check(format!("the span without {name}"), procedure.zeroed_span, zeroed);
        let faster = graph.longest_with(times, Some(name), 0.5).0;
        check(format!("the span with half of {name}"), procedure.faster_span, faster);
    }
    faults
}

fn procedure<'p>(path: &'p CriticalPath, name: &str) -> Option<&'p Procedure> {
    let mut all = path.procedures.iter();
    all.find(|p| p.name == name)
}

/// What holds for every path.
fn check_whole(path: &CriticalPath) {
    assert!(path.complete && path.span <= path.work && path.burdened_span >= path.span);
    let segments: u64 = path.segments.iter().map(|segment| segment.time).sum();
    assert_eq!(segments, path.span, "the segments are the span");
}

fn edges(path: &CriticalPath) -> BTreeSet<&'static str> {
    path.segments.iter().map(|s| s.edge.name()).collect()
}

/// Runs a graph of the C program, in which every edge is seen.
fn check_c(name: &str, graph: &Graph, threads: usize, edge: &[&str]) -> CriticalPath {
    let spec = Spec::new(&format!("path-{name}"), c_program("paths")).arguments(&[name]);
    let run = spec.critical_path("").succeed();
    let path = run.critical_path();
    check_whole(&path);
    let times = Times::of_run(&run);
    let faults = faults(&path, graph, &times, threads);
    assert!(faults.is_empty(), "{name}: {}\n{path:?}", faults.join("\n"));
    assert_eq!(path.quality.lost_edges, [], "{name}");
    assert_eq!(path.quality.woken_edges, 0, "{name}");
    let edges = edges(&path);
    assert!(edge.iter().all(|e| edges.contains(e)), "{name}: {edges:?}");
    path
}

const fn n(name: &'static str) -> Node {
    (name, 0)
}

fn join() -> Graph {
    let graph = Graph::default().node(n("pre"), &[]);
    let graph = graph.node(n("A"), &[n("pre")]).node(n("B"), &[n("pre")]);
    graph.node(n("post"), &[n("A"), n("B")])
}

fn pipeline() -> Graph {
    let mut graph = Graph::default();
    for item in 0..20 {
        let stages = ["S1", "S2", "S3"];
        for (stage, name) in stages.into_iter().enumerate() {
            let last = (item > 0).then(|| (name, item - 1));
            let before = (stage > 0).then(|| (stages[stage - 1], item));
            let before: Vec<Node> = last.into_iter().chain(before).collect();
            graph = graph.node((name, item), &before);
        }
    }
    graph
}

const VALUES: usize = 5;

/// A channel with room for one value: a value is produced when the one before was sent; it is sent when the
/// one before was received, and received when it was sent and the one before was consumed.
///
/// A lock orders all who take it, so, where the scheduler has it so, the consumer comes to value v after the
/// producer was there with the next one (bit v of `late`), or the producer after the consumer that waits for
/// value v (bit v of `early`).
fn bounded(late: u32, early: u32) -> Graph {
    let is_set = |bits: u32, value: usize| bits >> value & 1 == 1;
    let mut graph = Graph::default();
    let mut sent: Vec<Vec<Node>> = Vec::new();
    let mut consumed = 0;
    for value in 0..=VALUES {
        if value < VALUES {
            let before = sent.last().cloned().unwrap_or_default();
            graph = graph.node(("produce", value), &before);
            let mut own = vec![("produce", value)];
            own.extend(value.checked_sub(2).map(|v| ("consume", v)));
            own.extend(value.checked_sub(1).filter(|_| is_set(early, value)).map(|v| ("consume", v)));
            sent.push(own);
        }
        // The consumer of the value before, and of this one if that is not consumed before it is sent.
        while consumed < value.min(VALUES) {
            let mut received = sent[consumed].clone();
            received.extend(consumed.checked_sub(1).map(|v| ("consume", v)));
            let is_late = is_set(late, consumed) && consumed + 1 < VALUES;
            received.extend(is_late.then_some(("produce", consumed + 1)));
            graph = graph.node(("consume", consumed), &received);
            consumed += 1;
        }
    }
    graph.node(n("tail"), &sent[VALUES - 1])
}

#[test]
fn a_thread_that_is_joined_is_on_the_path_if_it_is_longer() {
    let _cores = exclusive_cores();
    let path = check_c("join", &join(), 1, &["start", "spawn", "join"]);
    assert_eq!(path.segments.len(), 3);
    // The first segment ends where the thread was created, in a context of the main thread's profile.
    let created = &path.segments[0].end;
    assert!(matches!(created, Site::Context { profile: 1, .. }), "{created:?}");
    check_c("join-c11", &join(), 1, &["spawn", "join"]);
}

#[test]
fn channels_of_semaphores_and_of_conditions_carry_the_path() {
    let _cores = exclusive_cores();
    check_c("pipeline", &pipeline(), 2, &["channel", "join"]);
    let run = Spec::new("path-bounded", c_program("paths")).arguments(&["bounded"]);
    let run = run.critical_path("").succeed();
    let (path, times) = (run.critical_path(), Times::of_run(&run));
    check_whole(&path);
    let orders = (0..1 << VALUES).flat_map(|late| (0..1 << VALUES).map(move |early| (late, early)));
    let is_right = |(late, early): (u32, u32)| faults(&path, &bounded(late, early), &times, 1).is_empty();
    let first = faults(&path, &bounded(0, 0), &times, 1);
    assert!(orders.into_iter().any(is_right), "bounded: {}\n{path:?}", first.join("\n"));
    assert_eq!((&path.quality.lost_edges[..], path.quality.woken_edges), (&[][..], 0));
    assert!(edges(&path).contains("condition"), "{path:?}");
}

#[test]
fn without_a_procedure_another_branch_may_be_the_longest() {
    let _cores = exclusive_cores();
    let zeroing = Graph::default().node(n("P"), &[]);
    let zeroing = zeroing.node(n("A"), &[n("P")]).node(n("D"), &[n("P")]);
    let zeroing = zeroing.node(n("E"), &[n("A"), n("D")]);
    check_c("zeroing", &zeroing, 1, &[]);
    let both = Graph::default().chain(&[n("f"), n("g")], &[]).chain(&[("f", 1), n("h")], &[]);
    check_c("both", &both, 1, &[]);
}

#[test]
fn branches_that_are_nearly_as_long_are_named() {
    let _cores = exclusive_cores();
    let branches = [n("a"), n("b"), n("c"), n("d")];
    let mut graph = Graph::default().node(n("pre"), &[]);
    for branch in branches {
        graph = graph.node(branch, &[n("pre")]);
    }
    let path = check_c("near", &graph.node(n("post"), &branches), 4, &["spawn", "join"]);
    let branches = path.near.iter().filter(|near| near.time > 90 * UNIT);
    let slacks: Vec<u64> = branches.map(|near| near.slack / UNIT).collect();
    assert_eq!(slacks.len(), 2, "{:?}", path.near);
    assert!(slacks[0] <= 3 && (3..=6).contains(&slacks[1]), "{slacks:?}");
}

#[test]
fn threads_that_nobody_joins_count() {
    let _cores = exclusive_cores();
    let mut graph = Graph::default().chain(&[n("x0"), n("x1")], &[]).node(n("y0"), &[]);
    for leaf in 0..16 {
        graph = graph.node(("leaf", leaf), &[n("y0")]);
    }
    check_c("expose", &graph, 18, &["spawn"]);
}

#[test]
fn a_round_ends_with_the_last_arrival_at_the_barrier() {
    let _cores = exclusive_cores();
    let mut graph = Graph::default();
    let mut last: Vec<Node> = Vec::new();
    for round in 0..8_usize {
        let rank = |rank| (if rank == round % 4 { "slow" } else { "fast" }, 4 * round + rank);
        let ranks: Vec<Node> = (0..4).map(rank).collect();
        for rank in &ranks {
            graph = graph.node(*rank, &last);
        }
        last = ranks;
    }
    check_c("rounds", &graph, 4, &["barrier"]);
}

#[test]
fn readers_of_a_lock_do_not_wait_for_each_other() {
    let _cores = exclusive_cores();
    let readers = [n("r1"), n("r2")];
    let graph = Graph::default().node(n("w1"), &[]);
    let graph = graph.node(n("r1"), &[n("w1")]).node(n("r2"), &[n("w1")]);
    check_c("readers", &graph.node(n("w2"), &readers), 2, &["lock"]);
}

/// Four threads on one core take four times as long by the clock on the wall.
#[test]
fn the_path_does_not_depend_on_the_number_of_cores() {
    let _cores = exclusive_cores();
    let mut graph = Graph::default();
    for task in 0..4 {
        graph = graph.node(("task", task), &[]);
    }
    let path = check_c("pinned", &graph, 4, &[]);
    assert!(path.wall > 3 * path.span);
}

/// Beside a neighbour that keeps one core busy.
#[test]
fn the_path_does_not_depend_on_other_programs() {
    let _cores = exclusive_cores();
    let spec = Spec::new("path-beside", c_program("paths")).arguments(&["pipeline"]);
    let run = spec.critical_path("").condition(Condition::BesideBusy).succeed();
    let faults = faults(&run.critical_path(), &pipeline(), &Times::of_run(&run), 2);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Of the standard library's channels and locks, and of tokio's tasks, only waits are seen, so a thread that
/// did not have to wait, because it was kept from running, has no edge. That is rare, and does not happen
/// again and again.
#[test]
fn threads_and_channels_of_the_standard_library_and_of_tokio() {
    let _cores = exclusive_cores();
    let locks = Graph::default().node(n("pre"), &[]).node(n("held"), &[n("pre")]);
    let locks = locks.node(n("A"), &[n("pre")]).node(n("B"), &[n("A"), n("held")]);
    let graphs = [
        ("join", join(), 1),
        ("scope", join(), 1),
        ("pipeline", pipeline(), 2),
        ("bounded", bounded(0, 0), 1),
        ("locks", locks, 1),
        ("tokio-blocking", join(), 4),
        ("tokio-in-place", join(), 4),
    ];
    for (name, graph, threads) in graphs {
        let mut last = Vec::new();
        let is_right = (0..3).any(|_| {
            let spec = Spec::fixture(&format!("path-std-{name}"), "paths").arguments(&[name]);
            let run = spec.critical_path("").succeed();
            let path = run.critical_path();
            check_whole(&path);
            assert_eq!(path.quality.lost_edges, [], "{name}");
            last = faults(&path, &graph, &Times::of_run(&run), threads);
            // That it rests on waits is said; a join of threads is seen.
            last.is_empty() && (name == "join" || path.quality.woken_edges > 0)
        });
        assert!(is_right, "{name}: {}", last.join("\n"));
    }
}

/// A wait that polls or spins uses as much CPU time as the work that it waits for. Samples find it: it is no
/// activity, and that its end has no edge is counted, and said. So the path is too short, never too long.
#[test]
fn a_polling_wait_is_no_activity() {
    let _cores = exclusive_cores();
    check_wait(Spec::fixture("path-polling", "paths").arguments(&["polling"]));
}

/// Loops of the program's own that only another thread can end.
#[test]
fn a_spinning_wait_is_no_activity() {
    let _cores = exclusive_cores();
    for wait in ["pausing", "loading", "exchanging"] {
        check_wait(Spec::new(&format!("path-{wait}"), c_program("paths")).arguments(&[wait]));
    }
}

fn check_wait(spec: Spec) {
    let graph = Graph::default().node(n("pre"), &[]).node(n("A"), &[n("pre")]).node(n("B"), &[n("pre")]);
    let run = spec.rate(1000).critical_path("").succeed();
    let (path, times) = (run.critical_path(), Times::of_run(&run));
    check_whole(&path);
    // The begin and the end of the wait are found to a sample, which is no more often than the kernel's tick.
    let (work, slack) = (times.total(None), 0.01);
    let error = seconds(path.work) - work;
    assert!((-0.02 * work..0.02 * work + slack).contains(&error), "{} s, not {work} s", seconds(path.work));
    let (span, least) = (graph.longest(&times, None).0, times.of(n("pre")) + times.of(n("B")));
    let found = seconds(path.span);
    assert!((0.98 * least..1.02 * span).contains(&found), "{found} s, at least {least} s, at most {span} s");
    assert_eq!(path.quality.lost_edges, [("wait".to_owned(), 1)]);
    let text = run.database().text("critical-path", &[]);
    assert!(text.lines().any(|line| line.starts_with('!') && line.contains("wait 1")), "{text}");
}

/// Tasks of work-stealing-rt: each is a strand of its own, whoever runs it, and the workers' own waits are no
/// part of it.
#[test]
fn tasks_of_the_runtime_that_reports_them() {
    let _cores = exclusive_cores();
    let mut graph = Graph::default();
    for number in (1..32_usize).rev() {
        graph = match number {
            16.. => graph.node(("leaf", number), &[]),
            _ => {
                let half = |n| (if n < 16 { "merge" } else { "leaf" }, n);
                graph.node(("merge", number), &[half(2 * number), half(2 * number + 1)])
            }
        };
    }
    let spec = Spec::fixture("path-tasks", "paths").arguments(&["tasks"]);
    let run = spec.critical_path("").succeed();
    let path = run.critical_path();
    check_whole(&path);
    let faults = faults(&path, &graph, &Times::of_run(&run), 4);
    assert!(faults.is_empty(), "{}\n{path:?}", faults.join("\n"));
    assert_eq!(path.quality.lost_edges, []);
}

/// A parallel iterator splits its work where no user's code is near: long subpaths have contexts.
#[test]
fn places_of_tasks_are_the_users_own() {
    let _cores = exclusive_cores();
    let program = rayon_program(Rayon::Patched, "loops");
    let spec = Spec::new("path-places", program).arguments(&["2", "10"]);
    let run = spec.critical_path("").succeed();
    let json = run.database().text("critical-path", &["--format", "json"]);
    let path: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let segments = path["segments"].as_array().expect("a list");
    let is_long = |s: &&serde_json::Value| s["seconds"].as_f64() > Some(0.002);
    let long: Vec<_> = segments.iter().filter(is_long).collect();
    assert!(!long.is_empty(), "{json}");
    // Short ones are in the machine code of a loop.
    let names = segments.iter().flat_map(|s| [&s["begin"]["name"], &s["end"]["name"]]);
    for name in names.filter_map(|name| name.as_str()) {
        assert!(!name.starts_with("work_stealing_rt::"), "{name} in {json}");
    }
    for place in long.iter().flat_map(|s| [&s["begin"], &s["end"]]) {
        // The program's start and end have no place.
        let is_users = place["file"].as_str().is_none_or(|f| f.ends_with("bin/loops.rs"));
        assert!(is_users, "{place} in {json}");
    }
}

/// By samples, which are 1 ms or a tick of the kernel apart.
#[test]
fn inlined_procedures_have_a_span_without_them() {
    let _cores = exclusive_cores();
    let graph = Graph::default().chain(&[n("f"), n("g")], &[]).chain(&[("f", 1), n("h")], &[]);
    for (test, program, path) in
        [("path-inlined-c", c_program("inlined"), ""), ("path-inlined-rust", release("inlined"), "inlined::")]
    {
        let structure = hpcstruct_rs::analyse(&program, &hpcstruct_rs::Options::default());
        let structure = structure.expect("it can be analysed");
        let run = Spec::new(test, program).rate(1000).critical_path("").succeed();
        let times = Times::of_run(&run);
        let json = run.database().text("critical-path", &["--format", "json"]);
        let found: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let all = found["procedures"].as_array().expect("a list");
        for name in ["f", "g", "h"] {
            let full = format!("{path}{name}");
            // Of f, one part is out of line.
            let mut machine = structure.procedures.iter();
            let is_machine = machine.any(|p| structure.string(p.name) == full);
            assert_eq!(is_machine, name == "f", "{full}");
            let own: Vec<_> = all.iter().filter(|p| p["name"] == full[..]).collect();
            let (_, on_path) = graph.longest(&times, None);
            let on_path = on_path.iter().filter(|node| node.0 == name);
            let on_path: f64 = on_path.map(|node| times.of(*node)).sum();
            let [own] = own[..] else {
                panic!("{full} in {json}");
            };
            for (member, truth) in [
                ("zeroed_span", graph.longest(&times, Some(name)).0),
                ("on_path", on_path),
                ("work", times.total(Some(name))),
            ] {
                let shown = own[member].as_f64().expect("a number");
                let is_right = (shown - truth).abs() <= 0.04 * truth + 0.005;
                assert!(is_right, "{full}, {member}: {shown}, truth {truth}\n{json}");
            }
        }
    }
}

/// By samples that are four rounds apart.
#[test]
fn threads_may_meet_more_often_than_they_are_sampled() {
    let _cores = exclusive_cores();
    for arguments in [&[][..], &["threads"]] {
        let test = format!("path-meets{}", arguments.concat());
        let run =
            Spec::new(&test, c_program("meets")).rate(500).critical_path("").arguments(arguments).succeed();
        let truth: serde_json::Value = serde_json::from_str(run.stdout().trim()).expect("JSON");
        let truth = |name: &str| truth[name].as_f64().expect("a number") * 1e-9;
        let json = run.database().text("critical-path", &["--format", "json"]);
        let found: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let span = found["span"].as_f64().expect("a number");
        let all = found["procedures"].as_array().expect("a list");
        for name in ["f", "g", "h"] {
            let own = all.iter().find(|p| p["name"] == name).expect(name);
            let gain = span - own["zeroed_span"].as_f64().expect("a number");
            let expected = truth("span") - truth(name);
            // A function is seen first after some rounds; where threads are created there is more to do.
            let is_right = (gain - expected).abs() <= 0.08 * span;
            assert!(is_right, "{test}, {name}: {gain} s, truth {expected} s\n{json}");
        }
    }
}

/// What the launcher says, and that it says so only if it is asked.
#[test]
fn the_summary_is_printed_at_the_end() {
    let _cores = exclusive_cores();
    let spec = |test| Spec::new(test, c_program("paths")).arguments(&["join"]);
    let run = spec("path-summary").critical_path("").succeed();
    let path = run.critical_path();
    let text = run.stderr();
    let parallelism = path.work as f64 / path.span as f64;
    assert!(text.contains(&format!("parallelism {parallelism:.2}")), "{text}");
    assert!(text.contains("hpcprof-rs critical-path"), "{text}");
    let without = spec("path-no-summary").succeed();
    assert!(without.critical_paths().is_empty() && !without.stderr().contains("critical path"));
    assert!(
        Times::of_run(&without).total(None) > seconds(90 * UNIT),
        "marks do nothing without the profiler"
    );
}

/// A run of a program that is no graph.
fn torture(name: &str) -> Run {
    let spec = Spec::new(&format!("path-{name}"), c_program("paths")).arguments(&[name]);
    let run = spec.critical_path("").succeed();
    for path in run.critical_paths() {
        check_whole(&path);
        assert_eq!(path.quality.lost_edges, [], "{name}");
    }
    run
}

#[test]
fn every_one_of_ten_thousand_threads_is_seen() {
    let _cores = exclusive_cores();
    let path = torture("churn").critical_path();
    let spawned_and_joined = 10_000 + 10_000 / 2;
    assert!(path.quality.exact_edges >= spawned_and_joined, "{:?}", path.quality);
}

/// Twenty children, forked while threads are in the middle of events, each with a path of its own.
#[test]
fn a_forked_child_has_a_path_of_its_own() {
    let _cores = exclusive_cores();
    let paths = torture("forks").critical_paths();
    assert_eq!(paths.len(), 21);
    let of_child = |path: &&CriticalPath| procedure(path, "child").is_some_and(|p| p.on_path > 0);
    for child in paths.iter().filter(of_child) {
        assert!(is_close(seconds(child.span), seconds(5 * UNIT), 1), "{child:?}");
        assert_eq!(child.threads, [(0, 1), (1, 2)], "{child:?}");
    }
    assert_eq!(paths.iter().filter(of_child).count(), 20);
}

#[test]
fn a_thread_that_is_cancelled_in_a_wait_works_on() {
    let _cores = exclusive_cores();
    let run = torture("cancel");
    let path = run.critical_path();
    let cleanup = procedure(&path, "cleanup").expect("it is marked");
    let truth = seconds(20 * UNIT);
    assert!(is_close(seconds(cleanup.on_path), truth, 20), "{cleanup:?}");
    assert!(is_close(seconds(path.span), truth, 20), "{path:?}");
}

#[test]
fn any_thread_may_end_the_process() {
    let _cores = exclusive_cores();
    let path = torture("ends").critical_path();
    let last = procedure(&path, "last").expect("it is marked");
    assert!(is_close(seconds(last.work), seconds(20 * UNIT), 1), "{last:?}");
    // The threads that still ran count, too.
    assert!(path.span >= last.work && path.work > path.span, "{path:?}");
}

#[test]
fn the_path_ends_where_the_process_does() {
    let _cores = exclusive_cores();
    let path = torture("background").critical_path();
    let last = procedure(&path, "last").expect("it is marked");
    assert!(is_close(seconds(path.span), seconds(last.work), 1), "{path:?}");
    assert!(path.work > path.span + path.span / 2, "{path:?}");
}

/// By `_exit`, which is allowed in a signal handler.
#[test]
fn a_signal_handler_may_end_the_process_in_the_middle_of_an_event() {
    let _cores = exclusive_cores();
    for _ in 0..20 {
        let spec = Spec::new("path-signalled", c_program("paths")).arguments(&["signalled"]);
        for path in spec.critical_path("").succeed().critical_paths() {
            assert!(path.work > 0, "{path:?}");
        }
    }
}

#[test]
fn a_lock_in_the_place_of_another_one_has_no_past() {
    let _cores = exclusive_cores();
    let graph = Graph::default().node(n("first"), &[]).node(n("second"), &[]);
    let path = check_c("reuse", &graph, 1, &[]);
    assert!(!edges(&path).contains("lock"));
    let graph = Graph::default().chain(&[n("once"), n("after")], &[]);
    check_c("once", &graph, 1, &["lock"]);
}

/// From one signal to the next; what comes before and after is no part of it.
#[test]
fn signals_start_and_stop_the_tracking() {
    let _cores = exclusive_cores();
    let spec = Spec::new("path-phase", c_program("paths")).arguments(&["phase"]);
    let run = spec.critical_path("signal:USR2").succeed();
    let path = run.critical_path();
    check_whole(&path);
    let times = Times::of_run(&run);
    let (span, _) = join().longest(&times, None);
    assert!(is_close(seconds(path.span), span, 1), "{path:?}");
    let outside = ["before", "after"].map(|name| procedure(&path, name));
    assert_eq!(outside.map(|p| p.map_or(0, |p| p.work)), [0, 0]);
    assert!(run.stderr().contains("is tracked from now on"));
    assert!(run.stderr().contains("no longer tracked"));
}

/// A thread that works when tracking starts counts from then on, though its next event is its end.
#[test]
fn tracking_that_starts_in_the_middle_misses_nobody() {
    let _cores = exclusive_cores();
    let spec = Spec::new("path-middle", c_program("paths")).arguments(&["middle"]);
    let run = spec.critical_path("signal:USR2").succeed();
    let (path, times) = (run.critical_path(), Times::of_run(&run));
    check_whole(&path);
    let graph = Graph::default().node(n("compute"), &[]).node(n("A"), &[]);
    let graph = graph.node(n("post"), &[n("compute"), n("A")]);
    for (found, truth) in [(path.span, graph.longest(&times, None).0), (path.work, times.total(None))] {
        assert!(is_close(seconds(found), truth, 2), "{} s, truth {truth} s: {path:?}", seconds(found));
    }
    assert_eq!(path.quality.lost_edges, []);
}

/// A spawn and a join are on the path, with the costs that they were given.
#[test]
fn edges_may_be_a_part_of_the_path() {
    let _cores = exclusive_cores();
    let spec = Spec::new("path-edges", c_program("paths")).arguments(&["join"]);
    let run = spec.critical_path("edges:10ms").succeed();
    let path = run.critical_path();
    let segments: u64 = path.segments.iter().map(|segment| segment.time).sum();
    assert_eq!((segments, path.burdened_span), (path.span, path.span));
    assert_eq!(path.edge_time(), 30_000_000, "{path:?}");
    let (span, _) = join().longest(&Times::of_run(&run), None);
    assert!(is_close(seconds(path.span - path.edge_time()), span, 1), "{path:?}");
}

/// A program that is killed leaves what was written in between.
#[test]
fn the_path_is_written_while_the_program_runs() {
    let _cores = exclusive_cores();
    let spec = Spec::new("path-every", c_program("paths")).arguments(&["for-ever"]);
    let run = spec.critical_path("every:1s").run();
    assert!(!run.output.status.success(), "it kills itself");
    let path = run.critical_path();
    assert!(!path.complete && path.span > 0 && path.work > path.span, "{path:?}");
    assert!(run.stderr().contains("up to its last report"), "{}", run.stderr());
    let last = path.series.last().expect("a moment");
    assert_eq!((last.wall, last.work, last.span), (path.wall, path.work, path.span));
    assert!(path.series.windows(2).all(|two| two[0].wall < two[1].wall && two[0].work <= two[1].work));
    assert!(!last.procedures.is_empty(), "{path:?}");
}
