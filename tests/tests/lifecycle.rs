//! However a process or a thread ends, what was measured until then is kept and counted.

use hpcrun_tests::run::{Run, Spec, Truth};
use hpcrun_tests::tools::{c_program, exclusive_cores, folder};
use hpcrun_tests::view::{View, assert_close, value};
use std::os::unix::process::ExitStatusExt;

const RATE: u32 = 1000;

fn run(way: &str, more: &[&str]) -> Run {
    let arguments = [&[way, "300"], more].concat();
    Spec::fixture(&format!("lifecycle-{way}"), "lifecycle").arguments(&arguments).rate(RATE).run()
}

/// The measured work of a site, over all of the run's processes, against what they printed.
fn assert_kept(view: &View, truths: &[Truth], site: &str, share: f64) {
    let truth: f64 = truths
        .iter()
        .filter_map(|t| t.sites.get(site))
        .map(|values| value(values, "work"))
        .fold(0.0, f64::max);
    assert!(truth > 0.0, "{site} ran");
    let measured = view.inclusive(site, "work");
    assert!(
        (measured - truth).abs() <= share * truth + 0.005,
        "{site}: measured {measured:.4} s, truth {truth:.4} s"
    );
}

fn assert_before_is_kept(run: &Run) -> View {
    let view = run.database().top_down();
    assert_kept(&view, &run.truths(), "lifecycle::before_the_end", 0.03);
    view
}

#[test]
fn ends_with_a_code_keep_their_samples_and_their_code() {
    let _cores = exclusive_cores();
    for (way, code) in
        [("return", 0), ("panic", 101), ("_exit", 9), ("exit-in-worker", 11), ("exit-in-thread", 12)]
    {
        let run = run(way, &[]);
        assert_eq!(run.output.status.code(), Some(code), "{way}: {}", run.stderr());
        assert_before_is_kept(&run);
    }
}

#[test]
fn crashes_keep_their_samples_and_their_signal() {
    let _cores = exclusive_cores();
    for (way, signal) in [("segv", 11), ("abort", 6)] {
        let run = run(way, &[]);
        assert_eq!(run.output.status.signal(), Some(signal), "{way}: {}", run.stderr());
        assert_before_is_kept(&run);
    }
}

#[test]
fn both_sides_of_exec_and_fork_are_profiled() {
    let _cores = exclusive_cores();
    for way in ["exec", "fork"] {
        let run = run(way, &[]);
        assert!(run.output.status.success(), "{way}: {}", run.stderr());
        let view = assert_before_is_kept(&run);
        assert_kept(&view, &run.truths(), "lifecycle::after_it", 0.03);
        let processes = run.processes().len();
        assert_eq!(processes, 2, "{way}: one process file for each image");
    }
}

#[test]
fn workers_alive_at_the_end_keep_their_samples() {
    let _cores = exclusive_cores();
    let run = run("workers-left", &[]);
    assert!(run.output.status.success(), "{}", run.stderr());
    let view = assert_before_is_kept(&run);
    let site = "lifecycle::main";
    let measured = view.inclusive(site, "work");
    assert!((measured - 0.9).abs() < 0.045, "{site}: {measured} s of 0.9 s");
}

#[test]
fn four_hundred_short_threads_are_all_seen() {
    let _cores = exclusive_cores();
    // 1 ms a thread: about one sample each, none of them outside the creator's path. What a thread's
    // beginning and end take is more where others have the cores: one run of three must be right.
    let mut found = Vec::new();
    let is_right = (0..3).any(|_| {
        let run = run("churn", &[]);
        assert!(run.output.status.success(), "{}", run.stderr());
        let view = assert_before_is_kept(&run);
        assert!(view.quality.rooted as f64 >= 0.999 * view.quality.samples as f64, "{:?}", view.quality);
        let under = view.inclusive_under(&["lifecycle::main", "lifecycle::churn"], "work");
        found.push(under);
        (under - 0.4).abs() < 0.12
    });
    assert!(is_right, "{found:?} s of 0.4 s");
}

#[test]
fn libraries_that_come_and_go_are_named() {
    let _cores = exclusive_cores();
    let library = c_program("library.so");
    let run = run("dlopen", &[library.to_str().expect("a path in UTF-8")]);
    assert!(run.output.status.success(), "{}", run.stderr());
    let view = assert_before_is_kept(&run);
    let loading = view.inclusive("lifecycle::load_and_unload", "work");
    let named = view.inclusive("library_work", "work");
    assert!(named > 0.05, "library_work has samples: {named} s");
    assert!(named > 0.5 * loading, "{named} s of {loading} s are named");
    assert!(view.quality.rooted as f64 >= 0.99 * view.quality.samples as f64, "{:?}", view.quality);
}

/// Snapshots of the load map are replaced some thousand times a second, while handlers use them.
#[test]
fn libraries_go_while_other_threads_have_samples() {
    let _cores = exclusive_cores();
    let library = c_program("library.so");
    let copy = folder("unloads").join("copy.so");
    std::fs::copy(&library, &copy).expect("the folder is writable");
    let libraries = [&library, &copy].map(|path| path.to_str().expect("a path in UTF-8"));
    let run = Spec::new("lifecycle-unloads", c_program("unloads")).arguments(&libraries).rate(5000).succeed();
    let view = run.database().top_down();
    let work = view.inclusive("work", "work");
    let truth = run.truth().total("work");
    assert!((work - truth).abs() < 0.05 * truth, "{work} s of {truth} s");
    let samples = view.quality.samples as f64;
    // A library cannot be walked from its mapping to the end of `dlopen`, which takes as long as the
    // machine likes.
    assert!(view.quality.rooted as f64 >= 0.95 * samples, "{:?}", view.quality);
}

#[test]
fn threads_with_the_smallest_stacks_are_sampled() {
    let _cores = exclusive_cores();
    let run = Spec::new("lifecycle-small-stacks", c_program("small_stack")).rate(RATE).succeed();
    assert_eq!(run.stdout(), "done\n");
    let view = run.database().top_down();
    // A sample may meet the profiler at work in the same thread, which is counted.
    assert!(view.unrooted() * 1000 <= view.quality.samples, "{:?}", view.quality);
    assert!(view.inclusive("spin", "work") > 0.5, "{:?}", view.totals);
}

/// Threads that end race with the process that ends: each profile is completed once, by one of the two.
#[test]
fn a_process_may_end_while_its_threads_do() {
    let _cores = exclusive_cores();
    for _ in 0..20 {
        let run = Spec::new("lifecycle-race", c_program("ends")).rate(5000).run();
        assert_eq!(run.output.status.code(), Some(7), "{}", run.stderr());
        let warnings = run.database().output.stderr;
        let warnings = String::from_utf8_lossy(&warnings);
        // What a sample costs depends on who else uses the machine; at 5000 Hz that may be said.
        let mut others = warnings.lines().filter(|line| !line.contains("fewer samples than asked for"));
        assert!(!others.any(|line| line.contains("warning")), "{warnings}");
    }
}

/// Each of the functions that run in a way to end works for 0.1 s of CPU time.
#[test]
fn what_runs_before_and_after_main_is_sampled() {
    let _cores = exclusive_cores();
    let before = ["before_all", "library_constructor"];
    let exit = ["at_exit_work", "program_destructor", "library_destructor"];
    for (way, times, after) in [
        ("return", 1.0, &exit[..]),
        ("quick_exit", 1.0, &["at_quick_exit_work"]),
        ("_exit", 1.0, &[]),
        ("exit_group", 1.0, &[]),
        ("_Fork", 2.0, &exit),
    ] {
        let run = Spec::new("lifecycle-around-main", c_program("around_main"))
            .arguments(&[way])
            .environment("LD_PRELOAD", c_program("around_main.so"))
            .rate(RATE)
            .run();
        assert_eq!(run.output.status.code(), Some(3), "{way}: {}", run.stderr());
        let view = run.database().top_down();
        assert_close(way, view.inclusive("in_main", "work"), 0.1 * times, 0.006 * times);
        for function in before.iter().chain(after) {
            assert_close(&format!("{way}: {function}"), view.inclusive(function, "work"), 0.1, 0.006);
        }
        let all = 0.1 * (times + (before.len() + after.len()) as f64);
        assert_close(way, view.totals["work"], all, 0.01 + 0.03 * all);
        assert!(view.unrooted() * 100 <= view.quality.samples, "{way}: {:?}", view.quality);
        assert!(view.quality.missing.is_empty(), "{way}: {:?}", view.quality);
    }
}

/// Each leaf works for 0.1 s of CPU time.
#[test]
fn code_and_stacks_in_unusual_places_are_walked() {
    let _cores = exclusive_cores();
    let run = Spec::new("lifecycle-elsewhere", c_program("elsewhere")).rate(RATE).succeed();
    let view = run.database().top_down();
    for kind in ["bare", "described", "spilled", "hot", "again", "pool", "thread", "deep", "null"] {
        let path = ["main".to_owned(), format!("by_{kind}"), format!("leaf_{kind}")];
        let measured = view.inclusive_under(&path.each_ref().map(String::as_str), "work");
        assert_close(kind, measured, 0.1, 0.006);
    }
    let again = view.inclusive_under(&["main", "by_again", "hot", "leaf_again"], "work");
    assert_close("code that is mapped twice has its name", again, 0.1, 0.006);
    assert_close("a coroutine", view.inclusive_under(&["coroutine", "leaf_left"], "work"), 0.1, 0.006);
    assert!(view.unrooted() * 100 <= view.quality.samples, "{:?}", view.quality);
}

/// A library's constructor creates a thread.
#[test]
fn a_thread_that_a_constructor_makes_is_measured() {
    let _cores = exclusive_cores();
    let run = Spec::new("lifecycle-early", "/bin/sleep")
        .arguments(&["0.6"])
        .environment("LD_PRELOAD", c_program("early.so"))
        .rate(RATE)
        .succeed();
    let measured = run.database().top_down().inclusive("early", "work");
    assert!((measured - 0.2).abs() < 0.012, "{measured} s of 0.2 s");
}
