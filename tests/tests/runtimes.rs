//! Runtimes that wait by their own means: OpenMP of GCC and of LLVM, TBB, OpenBLAS. What their threads do
//! while they wait, asleep or spinning, is idleness and nothing else.

use hpcrun_tests::run::{Run, Spec, is_long, tolerance};
use hpcrun_tests::tools::{exclusive_cores, optional_program, python, python_script};
use hpcrun_tests::view::{View, value};
use std::fmt::Write;

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
        let (view, truth) = (run.database().top_down(), run.truth());
        // Where threads are more than cores, who has none at a moment is not for the program to know.
        let is_crowded = threads != "2" || mode == "nested";
        for (caller, values) in &truth.sites {
            for metric in ["work", "idleness"].iter().take(if is_crowded { 1 } else { 2 }) {
                let (shown, truth) =
                    (view.inclusive_under(&[caller, "item"], metric), value(values, metric));
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

#[test]
fn a_task_of_tbb_belongs_to_its_caller_or_is_said_not_to() {
    let _cores = exclusive_cores();
    let Some(program) = optional_program("tbb", "g++", "tbb.cpp", &["-ltbb"]) else {
        return;
    };
    let run = Spec::new("tbb", program).rate(RATE).succeed();
    let (view, truth) = (run.database().top_down(), run.truth());
    let work = truth.total("work");
    let mut misplaced = 0.0;
    for (caller, values) in &truth.sites {
        let shown = view.inclusive_under(&[caller, "item"], "work");
        misplaced += (shown - value(values, "work")).abs();
    }
    let said = view.quality.spawnerless as f64 / f64::from(RATE);
    // What lies under the wrong caller lacks at the right one.
    assert!(
        misplaced <= 2.0 * said + tolerance(work, RATE),
        "{misplaced} s lie under a wrong caller or lack theirs, {said} s are said to"
    );
    for (metric, truth) in [("work", work), ("idleness", truth.total("idleness"))] {
        let shown = view.inclusive("item", metric);
        let allowed = tolerance(work, RATE);
        assert!((shown - truth).abs() <= allowed, "{metric}: {shown} s, truth {truth} s");
    }
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
