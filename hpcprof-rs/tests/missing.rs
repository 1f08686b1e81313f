//! CPU time that no sample stands for is said, with whose it is; what is noise is not.

use crate::support::program::{self, LEAF, MAIN, START, run_of};
use crate::support::*;
use hpc_formats::loss::LossCause;
use hpc_formats::process::Unprofiled;
use serde_json::Value;

const MS: u64 = 1_000_000;

/// A run of one thread with so many samples of one period, which used so much CPU time.
fn one_thread(samples: u64, cpu_ms: u64) -> Run {
    let mut run = run_of(|thread, entry| {
        let node = thread.natives(entry, &[START, MAIN, LEAF]);
        if samples > 0 {
            thread.sample(node, samples, 1.0);
        }
        thread.cpu_ns = cpu_ms * MS;
    });
    let end = run.end.as_mut().expect("an end");
    end.threads = 1;
    end.monotonic_ns = IMAGE + samples * PERIOD_NS;
    run
}

/// `what` and nanoseconds of each entry.
fn missing(view: &Value) -> Vec<(String, i64)> {
    let entries = view["quality"]["missing"].as_array().expect("an array");
    let entry = |e: &Value| {
        let what = e["what"].as_str().expect("text").to_owned();
        (what, nanoseconds(&e["seconds"]))
    };
    entries.iter().map(entry).collect()
}

/// The JSON, and the first screen.
fn shown(runs: &[&Run]) -> (Value, String) {
    let database = build(&[runs], &[]);
    (view(&database, "top-down", &[]), database.screen.clone())
}

fn assert_one(found: &[(String, i64)], part: &str, nanoseconds: u64) {
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].0.contains(part), "{found:?}");
    assert_eq!(found[0].1, nanoseconds as i64, "{found:?}");
}

#[test]
fn a_whole_measurement_is_praised() {
    let mut run = one_thread(200, 1_000);
    run.cpu().process_ns = 1_004 * MS;
    let (view, screen) = shown(&[&run]);
    assert_eq!(missing(&view), []);
    has(&screen, "100.00 % of samples rooted at the program's entry, none lost");
    assert_eq!(nanoseconds(&view["quality"]["cpu_seconds"]), 1_004 * MS as i64);
}

#[test]
fn a_thread_whose_timer_stopped() {
    let mut run = one_thread(200, 1_400);
    run.threads[0].name = "loader".to_owned();
    run.cpu().process_ns = 1_400 * MS;
    let (view, screen) = shown(&[&run]);
    // The process's own time is not counted again.
    assert_one(&missing(&view), "thread `loader` (1)", 400 * MS);
    assert!(missing(&view)[0].0.contains("--source posix-timer"));
    let lines: Vec<&str> = screen.lines().collect();
    has(lines[2], "missing: 0.400 s of CPU time");
    has(lines[3], "0.400 s: thread `loader` (1)");
    lacks(&screen, "none lost");
    lacks(&screen, "verdict");
}

#[test]
fn a_tree_says_what_it_lacks() {
    let database = database(&one_thread(200, 1_400));
    for name in ["top-down", "bottom-up", "flat"] {
        let shown = show(&database, name);
        let head = shown.split_whitespace().take(40).collect::<Vec<_>>().join(" ");
        has(&head, "samples rooted, 0.400 s of CPU time missing");
    }
}

#[test]
fn few_periods_and_counted_losses_are_not_missing() {
    let run = one_thread(20, 100 + 4 * 5);
    assert_eq!(missing(&shown(&[&run]).0), []);
    let run = one_thread(20, 100 + 5 * 5);
    assert_eq!(missing(&shown(&[&run]).0).len(), 1);
    // Spinning and lost samples are sampled time.
    let mut run = one_thread(20, 400);
    run.threads[0].idle = 40;
    run.threads[0].losses.push((LossCause::TreeFull, 20));
    let (view, _) = shown(&[&run]);
    assert_eq!(missing(&view), []);
    assert_eq!(nanoseconds(&view["quality"]["spinning_seconds"]), 200 * MS as i64);
}

#[test]
fn distant_samples_leave_more_open() {
    // Samples that stand for ten periods each: the last one may be outstanding.
    let mut run = one_thread(0, 500 + 100);
    let thread = &mut run.threads[0];
    let entry = thread.entry();
    let node = thread.natives(entry, &[START, LEAF]);
    thread.values(node, 10, 100, 0.0);
    assert_eq!(missing(&shown(&[&run]).0), []);
    // Uneven ones as the root of their number: 144 samples of nine periods may be off by 8 x 12 periods.
    let of_nine = |periods: u64| {
        let mut run = one_thread(0, (144 * 9 + periods) * 5);
        let thread = &mut run.threads[0];
        let entry = thread.entry();
        let node = thread.natives(entry, &[START, LEAF]);
        thread.values(node, 144, 144 * 9, 0.0);
        missing(&shown(&[&run]).0).len()
    };
    assert_eq!((of_nine(90), of_nine(100)), (0, 1));
}

#[test]
fn threads_that_the_profiler_did_not_see() {
    let mut run = one_thread(200, 1_000);
    run.cpu().process_ns = 1_800 * MS;
    let (view, screen) = shown(&[&run]);
    assert_one(&missing(&view), "threads that the profiler did not see", 800 * MS);
    has(&screen, "0.800 s: threads that the profiler did not see");
}

#[test]
fn threads_that_ended_before_their_first_sample() {
    let mut run = one_thread(200, 1_000);
    run.cpu().process_ns = 1_300 * MS;
    run.cpu().unsampled_ns = 300 * MS;
    run.end.as_mut().expect("an end").threads = 61;
    assert_one(&missing(&shown(&[&run]).0), "ended before their first one", 300 * MS);
    // Short threads are sampled as often as long ones: those with a sample stand for those without.
    let mut run = one_thread(260, 1_000);
    run.cpu().process_ns = 1_300 * MS;
    run.cpu().unsampled_ns = 300 * MS;
    run.end.as_mut().expect("an end").threads = 61;
    assert_eq!(missing(&shown(&[&run]).0), []);
}

#[test]
fn children_that_ran_unprofiled() {
    let mut run = one_thread(200, 1_000);
    run.cpu().process_ns = 1_000 * MS;
    run.cpu().children_ns = 1_700 * MS;
    let mut child = one_thread(100, 500).process(200, IMAGE + 7);
    child.start.ppid = 100;
    child.cpu().process_ns = 500 * MS;
    let (view, _) = shown(&[&run, &child]);
    assert_one(&missing(&view), "children that ran unprofiled", 1_200 * MS);
    run.unprofiled =
        vec![Unprofiled { executable: "./static".to_owned(), reason: "statically linked".to_owned() }; 2];
    let (view, screen) = shown(&[&run, &child]);
    assert_one(&missing(&view), "(./static, 2 times: statically linked)", 1_200 * MS);
    assert_eq!(
        view["quality"]["unprofiled"],
        serde_json::json!([{"program": "./static", "reason": "statically linked", "times": 2}])
    );
    assert!(!screen.contains("ran unprofiled: "), "said once: {screen}");
    // A child that another program traces has samples up to then.
    let end = child.end.clone().expect("an end");
    child.end.as_mut().expect("an end").reason = "traced by another program".to_owned();
    let (view, _) = shown(&[&run, &child]);
    assert_one(&missing(&view), "traced by another program (", 1_200 * MS);
    child.end = Some(end);
    // Where they used next to nothing, they are named all the same.
    run.cpu().children_ns = 501 * MS;
    let (view, screen) = shown(&[&run, &child]);
    assert_eq!(missing(&view), []);
    has(&screen, "ran unprofiled: ./static (statically linked, 2 times)");
}

#[test]
fn a_killed_child_counts_by_its_samples() {
    let mut run = one_thread(200, 1_000);
    run.cpu().process_ns = 1_000 * MS;
    run.cpu().children_ns = 500 * MS;
    let mut child = one_thread(100, 0).process(200, IMAGE + 7);
    (child.start.ppid, child.end) = (100, None);
    assert_eq!(missing(&shown(&[&run, &child]).0), []);
}

#[test]
fn an_exec_keeps_the_sum_of_the_children() {
    let mut first = one_thread(20, 100);
    first.cpu().children_ns = 300 * MS;
    let mut second = one_thread(20, 100).process(100, IMAGE + 9);
    second.cpu().children_ns = 300 * MS;
    assert_one(&missing(&shown(&[&first, &second]).0), "children", 300 * MS);
}

#[test]
fn nothing_sampled_is_said_in_seconds() {
    // As a program that closes every descriptor: a profile without a sample.
    let mut run = one_thread(0, 200);
    run.end.as_mut().expect("an end").monotonic_ns = IMAGE + 210 * MS;
    let (view, screen) = shown(&[&run]);
    assert_one(&missing(&view), "the timer stopped", 200 * MS);
    has(&screen, "missing: 0.200 s of CPU time");
    has(&screen, "no samples: nothing is known of where");
    // Process files alone.
    run.threads.clear();
    run.cpu().process_ns = 200 * MS;
    run.cpu().unsampled_ns = 200 * MS;
    run.end.as_mut().expect("an end").threads = 1;
    let (view, screen) = shown(&[&run]);
    assert_one(&missing(&view), "threads without a sample: the timer stopped", 200 * MS);
    // Where it went is not known.
    lacks(&screen, "unattributed wait");
    has(&screen, "missing: 0.200 s of CPU time");
}

#[test]
fn a_program_too_short_to_sample_says_how_short() {
    let temp = TempDir::new();
    let mut run = one_thread(0, 0);
    run.threads.clear();
    run.cpu().process_ns = 12 * MS;
    run.write(&temp.join("m"));
    let error = tool(&[text(&temp.join("m"))]).expect_err("no sample");
    has(&error, "it used 0.012 s of CPU time");
    has(&error, "cpu-time@1000");
}

#[test]
fn files_of_older_versions_and_other_events_are_not_compared() {
    let mut run = one_thread(200, 0);
    run.cpu().children_ns = 0;
    assert_eq!(missing(&shown(&[&run]).0), []);
    let mut run = one_thread(20, 2_000);
    run.start.event = "cache-misses".to_owned();
    assert_eq!(missing(&shown(&[&run]).0), []);
}

#[test]
fn long_lists_are_cut_on_the_screen_only() {
    let mut run = program::run();
    for ordinal in 1..=12 {
        let mut thread = one_thread(100, 500 + 100 * u64::from(ordinal)).threads.remove(0);
        thread.ordinal = ordinal;
        run.threads.push(thread);
    }
    let (view, screen) = shown(&[&run]);
    assert_eq!(missing(&view).len(), 12);
    assert!(missing(&view).windows(2).all(|w| w[0].1 >= w[1].1), "largest first");
    has(&screen, "8 more");
    assert!(screen.lines().count() <= 25, "{screen}");
}

#[test]
fn what_is_estimated_and_what_spins_is_said() {
    let mut run = one_thread(200, 1_200);
    run.threads[0].idle = 40;
    run.cpu().process_ns = 1_200 * MS;
    run.cpu().estimated_wait_ns = 300 * MS;
    let (view, screen) = shown(&[&run]);
    has(&screen, "0.300 s of waiting seen by state, not by a hook (estimated)");
    has(&screen, "spinning: 0.200 s of the CPU time (16.7 %)");
    assert_eq!(nanoseconds(&view["quality"]["estimated_wait_seconds"]), 300 * MS as i64);
    // Little of either is not worth a line.
    run.threads[0].idle = 2;
    run.threads[0].cpu_ns = 1_010 * MS;
    run.cpu().process_ns = 1_010 * MS;
    run.cpu().estimated_wait_ns = 2 * MS;
    let (_, screen) = shown(&[&run]);
    lacks(&screen, "by state");
    lacks(&screen, "spinning");
}
