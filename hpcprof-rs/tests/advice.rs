//! What is worth doing: each planted problem is the first advice, with a gain that is known.

use crate::first_screen::Program;
use crate::support::*;
use hpc_formats::address::CodeAddress;
use hpc_formats::process::SiteCounts;
use hpc_formats::profile::LOCK_WAIT;
use hpc_formats::structure::{Origin::Runtime, SPIN_LOOP};
use serde_json::Value;

/// The advice about a program.
fn advice(program: &Program) -> Vec<Value> {
    let output = on(&program.database(), "advise --format json").expect("advice");
    let all: Value = serde_json::from_str(&output).expect("JSON");
    assert_eq!(all["withheld"], Value::Null, "{all}");
    all["advice"].as_array().expect("advice").clone()
}

/// Its cause, name and gain in seconds.
fn first(program: &Program) -> (String, String, f64) {
    let all = advice(program);
    let text = |field: &str| all[0][field].as_str().expect("text").to_owned();
    (text("cause"), text("name"), all[0]["most"].as_f64().unwrap_or(0.0))
}

fn is(found: &(String, String, f64), cause: &str, name: &str, most: f64) {
    assert_eq!((found.0.as_str(), found.1.as_str()), (cause, name), "{found:?}");
    assert!((found.2 - most).abs() < 0.002, "{found:?}");
}

#[test]
fn what_one_thread_does_while_the_others_wait_comes_first() {
    let mut p = Program::new();
    let [main, solve, tail] = ["main", "solve", "tail"].map(|name| p.own(name));
    p.sample(&[main, solve], 100, 0.0).sample_by(2, &[main, solve], 100, 0.0);
    // Half a second in which the other core idles: on both it takes half of that.
    p.sample(&[main, tail], 100, 1.0);
    is(&first(&p), "serial", "tail", 0.25);
    // Alone for half a second: half of what two cores would gain, but for the error of 100 samples.
    let least = advice(&p)[0]["least"].as_f64().expect("a sure gain");
    assert!((0.05..0.125).contains(&least), "{least}");
    has(&p.database().screen, "tail: one thread works while 1 of 2 cores idle");
}

#[test]
fn one_thread_with_most_of_the_work_is_imbalance() {
    let mut p = Program::new();
    let [main, solve] = ["main", "solve"].map(|name| p.own(name));
    p.sample(&[main, solve], 100, 0.0).sample_by(2, &[main, solve], 100, 0.0);
    p.sample_by(2, &[main, solve], 120, 1.0);
    let found = first(&p);
    is(&found, "imbalance", "solve", 0.3);
    assert!(advice(&p)[0]["least"].as_f64().expect("a sure gain") < 0.15);
    has(advice(&p)[0]["text"].as_str().expect("text"), "one thread has 69 % of the work");
}

#[test]
fn threads_that_take_turns_wait_for_a_lock() {
    let mut p = Program::new();
    let [main, update] = ["main", "update"].map(|name| p.own(name));
    for thread in [1, 2] {
        p.sample_by(thread, &[main, update], 80, 1.0);
        p.sample_by(thread, &[main, update], 20, 0.0);
    }
    // Of the second nobody works for a tenth.
    is(&first(&p), "turn-taking", "update", 0.5);
    assert_eq!(advice(&p)[0]["least"], Value::Null, "a lock may be needed");
    has(advice(&p)[0]["text"].as_str().expect("text"), LOCK_WAIT);
}

#[test]
fn a_serial_context_that_is_one_with_its_callees_is_advised_once() {
    // With a quarter of the time of its own it is one piece of work, with less it only calls others.
    for (own, found) in [(50, &["cell"][..]), (10, &["near", "far", "cell"][..])] {
        let mut p = Program::new();
        let [main, cell, near, far] = ["main", "cell", "near", "far"].map(|name| p.own(name));
        p.sample(&[main, cell], own, 1.0).sample(&[main, cell, near], 90, 1.0);
        p.sample(&[main, cell, far], 60, 1.0).ends((own + 150) * 5);
        let all = advice(&p);
        assert!(all.iter().all(|of| of["cause"] == "serial"), "{all:?}");
        let names: Vec<_> = all.iter().map(|of| of["name"].as_str().expect("a name")).collect();
        assert_eq!(names, found);
        let most: f64 = all.iter().map(|of| of["most"].as_f64().expect("a gain")).sum();
        assert!((most - (own + 150) as f64 * 0.0025).abs() < 0.001, "{all:?}");
    }
}

fn counted(place: CodeAddress, executions: u64) -> SiteCounts {
    SiteCounts { place, splits: 0, steals: 0, stolen_ns: 0, executions }
}

#[test]
fn both_tasks_of_a_library_s_join_are_one_that_waits_and_its_short_loops_are_said() {
    const JOIN: &str = "rayon::iter::plumbing::bridge_unindexed_producer_consumer";
    for (executions, cause) in [(0, "turn-taking"), (40_000, "short-regions")] {
        let mut p = Program::new();
        let main = p.own("main");
        for half in ["{closure#0}", "{closure#1}"] {
            let task = p.procedure("/opt/app", &format!("{JOIN}::{half}"), "rayon/mod.rs", Runtime);
            p.sample(&[main, task], 50, 0.5).sample_by(2, &[main, task], 50, 0.5);
            if executions > 0 {
                p.run.sites.push(counted(task, executions));
            }
        }
        p.ends(750);
        let found = advice(&p);
        assert_eq!(found.len(), 1, "{found:?}");
        is(&first(&p), cause, JOIN, 0.25);
    }
    let mut p = Program::new();
    let main = p.own("main");
    let task = p.procedure("/opt/app", &format!("{JOIN}::{{closure#0}}"), "rayon/mod.rs", Runtime);
    p.sample(&[main, task], 100, 0.5).sample_by(2, &[main, task], 100, 0.5);
    p.run.sites.push(counted(task, 40_000));
    // A second of work on two cores in 40,000 loops.
    has(advice(&p)[0]["text"].as_str().expect("text"), "40,000 regions of 12 us on average");
}

#[test]
fn more_threads_than_cores_compete() {
    let mut p = Program::new();
    let [main, simulate] = ["main", "simulate"].map(|name| p.own(name));
    for thread in 1..=8 {
        p.sample_by(thread, &[main, simulate], 50, 0.0);
        p.run.threads[thread as usize - 1].oversubscribed = 0.25 * 200.0;
    }
    p.run.cpu().run_delay_ns = 4_000_000_000;
    let found = first(&p);
    is(&found, "oversubscription", "", 0.0);
    has(advice(&p)[0]["text"].as_str().expect("text"), "8 threads compete for the 2 cores");
    lacks(&advice(&p)[0].to_string(), "OMP_WAIT_POLICY");
    p.run.threads[3].idle = 100;
    has(&advice(&p)[0].to_string(), "OMP_WAIT_POLICY");
    // What a serial part lets idle, fewer threads do not gain: 2.5 s less 4 s on 2 cores.
    let alone = p.own("alone");
    p.sample(&[main, alone], 200, 1.0).ends(2_500);
    is(&first(&p), "oversubscription", "", 0.5);
    // Threads that hardly work are none of them.
    let mut p = Program::new();
    let [main, simulate] = ["main", "simulate"].map(|name| p.own(name));
    for thread in 1..=8 {
        p.sample_by(thread, &[main, simulate], if thread < 3 { 200 } else { 2 }, 0.0);
        p.run.threads[thread as usize - 1].oversubscribed = 50.0;
    }
    p.run.cpu().run_delay_ns = 4_000_000_000;
    is(&first(&p), "work", "simulate", 0.0);
}

#[test]
fn a_thread_that_polls_spins() {
    let mut p = Program::new();
    let [main, poll, work] = ["main", "await_result", "work"].map(|name| p.own(name));
    let give_way = p.libc("sched_yield");
    p.sample(&[main, poll, give_way], 200, 0.0).sample_by(2, &[main, work], 200, 0.0);
    is(&first(&p), "spinning", "await_result", 0.5);
    // A loop that only waits is a third of a procedure; any other loop is work.
    for (kind, cause, most) in [(SPIN_LOOP, "spinning", 0.25), ("loop at", "work", 0.0)] {
        let mut p = Program::new();
        let [main, work] = ["main", "work"].map(|name| p.own(name));
        let wait = p.own_loop("exchange", kind);
        p.sample(&[main, work], 100, 0.0).sample(&[main, wait[0]], 50, 0.0).sample(
            &[main, wait[1]],
            100,
            0.0,
        );
        p.sample_by(2, &[main, work], 250, 0.0);
        let found = advice(&p);
        let about = found.iter().find(|of| of["name"] == "exchange");
        assert_eq!(about.map_or("work", |of| of["cause"].as_str().expect("text")), cause, "{found:?}");
        let gain = about.map_or(0.0, |of| of["most"].as_f64().expect("a gain"));
        assert!((gain - most).abs() < 0.002, "{found:?}");
    }
}

#[test]
fn nothing_is_advised_without_callers() {
    let mut p = Program::new();
    let main = p.own("main");
    p.sample(&[main], 50, 0.0);
    let thread = &mut p.run.threads[0];
    let partial = thread.partial(hpc_formats::loss::LossCause::NoUnwindInfo);
    let node = thread.native(partial, main);
    thread.sample(node, 150, 0.0);
    let text = on(&p.database(), "advise").expect("advice");
    has(&text, "no advice: fewer than 80 % of the samples are rooted");
}

#[test]
fn a_comparison_has_what_was_predicted_beside_what_was_gained() {
    let program = |tail: u64, idle: f64, end: u64| {
        let mut p = Program::new();
        let [main, solve, last] = ["main", "solve", "tail"].map(|name| p.own(name));
        p.sample(&[main, solve], 100, 0.0).sample_by(2, &[main, solve], 100, 0.0);
        p.sample(&[main, last], tail, idle);
        p.ends(end);
        p.database()
    };
    // The tail of half a second runs on both cores.
    let (old, new) = (program(100, 1.0, 1000), program(50, 0.0, 750));
    let found: Value =
        serde_json::from_str(&tool(&["diff", text(&old), text(&new), "--format", "json"]).expect("JSON"))
            .expect("JSON");
    assert_eq!(found["walls"], serde_json::json!([1.0, 0.75]));
    let tail = &found["advice"][0];
    assert_eq!((&tail["cause"], &tail["name"]), (&"serial".into(), &"tail".into()));
    assert_eq!((&tail["most"], &tail["left"]), (&0.25.into(), &0.0.into()));
    let shown = tool(&["diff", text(&old), text(&new)]).expect("a comparison");
    has(&shown, "a run takes 1.000 s in a and 0.750 s in b, which gains 0.250 s");
    has(&shown.replace('\n', " "), "the work itself takes 0.250 s of CPU time less");
}
