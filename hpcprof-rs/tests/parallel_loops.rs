//! Parallel loops in synthetic measurements: what is folded, how it is named, who gets the counts.

use crate::support::*;
use hpc_formats::address::CodeAddress;
use hpc_formats::process::SiteCounts;
use hpc_formats::profile::Association;
use hpc_formats::structure::Origin::{Runtime, System, User};
use serde_json::Value;

const APP: u16 = 1;
const SAMPLE: i64 = 5_000_000;
const PLUMBING: &str = "rayon/src/iter/plumbing/mod.rs";
const HELPER_NAME: &str = "rayon::iter::plumbing::bridge_producer_consumer::helper";
pub(crate) const SOURCE: &str = "fn main() {
    let v = items();
    let a: u64 = v.par_iter().map(|x| x + 1).sum();
    let b: u64 = v
        .par_iter()
        .map(other)
        .sum();
}
";

const START: CodeAddress = at(APP, 0x1000);
/// `main` within the loop of line 3.
const MAIN_FIRST: CodeAddress = at(APP, 0x1100);
/// `main` within the loop of line 7.
const MAIN_SECOND: CodeAddress = at(APP, 0x1110);
/// The splitting recursion, whose machine code both loops share.
const HELPER: CodeAddress = at(APP, 0x1200);
const CLOSURE: CodeAddress = at(APP, 0x1300);
const EXECUTE: CodeAddress = at(APP, 0x1400);
const SCHEDULER: CodeAddress = at(APP, 0x1500);
const MEMORY: CodeAddress = at(APP, 0x1600);
const FOLD: CodeAddress = at(APP, 0x1700);
/// What catches a task's panic, as it is without optimisation.
const CATCH: CodeAddress = at(APP, 0x1800);

fn program(source: &str) -> Run {
    let mut app = StructureBuilder::new("/opt/app", &[1]);
    let p = app.procedure("_start", None, User);
    app.span(0x1000, p, None, ("", 0), None);
    let p = app.procedure("app::main", Some((source, 1)), User);
    for (address, line) in [(0x1100, 3), (0x1110, 7)] {
        let name = "rayon::iter::ParallelIterator::sum";
        let sum = app.inlined(p, None, name, None, (source, line), Runtime);
        let name = "<rayon::iter::map::Map<I,F> as rayon::iter::ParallelIterator>::drive_unindexed";
        let map = app.inlined(p, Some(sum), name, None, (PLUMBING, 7), Runtime);
        let name = "<rayon::slice::Iter<T> as rayon::iter::ParallelIterator>::drive_unindexed";
        let iter = app.inlined(p, Some(map), name, None, (PLUMBING, 8), Runtime);
        app.span(address, p, Some(iter), (PLUMBING, 9), None);
    }
    let p = app.procedure(HELPER_NAME, Some((PLUMBING, 20)), Runtime);
    app.span(0x1200, p, None, (PLUMBING, 21), None);
    let p = app.procedure("app::main::{closure#0}", Some((source, 3)), User);
    app.span(0x1300, p, None, (source, 3), None);
    let p = app.procedure("work_stealing_rt::job::execute", None, Runtime);
    app.span(0x1400, p, None, ("", 0), None);
    let p = app.procedure("rayon_core::registry::wait_until_cold", None, Runtime);
    app.span(0x1500, p, None, ("", 0), None);
    let p = app.procedure("memcpy", None, System);
    app.span(0x1600, p, None, ("", 0), None);
    let name = "<core::iter::adapters::map::Map<I,F> as core::iter::Iterator>::fold";
    let p = app.procedure(name, None, System);
    app.span(0x1700, p, None, ("", 0), None);
    let p = app.procedure("__rust_try", None, System);
    app.span(0x1800, p, None, ("/rustc/std/panicking.rs", 544), None);
    let mut run = Run::new();
    run.module(APP, "/opt/app", &[1]);
    run.structures = vec![app.structure];
    run
}

/// Both loops, one of them with a stolen task, and what was counted.
pub(crate) fn two_loops(source: &str) -> Run {
    let mut run = program(source);
    let mut first = ThreadBuilder::new(1);
    let entry = first.entry();
    let split = first.natives(entry, &[START, MAIN_FIRST, HELPER, HELPER]);
    first.sample(split, 2, 0.0);
    let copy = first.native(split, MEMORY);
    first.sample(copy, 1, 0.0);
    let leaf = first.natives(split, &[FOLD, CLOSURE]);
    first.sample(leaf, 10, 0.0);
    let deeper = first.natives(split, &[HELPER, HELPER, FOLD, CLOSURE]);
    first.sample(deeper, 7, 0.0);
    let other = first.natives(entry, &[START, MAIN_SECOND, HELPER, CLOSURE]);
    first.sample(other, 30, 0.0);
    let mut second = ThreadBuilder::new(2);
    let entry = second.entry();
    let spawner = [START, MAIN_FIRST, HELPER];
    let stolen = second.spawner(entry, SCHEDULER, &spawner);
    let shim = second.support(stolen, EXECUTE);
    let leaf = second.natives(shim, &[HELPER, FOLD, CLOSURE]);
    second.sample(leaf, 20, 0.0);
    run.threads = vec![first, second];
    let site =
        |place, splits, steals, stolen_ns| SiteCounts { place, splits, steals, stolen_ns, executions: 0 };
    run.sites = vec![
        site(MAIN_FIRST, 4, 1, 70),
        site(HELPER, 16, 3, 30),
        site(EXECUTE, 5, 0, 0),
        site(at(APP, 0xfff0), 1, 1, 1),
    ];
    run
}

fn loop_named<'a>(view: &'a Value, name: &str) -> &'a Value {
    at_path(view, &["_start", "app::main", name])
}

/// Names, lines and work in samples of what `main` calls, sorted.
fn loops(view: &Value) -> Vec<(&str, i64, i64)> {
    let main = at_path(view, &["_start", "app::main"]);
    let children = main["children"].as_array().expect("children").iter();
    let found = children.map(|n| {
        assert_eq!(n["kind"], "parallel-loop");
        let name = n["name"].as_str().expect("a name");
        let line = n["line"].as_i64().expect("a line");
        (name, line, inclusive(n, "work") / SAMPLE)
    });
    let mut found: Vec<_> = found.collect();
    found.sort_unstable();
    found
}

/// A folder with a source file.
fn with_source(text: &str) -> (TempDir, String) {
    let temp = TempDir::new();
    let source = temp.join("main.rs");
    std::fs::write(&source, text).expect("source");
    let source = crate::support::text(&source).to_owned();
    (temp, source)
}

#[test]
fn the_splitting_is_one_node_for_each_call_named_by_the_source() {
    let (_temp, source) = with_source(SOURCE);
    let database = database(&two_loops(&source));
    let view = view(&database, "top-down", &[]);
    let name = "par_iter().map(..).sum()";
    assert_eq!(loops(&view), [(name, 3, 40), (name, 7, 30)]);
    let main = at_path(&view, &["_start", "app::main"]);
    let loops = main["children"].as_array().expect("children");
    let first = loops.iter().find(|n| n["line"] == 3).expect("the first");
    assert_eq!(exclusive(first, "work"), 2 * SAMPLE, "the splitting itself");
    let closure = named(&first["children"], "app::main::{closure#0}");
    assert_eq!(inclusive(closure, "work"), 37 * SAMPLE, "in place at any depth and stolen");
    let copy = named(&first["children"], "memcpy");
    assert_eq!(inclusive(copy, "work"), SAMPLE);
    // 4 splits are the first loop's own, 16 are of code that both share, 5 of a task that only the
    // first one has.
    let counts = &first["parallel_loop"];
    assert_eq!(counts["splits"], 25);
    assert_eq!(counts["steals"], 4);
    assert_eq!(nanoseconds(&counts["stolen_seconds"]), 100);
    assert_eq!(counts["shared_by"], 2);
    assert_eq!(nanoseconds(&counts["mean_task_seconds"]), 70 * SAMPLE / 25, "the work of both by the splits");
    let second = loops.iter().find(|n| n["line"] == 7).expect("the second");
    assert_eq!(second["parallel_loop"]["splits"], 16);
    let shown = show(&database, "top-down");
    has(&shown, "main.rs:3 · splits 25 · steals 4 · mean task 14 ms");
}

#[test]
fn what_catches_panics_ends_no_loop() {
    let mut run = program("/gone/main.rs");
    let mut thread = ThreadBuilder::new(1);
    let entry = thread.entry();
    // The loop within a closure of the loop, each split once.
    let split = [MAIN_FIRST, CATCH, HELPER, CATCH, HELPER];
    let outer = thread.natives(entry, &[&[START], &split[..], &[CLOSURE]].concat());
    thread.sample(outer, 2, 0.0);
    let inner = thread.natives(outer, &[&split[1..], &[CLOSURE]].concat());
    thread.sample(inner, 3, 0.0);
    run.threads = vec![thread];
    let database = database(&run);
    let view = view(&database, "top-down", &[]);
    let outer = loop_named(&view, "slice::Iter.map.sum");
    let children = outer["children"].as_array().expect("children");
    assert_eq!(children.len(), 1, "{outer}");
    let closure = named(&outer["children"], "app::main::{closure#0}");
    assert_eq!(inclusive(closure, "work"), 5 * SAMPLE);
    assert_eq!(exclusive(closure, "work"), 2 * SAMPLE);
}

#[test]
fn on_a_narrow_screen_a_loops_name_goes_before_its_counts() {
    let (_temp, source) = with_source(SOURCE);
    let database = database(&two_loops(&source));
    let shown = show_on(80, &database, "top-down");
    has(&shown, "par_iter().map(..).sum()  main.rs:3");
    lacks(&shown, "main.rs:3 · ");
    let first = tool_on_screen(84, &[text(&database)]).expect("text");
    has(&first, "\nmain.rs:3 par_iter().map(..).sum() ");
}

#[test]
fn without_the_source_a_loop_is_named_by_its_adaptors() {
    let database = database(&two_loops("/gone/main.rs"));
    let name = "slice::Iter.map.sum";
    let view = view(&database, "top-down", &[]);
    assert_eq!(loops(&view), [(name, 3, 40), (name, 7, 30)]);
}

/// Loops of one line: within `main`, whose columns the inlined scopes have, and called out of line, whose
/// columns the calls have; and one that the line has alone.
fn loops_of_one_line(source: &str, with_columns: bool) -> Run {
    let mut app = StructureBuilder::new("/opt/app", &[1]);
    let p = app.procedure("_start", None, User);
    app.span(0x1000, p, None, ("", 0), None);
    let p = app.procedure("app::main", Some((source, 1)), User);
    let name = "rayon::iter::ParallelIterator::sum";
    let mut columns = hpc_formats::structure::Columns::default();
    for (address, line, column) in [(0x1100, 3, 31), (0x1110, 3, 59), (0x1120, 8, 0)] {
        let sum = app.inlined(p, None, name, None, (source, line), Runtime);
        app.span(address, p, Some(sum), (PLUMBING, 9), None);
        if column > 0 {
            columns.scopes.push((sum, column));
        }
    }
    // One span with two calls.
    app.span(0x1130, p, None, (source, 4), None);
    columns.calls = vec![(0x1134, 15), (0x1138, 43)];
    let p = app.procedure("rayon::iter::ParallelIterator::max", None, Runtime);
    app.span(0x1200, p, None, (PLUMBING, 21), None);
    let p = app.procedure("app::main::{closure#0}", Some((source, 3)), User);
    app.span(0x1300, p, None, (source, 3), None);
    if with_columns {
        app.structure.columns = columns;
    }
    let mut run = Run::new();
    run.module(APP, "/opt/app", &[1]);
    run.structures = vec![app.structure];
    let mut thread = ThreadBuilder::new(1);
    let entry = thread.entry();
    for (address, samples) in [(0x1100, 1), (0x1110, 2), (0x1120, 4)] {
        let leaf = thread.natives(entry, &[START, at(APP, address), CLOSURE]);
        thread.sample(leaf, samples, 0.0);
    }
    for (address, samples) in [(0x1134, 8), (0x1138, 16)] {
        let path = [START, at(APP, address), HELPER, CLOSURE];
        let leaf = thread.natives(entry, &path);
        thread.sample(leaf, samples, 0.0);
    }
    run.threads = vec![thread];
    run
}

const ONE_LINE: &str = "fn main() {
    let v = items();
    let a: u64 = v.par_iter().sum::<u64>() + w.par_iter().sum::<u64>();
    let b = v.max() .max(other.par_iter().max());
    // The expected columns are those of the names.
    let c: u64 = v
        .par_iter()
        .sum();
}
";

#[test]
fn loops_of_one_line_are_told_apart_by_their_columns() {
    for with_columns in [true, false] {
        let (_temp, source) = with_source(ONE_LINE);
        let run = loops_of_one_line(&source, with_columns);
        let view = view(&database(&run), "top-down", &[]);
        let expected = match with_columns {
            true => vec![
                ("max()", 4, 8),
                ("par_iter().max()", 4, 16),
                ("par_iter().sum()", 8, 4),
                ("par_iter().sum() at column 31", 3, 1),
                ("par_iter().sum() at column 59", 3, 2),
            ],
            false => vec![("max()", 4, 24), ("par_iter().sum()", 3, 3), ("par_iter().sum()", 8, 4)],
        };
        assert_eq!(loops(&view), expected, "with columns: {with_columns}");
    }
}

#[test]
fn frames_of_loops_are_there_when_asked_for() {
    let database = database(&two_loops("/gone/main.rs"));
    let unfolded = view(&database, "top-down", &["--unfold"]);
    let sum = loop_named(&unfolded, "rayon::iter::ParallelIterator::sum");
    assert_eq!(sum["kind"], "inlined");
    assert!(sum.get("parallel_loop").is_none());
    let is_listed = |view: &Value, what: &str| {
        let folded = view["folded"].as_array().expect("a list");
        folded.iter().any(|f| f == what)
    };
    assert!(!is_listed(&unfolded, "parallel-loop"));
    let folded = view(&database, "top-down", &[]);
    assert!(is_listed(&folded, "parallel-loop"));
    assert_eq!(folded["totals"], unfolded["totals"]);
}

#[test]
fn below_an_uncooperative_scheduler_nothing_is_the_tasks_own() {
    let mut run = program("/gone/main.rs");
    let mut first = ThreadBuilder::new(1);
    let entry = first.entry();
    let mut at = entry;
    for (id, ip) in (1..).zip([START, MAIN_FIRST, HELPER, SCHEDULER]) {
        at = first.note(at, Association::ManyToZero, id, ip, CodeAddress::NONE);
    }
    let task = first.natives(at, &[EXECUTE, HELPER, CLOSURE]);
    first.sample(task, 9, 0.0);
    let own = first.natives(entry, &[START, MAIN_FIRST, CLOSURE]);
    first.sample(own, 1, 0.0);
    run.threads = vec![first];
    let database = database(&run);
    let view = view(&database, "top-down", &[]);
    assert_eq!(view["quality"]["spawnerless"], 9);
    assert_eq!(view["quality"]["rooted"], 10);
    let own = at_path(&view, &["_start", "app::main", "slice::Iter.map.sum"]);
    assert_eq!(inclusive(own, "work"), SAMPLE, "the waiting task has its own only");
    let task = at_path(&view, &["_start", HELPER_NAME, "app::main::{closure#0}"]);
    assert_eq!(inclusive(task, "work"), 9 * SAMPLE);
    let said = "90.0 % of samples have no caller above their task";
    has(&database.screen, said);
}
