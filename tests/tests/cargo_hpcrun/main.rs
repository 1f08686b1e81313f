//! `cargo hpcrun` on small projects of every shape: what it builds, what it says, what it leaves
//! alone.

mod core_lines;
mod project;
mod settings;

use crate::project::{
    CHANNELS_MAIN, Outcome, Project, RAYON_MAIN, THREADS_MAIN, TOKIO_CHAIN, TOKIO_MAIN, assert_rooted,
};
use hpcrun_tests::run::Spec;
use hpcrun_tests::tools::{check, interruptible, one_core};
use hpcrun_tests::view::value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[test]
fn a_rayon_program_has_its_tasks_under_main_and_its_files_stay() {
    let _cores = one_core();
    let project = Project::new("rayon")
        .manifest(
            "hard",
            "[dependencies]\nrayon = \"1.11\"\n[profile.release]\nstrip = true\nlto = \"fat\"\n\
             panic = \"abort\"\ncodegen-units = 1\ndebug = 0",
        )
        .main("src/main.rs", RAYON_MAIN)
        .locked();
    let before = project.files();
    let mut command = project.bare(&["run", "-e", "cpu-time@1000", "--locked", "--cores", "2"]);
    let outcome = Outcome::of(command.env("RAYON_NUM_THREADS", "3")).succeed();
    assert_eq!(outcome.ours(), [""; 0], "nothing needs to be said");
    // The program's own output first, then the report; the source where the user has it.
    let first = outcome.stdout.lines().next().unwrap_or_default();
    assert!(first.starts_with("sum ") && first.ends_with(" of 3 threads at src/main.rs"), "{outcome:#?}");
    assert!(outcome.stdout.contains("\nquality: "), "{outcome:#?}");
    assert!(outcome.stdout.contains("hard::burn"), "{outcome:#?}");
    assert_rooted(&project.database("hpcrun-hard-database"), "hard");
    assert_eq!(project.files(), before, "the user's files are untouched");
    let target: Vec<_> = fs::read_dir(project.folder.join("target"))
        .expect("the build has a target folder")
        .map(|e| e.expect("it is readable").file_name())
        .collect();
    assert!(target.iter().all(|n| n == "hpcrun" || n == "CACHEDIR.TAG"), "{target:?}");
    let left: Vec<_> = fs::read_dir(project.folder.join("target/hpcrun"))
        .expect("our folder")
        .map(|e| e.expect("it is readable").file_name())
        .collect();
    assert_eq!(left.len(), 1, "no measurement is left: {left:?}");

    // Again: nothing is compiled, the database gets a number. The published rayon prints the same. The
    // critical path goes through all tasks, and none of the runtime's functions could be shortened.
    command.arg("--critical-path").env("RAYON_NUM_THREADS", "3");
    let again = Outcome::of(&mut command).succeed();
    let (_, path) = again.stdout.split_once("span ").expect("a critical path");
    assert!(path.contains("parallelism ") && path.contains(" exact edges, "), "{again:#?}");
    let (_, procedures) = path.split_once("  procedure\n").unwrap_or((path, ""));
    assert!(!procedures.contains("::job::call_task"), "{again:#?}");
    assert!(!again.stderr.contains("Compiling"), "{again:#?}");
    assert!(again.stdout.starts_with(first), "{again:#?}");
    assert_rooted(&project.database("hpcrun-hard-database-2"), "hard");
}

#[test]
fn the_published_rayon_can_be_kept() {
    let _cores = one_core();
    let project = Project::of("stock", "[dependencies]\nrayon = \"1.11\"", RAYON_MAIN).locked();
    let path = |outcome: &Outcome| PathBuf::from(outcome.stdout.trim());
    let stock = path(&project.run(&["build", "--no-patch"]).succeed());
    let patched = path(&project.run(&["build"]).succeed());
    assert_ne!(stock, patched);
    let has_marker = |program: &Path| {
        let bytes = fs::read(program).expect("the program was built");
        let name = b"work_stealing_rt_rayon_core";
        bytes.windows(name.len()).any(|w| w == name)
    };
    assert!(has_marker(&patched) && !has_marker(&stock));
    let sum = |program: &Path| check(&mut Command::new(program));
    assert_eq!(sum(&stock), sum(&patched), "the same answer");
    assert!(!sum(&stock).starts_with("sum 0 "), "an answer");
}

#[test]
fn channels_are_replaced_and_do_the_same() {
    let _cores = one_core();
    let project =
        Project::of("channels", "[dependencies]\ncrossbeam-channel = \"0.5\"", CHANNELS_MAIN).locked();
    let build = |arguments: &[&str]| {
        let outcome = project.run(arguments).succeed();
        (PathBuf::from(outcome.stdout.trim()), outcome.ours().join("\n"))
    };
    let (replaced, said) = build(&["build"]);
    assert_eq!(said, "", "nothing needs to be said");
    let (stock, _) = build(&["build", "--no-patch"]);
    let is_replaced = |program: &Path| {
        let bytes = fs::read(program).expect("the program was built");
        let name = b"published_crossbeam_channel";
        bytes.windows(name.len()).any(|w| w == name)
    };
    assert!(is_replaced(&replaced) && !is_replaced(&stock));
    for program in [&replaced, &stock] {
        assert_eq!(check(&mut Command::new(program)), "sum 499500\n");
    }
}

#[test]
fn tasks_of_tokio_are_under_who_has_spawned_them() {
    let _cores = one_core();
    let tokio = "[dependencies]\ntokio = { version = \"1\", default-features = false, \
                 features = [\"rt-multi-thread\"] }";
    let project = Project::of("futures", tokio, TOKIO_MAIN).locked();
    let outcome = project.run(&["-e", "cpu-time@1000"]).succeed();
    assert!(!outcome.stderr.contains("tokio's"), "{outcome:#?}");
    let view = project.database("hpcrun-futures-database");
    let mut shown = BTreeMap::new();
    view.walk(&mut |above, node| {
        let owner = node.name.trim_start_matches('<');
        assert!(!owner.starts_with("tokio::"), "machinery is shown: {}", node.name);
        if node.name == "futures::item" {
            let names = above.iter().filter_map(|node| node.name.strip_prefix("futures::"));
            let mut path: Vec<&str> = names.filter_map(|name| name.split("::").next()).collect();
            path.dedup();
            *shown.entry(path.join(" ")).or_insert(0.0) += value(&node.inclusive, "work");
        }
    });
    let expected = [
        ("main", 0.05),
        ("main blocking", 0.12),
        ("main fan_out_a handler", 0.3),
        ("main fan_out_b handler", 0.16),
        ("main local handler", 0.12),
        ("main nested fan_out_b handler", 0.14),
    ];
    assert_eq!(shown.keys().collect::<Vec<_>>(), expected.iter().map(|e| e.0).collect::<Vec<_>>());
    for (path, seconds) in expected {
        // A burn's end is not the clock's.
        let allowed = 0.06 * seconds + 0.012;
        assert!((shown[path] - seconds).abs() < allowed, "{path}: {} s, not {seconds}", shown[path]);
    }
    // Polls take the clock's time, so at least that of the items.
    let view = project.built("hpcrun-futures-database").view("top-down", &["--metric", "long-poll"]);
    for (spawner, seconds) in [("fan_out_a", 0.3), ("local", 0.12), ("blocking", 0.0)] {
        let polled = view.inclusive(&format!("futures::{spawner}::{{closure}}"), "long-poll");
        let is_right = if seconds > 0.0 { polled > 0.9 * seconds } else { polled == 0.0 };
        assert!(is_right, "{spawner}: {polled} s of long polls");
    }
    assert!(outcome.stdout.contains("long-poll"), "{outcome:#?}");
}

#[test]
fn critical_paths_follow_what_wakes_tasks_of_tokio() {
    let _cores = one_core();
    let tokio = "[dependencies]\ntokio = { version = \"1\", default-features = false, \
                 features = [\"rt-multi-thread\", \"sync\"] }";
    let project = Project::of("chain", tokio, TOKIO_CHAIN).locked();
    let program = PathBuf::from(project.run(&["build"]).succeed().stdout.trim());
    let path = Spec::new("tokio-chain", program).critical_path("").succeed().critical_path();
    for (what, found, known) in [("work", path.work, 0.2), ("span", path.span, 0.14)] {
        let found = found as f64 / 1e9;
        assert!((found - known).abs() < 0.03 * known + 0.006, "{what} {found} s, not {known}");
    }
}

#[test]
fn a_workspace_has_many_programs() {
    let _cores = one_core();
    let package = |name: &str, lines: &str| {
        format!("[package]\nname = \"{name}\"\nversion = \"1.2.3\"\nedition = \"2021\"\n{lines}\n")
    };
    let bench = "fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    println!(\"arguments {arguments:?}\");
    print!(\"{}\", std::fs::read_to_string(\"data.txt\").expect(\"run in the package's folder\"));
    let (a, b) = rayon::join(|| (0..700).map(burn).max(), || (0..700).map(burn).min());
    println!(\"sum {:?}\", (a, b));
}";
    let project = Project::new("workspace")
        .file("Cargo.toml", "[workspace]\nmembers = [\"one\", \"two\"]\nresolver = \"2\"")
        .file(
            "one/Cargo.toml",
            &package(
                "one",
                "[dev-dependencies]\nrayon = \"1.11\"\n[[bench]]\nname = \"race\"\nharness = false",
            ),
        )
        .file("one/data.txt", "data of one\n")
        .main("one/src/main.rs", THREADS_MAIN)
        .main("one/examples/show.rs", RAYON_MAIN)
        .main("one/benches/race.rs", bench)
        .file("two/Cargo.toml", &package("two", ""))
        .main("two/src/main.rs", THREADS_MAIN)
        .locked();
    project.run(&[]).assert_clear(&["several programs: one, two", "--bin"]);
    project.run(&["--example", "shew"]).assert_clear(&["shew", "show"]);
    project.run(&["-p", "three"]).assert_clear(&["three", "two"]);
    project
        .run(&["--bin", "one", "--target", "aarch64-apple-darwin"])
        .assert_clear(&["aarch64-apple-darwin"]);

    let rate = ["-e", "cpu-time@1000"];
    let outcome = project.run(&[&["-p", "two"], &rate[..]].concat()).succeed();
    assert!(outcome.ours()[0].contains("two does not use rayon"), "{outcome:#?}");
    assert_rooted(&project.database("hpcrun-two-database"), "two");

    project.run(&[&["--example", "show"], &rate[..]].concat()).succeed();
    assert_rooted(&project.database("hpcrun-show-database"), "show");

    let bench = [&["--bench", "race", "-o", "raced"], &rate[..], &["--", "x y"]].concat();
    let outcome = project.run(&bench).succeed();
    let expected = "arguments [\"--bench\", \"x y\"]\ndata of one\nsum ";
    assert!(outcome.stdout.starts_with(expected), "{outcome:#?}");
    // Under its own name, not that of the file that cargo makes.
    let named = outcome.stdout.contains("\nrace --bench x y\n");
    assert!(named, "{outcome:#?}");
    assert_rooted(&project.database("raced"), "race");
    project.run(&["--bench", "race", "--keep", "-q"]).succeed();
    for kept in ["hpcrun-race-measurements", "hpcrun-race-database"] {
        assert!(project.folder.join(kept).is_dir(), "there is {kept}");
    }
    // Not overwritten, and said before the program runs.
    let outcome = project.run(&bench);
    outcome.assert_clear(&["raced"]);
    assert!(!outcome.stdout.contains("arguments"), "{outcome:#?}");
}

#[test]
fn what_there_is_in_the_place_of_a_program_is_named() {
    let _cores = one_core();
    let package =
        |name: &str| format!("[package]\nname = \"{name}\"\nversion = \"1.2.3\"\nedition = \"2024\"\n");
    let project = Project::new("choices")
        .file("Cargo.toml", "[workspace]\nmembers = [\"app\", \"lib\", \"bare\"]\nresolver = \"3\"")
        .file("app/Cargo.toml", &package("app"))
        .main("app/src/main.rs", THREADS_MAIN)
        .file("lib/Cargo.toml", &package("lib"))
        .file("lib/src/lib.rs", "")
        .main("lib/examples/show.rs", THREADS_MAIN)
        .main("lib/benches/race.rs", THREADS_MAIN)
        .file("bare/Cargo.toml", &package("bare"))
        .file("bare/src/lib.rs", "")
        .locked();
    let instead = ["no program here", "--example show", "--bench race", "-p app"];
    project.run(&["-p", "lib"]).assert_clear(&instead);
    let mut inside = project.command(&[]);
    inside.current_dir(project.folder.join("lib"));
    Outcome::of(&mut inside).assert_clear(&instead);
    project.run(&["-p", "bare"]).assert_clear(&["no program here", "choose one with -p app"]);
    // In the member, and from the top.
    let mut inside = project.command(&["build", "-q"]);
    inside.current_dir(project.folder.join("app"));
    let first = Outcome::of(&mut inside).succeed();
    let top = project.run(&["build", "-q"]).succeed();
    assert_eq!(first.stdout, top.stdout);

    let library = Project::new("library").manifest("library", "").file("src/lib.rs", "").locked();
    library.run(&[]).assert_clear(&["no program here", "src/main.rs", "--example"]);
}

#[test]
fn the_end_is_the_programs_and_the_report_comes_all_the_same() {
    let _cores = one_core();
    let project = Project::of("ends", "", THREADS_MAIN).locked();
    for code in [7, 101] {
        let text = code.to_string();
        let outcome = project.run(&["--keep", "-q", "--", "exit", &text]);
        assert_eq!(outcome.output.status.code(), Some(code), "{outcome:#?}");
        assert!(outcome.stdout.contains("ends::burn"), "{outcome:#?}");
        assert_eq!(outcome.stderr, "", "quiet");
    }
    assert!(project.folder.join("hpcrun-ends-measurements-2").is_dir());
    let outcome = project.run(&["--", "abort"]);
    assert_eq!(outcome.output.status.signal(), Some(6), "{outcome:#?}");
    assert!(outcome.stdout.contains("ends::burn"), "{outcome:#?}");

    // An interrupt ends the program, not the report.
    let mut child = interruptible(&project.command(&["-q", "--", "forever"]))
        .stdout(Stdio::piped())
        .spawn()
        .expect("cargo-hpcrun runs");
    let mut stdout = child.stdout.take().expect("it is piped");
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !text.contains("sum ") {
        let read = stdout.read(&mut buffer).expect("the pipe is readable");
        assert!(read > 0, "the program prints its sum: {text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("it is our child");
    stdout.read_to_string(&mut text).expect("the rest is text");
    let status = child.wait().expect("it is our child");
    assert!(text.contains("ends::burn"), "{text}");
    assert_eq!(status.signal(), Some(2), "{status}");

    // Too short for a sample: said in one line, and nothing is left.
    let short = Project::new("short")
        .manifest("short", "")
        .file("src/main.rs", "fn main() { println!(\"done\"); }")
        .locked();
    let outcome = Outcome::of(&mut short.bare(&["-q", "-e", "cpu-time@1"])).succeed();
    let expected = "warning: no report: short ended before its first sample";
    assert!(outcome.ours()[0].contains(expected), "{outcome:#?}");
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:#?}");
    let left: Vec<_> = fs::read_dir(short.folder.join("target/hpcrun"))
        .expect("our folder")
        .map(|e| e.expect("it is readable").file_name())
        .collect();
    assert_eq!(left, ["stock"], "no measurement is left");

    let broken = Project::new("broken")
        .manifest("broken", "")
        .file("src/main.rs", "fn main() { nothing(); }")
        .locked();
    let outcome = broken.run(&[]);
    assert_eq!(outcome.output.status.code(), Some(125), "{outcome:#?}");
    assert!(outcome.stderr.contains("E0425"), "{outcome:#?}");
    let empty = Project::new("empty");
    empty.run(&["--manifest-path", "Cargo.toml"]).assert_clear(&["Cargo.toml", "does not exist"]);
    empty.run(&["-e", "sunspots"]).assert_clear(&["sunspots"]);
    empty.run(&["--cores", "0"]).assert_clear(&["--cores", "at least 1"]);
    for (arguments, word) in
        [(&["--bin"][..], "a value is required"), (&["x"], "-- x"), (&["run", "x"], "-- x")]
    {
        let outcome = empty.run(arguments);
        assert_eq!(outcome.output.status.code(), Some(125), "{outcome:#?}");
        assert!(outcome.stderr.contains(word), "{outcome:#?}");
    }
}
