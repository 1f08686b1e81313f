//! The functions of this crate under a profiler with a clock of its own, and `hpcrun.h` in C and C++.
#![cfg(target_os = "linux")]

mod support;

use hpcrun_abi::{EDGE_BARRIER, EDGE_JOIN};
use hpcrun_api::{Edge, Strand, pause, procedure, report, resume, start, stop};
use std::path::Path;
use std::process::Command;
use std::thread;
use support::{edges, length, live, lost, procedures, work};

#[test]
fn strands_go_where_they_are_sent() {
    assert!(Strand::copy().is_none(), "nothing is tracked yet");
    Strand::merge(None, Edge::Lock);
    assert_eq!(procedure("early", || work(3)), ());
    start();
    assert_eq!(length(), 0, "the path begins anew");
    work(10);
    let spawned = Strand::copy();
    let ended = thread::spawn(|| {
        let left = Strand::begin(spawned).expect("it is tracked");
        procedure("outer", || {
            work(5);
            procedure("inner", || work(20));
            work(2);
        });
        left.end()
    });
    work(7);
    pause();
    let ended = ended.join().expect("it does not panic");
    resume();
    let line = line!() + 1;
    Strand::merge(ended, Edge::Join);
    assert_eq!(length(), 37);
    assert_eq!(edges(), [(u64::from(line), EDGE_JOIN)]);
    assert_eq!(procedures(), [("outer".to_owned(), 7), ("inner".to_owned(), 20)]);

    let first = Strand::copy().expect("tracked");
    work(1);
    let kept = first.share();
    let all = first.both(Strand::copy().expect("tracked"));
    let waiter = thread::spawn(move || {
        let line = line!() + 1;
        Strand::merge(all, Edge::Barrier);
        drop(kept);
        (length(), line)
    });
    let (reached, line) = waiter.join().expect("it does not panic");
    assert_eq!(reached, 38);
    assert_eq!(edges().last(), Some(&(u64::from(line), EDGE_BARRIER)));

    let left = Strand::begin(Strand::copy()).expect("tracked");
    work(12);
    left.end_and_merge();
    assert_eq!(length(), 50);
    assert_eq!(lost(), 0);
    Strand::merge(None, Edge::Lock);
    hpcrun_api::lose();
    assert_eq!(lost(), 2);

    let caught = std::panic::catch_unwind(|| procedure("inner", || panic!("as it should")));
    assert!(caught.is_err());
    work(1);
    assert_eq!(procedures()[1].1, 20, "the procedure has ended");
    assert_eq!(report().as_deref(), Some("{\"span\":51}"));
    work(1);
    let kept = Strand::copy();
    assert_eq!(stop().as_deref(), Some("{\"span\":52}"));
    assert!(Strand::copy().is_none());
    Strand::merge(kept, Edge::Channel);
    assert_eq!(length(), 52);
    assert_eq!(report().as_deref(), Some("{\"span\":52}"));
    assert_eq!(live(), 0, "no strand is left");
}

#[test]
fn the_header_does_the_same_in_c_and_in_cpp() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (compiler, standard) in [("cc", "-std=c11"), ("c++", "-std=c++17")] {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("header-{compiler}"));
        let source = folder.join("tests/header.c");
        let mut command = Command::new(compiler);
        command.args([standard, "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-rdynamic"]);
        if compiler == "c++" {
            command.args(["-x", "c++"]);
        }
        command.arg("-I").arg(folder).arg(source).arg("-o").arg(&program).arg("-ldl");
        assert!(command.status().expect("a compiler").success(), "{compiler}");
        let output = Command::new(program).output().expect("it starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{compiler}: {errors}");
    }
}
