//! A small project that `cargo hpcrun` is run on, and what it said.
//!
//! The projects use the rayon that cargo has at hand for this workspace, without the network.

use hpcrun_tests::run::Database;
use hpcrun_tests::tools::{check, folder, scratch, tool, workspace};
use hpcrun_tests::view::View;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

/// `burn` is the user's code; it takes some 0.2 ms of a core.
pub(crate) const BURN: &str = r#"
#[inline(never)]
pub fn burn(n: u64) -> u64 {
    let mut x = n + 1;
    for i in 0..200_000u64 {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(std::hint::black_box(i));
    }
    x
}
"#;

pub(crate) const RAYON_MAIN: &str = r#"
use rayon::prelude::*;
fn main() {
    let threads = rayon::current_num_threads();
    let sum = (0..2000u64).into_par_iter().map(burn).reduce(|| 0, u64::wrapping_add);
    println!("sum {sum:x} of {threads} threads at {}", file!());
}
"#;

pub(crate) const JOIN_MAIN: &str = r#"
fn halves(n: u64) -> u64 {
    if n == 0 {
        return burn(n);
    }
    let (a, b) = rayon_core::join(|| halves(n - 1), || halves(n - 1));
    a.wrapping_add(b)
}
fn main() {
    println!("sum {:x}", halves(10));
}
"#;

pub(crate) const CHANNELS_MAIN: &str = r#"
use crossbeam_channel::{bounded, never, select, unbounded, Receiver, Sender};
static NEVER: Receiver<u64> = never();
fn main() {
    std::hint::black_box(burn(1));
    let (many, few): (Sender<u64>, _) = unbounded();
    let (done, result) = bounded(0);
    std::thread::spawn(move || done.send(few.iter().sum::<u64>()).unwrap());
    (0..1000).for_each(|n| many.send(n).unwrap());
    drop(many);
    select! {
        recv(result) -> sum => println!("sum {}", sum.unwrap()),
        recv(NEVER) -> _ => unreachable!(),
    }
}
"#;

/// Items of known seconds, in tasks of the same handler that several functions spawn.
pub(crate) const TOKIO_MAIN: &str = r#"
use std::hint::black_box;
use tokio::task::{spawn_blocking, yield_now, JoinSet, LocalSet};
fn cpu_ms() -> u64 {
    #[repr(C)]
    struct Time(i64, i64);
    extern "C" {
        fn clock_gettime(clock: i32, time: *mut Time) -> i32;
    }
    let mut time = Time(0, 0);
    unsafe { clock_gettime(3, &mut time) };
    time.0 as u64 * 1000 + time.1 as u64 / 1_000_000
}
#[inline(never)]
fn item(ms: u64) {
    let end = cpu_ms() + ms;
    while cpu_ms() < end {
        black_box(burn(black_box(1)));
    }
}
async fn handler(ms: u64) {
    item(ms);
    yield_now().await;
    item(ms);
}
async fn fan_out_a(n: u64, ms: u64) {
    let all: Vec<_> = (0..n).map(|_| tokio::spawn(handler(ms))).collect();
    for one in all {
        one.await.unwrap();
    }
}
async fn fan_out_b(n: u64, ms: u64) {
    let mut set = JoinSet::new();
    for _ in 0..n {
        set.spawn(handler(ms));
    }
    while set.join_next().await.is_some() {}
}
async fn blocking(n: u64, ms: u64) {
    let all: Vec<_> = (0..n).map(|_| spawn_blocking(move || item(ms))).collect();
    for one in all {
        one.await.unwrap();
    }
}
async fn local(n: u64, ms: u64) {
    let set = LocalSet::new();
    for _ in 0..n {
        set.spawn_local(handler(ms));
    }
    set.await;
}
async fn nested(n: u64, ms: u64) {
    tokio::spawn(async move { fan_out_b(n, ms).await }).await.unwrap();
}
fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        fan_out_a(3, 50).await;
        fan_out_b(2, 40).await;
        blocking(3, 40).await;
        local(2, 30).await;
        nested(1, 70).await;
        item(50);
    });
}
"#;

/// The path, 40 + 50 + 30 + 20 ms of 200, goes by a channel, a `Notify` and a `JoinHandle`. Those who wait do
/// so before they are woken: whoever is first sees that they have begun.
pub(crate) const TOKIO_CHAIN: &str = r#"
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use tokio::sync::{mpsc, Notify};
fn cpu_ms() -> u64 {
    #[repr(C)]
    struct Time(i64, i64);
    extern "C" {
        fn clock_gettime(clock: i32, time: *mut Time) -> i32;
    }
    let mut time = Time(0, 0);
    unsafe { clock_gettime(3, &mut time) };
    time.0 as u64 * 1000 + time.1 as u64 / 1_000_000
}
#[inline(never)]
fn item(ms: u64) {
    let end = cpu_ms() + ms;
    while cpu_ms() < end {
        black_box(burn(black_box(1)));
    }
}
static WAITING: AtomicU32 = AtomicU32::new(0);
fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    runtime.block_on(async {
        let (sender, mut receiver) = mpsc::channel(1);
        let notify = Arc::new(Notify::new());
        let notified = Arc::clone(&notify);
        let third = tokio::spawn(async move {
            WAITING.fetch_add(1, Ordering::SeqCst);
            notified.notified().await;
            item(30);
        });
        let second = tokio::spawn(async move {
            WAITING.fetch_add(1, Ordering::SeqCst);
            receiver.recv().await.unwrap();
            item(50);
            notify.notify_one();
        });
        let beside = tokio::spawn(async { item(40) });
        let first = tokio::spawn(async move {
            while WAITING.load(Ordering::SeqCst) < 2 {
                tokio::task::yield_now().await;
            }
            item(40);
            sender.send(()).await.unwrap();
            item(20);
        });
        third.await.unwrap();
        item(20);
        for other in [first, second, beside] {
            other.await.unwrap();
        }
    });
}
"#;

pub(crate) const THREADS_MAIN: &str = r#"
fn main() {
    let work = || (0..1000).fold(0u64, |sum, n| sum.wrapping_add(burn(n)));
    let other = std::thread::spawn(work);
    println!("sum {:x}", work().wrapping_add(other.join().unwrap()));
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("exit"), Some(code)) => std::process::exit(code.parse().unwrap()),
        (Some("abort"), _) => std::process::abort(),
        (Some("forever"), _) => loop { std::hint::black_box(burn(1)); },
        _ => {}
    }
}
"#;

/// A project in a folder of its own.
pub(crate) struct Project {
    pub(crate) folder: PathBuf,
}

impl Project {
    /// A fresh folder below the test's, whose name has a space.
    pub(crate) fn new(test: &str) -> Project {
        let folder = folder(&format!("cargo-hpcrun-{test}")).join("a project");
        fs::create_dir(&folder).expect("the folder is fresh");
        Project { folder }
    }

    /// A package of the test's name: a manifest with these further lines, and a program.
    pub(crate) fn of(test: &str, lines: &str, main: &str) -> Project {
        let project = Project::new(test).manifest(test, lines);
        project.main("src/main.rs", main)
    }

    pub(crate) fn file(self, name: &str, text: &str) -> Project {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("it can be made");
        fs::write(path, text).expect("it can be written");
        self
    }

    /// A manifest with these further lines.
    pub(crate) fn manifest(self, name: &str, lines: &str) -> Project {
        let text =
            format!("[package]\nname = \"{name}\"\nversion = \"0.3.0\"\nedition = \"2021\"\n{lines}\n");
        self.file("Cargo.toml", &text)
    }

    /// A program with `burn` in it.
    pub(crate) fn main(self, name: &str, text: &str) -> Project {
        self.file(name, &format!("{text}{BURN}"))
    }

    /// With a lock file, as a project has that was built before.
    pub(crate) fn locked(self) -> Project {
        cached();
        check(
            Command::new(cargo())
                .args(["generate-lockfile", "--offline", "--quiet"])
                .current_dir(&self.folder),
        );
        self
    }

    /// `cargo hpcrun` with these arguments, in the project, without the network. What the projects
    /// have in common is compiled once.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let shared = scratch().join("cargo-hpcrun-target");
        let mut command = self.bare(&[]);
        command.arg("--target-dir").arg(shared).args(arguments);
        command
    }

    /// The same with the project's own target folder.
    pub(crate) fn bare(&self, arguments: &[&str]) -> Command {
        let mut command = tool("cargo-hpcrun");
        command
            .arg("hpcrun")
            .args(arguments)
            .current_dir(&self.folder)
            .env("CARGO", cargo())
            .env("CARGO_NET_OFFLINE", "true")
            .env("XDG_CACHE_HOME", scratch().join("cargo hpcrun cache"))
            .env_remove("CARGO_TARGET_DIR");
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        Outcome::of(&mut self.command(arguments))
    }

    pub(crate) fn database(&self, name: &str) -> View {
        self.built(name).top_down()
    }

    /// A database that `cargo hpcrun` has built.
    pub(crate) fn built(&self, name: &str) -> Database {
        let path = self.folder.join(name);
        assert!(path.is_dir(), "there is {}", path.display());
        let output = tool("hpcprof-rs").arg(&path).output();
        let output = output.expect("hpcprof-rs runs");
        Database { path, output }
    }

    /// Every file of the user's, by its path: not the target folder, and no database.
    pub(crate) fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut open = vec![self.folder.clone()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(&folder).expect("the folder is readable") {
                let path = entry.expect("the folder is readable").path();
                let name = path.file_name().expect("a name").to_string_lossy();
                if path.is_file() {
                    files.insert(path.clone(), fs::read(&path).expect("it is readable"));
                } else if name != "target" && !name.ends_with("-database") {
                    open.push(path);
                }
            }
        }
        files
    }
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) output: Output,
}

impl Outcome {
    pub(crate) fn of(command: &mut Command) -> Outcome {
        let output = command.output().expect("cargo-hpcrun runs");
        Outcome {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            output,
        }
    }

    pub(crate) fn succeed(self) -> Outcome {
        assert_eq!(self.output.status.code(), Some(0), "{self:#?}");
        self
    }

    /// Our own lines on standard error.
    pub(crate) fn ours(&self) -> Vec<&str> {
        let lines = self.stderr.lines();
        lines.filter(|l| l.starts_with("cargo hpcrun: ")).collect()
    }

    /// A failure of ours in one line with these words.
    pub(crate) fn assert_clear(&self, words: &[&str]) {
        assert_eq!(self.output.status.code(), Some(125), "{self:#?}");
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        let ours = self.ours();
        assert_eq!(ours.len(), 1, "{self:#?}");
        for word in words {
            assert!(ours[0].contains(word), "{word} in {self:#?}");
        }
    }
}

pub(crate) fn cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

/// Cargo has this workspace's dependencies, of the tests too, at hand.
pub(crate) fn cached() {
    static FETCHED: OnceLock<()> = OnceLock::new();
    FETCHED.get_or_init(|| {
        check(Command::new(cargo()).args(["fetch", "--locked", "--quiet"]).current_dir(workspace()));
    });
}

/// Seconds of work in `burn`, all and those under `main`, by the top-down view.
pub(crate) fn burnt(view: &View, program: &str) -> (f64, f64) {
    let burn = format!("{program}::burn");
    let main = format!("{program}::main");
    let all = view.inclusive(&burn, "work");
    (all, view.inclusive_under(&[&main, &burn], "work"))
}

/// Nearly all work is in `burn`, and all of that under `main`.
pub(crate) fn assert_rooted(view: &View, program: &str) {
    let (all, rooted) = burnt(view, program);
    let total = view.totals["work"];
    assert!(all > 0.05 && all > 0.9 * total, "{all} of {total} s");
    assert!(rooted > 0.999 * all, "{rooted} of {all} s under main");
    let quality = &view.quality;
    assert!(quality.rooted as f64 > 0.99 * quality.samples as f64, "{quality:?}");
}

/// A wrapper of the compiler that writes its arguments into a file beside it.
pub(crate) fn logging_wrapper(project: &Project) -> (PathBuf, PathBuf) {
    let log = project.folder.with_file_name("log");
    let wrapper = project.folder.with_file_name("wrapper.sh");
    let script = format!("#!/bin/sh\necho \"$*\" >> '{}'\nexec \"$@\"\n", log.display());
    fs::write(&wrapper, script).expect("it can be written");
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).expect("it is ours");
    (wrapper, log)
}
