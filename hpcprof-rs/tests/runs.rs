//! Several runs in one database: each has its own clock, and its processes their own identity.

mod support;

use support::program::{LEAF, MAIN, START, run_of};
use support::*;

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
fn the_wall_times_of_two_runs_add_up() {
    let temp = TempDir::new();
    // The second one after a reboot: its clock is smaller.
    run(500_000_000 * MS, 100).write(&temp.join("a"));
    run(7 * MS, 60).write(&temp.join("b"));
    let arguments = [&temp.join("a"), &temp.join("b"), &temp.join("db")];
    let [a, b, db] = arguments.map(|p| text(p).to_owned());
    let screen = tool(&[&a, &b, "-o", &db]).expect("build");
    has(&screen, "wall 2.000 s, 2 runs");
    let view = view(&temp.join("db"), "top-down", &[]);
    assert_eq!(view["wall_seconds"].as_f64(), Some(2.0));
    // Of 2 x 1 s on two cores, 2 x 0.5 and 2 x 0.3 s are accounted for.
    let wait = nanoseconds(&view["quality"]["unattributed_wait_seconds"]);
    assert_eq!(wait, (500 + 700) * MS as i64);
}

#[test]
fn equal_ids_of_two_hosts_are_two_processes() {
    let temp = TempDir::new();
    let first = run(7 * MS, 100);
    let mut second = run(7 * MS, 60);
    second.start.realtime_ns = 1;
    first.write(&temp.join("a"));
    second.write(&temp.join("b"));
    first.write(&temp.join("copy"));
    let build = |directories: &[&str], db: &str| {
        let mut arguments: Vec<String> = directories
            .iter()
            .map(|d| text(&temp.join(d)).to_owned())
            .collect();
        arguments.extend(["-o".to_owned(), text(&temp.join(db)).to_owned()]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        tool(&arguments).expect("build");
        view(&temp.join(db), "flat", &[])["quality"]["samples"].clone()
    };
    assert_eq!(build(&["a", "b"], "db1"), 160);
    // What is given twice, or copied, counts once.
    assert_eq!(build(&["a", "a"], "db2"), 100);
    assert_eq!(build(&["b", "a", "copy"], "db3"), 160);
}

#[test]
fn the_processes_of_one_run_share_the_node() {
    let temp = TempDir::new();
    let measurements = temp.join("m");
    // Two processes that keep both cores busy: nobody waits, and nobody idles.
    for pid in [100, 101] {
        let mut run = run(7 * MS, 1);
        let mut thread = ThreadBuilder::new(1);
        let entry = thread.entry();
        let node = thread.natives(entry, &[START, MAIN, LEAF]);
        thread.sample(node, 200, 0.0);
        run.threads = vec![thread];
        run.process(pid, 7 * MS).write(&measurements);
    }
    let screen = tool(&[text(&measurements), "-o", text(&temp.join("db"))]).expect("build");
    let wait = &view(&temp.join("db"), "flat", &[])["quality"]["unattributed_wait_seconds"];
    assert_eq!(nanoseconds(wait), 0);
    lacks(&screen, "serial:");
    has(&screen, "effective");
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
        let style = hpcprof_rs::render::style::Style {
            width: 140,
            line: 140,
            colour: false,
        };
        let mut out = Vec::new();
        hpcprof_rs::run::run(cli.expect("a command line"), style, &mut out).expect("it runs");
        String::from_utf8(out).expect("output is UTF-8")
    };
    let screen = shown(&[
        measurements.as_os_str(),
        "-o".as_ref(),
        database.as_os_str(),
    ]);
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
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_hpcprof-rs"))
        .arg("--no-cache")
        .current_dir(temp.path())
        .output()
        .expect("the command starts");
    assert!(output.status.success(), "{output:?}");
}
