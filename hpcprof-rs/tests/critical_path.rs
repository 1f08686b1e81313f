//! Critical paths whose answers are known by construction, from the file to the screen.

use crate::support::program::{
    APP, APP_FILE, CALLER, CALLER_JOIN, CALLER_JOIN_CLOSURE, CLOSURE, EXECUTE, FUTEX, LEAF, LEAF_ITERATOR,
    MAIN, MAIN_SERIAL, MEMCPY, SCHEDULER, SERIAL, START, run, run_of,
};
use crate::support::*;
use hpc_formats::address::CodeAddress;
use hpc_formats::critical_path::{
    self, CriticalPath, Edge, Moment, Near, OnPath, Procedure, ProcedureName, Quality, Segment, Site, Start,
};
use hpc_formats::structure::Origin;
use serde_json::{Value, json};
use std::path::Path;

/// A unit of the graphs' times.
pub(crate) const MS: u64 = 1_000_000;

/// A graph of activity, in milliseconds.
pub(crate) struct Graph {
    pub(crate) work: u64,
    pub(crate) span: u64,
    /// Code, name, activity, part of the path, the span without it.
    procedures: &'static [(CodeAddress, &'static str, u64, u64, u64)],
    /// Edge, procedure, time, thread.
    path: &'static [(Edge, usize, u64, u32)],
    /// Procedure, time since the path was left, slack.
    near: &'static [(usize, u64, u64)],
}

/// pre 10, then A 30 beside B 50, then post 5.
pub(crate) const JOIN: Graph = Graph {
    work: 95,
    span: 65,
    procedures: &[
        (MAIN, "app::main", 10, 10, 55),
        (CALLER, "app::caller", 30, 0, 65),
        (LEAF, "app::leaf", 50, 50, 45),
        (SERIAL, "app::serial", 5, 5, 60),
    ],
    path: &[(Edge::Start, 0, 10, 0), (Edge::Spawn, 2, 50, 1), (Edge::Join, 3, 5, 0)],
    near: &[],
};

/// P 20, then A 30 beside D 28, then E 25: A has most of the path, and gains least.
const SHARE_AND_ZEROING: Graph = Graph {
    work: 103,
    span: 75,
    procedures: &[
        (MAIN, "app::main", 20, 20, 55),
        (CALLER, "app::caller", 30, 30, 73),
        (LEAF, "app::leaf", 28, 0, 75),
        (SERIAL, "app::serial", 25, 25, 50),
    ],
    path: &[(Edge::Start, 0, 20, 0), (Edge::Spawn, 1, 30, 1), (Edge::Join, 3, 25, 0)],
    near: &[(2, 28, 2)],
};

/// f 40, g 5 beside f 10, h 30: zeroing f leaves the other branch.
const BOTH_BRANCHES: Graph = Graph {
    work: 85,
    span: 45,
    procedures: &[
        (MAIN, "app::main", 50, 40, 30),
        (CALLER, "app::caller", 5, 5, 40),
        (LEAF, "app::leaf", 30, 0, 45),
    ],
    path: &[(Edge::Start, 0, 40, 0), (Edge::Message, 1, 5, 0)],
    near: &[(2, 40, 5)],
};

/// pre 10, then 100 beside 98 beside 95 beside 50, then post 10, where pre and post are one procedure.
const NEARLY_CRITICAL: Graph = Graph {
    work: 363,
    span: 120,
    procedures: &[
        (MAIN, "app::main", 20, 20, 100),
        (CALLER, "app::caller", 100, 100, 118),
        (LEAF, "app::leaf", 98, 0, 120),
        (SERIAL, "app::serial", 145, 0, 120),
    ],
    path: &[(Edge::Start, 0, 10, 0), (Edge::Spawn, 1, 100, 1), (Edge::Join, 0, 10, 0)],
    near: &[(2, 98, 2), (3, 95, 5)],
};

pub(crate) const GRAPHS: [Graph; 4] = [JOIN, SHARE_AND_ZEROING, BOTH_BRANCHES, NEARLY_CRITICAL];

/// A function of a path, known by its samples.
fn function(address: CodeAddress, zeroed: u64) -> Procedure {
    Procedure {
        name: ProcedureName::Function(address, 0),
        work: 0,
        on_path: 0,
        zeroed_span: zeroed * MS,
        faster_span: (zeroed + 3) * MS,
    }
}

fn segment(site: &Site, end: &Site, edge: Edge, thread: Option<u32>, time: u64) -> Segment<Site> {
    Segment { begin: site.clone(), end: end.clone(), edge, rank: None, thread, time: time * MS, count: 1 }
}

/// A run with the path of a graph. Thread 1 has a context of each procedure, right below the entry: it has
/// the samples of the path, and others.
pub(crate) fn tracked(graph: &Graph) -> Run {
    let mut on_path = Vec::new();
    let mut run = run_of(|thread, entry| {
        thread.period_ns = MS;
        for (address, _, work, time, _) in graph.procedures {
            let record = thread.native(entry, *address);
            thread.sample(record, *work, 0.0);
            on_path.push(OnPath { profile: 1, record, time: time * MS });
        }
    });
    let site = |procedure: usize| Site::Address(graph.procedures[procedure].0);
    let segments = graph.path.iter().map(|(edge, procedure, time, thread)| {
        let site = site(*procedure);
        segment(&site, &site, *edge, Some(*thread), *time)
    });
    let functions = graph.procedures.iter();
    let functions = functions.map(|(address, .., zeroed)| function(*address, *zeroed));
    let near = graph.near.iter().map(|(procedure, time, slack)| Near {
        begin: site(*procedure),
        end: site(*procedure),
        thread: Some(1),
        time: time * MS,
        slack: slack * MS,
    });
    run.critical_path = Some(CriticalPath {
        pid: run.start.pid,
        image: run.start.image,
        complete: true,
        work: graph.work * MS,
        span: graph.span * MS,
        burdened_span: graph.span * MS + 9,
        span_at_least: graph.span * MS,
        wall: 70 * MS,
        segments: segments.collect(),
        procedures: functions.collect(),
        near: near.collect(),
        on_path,
        threads: vec![(0, 1), (1, 7)],
        quality: Quality { exact_edges: 4, ..Quality::default() },
        ..CriticalPath::default()
    });
    run
}

pub(crate) fn path_of(run: &mut Run) -> &mut CriticalPath {
    run.critical_path.as_mut().expect("a path")
}

pub(crate) fn json(database: &Path, options: &[&str]) -> Value {
    let mut arguments = vec!["critical-path", text(database), "--format", "json"];
    arguments.extend(options);
    serde_json::from_str(&tool(&arguments).expect("critical path")).expect("valid JSON")
}

pub(crate) fn page(database: &Path, options: &[&str]) -> String {
    let mut arguments = vec!["critical-path", text(database)];
    arguments.extend(options);
    tool_on_screen(80, &arguments).expect("critical path")
}

pub(crate) fn elements<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().expect("an array")
}

pub(crate) fn ms(value: &Value) -> u64 {
    let ns = nanoseconds(value);
    assert_eq!(ns % MS as i64, 0, "{value}");
    ns as u64 / MS
}

#[track_caller]
fn close(value: &Value, expected: f64) {
    let value = value.as_f64().expect("a number");
    assert!((value - expected).abs() < 1e-12, "{value}, not {expected}");
}

#[test]
fn known_graphs_have_their_answers() {
    for graph in GRAPHS {
        let path = json(&database(&tracked(&graph)), &[]);
        assert_eq!(path["schema"], "hpcprof-rs/critical-path/1");
        assert_eq!((&path["unit"], &path["clock"]), (&json!("seconds"), &json!("cpu")));
        assert_eq!((ms(&path["work"]), ms(&path["span"])), (graph.work, graph.span));
        assert_eq!(path["burdened_span"], json!((graph.span * MS + 9) as f64 / 1e9));
        close(&path["parallelism"], graph.work as f64 / graph.span as f64);
        assert_eq!(path["pid"], 100);
        assert_eq!(path["program"], "app");
        let segments = elements(&path, "segments");
        let found: Vec<_> = segments.iter().map(|s| (s["edge"].clone(), ms(&s["seconds"]))).collect();
        let expected = graph.path.iter().map(|(edge, _, time, _)| (json!(edge.name()), *time));
        assert_eq!(found, expected.collect::<Vec<_>>());
        assert_eq!(found.iter().map(|(_, time)| time).sum::<u64>(), graph.span);
        let shares: f64 = segments.iter().map(|s| s["share"].as_f64().expect("a share")).sum();
        assert!((shares - 1.0).abs() < 1e-12);
        for (segment, (_, procedure, _, thread)) in segments.iter().zip(graph.path) {
            // Ordinals of the threads, as in the table of threads.
            assert_eq!(segment["thread"], json!([1, 7][*thread as usize]));
            assert_eq!(segment["begin"]["name"], graph.procedures[*procedure].1);
            assert_eq!(segment["begin"]["module"], "/opt/app");
            assert_eq!(segment["begin"]["file"], APP_FILE);
        }
        let procedures = elements(&path, "procedures");
        assert_eq!(procedures.len(), graph.procedures.len());
        let gains: Vec<u64> = procedures.iter().map(|p| ms(&p["gain"])).collect();
        assert!(gains.is_sorted_by(|a, b| a >= b), "{gains:?}");
        for (_, name, work, on_path, zeroed) in graph.procedures {
            let found = named(&path["procedures"], name);
            let times = ["work", "on_path", "zeroed_span", "gain"].map(|key| ms(&found[key]));
            assert_eq!(times, [*work, *on_path, *zeroed, graph.span - zeroed], "{name}");
            close(&found["share"], *on_path as f64 / graph.span as f64);
        }
        let near = elements(&path, "near").iter();
        let near: Vec<_> = near.map(|n| (ms(&n["seconds"]), ms(&n["slack"]))).collect();
        let expected = graph.near.iter().map(|(_, time, slack)| (*time, *slack));
        assert_eq!(near, expected.collect::<Vec<_>>());
    }
}

/// Samples on the path are a metric as any other one; spans without a procedure belong to the procedures.
#[test]
fn views_have_the_path() {
    for graph in GRAPHS {
        let database = database(&tracked(&graph));
        for kind in ["top-down", "bottom-up", "flat"] {
            let all = view(&database, kind, &[]);
            assert_eq!(all["metrics"], json!(["work", "idleness", "overhead", "on_path"]));
            assert_eq!(ms(&all["totals"]["on_path"]), graph.span);
            let table = &all["metric_table"];
            let expected = [("on_path", "sum"), ("zeroed", "none")];
            for (name, aggregation) in expected {
                let row = named(table, name);
                assert_eq!((&row["unit"], &row["aggregation"]), (&json!("seconds"), &json!(aggregation)));
            }
        }
        for kind in ["top-down", "bottom-up"] {
            let all = view(&database, kind, &["--metric", "on_path"]);
            for (_, name, work, on_path, zeroed) in graph.procedures {
                let node = named(&all["roots"], name);
                assert_eq!(ms(&node["inclusive"]["on_path"]), *on_path, "{kind} {name}");
                if kind == "bottom-up" {
                    assert_eq!(ms(&node["exclusive"]["on_path"]), *on_path);
                }
                assert_eq!(ms(&node["inclusive"]["work"]), *work);
                assert_eq!(ms(&node["inclusive"]["zeroed"]), *zeroed);
                assert!(node["exclusive"]["zeroed"].is_null());
            }
            let shown = elements(&all, "roots").iter().map(|n| ms(&n["inclusive"]["on_path"]));
            assert!(shown.is_sorted_by(|a, b| a >= b), "{kind}");
        }
    }
}

#[test]
fn text_shows_the_path_where_it_is_asked_for() {
    let database = database(&tracked(&SHARE_AND_ZEROING));
    for kind in ["top-down", "bottom-up"] {
        let asked = tool(&[kind, text(&database), "--metric", "on_path", "--threshold", "0"]);
        let asked = asked.expect("a view");
        // The line above the titles names procedures, too.
        let row = |name: &str| {
            let line = asked.lines().rfind(|l| l.contains(name));
            line.expect("a row").to_owned()
        };
        let title: Vec<String> = row("effort %").split_whitespace().map(str::to_owned).collect();
        assert!(title.contains(&"zeroed".to_owned()) && title.contains(&"on_path".to_owned()));
        let cells = row("app::caller");
        has(&cells, " 40.0 ");
        has(&cells, " 0.073 ");
        lacks(&tool(&[kind, text(&database)]).expect("a view"), "zeroed");
    }
    let csv = tool(&["top-down", text(&database), "--format", "csv"]).expect("a view");
    has(&csv, "on_path (inclusive)");
}

/// A function's times are those of its contexts, each sample once, with the contexts of tasks and threads
/// that it spawned. Marked code is measured. A function beside the path gains nothing.
#[test]
fn functions_have_the_times_of_their_samples() {
    let mut run = run();
    let mut first = ThreadBuilder::new(1);
    first.period_ns = MS;
    let entry = first.entry();
    let caller = first.natives(entry, &[START, MAIN, CALLER]);
    first.sample(caller, 1, 0.0);
    let leaf = first.native(caller, LEAF);
    first.sample(leaf, 10, 0.0);
    // A recursion, and a frame of the runtime that is no user's frame.
    let again = first.natives(leaf, &[CALLER, LEAF_ITERATOR]);
    first.sample(again, 100, 0.0);
    let support = first.support(caller, SERIAL);
    first.sample(support, 1000, 0.0);
    // The path does not lead through this one.
    let beside = first.native(entry, CLOSURE);
    first.sample(beside, 1_000_000, 0.0);
    // Thread 2 continues in `again`, thread 3 in thread 2; thread 4's spawner is not there.
    let mut others = [2, 3, 4].map(ThreadBuilder::new);
    let [second, third, fourth] = &mut others;
    let spawned = second.anchor(1, again);
    let spawned = second.native(spawned, SERIAL);
    let task = third.anchor(2, spawned);
    let task = third.native(task, LEAF);
    third.period_ns = MS;
    third.sample(task, 10_000, 0.0);
    let lost = fourth.anchor(9, 1);
    let lost = fourth.native(lost, LEAF);
    fourth.period_ns = MS;
    fourth.sample(lost, 100_000, 0.0);
    run.threads = vec![first];
    run.threads.extend(others);
    let on_path = [(1, leaf, 2), (3, task, 3)].map(|(profile, record, time)| OnPath {
        profile,
        record,
        time: time * MS,
    });
    let functions = [MAIN, CALLER, LEAF, SERIAL].map(|address| function(address, 7));
    // A second instance of one function, which gains more.
    let instance = function(LEAF_ITERATOR, 4);
    let mark = Procedure {
        name: ProcedureName::Mark("a mark".to_owned()),
        work: 5 * MS,
        on_path: 4 * MS,
        zeroed_span: 8 * MS,
        faster_span: 8 * MS,
    };
    run.critical_path = Some(CriticalPath {
        pid: run.start.pid,
        image: run.start.image,
        span: 9 * MS,
        span_at_least: 9 * MS,
        on_path: on_path.to_vec(),
        procedures: functions.into_iter().chain([instance, mark]).collect(),
        ..CriticalPath::default()
    });
    let path = json(&database(&run), &[]);
    for (name, work, on_path, gain) in [
        ("app::main", 11_111, 5, 2),
        ("app::caller", 11_111, 5, 2),
        ("app::leaf", 110_110, 5, 5),
        ("app::serial", 10_000, 3, 2),
        ("app::caller::{closure#0}", 1_000_000, 0, 0),
        ("a mark", 5, 4, 1),
    ] {
        let found = named(&path["procedures"], name);
        let times = ["work", "on_path", "gain"].map(|key| ms(&found[key]));
        assert_eq!(times, [work, on_path, gain], "{name}");
    }
}

/// What belongs to another run's process, or to a record that is not there, breaks nothing.
#[test]
fn samples_of_the_path_keep_their_sum() {
    let mut run = tracked(&JOIN);
    let path = path_of(&mut run);
    path.on_path.push(OnPath { profile: 1, record: 999, time: 3 * MS });
    path.on_path.push(OnPath { profile: 9, record: 1, time: 1000 * MS });
    let database = database(&run);
    let all = view(&database, "top-down", &[]);
    // The thread is there, so its sample is, below a partial root; there is no thread 9.
    assert_eq!(ms(&all["totals"]["on_path"]), 65 + 3);
    let roots = elements(&all, "roots").iter().map(|n| ms(&n["inclusive"]["on_path"]));
    assert_eq!(roots.sum::<u64>(), 65 + 3);
    assert_eq!(ms(&all["totals"]["work"]), 95);
    let connection = rusqlite::Connection::open(database.join("database.sqlite")).expect("a database");
    let sql = "SELECT text FROM note WHERE text LIKE '%critical path%'";
    let note: String = connection.query_row(sql, [], |row| row.get(0)).expect("a note");
    has(&note, "samples of 1.000 s on its critical path belong to profiles that are missing");
}

#[test]
fn text_says_what_matters_within_80_columns() {
    let database = database(&tracked(&SHARE_AND_ZEROING));
    let page = page(&database, &["--workers", "4"]);
    for line in page.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let first = page.lines().next().expect("a line");
    assert_eq!(first, "work 103.000 ms   span 75.000 ms   parallelism 1.37   wall 70.000 ms");
    let flat = page.split_whitespace().collect::<Vec<_>>().join(" ");
    // Without it (103 - 25 - 50) / 4 + 50 = 57, with it (103 - 75) / 4 + 75 = 82.
    for sentence in [
        "app::serial has 24 % of the work, 33 % of the path; without it 4 workers would take 57.0 ms \
         instead of 82.0 ms",
        "app::caller has 29 % of the work, 40 % of the path; without it the span would be only 2.00 ms \
         shorter",
    ] {
        has(&flat, sentence);
    }
    has(&flat, "20.000 27 % start 1 app::main main.rs:12");
    has(&flat, "30.000 40 % spawn 7 app::caller main.rs:21");
    has(&flat, "28.000 2.000 7 app::leaf main.rs:41");
    has(&flat, "rests on 4 exact edges, none woken, none lost");
    lacks(&page, "!");
    let screen = tool(&[text(&database)]).expect("a first screen");
    has(&screen, "next: hpcprof-rs critical-path ");
}

#[test]
fn doubts_come_first() {
    let mut run = tracked(&JOIN);
    let path = path_of(&mut run);
    path.complete = false;
    path.span_at_least = 60 * MS;
    path.quality = Quality {
        resyncs: 3,
        exact_edges: 10,
        woken_edges: 20,
        grains: 5,
        lost_edges: vec![("untracked".to_owned(), 2), ("procedure".to_owned(), 7)],
    };
    let database = database(&run);
    let page = page(&database, &[]);
    assert!(page.starts_with("! the process did not end in order"), "{page}");
    let flat = page.split_whitespace().collect::<Vec<_>>().join(" ");
    has(&flat, "! 2 of 32 edges are missing (procedure 7, untracked 2)");
    has(&flat, "! of most edges only a wait and its wake-up were seen");
    has(&flat, "span 65.000 ms (at least 60.000 ms)");
    has(&flat, "; 5 forks were too short to follow those inside of them");
    let path = json(&database, &[]);
    assert_eq!(path["span_at_least"], json!(0.06));
    let doubts = elements(&path, "doubts").len();
    assert_eq!(doubts, 3);
    // 95 ms of work: from two workers on, the least span is the bound.
    assert_eq!(path["prediction"][1]["lower"], json!(0.06));
    let quality = &path["quality"];
    let expected = json!({"resyncs": 3, "exact_edges": 10, "woken_edges": 20, "grains": 5,
        "lost_edges": {"untracked": 2, "procedure": 7}});
    assert_eq!(*quality, expected);
    path_of(&mut run).quality.exact_edges = 2000;
    let few = "events are 0.047 ms apart, on average: functions may gain more than is shown; mark them";
    assert!(elements(&json(&self::database(&run), &[]), "doubts").contains(&json!(few)));
}

#[test]
fn a_series_shows_what_the_path_has_grown_by() {
    let mut run = tracked(&JOIN);
    let moment = |wall, span, leaf, main| Moment {
        wall: wall * MS,
        work: span * MS,
        span: span * MS,
        procedures: [(LEAF, leaf), (MAIN, main)]
            .map(|(f, time)| (ProcedureName::Function(f, 0), time * MS))
            .into(),
    };
    path_of(&mut run).series = vec![moment(20, 20, 10, 10), moment(70, 65, 50, 10)];
    let database = database(&run);
    let path = json(&database, &[]);
    let last = &elements(&path, "over_time")[1];
    assert_eq!((ms(&last["wall"]), ms(&last["work"]), ms(&last["span"])), (70, 65, 65));
    let of = |name: &str| {
        elements(last, "procedures").iter().find(|p| p["name"] == name).map(|p| ms(&p["on_path"]))
    };
    assert_eq!([of("app::leaf"), of("app::main"), of("app::serial")], [Some(50), Some(10), None]);
    let page = |database: &Path| page(database, &["--over-time"]);
    let flat = page(&database).split_whitespace().collect::<Vec<_>>().join(" ");
    has(
        &flat,
        "A B C share of what the path has grown by 20.000 20.000 50 % 50 % 0 % 70.000 45.000 89 % 0 % 0 %",
    );
    has(&flat, "A app::leaf B app::main C app::serial");
    has(&page(&self::database(&tracked(&JOIN))), "measure with `hpcrun-rs --critical-path=every:1s`");
}

/// Where edges are a part of the path, each has a row before the activity that it begins.
#[test]
fn edges_have_rows_of_their_own() {
    let mut run = tracked(&JOIN);
    let path = path_of(&mut run);
    (path.edges, path.spawn_cost, path.message_cost) = (true, 5 * MS, MS);
    let database = database(&run);
    let path = json(&database, &[]);
    let rows = elements(&path, "segments").iter();
    let rows = rows.map(|s| (s["kind"].clone(), s["edge"].clone(), ms(&s["seconds"])));
    let expected = [
        ("activity", "start", 10),
        ("edge", "spawn", 5),
        ("activity", "spawn", 45),
        ("edge", "join", 1),
        ("activity", "join", 4),
    ];
    let expected = expected.map(|(kind, edge, time)| (json!(kind), json!(edge), time));
    assert_eq!(Vec::from_iter(rows), expected);
    let spawn = &elements(&path, "segments")[1];
    assert_eq!((&spawn["thread"], &spawn["begin"]["name"]), (&json!(7), &json!("app::main")));
    assert_eq!(
        (ms(&path["edges"]), &json(&self::database(&tracked(&JOIN)), &[])["edges"]),
        (6, &json!(null))
    );
    // No schedule takes longer in which a worker is idle only for want of work, or while all wait for edges.
    assert_eq!(ms(&path["prediction"][1]["upper"]), (95 + 6 - 65) / 2 + 65);
    let page = page(&database, &[]);
    let flat = page.split_whitespace().collect::<Vec<_>>().join(" ");
    has(&flat, "an edge costs 1000 us, a spawn 5000 us: 6.000 ms of the span");
    has(&flat, "5.000 7.7 % spawn 45.000 69 % 7");
}

/// Equal consecutive rounds of a path are one loop on the screen, and all of them are in the JSON.
/// Those of one place are one, and a late begin of what runs beside the path is worth a line.
#[test]
fn what_begins_beside_the_path_is_listed_by_its_place() {
    let mut run = tracked(&JOIN);
    let place = Site::Address(JOIN.procedures[0].0);
    let start = |first, count, time, beside| Start {
        place: place.clone(),
        edge: Edge::Spawn,
        first: first * MS,
        count,
        time: time * MS,
        beside: beside * MS,
    };
    // The last one is too little to be listed.
    let little = Start { place: Site::Unknown, beside: MS / 2, ..start(1, 1, 1, 0) };
    path_of(&mut run).starts = vec![start(30, 1, 50, 7), start(10, 2, 25, 23), little];
    let database = database(&run);
    let path = json(&database, &[]);
    let [exposing] = elements(&path, "exposing") else {
        panic!("{path}");
    };
    let times = ["first", "seconds", "beside"].map(|key| ms(&exposing[key]));
    assert_eq!(times, [10, 75, 30]);
    assert_eq!((exposing["count"].as_u64(), exposing["edge"].as_str()), (Some(3), Some("spawn")));
    let place = exposing["place"]["name"].as_str().expect("a name");
    let page = page(&database, &[]);
    let row = format!("10.000    30.000     32 %        3  {place} main.rs:");
    has(&page, &row);
    let flat = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let late = format!("* little runs beside the first 10.0 ms of the path, until {place} begins it");
    has(&flat, &late);
}

#[test]
fn loops_are_folded_on_the_screen() {
    let mut run = tracked(&JOIN);
    let path = path_of(&mut run);
    let round = path.segments[1..3].to_vec();
    for _ in 1..240 {
        path.segments.extend(round.clone());
    }
    path.span = 10 * MS + 240 * 55 * MS;
    let database = database(&run);
    let page = page(&database, &[]);
    has(&page, "481 subpaths");
    has(&page, "x 240:");
    let flat = page.split_whitespace().collect::<Vec<_>>().join(" ");
    has(&flat, "12.000 91 % spawn 7 x 240 app::leaf main.rs:41");
    assert_eq!(elements(&json(&database, &[]), "segments").len(), 481);
}

/// The place of each kind of site, as the JSON has it.
fn places(sites: &[Site], build: impl FnOnce(&mut ThreadBuilder, u32)) -> Vec<Value> {
    let mut run = run_of(build);
    let segment = |site| segment(site, &Site::Unknown, Edge::Wake, None, 1);
    run.critical_path = Some(CriticalPath {
        pid: run.start.pid,
        image: run.start.image,
        segments: sites.iter().map(segment).collect(),
        ..CriticalPath::default()
    });
    let path = json(&database(&run), &[]);
    let segments = elements(&path, "segments");
    segments.iter().map(|s| s["begin"].clone()).collect()
}

/// Contexts of waits in libc: in user code below the runtime's, in no user code, in a thread that user code
/// created.
fn waits(thread: &mut ThreadBuilder, entry: u32) -> [u32; 3] {
    let caller = thread.natives(entry, &[START, MAIN, CALLER_JOIN, SCHEDULER]);
    let nobody = thread.partial(hpc_formats::loss::LossCause::NoUnwindInfo);
    let creator = thread.natives(entry, &[START, MAIN_SERIAL, SERIAL]);
    let anchor = thread.anchor(1, creator);
    let waits = [caller, nobody, anchor].map(|outer| thread.native(outer, FUTEX));
    waits.iter().for_each(|record| thread.sample(*record, 1, 0.0));
    waits
}

#[test]
fn places_are_the_users_own_code() {
    let mut records = [0; 3];
    run_of(|thread, entry| records = waits(thread, entry));
    let [deep, only_system, spawned] = records;
    let context = |record| Site::Context { profile: 1, record };
    let source = |file: &str, line| Site::Source { file: file.to_owned(), line };
    let sites = [
        Site::Address(CALLER_JOIN_CLOSURE),
        Site::Address(LEAF_ITERATOR),
        Site::Address(FUTEX),
        context(deep),
        context(only_system),
        context(spawned),
        context(999),
        Site::Context { profile: 9, record: 1 },
        source("src/main.rs", 13),
        source("rc/main.rs", 13),
        source("src/other.rs", 5),
        Site::Unknown,
    ];
    let found = places(&sites, |thread, entry| {
        waits(thread, entry);
    });
    let place = |name: &str, module: &str, file: Value, line: Value| {
        let module = if module.is_empty() { Value::Null } else { json!(module) };
        json!({"name": name, "module": module, "file": file, "line": line})
    };
    let app = |name: &str, line: u32| place(name, "/opt/app", json!(APP_FILE), json!(line));
    let libc = || place("syscall", "/lib/libc.so.6", Value::Null, Value::Null);
    let unknown = || place("", "", Value::Null, Value::Null);
    let expected = [
        app("app::caller::{closure#0}", 23),
        app("app::leaf", 42),
        libc(),
        // Where it calls the runtime's inlined join.
        app("app::caller", 22),
        libc(),
        app("app::serial", 61),
        unknown(),
        unknown(),
        place("app::main", "/opt/app", json!("src/main.rs"), json!(13)),
        place("", "", json!("rc/main.rs"), json!(13)),
        place("", "", json!("src/other.rs"), json!(5)),
        unknown(),
    ];
    for ((found, expected), site) in found.iter().zip(&expected).zip(&sites) {
        assert_eq!(found, expected, "{site:?}");
    }
}

/// Several crates have a file of that name, with code on that line.
#[test]
fn a_file_of_another_crate_is_another_place() {
    const OTHER: &str = "/deps/other/src/main.rs";
    let code = at(APP, 0x9100);
    let mut run = run_of(|thread, entry| {
        let record = thread.natives(entry, &[START, MAIN_SERIAL, code]);
        thread.sample(record, 1, 0.0);
    });
    let app = run.structures.iter_mut().find(|s| s.module == "/opt/app").expect("the program");
    let mut builder = StructureBuilder { structure: app.clone() };
    let procedure = builder.procedure("other::run", Some((OTHER, 10)), Origin::User);
    builder.span(code.offset(), procedure, None, (OTHER, 13), None);
    *app = builder.structure;
    let site = |file: &str| Site::Source { file: file.to_owned(), line: 13 };
    let sites = ["src/main.rs", OTHER, "/deps/third/src/main.rs"].map(site);
    let segments = sites.iter().map(|site| segment(site, &Site::Unknown, Edge::Wake, None, 1));
    run.critical_path = Some(CriticalPath {
        pid: run.start.pid,
        image: run.start.image,
        segments: segments.collect(),
        ..CriticalPath::default()
    });
    let path = json(&database(&run), &[]);
    let names = elements(&path, "segments").iter().map(|s| s["begin"]["name"].clone());
    assert_eq!(names.collect::<Vec<_>>(), ["app::main", "other::run", ""]);
}

/// Where no context was captured, the other end tells more than the runtime's function.
#[test]
fn an_end_in_a_runtime_has_the_place_of_the_other_one() {
    let mut run = tracked(&JOIN);
    let ends = [(EXECUTE, SERIAL), (SERIAL, SCHEDULER), (EXECUTE, SCHEDULER)];
    let ends = ends.map(|(begin, end)| (Site::Address(begin), Site::Address(end)));
    let segments = ends.map(|(begin, end)| segment(&begin, &end, Edge::Join, None, 1));
    path_of(&mut run).segments = segments.to_vec();
    let path = json(&database(&run), &[]);
    let segments = elements(&path, "segments").iter();
    let names: Vec<_> = segments.map(|s| [&s["begin"]["name"], &s["end"]["name"]]).collect();
    let [execute, scheduler] = ["work_stealing_rt::job::execute", "work_stealing_rt::worker::main_loop"];
    let expected = [["app::serial"; 2], ["app::serial"; 2], [execute, scheduler]];
    assert_eq!(names, expected);
}

/// The system's functions count for those that call them, where there are any.
#[test]
fn rows_are_the_users_procedures() {
    let mut run = tracked(&Graph {
        work: 95,
        span: 65,
        procedures: &[(MAIN, "app::main", 45, 15, 50), (MEMCPY, "memcpy", 50, 50, 15)],
        path: &[(Edge::Start, 0, 15, 0), (Edge::Join, 1, 50, 1)],
        near: &[],
    });
    let both = database(&run);
    assert_eq!(ms(&named(&json(&both, &[])["procedures"], "memcpy")["gain"]), 50);
    let rows = |database: &Database| {
        let page = page(database, &[]);
        page.split_once("  procedure\n").expect("a table").1.to_owned()
    };
    has(&rows(&both), "app::main main.rs:10\n");
    lacks(&rows(&both), "memcpy");
    path_of(&mut run).procedures.remove(0);
    has(&rows(&database(&run)), "memcpy\n");
}

#[test]
fn the_longest_of_several_processes_is_shown_and_the_others_are_named() {
    let temp = TempDir::new();
    let measurements = temp.join("hpcrun-app-measurements");
    tracked(&JOIN).write(&measurements);
    tracked(&NEARLY_CRITICAL).process(101, IMAGE + 7).write(&measurements);
    run().process(102, IMAGE + 9).write(&measurements);
    let database = temp.join("db");
    tool(&[text(&measurements), "-o", text(&database)]).expect("build");
    let path = json(&database, &[]);
    assert_eq!((&path["pid"], ms(&path["span"])), (&json!(101), 120));
    let others = elements(&path, "others");
    assert_eq!((others.len(), &others[0]["pid"], ms(&others[0]["span"])), (1, &json!(100), 65));
    let page = page(&database, &["--process", "100"]);
    assert!(page.starts_with("work 95.000 ms "), "{page}");
    has(&page, "app, process 101 (span 120.000 ms)");
    let error = tool(&["critical-path", text(&database), "--process", "102"]);
    has(&error.expect_err("no path"), "--process takes 101, 100");
}

#[test]
fn a_run_without_a_path_says_how_to_get_one() {
    let database = database(&run_of(|thread, entry| {
        let record = thread.native(entry, MAIN);
        thread.sample(record, 1, 0.0);
    }));
    let error = tool(&["critical-path", text(&database)]).expect_err("no path");
    has(&error, "has no critical path");
    has(&error, "--critical-path");
}

/// A damaged file costs its own path and nothing else; a path alone is a measurement.
#[test]
fn damage_is_named_and_a_path_needs_no_sample() {
    let temp = TempDir::new();
    let measurements = temp.join("m");
    let mut run = tracked(&JOIN);
    run.write(&measurements);
    let name = critical_path::file_name(run.start.pid, run.start.image);
    let bytes = path_of(&mut run).encode();
    std::fs::write(measurements.join(&name), &bytes[..bytes.len() - 1]).expect("file");
    let database = temp.join("db");
    tool(&[text(&measurements), "-o", text(&database)]).expect("build");
    let error = tool(&["critical-path", text(&database)]).expect_err("no path");
    has(&error, "has no critical path");
    assert_eq!(ms(&view(&database, "top-down", &[])["totals"]["work"]), 95);

    run.threads.clear();
    run.write(&measurements);
    for entry in std::fs::read_dir(&measurements).expect("directory").flatten() {
        if entry.path().extension().is_some_and(|e| e == "hpcprofile") {
            std::fs::remove_file(entry.path()).expect("removed");
        }
    }
    tool(&[text(&measurements), "-o", text(&database), "--force"]).expect("build");
    assert_eq!(ms(&json(&database, &[])["span"]), 65);
}
