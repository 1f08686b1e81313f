//! Overheads of parallel regions whose classes are known by construction.

use hpcrun_tests::run::{Database, Spec, Truth, tolerance};
use hpcrun_tests::tools::{exclusive_cores, scratch, tool_path};
use hpcrun_tests::view::{assert_close, value};
use serde_json::Value;
use std::process::Command;

const RATE: u32 = 1000;

fn regions(database: &Database, options: &[&str]) -> Value {
    let text = database.text("regions", &[&["--format", "json"], options].concat());
    let found: Value = serde_json::from_str(&text).expect("the regions are JSON");
    assert_eq!(found["schema"], "hpcprof-rs/regions/1");
    for region in found["regions"].as_array().expect("regions") {
        let overheads = region["overheads"].as_object().expect("overheads");
        let sum: f64 = overheads.values().filter_map(Value::as_f64).sum();
        let all = number(region, "area") - number(region, "serial");
        assert!((sum - all).abs() < 1e-6, "{region}");
    }
    found
}

fn number(of: &Value, name: &str) -> f64 {
    of[name].as_f64().unwrap_or_else(|| panic!("no number {name} in {of}"))
}

fn region<'a>(found: &'a Value, name: &str) -> &'a Value {
    let all = found["regions"].as_array().expect("regions");
    let mut named = all.iter().filter(|r| r["name"] == name);
    let one = named.next().unwrap_or_else(|| panic!("no region {name} in {found}"));
    assert!(named.next().is_none(), "one region {name} in {found}");
    one
}

/// Checks serial time and classes of a region.
fn check(found: &Value, name: &str, serial: f64, classes: &[(&str, f64)]) {
    let region = region(found, name);
    let near = |what: &str, measured: f64, truth: f64| {
        let scatter = 3.0 * (truth / f64::from(RATE)).sqrt();
        let most = 0.03 * serial + tolerance(truth, RATE) + scatter;
        assert_close(&format!("{name}: {what}"), measured, truth, most);
    };
    near("serial", number(region, "serial"), serial);
    for class in ["unparallelised", "load_imbalance", "communication", "synchronisation"] {
        let truth = classes.iter().find(|(known, _)| *known == class);
        let truth = truth.map_or(0.0, |(_, seconds)| *seconds);
        near(class, number(&region["overheads"], class), truth);
    }
}

fn site(truth: &Truth, name: &str, metric: &str) -> f64 {
    value(&truth.sites[name], metric)
}

#[test]
fn each_class_of_overhead_is_where_it_was_made() {
    let _cores = exclusive_cores();
    let run = Spec::fixture("regions", "regions").rate(RATE).lock_wait().succeed();
    let truth = run.truth();
    let found = regions(&run.database(), &[]);
    let work = |name: &str| site(&truth, name, "work");
    let idleness = |name: &str| site(&truth, name, "idleness");
    check(
        &found,
        "regions::scoped",
        work("regions::alone") + work("regions::task"),
        &[("unparallelised", idleness("regions::alone")), ("load_imbalance", idleness("regions::task"))],
    );
    check(
        &found,
        "regions::threads",
        work("regions::short") + work("regions::long"),
        &[("load_imbalance", idleness("regions::short") + idleness("regions::long"))],
    );
    // Half of the time in which one half holds the lock, the other one waits for it.
    let waiting = work("regions::hold") / 2.0;
    let others = idleness("regions::hold") - waiting;
    check(
        &found,
        "regions::locked",
        work("regions::hold"),
        &[("synchronisation", waiting), ("load_imbalance", others)],
    );
    let region = region(&found, "regions::locked");
    assert_eq!((&region["construct"], &region["place"]), (&"join".into(), &"worker".into()));
}

#[test]
fn a_calibration_tells_start_up_from_imbalance() {
    let _cores = exclusive_cores();
    let run = Spec::fixture("regions-calibrated", "phases").rate(RATE).succeed();
    let truth = run.truth();
    let calibration = run.folder.join("calibration.tsv");
    let text = "hpcrun-rs start-up 1\nhost\th\ncpu\tc\ncores\t2\n\
         construct\tplace\tstate\tworkers\tstart_up_ns\tdeviation_ns\texecutions\n\
         join\tworker\tawake\t2\t1000000\t1\t1\n\
         join\tworker\tasleep\t2\t900000000\t1\t1\n";
    std::fs::write(&calibration, text).expect("a file");
    let path = calibration.to_str().expect("a path of this test");
    let database = run.database();
    let found = regions(&database, &["--calibration", path, "--executions", "lopsided=50"]);
    // 50 executions on 2 workers, a millisecond each.
    let lopsided = region(&found, "phases::lopsided");
    assert!((number(&lopsided["overheads"], "start_up") - 0.1).abs() < 1e-9, "{lopsided}");
    let idle = site(&truth, "phases::lopsided_long", "idleness");
    let idle = idle + site(&truth, "phases::lopsided_short", "idleness");
    let imbalance = number(&lopsided["overheads"], "load_imbalance");
    assert_close("imbalance", imbalance, idle - 0.1, 0.05 * idle + tolerance(idle, RATE));
    assert!((number(&lopsided["break_even"], "awake") - 0.002).abs() < 1e-9);
    // 1.6 s in 50 executions: more than 2 ms each, less than 1.8 s.
    assert_eq!(lopsided["verdict"], "parallel-if-awake");
    assert_eq!(lopsided["best"]["workers"], 2);
    let balanced = region(&found, "phases::balanced");
    assert!(balanced["overheads"]["start_up"].is_null(), "{balanced}");
    // What the program executes serially is in no region.
    let serial = site(&truth, "phases::serial", "idleness");
    let outside = number(&found["outside"], "idleness");
    assert_close("outside", outside, serial, 0.03 * serial + tolerance(serial, RATE));
}

/// The two programs of Sakellariou's paper on one worker: the time on p of them is t_UC + t_s / p and as many
/// times t_PS as the program itself has counted. All is CPU time, so other work matters little.
#[test]
fn the_papers_programs_on_any_number_of_workers() {
    const START_UP: [(u32, f64); 4] = [(2, 2e-6), (4, 5e-6), (8, 20e-6), (16, 100e-6)];
    let _cores = exclusive_cores();
    let rows = START_UP.map(|(p, t)| format!("par_for\tworker\tawake\t{p}\t{}\t1\t1\n", t * 1e9));
    let text = "hpcrun-rs start-up 1\nhost\th\ncpu\tc\ncores\t16\n\
         construct\tplace\tstate\tworkers\tstart_up_ns\tdeviation_ns\texecutions\n";
    for (program, size, nests) in
        [("tred2", "400", &["form_product", "reduce", "accumulate"][..]), ("barotropic", "4", &["relax"])]
    {
        let spec = Spec::fixture(&format!("regions-{program}"), "sakellariou").cores(1);
        let run = spec.arguments(&[program, "1", size, "2"]).rate(RATE).succeed();
        let own: Value = serde_json::from_str(run.stdout().trim()).expect("the program's figures");
        let counts = own["executions"].as_array().expect("a list").iter().filter_map(Value::as_u64);
        let mut counts: Vec<u64> = counts.collect();
        if nests.len() == 1 {
            counts = vec![counts.iter().sum()];
        }
        let calibration = run.folder.join("calibration.tsv");
        std::fs::write(&calibration, format!("{text}{}", rows.concat())).expect("a file");
        let path = calibration.to_str().expect("a path of this test").to_owned();
        let mut options = vec!["--calibration".to_owned(), path];
        for (nest, count) in nests.iter().zip(&counts) {
            options.extend(["--executions".into(), format!("{nest}={count}")]);
        }
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let found = regions(&run.database(), &options);
        let serial: f64 = nests
            .iter()
            .map(|nest| number(region(&found, &format!("sakellariou::{program}::{nest}")), "serial"))
            .sum();
        let cpu = number(&own, "cpu");
        // The paper: more than 93 % and 85 % of the time.
        assert!(serial > 0.85 * cpu, "{program}: {serial} s of {cpu} s");
        let at = |p: u32| number(&found["whole"]["predicted"][p as usize - 1], "seconds");
        let wait = number(&found["whole"], "wait");
        assert_close(program, at(1) - wait, number(&own, "all"), 0.05 * cpu + 0.02);
        for (p, start_up) in START_UP {
            let executions: u64 = counts.iter().sum();
            let expected = at(1) - serial * (1.0 - 1.0 / f64::from(p)) + executions as f64 * start_up;
            assert_close(&format!("{program} on {p}"), at(p), expected, 1e-3 * expected);
        }
    }
}

#[test]
fn the_launcher_calibrates_and_still_starts_programs_of_that_name() {
    let _cores = exclusive_cores();
    let file = scratch().join("start-up.tsv");
    let launcher = || Command::new(tool_path("hpcrun-rs"));
    let mut calibrate = launcher();
    calibrate.args(["calibrate", "--seconds", "1", "--quiet", "--workers", "2", "-o"]);
    let output = calibrate.arg(&file).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let text = std::fs::read_to_string(&file).expect("it has written the file");
    for construct in
        ["join\tworker", "scope\tworker", "par_for\toutside", "install\toutside", "par_iter\tworker"]
    {
        for state in ["awake", "asleep"] {
            let start = format!("{construct}\t{state}\t2\t");
            assert_eq!(text.lines().filter(|l| l.starts_with(&start)).count(), 1, "{start}: {text}");
        }
    }
    // Nobody wakes a thread, or makes one, for nothing.
    for construct in ["install\toutside\tasleep\t2\t", "std::thread\tworker\tawake\t2\t"] {
        let row = text.lines().find_map(|l| l.strip_prefix(construct)).expect("a row");
        let nanoseconds: f64 = row.split('\t').next().and_then(|t| t.parse().ok()).expect("a number");
        assert!(nanoseconds > 500.0, "{construct}{row}");
    }
    let as_program = launcher().args(["--", "calibrate"]).env("PATH", "").output().expect("it runs");
    assert_eq!(as_program.status.code(), Some(127), "{as_program:?}");
    let wrong = launcher().args(["calibrate", "--workers", "1"]).output().expect("it runs");
    assert_eq!(wrong.status.code(), Some(125), "{wrong:?}");
}
