//! Several processes: who works is counted over all profiled processes of a run, and over no others.
//!
//! How many of them work is counted by themselves, in memory that they share (`fixtures/c/processes.c`,
//! `fixtures/python`). What shells and interpreters do beside that is not known; it can only add its own
//! work, and idle cores beside that.

use hpcrun_tests::run::{Run, Spec, Truth, tolerance};
use hpcrun_tests::tools::{c_program, can_run, exclusive_cores, folder, python, python_script, tool};
use hpcrun_tests::view::{View, value};
use std::fmt::Write;
use std::process::Command;
use std::time::Instant;

/// Samples a second.
const RATE: u32 = 1000;
/// Against which idleness is reckoned.
const CORES: f64 = 2.0;

/// Runs it; the file that counts those that work lies in the test's folder.
fn profile(test: &str, program: &str, arguments: &[&str]) -> (Run, View) {
    let spec = Spec::new(test, program).arguments(arguments).rate(RATE);
    let start = Instant::now();
    let run = spec.environment("HPC_SHARED_COUNTER", "counter").succeed();
    let most = CORES * start.elapsed().as_secs_f64();
    let view = run.database().top_down();
    let effort: f64 = ["work", "idleness", "overhead"].iter().map(|m| value(&view.totals, m)).sum();
    assert!(effort <= 1.02 * most, "{test}: effort {effort} s on cores that had {most} s");
    (run, view)
}

/// Panics unless the idleness in all is that of the sites, and at most what the rest of the programs may add.
fn assert_idleness(what: &str, run: &Run, view: &View) {
    let truth = Truth::sum(&run.truths());
    let (work, idle) = (truth.total("work"), truth.total("idleness"));
    let busy = value(&view.totals, "work") + value(&view.totals, "overhead");
    let allowed = tolerance(work, RATE);
    let most = idle + (CORES - 1.0) * (busy - work).max(0.0) + allowed;
    let shown = value(&view.totals, "idleness");
    assert!(busy >= work - allowed, "{what}: {busy:.4} s of {work:.4} s were sampled");
    assert!(
        shown >= idle - allowed && shown <= most,
        "{what}: idleness {shown:.4} s, truth {idle:.4} s, with the rest of the programs at most {most:.4} s"
    );
}

/// Panics unless each site is right, which processes without a shell allow to ask.
fn assert_sites(what: &str, run: &Run, view: &View) {
    let faults = Truth::sum(&run.truths()).faults(view, RATE);
    assert!(faults.is_empty(), "{what}: {faults:#?}");
}

fn processes() -> String {
    c_program("processes").to_str().expect("a path in UTF-8").to_owned()
}

#[test]
fn two_processes_that_keep_two_cores_busy_have_no_idleness() {
    let _cores = exclusive_cores();
    let leaf = format!("{} leaf", processes());
    let both = format!("{leaf} 400 & {leaf} 400; wait");
    let lopsided = format!("{leaf} 200 & {leaf} 600; wait");
    for (what, script, processes) in [("both", both, 2), ("lopsided", lopsided, 2)] {
        let (run, view) = profile(&format!("node-{what}"), "/bin/sh", &["-c", &script]);
        assert_eq!(run.truths().len(), processes);
        assert_sites(what, &run, &view);
        assert_idleness(what, &run, &view);
    }
}

#[test]
fn children_are_counted_as_long_as_they_live() {
    let _cores = exclusive_cores();
    for mode in ["pair", "server", "killed"] {
        let (run, view) = profile(&format!("node-{mode}"), &processes(), &[mode, "400"]);
        assert_sites(mode, &run, &view);
    }
}

#[test]
fn make_and_pools_of_python_and_openssl() {
    let _cores = exclusive_cores();
    let leaf = processes();
    if can_run("make") {
        let test = "node-make";
        let mut makefile = "all: a b c d\n".to_owned();
        for target in ["a", "b", "c", "d"] {
            let _ = writeln!(makefile, "{target}:; @{leaf} leaf 200");
        }
        let file = folder("node-makefile").join("Makefile");
        std::fs::write(&file, makefile).expect("the target directory is writable");
        let file = file.to_str().expect("a path in UTF-8");
        let (run, view) = profile(test, "make", &["-j2", "-f", file]);
        assert_idleness(test, &run, &view);
    } else {
        println!("SKIPPED: make is not installed; what it starts was not profiled");
    }
    if let Some(python) = python() {
        let python = python.to_str().expect("a path in UTF-8");
        for (script, arguments) in [
            ("pool.py", vec!["300"]),
            ("commands.py", vec![leaf.as_str(), "leaf", "200"]),
            ("sleeper.py", vec!["300"]),
        ] {
            let script_path = python_script(script);
            let arguments = [vec![script_path.as_str()], arguments].concat();
            let (run, view) = profile(&format!("node-{script}"), python, &arguments);
            assert_idleness(script, &run, &view);
        }
    }
}

#[test]
fn openssl_on_two_processes_leaves_no_core_idle() {
    let _cores = exclusive_cores();
    if !std::process::Command::new("openssl").arg("version").output().is_ok_and(|o| o.status.success()) {
        return println!("SKIPPED: openssl is not installed; its processes were not profiled");
    }
    let arguments = ["speed", "-multi", "2", "-seconds", "1", "-bytes", "1024", "sha256"];
    let (_, view) = profile("node-openssl", "openssl", &arguments);
    let (work, idle) = (value(&view.totals, "work"), value(&view.totals, "idleness"));
    // Both work for one second by the wall clock: what they are out of step by is their start.
    assert!(work > 0.5 && idle < 0.1 * work, "work {work} s, idleness {idle} s");
}

#[test]
fn the_cores_are_those_that_may_be_used_now() {
    let _cores = exclusive_cores();
    let run = Spec::new("node-cores", c_program("cores")).all_cores().rate(RATE).succeed();
    if run.stdout().starts_with("SKIPPED") {
        return println!("{}", run.stdout());
    }
    assert_sites("cores", &run, &run.database().top_down());
    // Behind the launcher, before the program.
    let leaf = processes();
    let spec = Spec::new("node-taskset", "taskset").arguments(&["-c", "0", &leaf, "leaf", "300"]);
    let view = spec.all_cores().rate(RATE).succeed().database().top_down();
    let [work, idle] = ["work", "idleness"].map(|metric| value(&view.totals, metric));
    assert!(work > 0.29 && idle < 0.02, "work {work} s, idleness {idle} s on one core");
}

/// What a thread had to wait for a core is counted once, whatever programs it runs as after that.
#[test]
fn a_program_that_is_executed_has_not_waited_for_a_core_before() {
    let _cores = exclusive_cores();
    let arguments = ["-c", "0", &processes(), "images", "300"];
    let run = Spec::new("node-images", "taskset").arguments(&arguments).all_cores().rate(RATE).succeed();
    let json = run.database().text("top-down", &["--format", "json"]);
    let view: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let seconds = |name: &str| view[name].as_f64().expect("seconds");
    // Of two processes on one core, each waits while the other has it.
    let (delay, wall) =
        (view["quality"]["run_delay_seconds"].as_f64().expect("seconds"), seconds("wall_seconds"));
    assert!(delay > 0.5 && delay < 1.05 * wall, "{delay} s of {wall} s");
}

/// A command that runs another in namespaces of its own, if the kernel lets us.
fn unshared(namespaces: &str) -> Option<String> {
    let words = format!("unshare --user --map-root-user --fork {namespaces}");
    let can = Command::new("sh").args(["-c", &format!("{words} true")]).output();
    if can.is_ok_and(|output| output.status.success()) {
        return Some(words);
    }
    println!("SKIPPED: `{words}` is not allowed");
    None
}

#[test]
fn equal_process_ids_of_two_containers_are_two_processes() {
    let _cores = exclusive_cores();
    let Some(container) = unshared("--pid --mount-proc") else { return };
    let leaf = format!("{container} {} leaf 400", processes());
    let (run, view) = profile("node-containers", "/bin/sh", &["-c", &format!("{leaf} & {leaf}; wait")]);
    assert_eq!(run.truths().len(), 2);
    assert_idleness("two containers", &run, &view);
}

/// Each host has its own clock and cores, and all share a directory.
#[test]
fn two_hosts_share_a_directory() {
    let _cores = exclusive_cores();
    let Some(host) = unshared("--uts --time --monotonic 500000") else { return };
    let folder = folder("node-hosts");
    let profiler = tool("hpcrun-rs").get_program().to_string_lossy().into_owned();
    let rank = |n: u32| {
        format!(
            "PMI_RANK={n} {profiler} -q --cores 2 -e cpu-time@1000 -o measurements {} leaf 300",
            processes()
        )
    };
    let script = format!("{} & {host} sh -c 'hostname other; {}'; wait", rank(0), rank(1));
    let start = Instant::now();
    let mut command = Command::new("/bin/sh");
    command.current_dir(&folder).args(["-c", &script]).envs([("PMI_SIZE", "2"), ("PMI_JOBID", "7")]);
    let output = command.output().expect("a shell runs");
    let most = start.elapsed().as_secs_f64();
    let run = Run { measurements: folder.join("measurements"), folder, output };
    let json = run.database().text("top-down", &["--format", "json"]);
    let view: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let wall = view["wall_seconds"].as_f64().expect("seconds");
    assert!(wall > 0.29 && wall < most, "{wall} s of {most} s");
    assert_eq!(view["cores"], 4);
}

#[test]
fn two_runs_at_once_are_told_from_one_another() {
    let _cores = exclusive_cores();
    let leaf = |name: &'static str| move || profile(name, &processes(), &["leaf", "400"]);
    let other = std::thread::spawn(leaf("node-first-run"));
    let (run, view) = leaf("node-second-run")();
    assert_sites("one run", &run, &view);
    let (run, view) = other.join().expect("the other run was measured");
    assert_sites("the other run", &run, &view);
}
