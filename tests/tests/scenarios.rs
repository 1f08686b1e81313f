//! Ways to wait, to start threads, to end and to lose descriptors (`fixtures/c/scenarios.c`): who works is
//! known whatever a thread waits by, every thread is found, and nothing is missing without a word.
//!
//! Each scenario alone here, some under other conditions, all of them with `HPCRUN_TEST_CONDITION`
//! (CONTRIBUTING.md).

use hpcrun_tests::run::{Condition, Database, Run, Spec, Truth, tolerance};
use hpcrun_tests::tools::{c_program, exclusive_cores, optional_program};
use hpcrun_tests::view::{View, value};
use std::fmt::Write;

/// Samples a second.
const RATE: u32 = 1000;
/// What the fixture ends with where the system does not offer what a mode needs.
const UNAVAILABLE: i32 = 77;
/// Threads of a crowd.
const CROWD: &str = "6";

/// In each of these a thread works while `main` waits, then `main` alone: the work and the idleness of both.
const WAITS: [&str; 39] = [
    // In libc, which does not call itself through its own symbols.
    "fgets",
    "getline",
    "fread",
    "scanf",
    "pclose",
    "popen",
    "system",
    "eventfd_read",
    "aio",
    "thrd_sleep",
    // In the kernel, by a call of libc or none.
    "waitpid",
    "readv",
    "raw-read",
    "raw-poll",
    "raw-sleep",
    "splice",
    "tee",
    "io_uring",
    "recvmsg",
    "accept",
    "open-fifo",
    "write",
    "flock",
    "record-lock",
    "mq_receive",
    "msgrcv",
    "semop",
    "futex",
    // For other threads.
    "sem_wait",
    "sem_wait-fgets",
    "cnd_wait",
    "mtx_lock",
    "rwlock",
    "join",
    // For a signal; a wait that is left by a jump is over. By no signalfd: who reads one is woken by every
    // signal of the process, those of samples, too.
    "sigwait",
    "sigsuspend",
    "pause",
    "longjmp",
    "longjmp-cond",
];

/// In each of these the threads come or go another way: work and idleness of all of them.
const THREADS: [&str; 4] = ["thrd_create", "timer-thread", "raw-exit", "main-ends"];

/// Threads that libc knows nothing of: the same, or their seconds are said to be missing.
const CLONES: [&str; 2] = ["clone-thread", "clone-process"];

/// The program takes away what the profiler has open: the work of `main` all the same.
const DESCRIPTORS: [&str; 5] = ["close", "closefrom", "close_range", "raw-close_range", "dup2"];

/// Those of the above for each condition that is tried in every run of the tests.
const UNDER_CONDITIONS: [&str; 6] = ["fgets", "futex", "longjmp-cond", "thrd_create", "main-ends", "close"];

struct Scenario {
    run: Run,
    database: Database,
    view: View,
    truth: Truth,
}

/// Profiles a mode of the fixture; `None` where the system does not offer it, which is said.
fn profile(mode: &str, condition: Condition, arguments: &[&str]) -> Result<Option<Scenario>, String> {
    let test = format!("scenario-{mode}-{condition:?}");
    let run = Spec::new(&test, c_program("scenarios"))
        .arguments(&[&[mode], arguments].concat())
        .condition(condition)
        .rate(RATE)
        .run();
    if run.output.status.code() == Some(UNAVAILABLE) {
        println!("SKIPPED: {mode}: {}", run.stdout());
        return Ok(None);
    }
    if !run.output.status.success() {
        return Err(format!("{}: {}", run.output.status, run.stderr()));
    }
    let (database, truth) = (run.try_database()?, run.truth());
    let view = database.top_down();
    Ok(Some(Scenario { run, database, view, truth }))
}

/// What is wrong with a mode under a condition.
fn faults(mode: &str, condition: Condition) -> Vec<String> {
    let arguments: &[&str] = match condition {
        Condition::Crowded => &["100", CROWD],
        Condition::Alone => &["200"],
        _ => &["300"],
    };
    let (truth, view) = match profile(mode, condition, arguments) {
        Ok(Some(scenario)) => (scenario.truth, scenario.view),
        Ok(None) => return Vec::new(),
        Err(fault) => return vec![fault],
    };
    let quality = &view.quality;
    let mut faults = truth.faults(&view, RATE);
    let work = truth.total("work");
    let missing: f64 = quality.missing.iter().map(|m| m.seconds).sum();
    let lacking = (work - value(&view.totals, "work")).max(0.0);
    if (missing - lacking).abs() > tolerance(work, RATE) {
        faults.push(format!("{lacking:.4} s are missing, said: {:?}", quality.missing));
    } else if CLONES.contains(&mode) && lacking > 0.9 * value(&truth.sites["works"], "work") {
        faults.clear();
    }
    if (quality.rooted as f64) < 0.999 * quality.samples as f64 {
        faults.push(format!("not rooted: {quality:?}"));
    }
    faults
}

/// Panics unless all modes are right; says of each what is not.
fn check(modes: &[&str], conditions: &[Condition]) {
    let _cores = exclusive_cores();
    let mut report = String::new();
    for condition in conditions {
        for mode in modes {
            // Of some sixty short runs a busy machine disturbs one; what is wrong is so twice.
            let first = faults(mode, *condition);
            let twice = if first.is_empty() { first } else { faults(mode, *condition) };
            for fault in twice {
                let _ = writeln!(report, "{mode}, {condition:?}: {fault}");
            }
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn a_thread_that_waits_is_idle_whatever_it_waits_by() {
    check(&WAITS, &[Condition::by_default()]);
}

#[test]
fn threads_are_found_however_they_come_and_go() {
    check(&THREADS, &[Condition::by_default()]);
}

#[test]
fn threads_without_libc_are_found_or_said_to_be_missing() {
    check(&CLONES, &[Condition::by_default()]);
}

#[test]
fn a_program_that_closes_all_descriptors_is_measured() {
    check(&DESCRIPTORS, &[Condition::by_default()]);
}

/// On the wall clock a waiting thread has samples too: they are idle, whatever it waits by.
#[test]
fn an_unseen_wait_is_idle_on_the_wall_clock() {
    let _cores = exclusive_cores();
    for mode in ["fgets", "raw-read"] {
        let run = Spec::new(&format!("scenario-wall-{mode}"), c_program("scenarios"))
            .arguments(&[mode, "400"])
            .wall_time()
            .rate(200)
            .succeed();
        let (view, truth) = (run.database().top_down(), run.truth());
        for metric in ["work", "idleness"] {
            let (shown, truth) = (value(&view.totals, metric), truth.total(metric));
            assert!((shown - truth).abs() < 0.15 * truth, "{mode}: {metric} {shown} s of {truth} s");
        }
    }
}

/// By an instruction of its own: what the thread used from then on is missing, and why.
#[test]
fn a_timer_that_was_taken_away_is_said() {
    let _cores = exclusive_cores();
    let scenario = profile("own-close_range", Condition::by_default(), &["600"]);
    let Some(Scenario { view, truth, .. }) = scenario.expect("it ends well") else {
        return;
    };
    let (work, shown) = (truth.total("work"), value(&view.totals, "work"));
    let causes = || view.quality.missing.iter().map(|m| &m.what);
    assert!(causes().any(|c| c.contains("closed the timer's descriptor")), "{:?}", view.quality);
    let missing: f64 = view.quality.missing.iter().map(|m| m.seconds).sum();
    let all = shown + missing;
    assert!((all - work).abs() < tolerance(work, RATE), "{missing} s said, {shown} of {work} s");
}

#[test]
fn the_same_beside_a_busy_core_with_a_slow_clock_and_in_a_crowd() {
    let conditions = [Condition::BesideBusy, Condition::SlowClock, Condition::Crowded];
    check(&UNDER_CONDITIONS, &conditions);
}

#[test]
fn more_threads_than_cores_are_oversubscription() {
    let _cores = exclusive_cores();
    let scenario = profile("join", Condition::by_default(), &["200", "8"]);
    let scenario = scenario.expect("it ends well").expect("every system has threads");
    let truth = scenario.truth.total("oversubscription");
    assert!(truth > 4.0, "eight threads on two cores: {truth} s");
    let shown = scenario.run.recorded().oversubscribed;
    assert!((shown - truth).abs() <= tolerance(truth, RATE), "{shown} s, truth {truth} s");
    let screen = String::from_utf8_lossy(&scenario.database.output.stdout);
    // The first screen has the kernel's account of who waited for a core.
    let (_, rest) = screen.split_once("they waited ").unwrap_or_else(|| panic!("not told:\n{screen}"));
    let told: f64 = rest.split(' ').next().and_then(|n| n.parse().ok()).expect("seconds");
    assert!((told - truth).abs() < 0.1 * truth, "{told} s on the first screen, truth {truth} s");
    // And so have the contexts, all together: other programs take no cores here.
    let view = scenario.database.view("top-down", &["--metric", "oversubscription"]);
    let charged = view.exclusive_sum("oversubscription");
    assert!((charged - truth).abs() < 0.1 * truth, "{charged} s in contexts, truth {truth} s");
}

#[test]
fn an_uncontended_lock_is_the_one_that_the_program_calls() {
    let _cores = exclusive_cores();
    let scenario = profile("locks", Condition::by_default(), &["300"]);
    let scenario = scenario.expect("it ends well").expect("every system has locks");
    let Scenario { view, truth, .. } = scenario;
    let names = view.names();
    assert!(!names.iter().any(|n| n.contains("trylock")), "{names:?}");
    let seconds = |metric| view.inclusive("locks", metric);
    let (shown, truth) = (seconds("work") + seconds("overhead"), truth.sites["works"]["work"]);
    assert!((shown - truth).abs() <= tolerance(truth, RATE), "{shown} s, truth {truth} s");
    let lock = view.inclusive("pthread_mutex_lock", "overhead:sync");
    assert!(lock > 0.01 * truth, "pthread_mutex_lock: {lock} s of {truth} s");
}

#[test]
fn a_wait_in_cin_is_idle() {
    let _cores = exclusive_cores();
    let Some(program) = optional_program("cin", "g++", "cin.cpp", &["-pthread"]) else {
        return;
    };
    let run = Spec::new("scenario-cin", program).rate(RATE).succeed();
    let faults = run.truth().faults(&run.database().top_down(), RATE);
    assert!(faults.is_empty(), "{faults:#?}");
}
