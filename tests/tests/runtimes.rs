//! Runtimes that wait by their own means: OpenMP of GCC and of LLVM, TBB, OpenBLAS. What their threads do
//! while they wait, asleep or spinning, is idleness and nothing else.

use hpcrun_tests::run::{Database, Run, Spec, is_long, tolerance};
use hpcrun_tests::tools::{
    check, exclusive_cores, one_core, optional_program, python, python_script, scratch,
};
use hpcrun_tests::view::{Node, View, value};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Samples a second.
const RATE: u32 = 1000;

/// Modes of `fixtures/c/openmp.c`: work and idleness of the items and of what is serial, and no overhead.
const MODES: [&str; 7] = ["rounds", "between", "critical", "tasks", "nested", "dynamic", "crowd"];

/// How idle threads wait: as the runtime likes, asleep, spinning.
const POLICIES: [Option<&str>; 3] = [None, Some("passive"), Some("active")];

/// Whether a mode is tried with a policy. A short run has the runtime's own policy in all modes, and others
/// where a barrier, a lock and a task are waited for.
fn is_tried(mode: &str, policy: Option<&str>) -> bool {
    // Where more threads spin than there are cores they take them from those that work.
    let takes_cores = policy == Some("active") && ["nested", "crowd"].contains(&mode);
    let is_short = policy.is_none() || ["rounds", "critical", "tasks"].contains(&mode);
    !takes_cores && (is_short || is_long())
}

fn faults(run: &Run, view: &View) -> Vec<String> {
    let truth = run.truth();
    let mut faults = truth.faults(view, RATE);
    let (work, overhead) = (truth.total("work"), value(&view.totals, "overhead"));
    if overhead > tolerance(work, RATE) {
        faults.push(format!("overhead {overhead:.4} s beside {work:.4} s of work"));
    }
    let (idle, shown) = (truth.total("idleness"), value(&view.totals, "idleness"));
    if (shown - idle).abs() > tolerance(idle.max(work), RATE) {
        faults.push(format!("idleness in all {shown:.4} s, truth {idle:.4} s"));
    }
    faults
}

fn openmp(compiler: &str) {
    let _cores = exclusive_cores();
    let name = format!("openmp-{compiler}");
    let Some(program) = optional_program(&name, compiler, "openmp.c", &["-fopenmp"]) else {
        return;
    };
    let mut report = String::new();
    for mode in MODES {
        for policy in POLICIES.into_iter().filter(|p| is_tried(mode, *p)) {
            let what = format!("{name}-{mode}-{}", policy.unwrap_or("default"));
            let mut spec = Spec::new(&what, &program).arguments(&[mode, "100"]).rate(RATE);
            if let Some(policy) = policy {
                spec = spec.environment("OMP_WAIT_POLICY", policy);
            }
            let run = spec.succeed();
            for fault in faults(&run, &run.database().top_down()) {
                let _ = writeln!(report, "{what}: {fault}");
            }
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn openmp_of_gcc() {
    openmp("gcc");
}

#[test]
fn openmp_of_llvm() {
    openmp("clang");
}

/// Modes of `fixtures/c/openmp_callers.c`.
const CONSTRUCTS: [&str; 12] = [
    "region",
    "loop",
    "dynamic",
    "ordered",
    "sections",
    "reduction",
    "critical",
    "nested",
    "tasks",
    "tree",
    "taskloop",
    "depend",
];

/// Of these, the loops that are handed out, with their chunks and iterations; and one that is not.
const LOOPS: [(&str, u64, u64); 4] =
    [("dynamic", 8, 8), ("reduction", 3, 8), ("ordered", 4, 4), ("loop", 0, 0)];

/// Where items are in no node of the region's that their caller begins, or a directive's body has a node.
fn not_in_regions(view: &View) -> Vec<String> {
    let mut faults = Vec::new();
    let is_region = |n: &&&Node| n.kind == "parallel-loop" && n.name.starts_with("omp parallel");
    let bodies = ["outlined", "_omp_fn", "omp_task_entry"];
    let is_body = |n: &&Node| bodies.iter().any(|part| n.name.contains(part));
    for root in &view.roots {
        root.walk(&mut Vec::new(), &mut |above, node| {
            let is_nested = above.iter().any(|n| n.name == "nested");
            let regions = above.iter().filter(is_region).count();
            if node.name == "item" && !(1..=1 + usize::from(is_nested)).contains(&regions) {
                faults.push(format!("an item in {regions} regions"));
            }
            if is_body(&node) {
                faults.push(format!("{} has a node", node.name));
            }
        });
    }
    faults
}

/// What `hpcprof-rs regions` shows.
fn regions(database: &Database) -> Vec<Value> {
    let found: Value =
        serde_json::from_str(&database.text("regions", &["--format", "json"])).expect("the regions are JSON");
    found["regions"].as_array().expect("regions").clone()
}

/// The sum of a count over regions.
fn all(regions: &[Value], count: &str) -> u64 {
    regions.iter().filter_map(|region| region[count].as_u64()).sum()
}

/// Where a region is not said to have two threads of which the first one has worked twice as long, and was
/// waited for.
fn not_skewed(regions: &[Value]) -> Vec<String> {
    let is_right = |region: &&Value| {
        let threads = &region["threads"];
        let [imbalance, idleness] =
            [&threads["imbalance"], &threads["last"]["idleness"]].map(|v| v.as_f64().unwrap_or(0.0));
        let waited = region["overheads"]["load_imbalance"].as_f64().unwrap_or(0.0);
        threads["count"] == 2
            && threads["last"]["thread"] == 1
            && (imbalance - 4.0 / 3.0).abs() < 0.05
            && idleness > 0.9 * waited
    };
    regions.iter().filter(|r| !is_right(r)).map(|r| format!("threads {}", r["threads"])).collect()
}

/// Those of `fixtures/c/openmp_path.c`.
const CHAINS: [&str; 8] =
    ["region", "barrier", "worksharing", "tasks", "recursion", "critical", "lock", "depend"];

/// Each construct with two threads, as the runtime likes to wait; some with more, and with other waits.
fn callers(compiler: &str) {
    let _cores = exclusive_cores();
    let name = format!("openmp-callers-{compiler}");
    let flags = ["-fopenmp", "-O1"];
    let Some(program) = optional_program(&name, compiler, "openmp_callers.c", &flags) else {
        return;
    };
    let mut report = String::new();
    let mut check = |mode: &str, threads: &str, policy: Option<&str>| {
        let what = format!("{name}-{mode}-{threads}-{}", policy.unwrap_or("default"));
        let mut spec = Spec::new(&what, &program).arguments(&[mode, threads]).rate(RATE);
        if let Some(policy) = policy {
            spec = spec.environment("OMP_WAIT_POLICY", policy);
        }
        let run = spec.succeed();
        let (database, truth) = (run.database(), run.truth());
        let view = database.top_down();
        for fault in not_in_regions(&view) {
            let _ = writeln!(report, "{what}: {fault}");
        }
        let regions = regions(&database);
        // Two callers, twice.
        if all(&regions, "executions") != 4 {
            let _ = writeln!(report, "{what}: {} executions", all(&regions, "executions"));
        }
        if mode == "taskloop" && all(&regions, "tasks") != 4 * 8 {
            let _ = writeln!(report, "{what}: {} tasks", all(&regions, "tasks"));
        }
        for (_, chunks, iterations) in LOOPS.iter().filter(|(name, ..)| *name == mode) {
            let found = ["chunks", "iterations"].map(|count| all(&regions, count));
            if found != [4 * chunks, 4 * iterations] {
                let _ = writeln!(report, "{what}: {found:?} chunks and iterations");
            }
        }
        if mode == "region" && threads == "2" {
            for fault in not_skewed(&regions) {
                let _ = writeln!(report, "{what}: {fault}");
            }
        }
        // Where threads are more than cores, who has none at a moment is not for the program to know.
        let is_crowded = threads != "2" || mode == "nested";
        for (caller, values) in &truth.sites {
            for metric in ["work", "idleness"].iter().take(if is_crowded { 1 } else { 2 }) {
                let (shown, truth) = (view.inclusive_under(&[caller, "item"], metric), value(values, metric));
                if (shown - truth).abs() > tolerance(value(values, "work"), RATE) {
                    let _ = writeln!(report, "{what}: {caller}: {metric} {shown}, truth {truth}");
                }
            }
        }
        if view.quality.spawnerless > 0 {
            let _ = writeln!(report, "{what}: {} callers unknown", view.quality.spawnerless);
        }
    };
    for mode in CONSTRUCTS {
        check(mode, "2", None);
    }
    for mode in CONSTRUCTS.iter().filter(|mode| is_long() || ["tasks", "nested"].contains(mode)) {
        check(mode, "4", Some("passive"));
    }
    for mode in CONSTRUCTS.iter().filter(|mode| is_long() || ["tree", "critical"].contains(mode)) {
        check(mode, "2", Some("active"));
    }
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn what_gcc_makes_of_openmp_is_under_its_callers() {
    callers("gcc");
}

#[test]
fn what_clang_makes_of_openmp_is_under_its_callers() {
    callers("clang");
}

/// GCC gives the call of an inlined region's runtime the line of something else.
#[test]
fn a_region_in_inlined_code_has_its_directives_name() {
    let flags = ["-fopenmp"];
    let Some(program) = optional_program("openmp-inlined", "gcc", "openmp_inlined.c", &flags) else { return };
    let run = Spec::new("openmp-inlined", &program).rate(RATE).succeed();
    let view = run.database().top_down();
    let mut names = Vec::new();
    for root in &view.roots {
        root.walk(&mut Vec::new(), &mut |_, node| {
            names.extend((node.kind == "parallel-loop").then(|| node.name.clone()));
        });
    }
    assert_eq!(names, ["omp parallel for schedule(static, 7)"]);
}

/// What a region or task needs is free when it is over, also if its threads sleep in between.
#[test]
fn regions_and_tasks_leave_nothing_behind() {
    /// KiB; a record of each of 20,000 regions would be five times as much.
    const GROWTH: i64 = 1024;
    let _cores = exclusive_cores();
    for compiler in ["gcc", "clang"] {
        let name = format!("openmp-many-{compiler}");
        let Some(program) = optional_program(&name, compiler, "openmp_many.c", &["-fopenmp"]) else {
            return;
        };
        for mode in ["regions", "tasks"] {
            let what = format!("{name}-{mode}");
            let spec = Spec::new(&what, &program).arguments(&[mode, "20000"]).rate(RATE);
            let run = spec.environment("OMP_WAIT_POLICY", "passive").succeed();
            let growth: i64 = run.stdout().trim().parse().expect("a number");
            assert!(growth < GROWTH, "{what}: {growth} KiB");
        }
    }
}

/// A library with its own copy of libgomp, under another name of the same length, since one name is loaded
/// once.
fn library_with_copy(letter: char) -> Option<String> {
    let own = check(Command::new("gcc").arg("-print-file-name=libgomp.so.1"));
    let copy = scratch().join(format!("libgom{letter}.so.1"));
    let mut bytes = std::fs::read(own.trim()).expect("gcc's runtime");
    let name = b"libgomp.so.1\0";
    let at = bytes.windows(name.len()).position(|part| part == name).expect("its name");
    bytes[at + 6] = letter as u8;
    std::fs::write(&copy, bytes).expect("scratch space");
    let copy = copy.display().to_string();
    let path = format!("-Wl,-rpath,{}", scratch().display());
    let flags = ["-fopenmp", "-shared", "-fPIC", "-DOWN", "-Wl,--as-needed", &copy, &path];
    let library = optional_program(&format!("libcopies{letter}.so"), "gcc", "copies.c", &flags)?;
    Some(library.display().to_string())
}

#[test]
fn two_copies_of_libgomp_in_one_process_serve_their_own_callers() {
    let _cores = exclusive_cores();
    let libraries = ['A', 'B'].map(library_with_copy);
    let [Some(one), Some(other)] = &libraries else { return };
    let program = optional_program("copies", "gcc", "copies.c", &["-ldl"]).expect("gcc was used before");
    let run = Spec::new("copies", program).arguments(&[one, other]).rate(RATE).succeed();
    let (database, truth) = (run.database(), run.truth());
    let view = database.top_down();
    for (caller, values) in &truth.sites {
        for metric in ["work", "idleness"] {
            let (shown, known) = (view.inclusive_under(&[caller, "item"], metric), value(values, metric));
            let allowed = tolerance(value(values, "work"), RATE);
            assert!((shown - known).abs() < allowed, "{caller}: {metric} {shown}, truth {known}");
        }
    }
    let regions = regions(&database);
    assert_eq!((all(&regions, "executions"), all(&regions, "tasks")), (2 * 3 + 2 * 6, 3 * 3 + 3 * 6));
    assert_eq!(view.quality.spawnerless, 0);
}

/// The work and idleness under each sequence of functions `u_…`, down to `u_item`.
fn by_path(view: &View) -> BTreeMap<String, [f64; 2]> {
    let mut all = BTreeMap::new();
    view.walk(&mut |above, node| {
        if node.name == "u_item" {
            let names = above.iter().chain([&node]).map(|node| node.name.as_str());
            let mut path: Vec<&str> = names.filter(|name| name.starts_with("u_")).collect();
            path.dedup();
            let sums: &mut [f64; 2] = all.entry(path.join(";")).or_default();
            for (sum, metric) in sums.iter_mut().zip(["work", "idleness"]) {
                *sum += value(&node.inclusive, metric);
            }
        }
    });
    all
}

/// Runs a program whose sites are named by their paths, with so many threads. `known`: regions by their
/// names, and how often they were executed in all.
fn check_paths(name: &str, program: &Path, threads: &[&str], known: &[(&str, u64)]) {
    let mut report = String::new();
    for threads in threads.iter().copied() {
        let spec = Spec::new(&format!("{name}-{threads}"), program);
        let run = spec.arguments(&["40", threads]).rate(RATE).succeed();
        let (database, truth) = (run.database(), run.truth());
        let view = database.top_down();
        let mut shown = by_path(&view);
        let regions = regions(&database);
        for (name, executions) in known {
            let named: Vec<Value> = regions.iter().filter(|r| r["name"] == *name).cloned().collect();
            if all(&named, "executions") != *executions {
                let _ = writeln!(report, "{name}: {} executions", all(&named, "executions"));
            }
        }
        for (path, values) in &truth.sites {
            let found = shown.remove(path).unwrap_or_default();
            // Where threads are more than cores, who has none at a moment is not for the program to know.
            let metrics = if threads == "2" { 2 } else { 1 };
            for (shown, metric) in found.into_iter().zip(["work", "idleness"]).take(metrics) {
                let truth = value(values, metric);
                if (shown - truth).abs() > tolerance(value(values, "work"), RATE) + 0.003 {
                    let _ = writeln!(report, "{path}: {metric} {shown:.4}, truth {truth:.4}");
                }
            }
        }
        for (path, values) in shown {
            let _ = writeln!(report, "{threads} threads: no such path: {path} {values:?}");
        }
        if view.quality.spawnerless > 0 {
            let _ = writeln!(report, "{} callers unknown", view.quality.spawnerless);
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn what_tbb_runs_has_the_path_by_which_it_was_spawned() {
    let _cores = exclusive_cores();
    let flags = ["-std=c++17", "-fopenmp", "-ltbb"];
    if let Some(program) = optional_program("tbb-callers", "g++", "tbb_callers.cpp", &flags) {
        let known = [("tbb::parallel_reduce", 1), ("tbb::parallel_pipeline", 1), ("std::for_each", 1)];
        check_paths("tbb", &program, &["2", "4"], &known);
    }
}

#[test]
fn what_algorithms_and_containers_of_libraries_do_is_work() {
    let _cores = exclusive_cores();
    let flags = ["-std=c++17", "-ltbb"];
    let Some(program) = optional_program("algorithms", "g++", "algorithms.cpp", &flags) else { return };
    let run = Spec::new("algorithms", program).rate(RATE).succeed();
    let view = run.database().top_down();
    for (name, truth) in &run.truth().sites {
        let (mut own, mut loops) = ([0.0; 3], Vec::new());
        for root in &view.roots {
            root.walk(&mut Vec::new(), &mut |above, node| {
                if node.name == *name {
                    let metrics = ["work", "overhead:sched", "overhead:sync"];
                    own = metrics.map(|metric| value(&node.inclusive, metric));
                } else if above.iter().any(|n| n.name == *name) && node.kind == "parallel-loop" {
                    loops.push(node.name.clone());
                }
            });
        }
        let [work, sched, sync] = own;
        let cpu = value(truth, "work");
        // The locks of the table's buckets are synchronisation.
        let none = if name == "adds" { sched + sync } else { sched };
        assert!(none <= cpu * 0.05, "{name}: {own:?} of {cpu}");
        // Who waits for a task spins for a while.
        assert!((cpu * 0.8..cpu * 1.03).contains(&(work + sched + sync)), "{name}: {own:?} of {cpu}");
        let known = if name == "adds" { "std::transform" } else { "tbb::parallel_for" };
        assert!(loops.iter().all(|name| name == known) && !loops.is_empty(), "{name}: {loops:?}");
    }
}

#[test]
fn what_a_pool_of_the_programs_own_runs_has_the_path_that_it_tells() {
    let _cores = exclusive_cores();
    let flags = ["-std=c++17", "-pthread"];
    if let Some(program) = optional_program("pool", "g++", "pool.cpp", &flags) {
        check_paths("pool", &program, &["2"], &[("pool task", 7)]);
    }
}

#[test]
fn tasks_of_tbb_that_tells_another_collector_are_said_to_lack_callers() {
    let _cores = exclusive_cores();
    let flags = ["-std=c++17", "-fopenmp", "-ltbb"];
    let Some(program) = optional_program("tbb-callers", "g++", "tbb_callers.cpp", &flags) else {
        return;
    };
    let spec = Spec::new("tbb-other", program).environment("INTEL_LIBITTNOTIFY64", "libother.so");
    let view = spec.rate(RATE).succeed().database().top_down();
    assert!(view.quality.spawnerless > 100, "{} callers unknown", view.quality.spawnerless);
}

#[test]
fn openmp_has_the_critical_path_of_its_constructs() {
    let _cores = one_core();
    let mut report = String::new();
    for compiler in ["gcc", "clang"] {
        let name = format!("openmp-path-{compiler}");
        let flags = ["-fopenmp", "-O1"];
        let Some(program) = optional_program(&name, compiler, "openmp_path.c", &flags) else {
            continue;
        };
        let policies = ["active", "passive"];
        for (construct, policy) in CHAINS.iter().flat_map(|c| policies.map(|policy| (*c, policy))) {
            let what = format!("{name}-{construct}-{policy}");
            let spec = Spec::new(&what, &program).arguments(&[construct, "20"]);
            let run = spec.environment("OMP_WAIT_POLICY", policy).critical_path("").succeed();
            let (path, known) = (run.critical_path(), run.stdout());
            let known = known.split_whitespace().map(|ms| ms.parse::<f64>().expect("a time") / 1e3);
            for (found, known) in [path.work, path.span].into_iter().zip(known) {
                let found = found as f64 / 1e9;
                if (found - known).abs() > 0.03 * known + 0.003 {
                    let _ = writeln!(report, "{what}: {found:.4} s, truth {known:.4} s");
                }
            }
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn threads_of_openblas_that_spin_for_work_are_idle() {
    let _cores = exclusive_cores();
    let Some(python) = python() else { return };
    let run = Spec::new("openblas", python)
        .arguments(&[&python_script("blas.py")])
        .environment("OPENBLAS_NUM_THREADS", "2")
        .rate(RATE)
        .run();
    if run.output.status.code() == Some(77) {
        return println!("{}", run.stdout());
    }
    assert!(run.output.status.success(), "{}", run.stderr());
    let view = run.database().bottom_up();
    let spent = |name: &str| -> f64 {
        let roots = view.roots.iter().filter(|root| root.name.contains(name));
        roots.map(|root| value(&root.inclusive, "work") + value(&root.inclusive, "overhead")).sum()
    };
    assert!(spent("gemm_kernel") > 0.05, "products were measured: {:?}", view.names());
    let spun = spent("blas_thread_server") + spent("sched_yield");
    let effort: f64 = ["work", "idleness", "overhead"].iter().map(|m| value(&view.totals, m)).sum();
    assert!(spun < 0.02 * effort, "waiting threads: {spun} s of {effort} s effort");
}
