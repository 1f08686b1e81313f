//! The launcher passes the program through, and says one clear line when it cannot.
//!
//! Exit codes: the program's own; 125 for our failures, 126 not executable, 127 not found.

use hpcrun_tests::run::{Run, Spec};
use hpcrun_tests::tools::{
    c_program, check, exclusive_cores, folder, interruptible, optional_program, release, tool, tool_path,
};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

fn shell(test: &str, script: &str) -> Run {
    Spec::new(test, "/bin/sh").arguments(&["-c", script, "sh", "two words", "", "--help", "-o"]).run()
}

/// Our messages: at most three lines, the first with our name, none of them a panic.
fn assert_clear(run: &Run, code: i32, words: &[&str]) {
    let stderr = run.stderr();
    assert_eq!(run.output.status.code(), Some(code), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    let lines = stderr.lines().count();
    assert!((1..=3).contains(&lines), "{lines} lines:\n{stderr}");
    assert!(stderr.starts_with("hpcrun-rs: "), "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "the message names {word}: {stderr}");
    }
}

#[test]
fn the_exit_code_is_the_programs() {
    let _cores = exclusive_cores();
    for code in [0, 1, 7, 125, 255] {
        let run = shell("exit-code", &format!("exit {code}"));
        assert_eq!(run.output.status.code(), Some(code), "{}", run.stderr());
    }
}

/// As in `hpcrun-rs … 2>&1 | head`, when head has ended.
#[test]
fn whoever_stops_reading_changes_no_exit_code() {
    let _cores = exclusive_cores();
    let folder = folder("unread");
    let measurements = folder.join("measurements");
    let code = |command: &mut Command| {
        let closed = || OwnedFd::from(UnixStream::pair().expect("there are descriptors").0);
        let status = command.current_dir(&folder).stdout(closed()).stderr(closed());
        status.status().expect("the tool runs").code()
    };
    let mut launcher = tool("hpcrun-rs");
    launcher.args(["--report", "-o"]).arg(&measurements);
    assert_eq!(code(launcher.args(["/bin/sh", "-c", "exit 3"])), Some(3));
    let entries = std::fs::read_dir(&measurements).expect("the program was measured");
    let mut files = entries.flatten().map(|entry| entry.path());
    assert!(files.any(|path| path.extension().is_some_and(|e| e == "hpcprocs")));
    let binary = tool_path("hpcrun-rs");
    assert_eq!(code(tool("hpcstruct-rs").args(["-o", "whole"]).arg(binary)), Some(0));
    assert!(folder.join("whole").is_file());
    assert_eq!(code(tool("hpcprof-rs").arg("no-such-folder")), Some(1));
    assert_eq!(code(tool("hpcprof-rs").arg("--help")), Some(0));
}

#[test]
fn a_signal_that_ends_the_program_is_passed_on() {
    let _cores = exclusive_cores();
    for (name, number) in [("TERM", 15), ("KILL", 9), ("INT", 2)] {
        // As at a terminal, whoever started the tests.
        let script = format!("kill -{name} $$; sleep 5");
        let run = Spec::new("signal", "/usr/bin/env")
            .arguments(&["--default-signal=INT", "/bin/sh", "-c", &script])
            .run();
        let status = run.output.status;
        let seen = status.signal().or(status.code().map(|c| c - 128));
        assert_eq!(seen, Some(number), "{status}: {}", run.stderr());
    }
}

#[test]
fn arguments_input_and_output_are_untouched() {
    let _cores = exclusive_cores();
    let run = shell("arguments", r#"for a in "$@"; do echo "<$a>"; done; echo err >&2"#);
    assert_eq!(run.stdout(), "<two words>\n<>\n<--help>\n<-o>\n");
    assert!(run.stderr().contains("err\n"), "{}", run.stderr());

    let mut child = tool("hpcrun-rs")
        .arg("-o")
        .arg(folder("input").join("measurements"))
        .arg("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("hpcrun-rs runs");
    let mut input = child.stdin.take().expect("standard input is a pipe");
    input.write_all(b"line\n\0\xff").expect("cat reads");
    drop(input);
    let output = child.wait_with_output().expect("cat ends");
    assert_eq!(output.stdout, b"line\n\0\xff");
}

#[test]
fn a_missing_program_is_127_and_what_cannot_run_126() {
    let _cores = exclusive_cores();
    let missing = Spec::new("missing", "/nowhere/program").run();
    assert_clear(&missing, 127, &["/nowhere/program"]);
    let not_in_path = Spec::new("not-in-path", "no-such-program-anywhere").run();
    assert_clear(&not_in_path, 127, &["no-such-program-anywhere"]);

    let text = folder("not-executable").join("data.txt");
    std::fs::write(&text, "not a program\n").expect("the folder is writable");
    let mode = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&text, mode).expect("own file");
    let not_executable = Spec::new("not-executable-run", &text).run();
    assert_clear(&not_executable, 126, &["data.txt"]);

    let pipe = text.with_file_name("pipe");
    check(Command::new("mkfifo").args(["-m", "755"]).arg(&pipe));
    let no_program = Spec::new("pipe-run", &pipe).run();
    assert_clear(&no_program, 126, &["pipe", "not a regular file"]);
}

#[test]
fn our_own_failures_are_125() {
    let _cores = exclusive_cores();
    let blocked = folder("unwritable").join("file");
    std::fs::write(&blocked, "a file, not a folder").expect("the folder is writable");
    let output = tool("hpcrun-rs")
        .arg("-o")
        .arg(blocked.join("measurements"))
        .arg("/bin/true")
        .output()
        .expect("hpcrun-rs runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("measurements"), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");

    for arguments in [
        &["-e", "no-such-event", "/bin/true"][..],
        &["-e", "cpu-time@0", "/bin/true"],
        &["-e", "cpu-time@lots", "/bin/true"],
        &["--cores", "none", "/bin/true"],
        &["--no-such-option", "/bin/true"],
        &[],
    ] {
        let output =
            tool("hpcrun-rs").current_dir(folder("usage")).args(arguments).output().expect("hpcrun-rs runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}: {stderr}");
        assert!(!stderr.is_empty() && !stderr.contains("panicked"), "{stderr}");
    }
}

#[test]
fn an_existing_measurement_is_never_overwritten() {
    let _cores = exclusive_cores();
    let place = folder("default-names");
    for _ in 0..3 {
        let output = tool("hpcrun-rs").current_dir(&place).arg("/bin/true").output().expect("hpcrun-rs runs");
        assert!(output.status.success());
    }
    let mut names: Vec<String> = std::fs::read_dir(&place)
        .expect("the folder is readable")
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into())
        .collect();
    names.sort();
    let expected = ["", "-2", "-3"].map(|n| format!("hpcrun-true-measurements{n}"));
    assert_eq!(names, expected);
}

#[test]
fn a_static_program_is_refused_in_words_or_runs_with_a_warning() {
    let _cores = exclusive_cores();
    let run = Spec::new("static", c_program("static")).arguments(&["50"]).run();
    let stderr = run.stderr();
    assert!(stderr.contains("static"), "the user is told why: {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

#[test]
fn names_that_are_not_text_are_profiled_and_never_reach_the_terminal() {
    let _cores = exclusive_cores();
    let place = folder("not-text").join(OsStr::from_bytes(b"\xff folder"));
    std::fs::create_dir(&place).expect("any bytes make a name");
    let program = place.join(OsStr::from_bytes(b"pha\xfeses\x1b[1m\n"));
    std::fs::copy(c_program("raw_child"), &program).expect("the program can be copied");
    let measurements = place.join(OsStr::from_bytes(b"measured\xfd\x1b[1m"));
    let database = place.join("database");
    let run = |command: &mut Command| {
        let output = command.current_dir(&place).output().expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        assert!(!stderr.contains('\x1b'), "{stderr:?}");
        (String::from_utf8_lossy(&output.stdout).into_owned(), stderr)
    };
    let (_, said) = run(tool("hpcrun-rs")
        .args(["-e", "cpu-time@1000", "-o"])
        .args([&measurements, &program])
        .args([OsStr::new("clone"), OsStr::from_bytes(b"\xfc")]));
    assert!(said.contains("hpcprof-rs $'measured\\xfd\\x1b[1m'"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    run(tool("hpcprof-rs").arg(&measurements).arg("-o").arg(&database));
    let (view, _) = run(tool("hpcprof-rs").arg("top-down").arg(&database));
    assert!(view.contains("before") && view.contains("after"), "its procedures have names:\n{view}");

    let missing = Spec::new("not-text-missing", "/nowhere/a\x1b[1m\nb").run();
    assert_clear(&missing, 127, &["/nowhere/a\\u{1b}[1m\\nb"]);
    assert_eq!(missing.stderr().lines().count(), 1, "{}", missing.stderr());
}

#[test]
fn a_runtime_of_another_version_is_named_with_the_remedy() {
    let _cores = exclusive_cores();
    for (version, remedy) in
        [("1", "build it with this release's work-stealing-rt"), ("4000000000", "update hpcrun-rs")]
    {
        let run = Spec::new("other-runtime", c_program("other_runtime")).arguments(&[version]).run();
        let stderr = run.stderr();
        assert_eq!(run.output.status.code(), Some(0), "{stderr}");
        let mut warnings = stderr.lines().filter(|l| l.contains("warning"));
        let warning = warnings.next().expect("a warning");
        assert!(warning.contains(remedy), "{stderr}");
        assert!(warning.contains(&format!("table {version}")), "{stderr}");
        assert_eq!(warnings.next(), None, "it is said once");
    }
}

/// A third of a second on one thread, 0.8 s on as many as there are.
#[test]
fn a_sweep_says_where_the_speed_up_is_lost() {
    let _cores = exclusive_cores();
    let name = "openmp-sweep";
    let Some(program) = optional_program(name, "gcc", "openmp.c", &["-fopenmp"]) else {
        return;
    };
    let place = folder(name).join("sweep");
    let mut sweep = tool("hpcrun-rs");
    sweep.args(["sweep", "--workers", "2,1", "--repeat", "2", "--format", "json", "-o"]);
    let output = check(sweep.arg(&place).arg("--").arg(&program).args(["scaling", "100"]));
    let all: serde_json::Value = serde_json::from_str(&output).expect("JSON alone on stdout");
    let number = |of: &serde_json::Value| of.as_f64().expect("a number");
    let steps = [&all["steps"][0], &all["steps"][1]];
    let [one, two] = steps.map(|step| number(&step["workers"]) * number(&step["wall"]));
    let lost = &steps[1]["lost"];
    let parts = ["idleness", "overhead", "work", "waiting"].map(|part| number(&lost[part]));
    let total = two - one;
    let difference = (parts.iter().sum::<f64>() - total).abs();
    assert!(difference <= 0.03 * one.max(total), "they add up to {total}: {lost}");
    assert!((0.27..0.42).contains(&parts[0]), "the serial part's idleness: {lost}");
    assert_eq!(steps.map(|step| step["runs"].as_u64()), [Some(2); 2]);
    let places = steps[1]["places"].as_array().expect("places");
    assert!(places.iter().any(|of| of["name"] == "spin"), "{places:?}");
    let failed = tool("hpcrun-rs")
        .args(["sweep", "--workers", "1,2", "-o"])
        .arg(folder("sweep-fails").join("sweep"))
        .args(["--", "/bin/sh", "-c", "exit {workers}"])
        .output()
        .expect("it runs");
    assert_eq!(failed.status.code(), Some(125));
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(said.contains("on 1 workers the program ended with exit status: 1"), "{said}");
}

#[test]
fn the_tools_work_from_any_directory() {
    let _cores = exclusive_cores();
    // As `cargo install` would leave it: the binary alone, in a folder of its own.
    let place = folder("installed");
    let launcher = place.join("hpcrun-rs");
    std::fs::copy(tool_path("hpcrun-rs"), &launcher).expect("the launcher can be copied");
    let output = std::process::Command::new(&launcher)
        .current_dir(&place)
        .args(["-o", "measurements", "-e", "cpu-time@1000", "--"])
        .arg(release("phases"))
        .arg("30")
        .output()
        .expect("the copied launcher runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let profiles =
        std::fs::read_dir(place.join("measurements")).expect("there are measurements").filter(|e| {
            let path = e.as_ref().expect("readable").path();
            path.extension().is_some_and(|x| x == "hpcprofile")
        });
    assert!(profiles.count() >= 2, "the workers were profiled: {stderr}");
}

#[test]
fn the_first_interrupt_is_the_programs_and_the_second_kills_it() {
    let _cores = exclusive_cores();
    let folder = folder("two-interrupts");
    // Long enough for samples before it is ready.
    let script = "trap 'echo caught' INT; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done
        echo ready; while :; do :; done";
    let mut command = tool("hpcrun-rs");
    command.current_dir(&folder).args(["--report", "-o", "measurements", "--", "/bin/sh", "-c", script]);
    let mut child = interruptible(&command).stdout(Stdio::piped()).spawn().expect("hpcrun-rs runs");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut next = || lines.next().expect("there is a line").expect("it is text");
    let interrupt = || {
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("it is our child");
    };
    assert_eq!(next(), "ready");
    interrupt();
    assert_eq!(next(), "caught", "a signal to hpcrun-rs alone is passed on");
    interrupt();
    let report: Vec<String> = lines.map(|l| l.expect("it is text")).collect();
    let status = child.wait().expect("it is our child");
    assert_eq!(status.signal(), Some(9), "{status}");
    let report = report.join("\n");
    assert!(report.contains("quality: "), "the report is printed: {report}");
}
