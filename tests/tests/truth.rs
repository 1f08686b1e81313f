//! Truth: what the views say of programs whose work, idleness and overhead are known.
//!
//! Each program measures its own spins by CPU clocks (see `fixtures/README.md`). Both views have to
//! agree with it within 5 % at 200 Hz and 3 % at 1000 Hz, plus two samples (and the scatter of a count, where
//! a cost is small and comes in pieces).

use hpcrun_tests::run::{Database, Run, Spec, Truth, is_long};
use hpcrun_tests::tools::{c_program, exclusive_cores};
use hpcrun_tests::view::{Values, View, assert_close, value};

/// The rates to test, and the error allowed at each.
const RATES: [(u32, f64); 2] = [(200, 0.05), (1000, 0.03)];

/// Panics unless `measured` is within the tolerance at `rate` of `truth` (seconds).
fn assert_near(what: &str, rate: u32, measured: f64, truth: f64) {
    // A spin begins and ends anywhere in a sampling period.
    assert_within(what, rate, measured, truth, 2.0 / f64::from(rate));
}

/// As [`assert_near`] for a cost that comes in many pieces shorter than a sampling period, as
/// idleness does when a worker is between two tasks: their number of samples scatters as such
/// counts do.
fn assert_near_in_pieces(what: &str, rate: u32, measured: f64, truth: f64) {
    let period = 1.0 / f64::from(rate);
    let scatter = 3.0 * (truth * period).sqrt();
    assert_within(what, rate, measured, truth, 2.0 * period + scatter);
}

fn assert_within(what: &str, rate: u32, measured: f64, truth: f64, slack: f64) {
    let share = RATES.iter().find(|(r, _)| *r == rate);
    let (_, share) = share.expect("a rate of the table");
    let what = format!("{what} at {rate} Hz");
    assert_close(&what, measured, truth, share * truth + slack);
}

fn profile(test: &str, rate: u32, spec: Spec) -> (Run, Database) {
    let run = spec.rate(rate).succeed();
    let database = run.database();
    assert_first_screen(test, &database);
    (run, database)
}

fn assert_first_screen(test: &str, database: &Database) {
    let screen = String::from_utf8_lossy(&database.output.stdout);
    assert!(screen.lines().count() <= 25, "{test}: the first screen has at most 25 lines:\n{screen}");
}

/// Idleness that is small beside the site's work comes in pieces; all else does not.
fn assert_metric(what: &str, rate: u32, measured: f64, truth: &Values, metric: &str) {
    let seconds = value(truth, metric);
    if metric == "idleness" && seconds < 0.2 * value(truth, "work") {
        assert_near_in_pieces(what, rate, measured, seconds);
    } else {
        assert_near(what, rate, measured, seconds);
    }
}

/// Work and idleness of each site, inclusive, by its procedure's name.
///
/// In the bottom-up view that is the cost of a procedure with what is inlined into it or called by it.
fn check_sites(rate: u32, view: &View, truth: &Truth) {
    for (site, values) in &truth.sites {
        for metric in ["work", "idleness"] {
            let measured = view.inclusive(site, metric);
            assert_metric(&format!("{site} {}: {metric}", view.view), rate, measured, values, metric);
        }
    }
}

/// Phases on two workers, by every source of samples.
#[test]
fn every_source_of_samples_measures_the_same() {
    let _cores = exclusive_cores();
    for (source, usual) in [("posix-timer", 200), ("perf-signal", 1000), ("perf-sigtrap", 1000)] {
        // A short run has each at the rates that it is made for.
        for (rate, _) in RATES.into_iter().filter(|(rate, _)| *rate == usual || is_long()) {
            let test = format!("source-{source}-{rate}");
            let spec = Spec::fixture(&test, "phases").source(source).rate(rate);
            let run = spec.run();
            if source != "posix-timer" && run.output.status.code() == Some(125) {
                eprintln!("SKIPPED: {source} is not allowed here: {}", run.stderr());
                continue;
            }
            assert!(run.output.status.success(), "{source}: {}", run.stderr());
            let database = run.database();
            assert_first_screen(&test, &database);
            let (top_down, truth) = (database.top_down(), run.truth());
            top_down.assert_rooted(50);
            check_sites(rate, &top_down, &truth);
            check_sites(rate, &database.bottom_up(), &truth);
            let (all, total) = (value(&top_down.totals, "work"), truth.total("work"));
            assert_near("all work", rate, all, total);
        }
    }
}

#[test]
fn one_leaf_under_two_callers_while_halves_are_stolen() {
    let _cores = exclusive_cores();
    for (rate, _) in RATES {
        let test = format!("callers-{rate}");
        let (run, database) = profile(&test, rate, Spec::fixture(&test, "callers"));
        let (top_down, bottom_up) = (database.top_down(), database.bottom_up());
        let truth = run.truth();
        top_down.assert_rooted(50);
        for caller in ["callers::caller_a", "callers::caller_b"] {
            let work = truth.of(caller, "work");
            let measured = top_down.inclusive_under(&[caller, "callers::leaf"], "work");
            assert_near(&format!("leaf under {caller}"), rate, measured, work);
            let all = bottom_up.inclusive(caller, "work");
            assert_near(&format!("{caller} bottom-up"), rate, all, work);
        }
        let mixed = top_down.inclusive_under(&["callers::caller_a", "callers::caller_b"], "work")
            + top_down.inclusive_under(&["callers::caller_b", "callers::caller_a"], "work");
        assert!(mixed == 0.0, "siblings never mix: {mixed} s");
    }
}

#[test]
fn spawned_tasks_belong_to_their_spawner() {
    let _cores = exclusive_cores();
    for (rate, _) in RATES {
        let test = format!("spawns-{rate}");
        let (run, database) = profile(&test, rate, Spec::fixture(&test, "spawns"));
        let (view, truth) = (database.top_down(), run.truth());
        view.assert_rooted(50);
        for site in truth.sites.keys() {
            let measured = view.inclusive_under(&[site, "spawns::task"], "work");
            assert_near(site, rate, measured, truth.of(site, "work"));
        }
    }
}

#[test]
fn ordinary_threads_while_main_waits_in_join() {
    let _cores = exclusive_cores();
    for (rate, _) in RATES {
        let test = format!("threads-{rate}");
        let (run, database) = profile(&test, rate, Spec::fixture(&test, "threads"));
        let view = database.top_down();
        view.assert_rooted(50);
        check_sites(rate, &view, &run.truth());
        for thread in ["threads::short", "threads::long"] {
            let path = ["threads::main", "threads::start_and_join", thread];
            let under = view.inclusive_under(&path, "work");
            let all = view.inclusive(thread, "work");
            assert!(
                under > 0.0 && (under - all).abs() < 1e-6,
                "{thread}: {under} s of {all} s lie under the creator's path"
            );
        }
    }
}

#[test]
fn pthreads_in_c() {
    let _cores = exclusive_cores();
    for (rate, _) in RATES {
        let test = format!("pthreads-{rate}");
        let (run, database) = profile(&test, rate, Spec::new(&test, c_program("pthreads")));
        let view = database.top_down();
        view.assert_rooted(50);
        check_sites(rate, &view, &run.truth());
        for thread in ["short_thread", "long_thread"] {
            let under = view.inclusive_under(&["main", "start_and_join", thread], "work");
            assert!(under > 0.0, "{thread} lies under its creator: {under} s");
        }
    }
}

#[test]
fn overhead_tags_in_rust() {
    let _cores = exclusive_cores();
    for (rate, _) in RATES {
        let test = format!("overhead-{rate}");
        let (run, database) = profile(&test, rate, Spec::fixture(&test, "overhead"));
        let (view, truth) = (database.top_down(), run.truth());
        let expected = [
            ("overhead::useful", "work"),
            ("overhead::callback", "work"),
            ("overhead::parallel_overhead::sync::wait", "overhead:sync"),
            ("overhead::parallel_overhead::alloc::inlined", "overhead:alloc"),
            ("overhead::helpers::dispatch", "overhead:sched"),
        ];
        for (site, metric) in expected {
            let seconds = truth.of(site, "work");
            assert_near(site, rate, view.inclusive(site, metric), seconds);
            if metric != "work" {
                let total = value(&view.totals, metric);
                assert_near(metric, rate, total, seconds);
            }
        }
        let callback = view.inclusive("overhead::callback", "overhead");
        assert!(callback < 0.01, "user code is work again: {callback} s");
    }
}

#[test]
fn overhead_tags_in_c() {
    let _cores = exclusive_cores();
    let (rate, _) = RATES[1];
    let test = "overhead-c";
    let (run, database) = profile(test, rate, Spec::new(test, c_program("overhead")));
    let (view, truth) = (database.top_down(), run.truth());
    for (site, metric) in [("useful", "work"), ("locked", "overhead:sync"), ("plain", "overhead:other")] {
        let seconds = truth.of(site, "work");
        assert_near(site, rate, view.inclusive(site, metric), seconds);
        let total = value(&view.totals, metric);
        assert_near(&format!("total {metric}"), rate, total, seconds);
    }
}

/// Samples are taken in the program, at the instruction that entered the kernel: no address of the
/// kernel appears, and its time belongs to the call; also if many periods pass in one call.
#[test]
fn time_in_the_kernel_belongs_to_the_call() {
    let _cores = exclusive_cores();
    for (rate, mebibytes) in [(200, "1"), (1000, "1"), (1000, "64")] {
        let test = format!("kernel-{rate}-{mebibytes}");
        let spec = Spec::new(&test, c_program("kernel")).arguments(&["300", mebibytes]);
        let (run, database) = profile(&test, rate, spec);
        let (view, truth) = (database.top_down(), run.truth());
        view.assert_rooted(50);
        for site in ["useful", "asks"] {
            let seconds = truth.of(site, "work");
            assert_near(site, rate, view.inclusive(site, "work"), seconds);
        }
        let tagged = truth.of("waits", "work");
        assert_near("waits", rate, view.inclusive("waits", "overhead:sync"), tagged);
        assert_near("overhead", rate, value(&view.totals, "overhead"), tagged);
        let asked = view.inclusive("asks", "work");
        let inside: f64 = ["read", "__read", "__libc_read"]
            .map(|name| view.inclusive_under(&["asks", name], "work"))
            .iter()
            .sum();
        assert!(inside > 0.9 * asked, "in the call: {inside} of {asked}");
    }
}

#[test]
fn a_stack_realigned_frame_is_unwound() {
    let _cores = exclusive_cores();
    let (rate, _) = RATES[1];
    let (run, database) = profile("drap", rate, Spec::new("drap", c_program("drap")));
    let (view, truth) = (database.top_down(), run.truth());
    view.assert_rooted(50);
    let path = ["main", "calls_realigned", "realigned"];
    let measured = view.inclusive_under(&path, "work");
    let seconds = truth.of("realigned", "work");
    assert_near("realigned", rate, measured, seconds);
}

#[test]
fn a_deep_recursion_keeps_every_frame() {
    let _cores = exclusive_cores();
    let (rate, _) = RATES[1];
    let spec = Spec::fixture("recursion", "recursion").arguments(&["900"]);
    let (run, database) = profile("recursion", rate, spec);
    let (view, truth) = (database.top_down(), run.truth());
    view.assert_rooted(50);
    let mut right = 0.0;
    view.walk(&mut |above, node| {
        let frames = above.iter().filter(|n| n.name == "recursion::descend");
        if node.name == "recursion::bottom" && frames.count() == 901 {
            right += value(&node.inclusive, "work");
        }
    });
    let seconds = truth.of("recursion::bottom", "work");
    assert_near("under 901 frames", rate, right, seconds);
}
