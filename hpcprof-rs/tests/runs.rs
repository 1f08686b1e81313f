//! Several runs in one database: each has its own clock, and its processes their own identity.

use crate::support::program::{LEAF, MAIN, START, run_of};
use crate::support::*;

const MS: u64 = 1_000_000;

fn run(image: u64, samples: u64) -> Run {
    let run = run_of(|thread, entry| {
        let node = thread.natives(entry, &[START, MAIN, LEAF]);
        thread.sample(node, samples, 1.0);
    });
    let mut run = run.process(100, image);
    run.end.as_mut().expect("an end").monotonic_ns = image + 1_000 * MS;
    run
}

#[test]
fn regions_are_those_of_one_number_of_cores() {
    let (first, mut second) = (run(1, 9), run(2, 9));
    second.start.cores = 4;
    second.end.as_mut().expect("an end").cores = 4;
    let both = build(&[&[&first], &[&second]], &[]);
    has(&refused(&both, "regions"), "has runs on 2 and 4 cores; build a database");
    assert!(on(&build(&[&[&first]], &[]), "regions").is_ok());
}

#[test]
fn the_wall_times_of_two_runs_add_up() {
    // The second one after a reboot: its clock is smaller.
    let runs = [run(500_000_000 * MS, 100), run(7 * MS, 60)];
    let (screen, view, _) = built(&runs, &[]);
    has(&screen, "wall 2.000 s, 2 runs");
    // Of 2 x 1 s on two cores, 2 x 0.5 and 2 x 0.3 s are accounted for.
    assert_eq!(wall_and_wait(&view), (2_000, 500 + 700));
}

#[test]
fn equal_ids_of_two_hosts_are_two_processes() {
    let first = run(7 * MS, 100);
    let mut second = run(7 * MS, 60);
    second.start.realtime_ns = 1;
    let samples = |runs: &[&Run]| {
        let directories: Vec<&[&Run]> = runs.iter().map(std::slice::from_ref).collect();
        view(&build(&directories, &[]), "flat", &[])["quality"]["samples"].clone()
    };
    assert_eq!(samples(&[&first, &second]), 160);
    // What is given twice, or copied, counts once.
    assert_eq!(samples(&[&first, &first]), 100);
    assert_eq!(samples(&[&second, &first, &first]), 160);
}

#[test]
fn the_processes_of_one_run_share_the_node() {
    // Two processes that keep both cores busy: nobody waits, and nobody idles.
    let mut busy = run_of(|thread, entry| {
        let node = thread.natives(entry, &[START, MAIN, LEAF]);
        thread.sample(node, 200, 0.0);
    });
    busy.end.as_mut().expect("an end").monotonic_ns = 1_007 * MS;
    let (first, second) = (busy.process(100, 7 * MS), busy.process(101, 7 * MS));
    let database = build(&[&[&first, &second]], &[]);
    assert_eq!(wall_and_wait(&view(&database, "flat", &[])).1, 0);
    lacks(&database.screen, "serial:");
    has(&database.screen, "effective");
}

#[test]
fn a_measurement_directory_may_have_any_name() {
    use clap::Parser;
    use std::os::unix::ffi::OsStringExt;
    let temp = TempDir::new();
    let named = |bytes: &[u8]| {
        let name = std::ffi::OsString::from_vec(bytes.to_vec());
        temp.path().join(name)
    };
    let measurements = named(b"hpcrun-\xff-measurements");
    run(7 * MS, 100).write(&measurements);
    let database = named(b"d\xfe\x1b[31m");
    let shown = |arguments: &[&std::ffi::OsStr]| {
        let all = [std::ffi::OsStr::new("hpcprof-rs")].into_iter();
        let cli = hpcprof_rs::cli::Cli::try_parse_from(all.chain(arguments.iter().copied()));
        let style = hpcprof_rs::render::style::Style { width: 140, line: 140, colour: false };
        let mut out = Vec::new();
        hpcprof_rs::run::run(cli.expect("a command line"), style, &mut out).expect("it runs");
        String::from_utf8(out).expect("output is UTF-8")
    };
    let screen = shown(&[measurements.as_os_str(), "-o".as_ref(), database.as_os_str()]);
    has(&screen, "d\\xfe\\x1b\\x5b31m'");
    let tree = shown(&["top-down".as_ref(), database.as_os_str()]);
    has(&tree, "app::leaf");
}

#[test]
fn the_newest_of_a_directory_may_have_any_name() {
    use std::os::unix::ffi::OsStringExt;
    let temp = TempDir::new();
    let name = std::ffi::OsString::from_vec(b"hpcrun-\xff-measurements".to_vec());
    run(7 * MS, 100).write(&temp.path().join(name));
    let output = command(temp.path(), &["--no-cache"]);
    assert!(output.status.success(), "{output:?}");
}

/// A part of a job: on a host, with a monotonic and a wall clock, `wall` milliseconds long.
fn part(host: &str, (monotonic, realtime): (u64, u64), wall: u64, samples: u64) -> Run {
    let mut run = run(monotonic * MS, samples);
    run.start.host = host.to_owned();
    run.start.boot = format!("boot of {host}");
    run.start.realtime_ns = realtime * MS;
    let end = run.end.as_mut().expect("an end");
    (end.monotonic_ns, end.threads) = ((monotonic + wall) * MS, 1);
    run
}

/// First screen, JSON of the flat view, and the sets of runs of a database of these parts.
fn built(parts: &[Run], options: &[&str]) -> (String, serde_json::Value, Vec<i64>) {
    let parts: Vec<&Run> = parts.iter().collect();
    let directories: Vec<&[&Run]> = parts.iter().map(std::slice::from_ref).collect();
    let database = build(&directories, options);
    let catalogue = rusqlite::Connection::open(database.join("database.sqlite"));
    let catalogue = catalogue.expect("SQLite");
    let mut sets = catalogue.prepare("SELECT run_set FROM run ORDER BY id").expect("SQL");
    let sets = sets.query_map([], |row| row.get(0)).expect("rows");
    let sets = sets.collect::<Result<_, _>>().expect("sets");
    let view = view(&database, "flat", &[]);
    (database.screen.clone(), view, sets)
}

fn wall_and_wait(view: &serde_json::Value) -> (i64, i64) {
    let wait = &view["quality"]["unattributed_wait_seconds"];
    let ms = MS as i64;
    (nanoseconds(&view["wall_seconds"]) / ms, nanoseconds(wait) / ms)
}

#[test]
fn two_ranks_on_two_hosts_are_one_run_with_the_cores_of_both() {
    let parts = [part("alpha", (500_000, 1_000), 1_000, 100), part("beta", (7, 1_200), 1_100, 60)];
    let (screen, view, sets) = built(&parts, &[]);
    assert_eq!(sets, [1, 1]);
    has(&screen, "wall 1.100 s, 2 parts, 2 threads, 2 processes, 4 cores");
    has(&screen, "\nhosts: alpha, beta\n");
    assert_eq!(view["cores"], 4);
    // 160 periods of 5 ms of work and as many of idleness, on four cores.
    assert_eq!(wall_and_wait(&view), (1_100, 1_100 - 2 * 800 / 4));
}

/// Ranks of several hosts that one directory holds: each host has its clock and its cores.
#[test]
fn two_hosts_in_one_directory_are_two_parts() {
    let first = part("alpha", (500_000, 1_000), 1_000, 100);
    let second = part("alpha", (500_100, 1_100), 800, 20).process(101, 500_100 * MS);
    let third = part("beta", (7, 1_200), 1_100, 60);
    let database = build(&[&[&first, &second, &third]], &[]);
    has(&database.screen, "wall 1.100 s, 2 parts, 3 threads, 3 processes, 4 cores");
    let view = view(&database, "flat", &[]);
    assert_eq!(wall_and_wait(&view), (1_100, 1_100 - 2 * 900 / 4));
}

#[test]
fn two_ranks_on_one_host_share_its_cores_and_its_clock() {
    let parts = [part("alpha", (500_000, 1_000), 1_000, 100), part("alpha", (500_400, 1_400), 1_000, 60)];
    let (screen, view, sets) = built(&parts, &[]);
    assert_eq!(sets, [1, 1]);
    has(&screen, "wall 1.400 s, 2 parts, 2 threads, 2 processes, 2 cores");
    lacks(&screen, "hosts:");
    assert_eq!(wall_and_wait(&view), (1_400, 1_400 - 2 * 800 / 2));
}

#[test]
fn repeated_runs_add_up() {
    let job = |begin: u64, job: &str| {
        let mut parts = [part("alpha", (begin, begin), 1_000, 100), part("beta", (begin, begin), 900, 60)];
        for part in &mut parts {
            part.start.job = job.to_owned();
        }
        parts
    };
    // By the ids of their jobs, and by their times.
    for ids in [["17", "18"], ["", ""]] {
        let parts = [job(10_000, ids[0]), job(20_000, ids[1])].concat();
        let (screen, view, sets) = built(&parts, &[]);
        assert_eq!(sets, [1, 1, 2, 2]);
        has(&screen, "wall 2.000 s, 2 runs, 4 parts, 4 threads, 4 processes, 4 cores");
        assert_eq!(wall_and_wait(&view), (2_000, 2 * (1_000 - 2 * 800 / 4)));
    }
}

#[test]
fn steps_of_one_job_on_one_host_follow_each_other() {
    let mut parts = [part("alpha", (1_000, 1_000), 1_000, 100), part("alpha", (9_000, 9_000), 500, 60)];
    for part in &mut parts {
        part.start.job = "17".to_owned();
    }
    let (_, view, sets) = built(&parts, &[]);
    assert_eq!(sets, [1, 1]);
    assert_eq!(wall_and_wait(&view), (1_500, 1_500 - 2 * 800 / 2));
}

#[test]
fn clocks_of_the_hosts_of_a_job_may_differ() {
    let parts = [part("alpha", (500_000, 1_000), 1_000, 100), part("beta", (7, 3_600_000), 1_100, 60)];
    let (_, view, sets) = built(&parts, &["--job"]);
    assert_eq!(sets, [1, 1]);
    assert_eq!(wall_and_wait(&view), (1_100, 1_100 - 2 * 800 / 4));
    // Without that word they are two runs.
    let (screen, view, sets) = built(&parts, &[]);
    assert_eq!(sets, [1, 2]);
    has(&screen, "wall 2.100 s, 2 runs, 2 threads");
    assert_eq!(wall_and_wait(&view), (2_100, (1_000 - 500) + (1_100 - 300)));
    // Parts whose hosts are unknown share no clock.
    let unknown = parts.map(|mut part| {
        (part.start.host, part.start.boot) = (String::new(), String::new());
        part
    });
    let (_, view, _) = built(&unknown, &["--job"]);
    assert_eq!(wall_and_wait(&view).0, 1_100);
}

#[test]
fn one_process_id_on_two_hosts_is_two_processes() {
    // All that tells them apart is the host.
    let parts = [part("alpha", (7, 1_000), 1_000, 100), part("beta", (7, 1_000), 1_000, 60)];
    let (screen, view, sets) = built(&parts, &[]);
    assert_eq!(sets, [1, 1]);
    has(&screen, "2 processes, 4 cores, 160 samples");
    assert_eq!(view["quality"]["samples"], 160);
}
