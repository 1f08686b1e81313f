//! From synthetic measurements to JSON views: what each kind of path must look like.

use crate::support::program::{self, *};
use crate::support::*;
use hpc_formats::address::CodeAddress;
use hpc_formats::loss::LossCause;
use hpc_formats::profile::Association;
use serde_json::Value;

const MS: i64 = 1_000_000;
const SAMPLE: i64 = 5 * MS;

const TASK: [&str; 5] = ["_start", "app::main", "app::caller", "app::caller::{closure#0}", "app::leaf"];

#[test]
fn a_task_has_one_path_whether_stolen_or_not() {
    let database = database(&full_run());
    let view = view(&database, "top-down", &[]);
    let leaf = at_path(&view, &TASK);
    // In place 60 and 40 (inlined iterator), stolen 80, stolen with an inlined closure 20.
    assert_eq!(inclusive(leaf, "work"), 200 * SAMPLE);
    assert_eq!(exclusive(leaf, "work"), 160 * SAMPLE);
    // Inlined code of the standard library folds into its user's loop.
    assert_eq!(leaf["children"].as_array().map(Vec::len), Some(1));
    let over = named(&leaf["children"], "loop at main.rs:42");
    assert_eq!((over["kind"].as_str(), over["line"].as_i64()), (Some("loop"), Some(42)));
    assert_eq!(exclusive(over, "work"), 40 * SAMPLE);
    assert_eq!(over["call_line"], Value::Null);
    let closure = at_path(&view, &TASK[..4]);
    assert_eq!(closure["kind"], "procedure");
    assert_eq!((closure["line"].as_i64(), &closure["file"]), (Some(22), &APP_FILE.into()));
    // The runtime's overhead is the caller's own.
    let caller = at_path(&view, &TASK[..3]);
    assert_eq!(exclusive(caller, "work"), 3 * SAMPLE);
    assert_eq!(exclusive(caller, "overhead"), (10 + 4) * SAMPLE);
    assert_eq!(inclusive(caller, "overhead:sched"), (10 + 4 + 5) * SAMPLE);
}

#[test]
fn runtime_frames_on_request() {
    let database = database(&full_run());
    let view = view(&database, "top-down", &["--runtime-frames"]);
    let caller = at_path(&view, &TASK[..3]);
    let join = named(&caller["children"], "work_stealing_rt::join");
    assert_eq!(join["kind"], "inlined");
    assert_eq!(join["call_line"], 22);
    let shim = named(&join["children"], "work_stealing_rt::job::execute");
    let glue = named(&shim["children"], "core::ops::function::FnOnce::call_once");
    let closure = named(&glue["children"], "app::caller::{closure#0}");
    assert_eq!(inclusive(closure, "work"), 80 * SAMPLE);
}

#[test]
fn tagged_calls_cover_the_system_but_not_the_user() {
    let run = run_of(|thread, entry| {
        let push = thread.natives(entry, &[START, MAIN, CALLER_PUSH]);
        let in_libc = thread.natives(push, &[FUTEX, MEMCPY]);
        thread.sample(in_libc, 3, 0.0);
        let user = thread.native(in_libc, LEAF);
        thread.sample(user, 5, 0.0);
        let user_libc = thread.native(user, MEMCPY);
        thread.sample(user_libc, 7, 0.0);
    });
    let view = view(&database(&run), "top-down", &[]);
    assert_eq!(nanoseconds(&view["totals"]["overhead"]), 3 * SAMPLE);
    assert_eq!(nanoseconds(&view["totals"]["overhead:sched"]), 3 * SAMPLE);
    assert_eq!(nanoseconds(&view["totals"]["work"]), 12 * SAMPLE);
}

#[test]
fn anchors_continue_another_threads_context() {
    let mut run = program::run();
    let mut first = ThreadBuilder::new(1);
    let entry = first.entry();
    let creator = first.natives(entry, &[START, MAIN_SERIAL, SERIAL]);
    first.sample(creator, 1, 0.0);
    // An anchor of an anchor, against the order of the files.
    let mut second = ThreadBuilder::new(2);
    let anchor = second.anchor(3, 2);
    let task = second.native(anchor, LEAF);
    second.sample(task, 10, 0.0);
    let mut third = ThreadBuilder::new(3);
    let anchor = third.anchor(1, creator);
    assert_eq!(third.native(anchor, CALLER), 2);
    run.threads = vec![first, second, third];
    let view = view(&database(&run), "top-down", &[]);
    let path = ["_start", "app::main", "app::serial", "loop at main.rs:61", "app::caller", "app::leaf"];
    assert_eq!(exclusive(at_path(&view, &path), "work"), 10 * SAMPLE);
    assert_eq!(view["quality"]["rooted"], 11);
}

#[test]
fn broken_anchors_become_partial_roots() {
    let mut run = program::run();
    let mut first = ThreadBuilder::new(1);
    // A cycle: 1 continues 2, 2 continues 1.
    let anchor = first.anchor(2, 2);
    let a = first.native(anchor, LEAF);
    first.sample(a, 2, 0.0);
    let mut second = ThreadBuilder::new(2);
    let anchor = second.anchor(1, 2);
    let b = second.native(anchor, CALLER);
    second.sample(b, 3, 0.0);
    // A thread and a record that are not there.
    let gone = second.anchor(9, 4);
    let c = second.native(gone, LEAF);
    second.sample(c, 5, 0.0);
    let gone = second.anchor(1, 4000);
    let d = second.native(gone, LEAF);
    second.sample(d, 7, 0.0);
    run.threads = vec![first, second];
    let view = view(&database(&run), "top-down", &[]);
    let root = named(&view["roots"], "partial:missing-context");
    assert_eq!(root["kind"], "partial");
    assert_eq!(inclusive(root, "work"), 17 * SAMPLE);
    assert_eq!(view["quality"]["lost"]["partial:missing-context"], 17);
    assert_eq!(view["quality"]["rooted"], 0);
}

#[test]
fn many_to_one_and_many_to_zero_chords() {
    // An interpreter: two machine frames for one user-level frame, then support frames.
    let run = run_of(|thread, entry| {
        let below = thread.natives(entry, &[START, MAIN]);
        let many = Association::ManyToOne;
        let a = thread.note(below, many, 1, EXECUTE, CALLER);
        let b = thread.note(a, many, 2, CALL_ONCE, CodeAddress::NONE);
        thread.sample(b, 4, 0.0);
        let zero = Association::ManyToZero;
        let c = thread.note(b, zero, 1, EXECUTE, CodeAddress::NONE);
        let d = thread.note(c, zero, 2, CALL_ONCE, CodeAddress::NONE);
        let leaf = thread.native(d, LEAF);
        thread.sample(leaf, 5, 0.0);
    });
    let database = database(&run);
    let logical = view(&database, "top-down", &[]);
    let caller = at_path(&logical, &["_start", "app::main", "app::caller"]);
    assert_eq!(exclusive(caller, "work"), 4 * SAMPLE);
    assert_eq!(exclusive(named(&caller["children"], "app::leaf"), "work"), 5 * SAMPLE);
    let physical = view(&database, "top-down", &["--projection", "physical"]);
    let path = [
        "_start",
        "app::main",
        "work_stealing_rt::job::execute",
        "core::ops::function::FnOnce::call_once",
        "work_stealing_rt::job::execute",
        "core::ops::function::FnOnce::call_once",
        "app::leaf",
    ];
    assert_eq!(exclusive(at_path(&physical, &path), "work"), 5 * SAMPLE);
}

#[test]
fn lines_and_inlined_system_code_on_request() {
    let database = database(&full_run());
    let lines = view(&database, "top-down", &["--lines", "--std-inlined"]);
    let leaf = at_path(&lines, &TASK);
    assert_eq!(exclusive(leaf, "work"), 0);
    let line = named(&leaf["children"], "main.rs:41");
    assert_eq!((line["kind"].as_str(), line["line"].as_i64()), (Some("line"), Some(41)));
    assert_eq!(exclusive(line, "work"), 160 * SAMPLE);
    let over = named(&leaf["children"], "loop at main.rs:42");
    let next = named(&over["children"], "core::iter::Range::next");
    assert_eq!(inclusive(next, "work"), 40 * SAMPLE);
    assert_eq!(next["call_line"], 42);
    // Folded, the iterator's step is the cost of the line that calls it.
    let lines = view(&database, "top-down", &["--lines"]);
    let leaf = at_path(&lines, &TASK);
    let over = named(&leaf["children"], "loop at main.rs:42");
    assert_eq!(exclusive(named(&over["children"], "main.rs:42"), "work"), 40 * SAMPLE);
    let caller = at_path(&lines, &TASK[..3]);
    assert_eq!(exclusive(named(&caller["children"], "main.rs:22"), "overhead"), 14 * SAMPLE);
}

#[test]
fn flat_sums_by_module_and_file() {
    let database = database(&full_run());
    let view = view(&database, "flat", &[]);
    let libc = named(&view["roots"], "/lib/libc.so.6");
    assert_eq!(libc["kind"], "module");
    assert_eq!(inclusive(libc, "work"), 20 * SAMPLE);
    assert_eq!(inclusive(libc, "overhead"), 5 * SAMPLE);
    let app = named(&view["roots"], "/opt/app");
    let file = named(&app["children"], APP_FILE);
    let leaf = named(&file["children"], "app::leaf");
    assert_eq!(inclusive(leaf, "work"), (200 + 7 + 2) * SAMPLE);
}

#[test]
fn recursion_folds_in_text_and_never_in_json() {
    let database = database(&run_of(|thread, entry| {
        let mut at = thread.natives(entry, &[START, MAIN]);
        for _ in 0..500 {
            at = thread.natives(at, &[CALLER, CLOSURE]);
            thread.sample(at, 1, 0.0);
        }
    }));
    let folded = show(&database, "top-down");
    has(&folded, "app::caller (recursion, 500 deep)");
    assert!(folded.lines().count() < 8, "{folded}");
    let unfolded = show(&database, "top-down --no-fold-recursion --threshold 0");
    assert!(unfolded.lines().count() > 1000);
    let json = show(&database, "top-down --format json");
    assert_eq!(json.matches("\"name\":\"app::caller\"").count(), 500);
}

#[test]
fn system_code_that_users_call_again_does_not_recur() {
    let run = run_of(|thread, entry| {
        // It calls itself, and the user's code, which calls it again.
        let outer = thread.natives(entry, &[START, MAIN, MEMCPY, MEMCPY, CALLER]);
        let inner = thread.natives(outer, &[MEMCPY, CLOSURE, LEAF]);
        thread.sample(inner, 5, 0.0);
    });
    let database = database(&run);
    let shown = show(&database, "top-down");
    let contexts: Vec<&str> = shown
        .lines()
        .skip(2)
        .map(|l| l.split_once("└ ").map_or(l, |(_, name)| name))
        .map(|name| name.split("  ").next().unwrap_or(name))
        .collect();
    assert_eq!(
        contexts[1..],
        ["memcpy (recursion, 2 deep)", "app::caller", "memcpy", "app::caller::{closure#0}", "app::leaf"],
        "{shown}"
    );
}

#[test]
fn two_processes_share_their_code() {
    let process = |pid: u32, image| {
        let run = run_of(|thread, entry| {
            let leaf = thread.natives(entry, &[START, MAIN, LEAF]);
            thread.sample(leaf, u64::from(pid), 0.0);
        });
        run.process(pid, image)
    };
    let (first, second) = (process(100, IMAGE), process(200, IMAGE + 500_000_000));
    let database = build(&[&[&first, &second]], &[]);
    let view = view(&database, "top-down", &[]);
    let leaf = at_path(&view, &["_start", "app::main", "app::leaf"]);
    assert_eq!(exclusive(leaf, "work"), 300 * SAMPLE);
    assert_eq!(view["roots"].as_array().map(Vec::len), Some(1));
    // From the first start to the last end: the second began half a second later.
    assert_eq!(view["wall_seconds"].as_f64(), Some(2.5));
}

#[test]
fn an_empty_path_is_partial() {
    let run = run_of(|thread, entry| {
        thread.sample(entry, 3, 0.0);
        let partial = thread.partial(LossCause::TooDeep);
        thread.sample(partial, 4, 0.0);
    });
    let view = view(&database(&run), "top-down", &[]);
    assert_eq!(view["quality"]["lost"], serde_json::json!({"partial:empty-path": 3, "partial:too-deep": 4}));
    assert_eq!(nanoseconds(&view["totals"]["work"]), 7 * SAMPLE);
}

/// Adds `nodes` with all below them in the form of flat JSON: in preorder, with the ids of their parents.
fn flatten(nodes: &Value, parent: Option<usize>, out: &mut Vec<Value>) {
    for node in nodes.as_array().expect("nodes") {
        let (mut own, id) = (node.clone(), out.len());
        let fields = own.as_object_mut().expect("an object");
        fields.remove("children");
        fields.insert("id".to_owned(), id.into());
        fields.insert("parent".to_owned(), parent.into());
        out.push(own);
        flatten(&node["children"], Some(id), out);
    }
}

#[test]
fn flat_json_has_the_same_nodes_with_their_parents() {
    let database = database(&full_run());
    for name in ["top-down", "bottom-up", "flat"] {
        let nested = view(&database, name, &[]);
        let flat = view(&database, name, &["--flat"]);
        let mut expected = Vec::new();
        flatten(&nested["roots"], None, &mut expected);
        // An id is the node's, whatever its position.
        let mut nodes = flat["nodes"].as_array().expect("nodes").clone();
        let ids: Vec<Value> = nodes.iter().map(|node| node["id"].clone()).collect();
        let position = |id: &Value| ids.iter().position(|known| known == id);
        for node in &mut nodes {
            node["id"] = position(&node["id"]).into();
            node["parent"] = position(&node["parent"]).into();
        }
        assert_eq!(nodes, expected, "{name}");
        assert_eq!(flat["quality"], nested["quality"]);
        assert_eq!(flat["totals"], nested["totals"]);
        assert!(flat.get("roots").is_none());
    }
    has(&refused(&database, "top-down --flat"), "--format json");
}

#[test]
fn json_too_deep_for_many_readers_is_said_and_its_flat_form_is_shallow() {
    for (levels, said) in [(150, false), (300, true)] {
        let database = database(&run_of(|thread, entry| {
            let at = thread.natives(entry, &vec![LEAF; levels]);
            thread.sample(at, 10, 0.0);
        }));
        let nested = command(&database, &["top-down", ".", "--format", "json"]);
        assert_eq!(stderr(&nested).contains("--flat"), said, "{levels}");
        let flat = command(&database, &["top-down", ".", "--format", "json", "--flat"]);
        assert_eq!(stderr(&flat), "");
        // With the parser's own limit of 128 levels.
        let flat: Value = serde_json::from_slice(&flat.stdout).expect("it is shallow");
        assert_eq!(flat["nodes"].as_array().map(Vec::len), Some(levels));
    }
}

#[test]
fn what_a_view_is_pruned_by_decides_what_it_hides() {
    // Ten callees have all the overhead, 4 % of the effort, each less than the threshold.
    let run = run_of(|thread, entry| {
        let base = thread.natives(entry, &[START, MAIN]);
        thread.sample(base, 100_000, 0.0);
        let push = thread.native(base, CALLER_PUSH);
        thread.sample(push, 600, 0.0);
        let waits = thread.native(push, FUTEX);
        thread.sample(waits, 300, 0.0);
    });
    let database = database(&run);
    let shown = show(&database, "top-down --metric overhead --threshold 40");
    let row = shown.lines().find(|l| l.contains("not shown")).expect("the rest has a third");
    assert!(row.contains("33.3") && row.contains("1.500"), "{shown}");
}

#[test]
fn a_column_of_own_amounts_names_its_metric() {
    let database = database(&full_run());
    let shown = show(&database, "top-down --metric overhead:sched");
    let head = shown.lines().nth(1).expect("a head");
    for title in ["own work", "own idle", "own ovhd", "own sched"] {
        has(head, title);
    }
    lacks(head, "self");
}

#[test]
fn a_chain_of_single_callers_has_its_numbers_once() {
    let run = run_of(|thread, entry| {
        let one = thread.natives(entry, &[START, MAIN, CALLER, LEAF]);
        thread.sample(one, 30, 0.0);
        let two = thread.natives(entry, &[START, MAIN, SERIAL, MEMCPY]);
        thread.sample(two, 20, 0.0);
        let three = thread.natives(entry, &[START, MAIN, CALLER, MEMCPY]);
        thread.sample(three, 10, 0.0);
    });
    let database = database(&run);
    let shown = show(&database, "bottom-up");
    let amounts = |name: &str| -> Vec<String> {
        let rows = shown.lines().skip(3).filter(|l| l.contains(name));
        rows.map(|l| l.chars().take(18).collect::<String>().trim().to_owned()).collect()
    };
    // leaf, and below it a single caller; memcpy, whose two callers have shares of their own.
    assert_eq!(amounts("app::leaf"), ["50.0    0.150"]);
    assert_eq!(amounts("app::caller"), ["", "16.7    0.050"]);
    assert_eq!(amounts("app::serial"), ["33.3    0.100"]);
    assert_eq!(amounts("app::main"), ["", "", ""]);
}
