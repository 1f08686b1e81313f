//! `cargo hpcrun` on small projects of every shape: what it builds, what it says, what it leaves
//! alone.
//!
//! The projects use the rayon that cargo has at hand for this workspace, without the network; the
//! versions of rayon-core that are not at hand are made from that one by their number.

use hpcrun_tests::repository::metadata;
use hpcrun_tests::run::Database;
use hpcrun_tests::tools::{
    check, folder, interruptible, machine, release, scratch, tool, workspace,
};
use hpcrun_tests::view::View;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// `burn` is the user's code; it takes some 0.2 ms of a core.
const BURN: &str = r#"
#[inline(never)]
pub fn burn(n: u64) -> u64 {
    let mut x = n + 1;
    for i in 0..200_000u64 {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(std::hint::black_box(i));
    }
    x
}
"#;

const RAYON_MAIN: &str = r#"
use rayon::prelude::*;
fn main() {
    let threads = rayon::current_num_threads();
    let sum = (0..2000u64).into_par_iter().map(burn).reduce(|| 0, u64::wrapping_add);
    println!("sum {sum:x} of {threads} threads at {}", file!());
}
"#;

const JOIN_MAIN: &str = r#"
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

const THREADS_MAIN: &str = r#"
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
struct Project {
    folder: PathBuf,
}

impl Project {
    /// A fresh folder below the test's, whose name has a space.
    fn new(test: &str) -> Project {
        let folder = folder(&format!("cargo-hpcrun-{test}")).join("a project");
        fs::create_dir(&folder).expect("the folder is fresh");
        Project { folder }
    }

    fn file(self, name: &str, text: &str) -> Project {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("it can be made");
        fs::write(path, text).expect("it can be written");
        self
    }

    /// A manifest with these further lines.
    fn manifest(self, name: &str, lines: &str) -> Project {
        let text = format!(
            "[package]\nname = \"{name}\"\nversion = \"0.3.0\"\nedition = \"2021\"\n{lines}\n"
        );
        self.file("Cargo.toml", &text)
    }

    /// A program with `burn` in it.
    fn main(self, name: &str, text: &str) -> Project {
        self.file(name, &format!("{text}{BURN}"))
    }

    /// With a lock file, as a project has that was built before.
    fn locked(self) -> Project {
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
    fn command(&self, arguments: &[&str]) -> Command {
        let shared = scratch().join("cargo-hpcrun-target");
        let mut command = self.bare(&[]);
        command.arg("--target-dir").arg(shared).args(arguments);
        command
    }

    /// The same with the project's own target folder.
    fn bare(&self, arguments: &[&str]) -> Command {
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

    fn run(&self, arguments: &[&str]) -> Outcome {
        Outcome::of(&mut self.command(arguments))
    }

    fn database(&self, name: &str) -> View {
        let path = self.folder.join(name);
        assert!(path.is_dir(), "there is {}", path.display());
        let output = tool("hpcprof-rs").arg(&path).output();
        let output = output.expect("hpcprof-rs runs");
        Database { path, output }.top_down()
    }

    /// Every file of the user's, by its path: not the target folder, and no database.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
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
struct Outcome {
    stdout: String,
    stderr: String,
    output: Output,
}

impl Outcome {
    fn of(command: &mut Command) -> Outcome {
        let output = command.output().expect("cargo-hpcrun runs");
        Outcome {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            output,
        }
    }

    fn succeed(self) -> Outcome {
        assert_eq!(self.output.status.code(), Some(0), "{self:#?}");
        self
    }

    /// Our own lines on standard error.
    fn ours(&self) -> Vec<&str> {
        let lines = self.stderr.lines();
        lines.filter(|l| l.starts_with("cargo hpcrun: ")).collect()
    }

    /// A failure of ours in one line with these words.
    fn assert_clear(&self, words: &[&str]) {
        assert_eq!(self.output.status.code(), Some(125), "{self:#?}");
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        let ours = self.ours();
        assert_eq!(ours.len(), 1, "{self:#?}");
        for word in words {
            assert!(ours[0].contains(word), "{word} in {self:#?}");
        }
    }
}

fn cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

/// Cargo has this workspace's dependencies, of the tests too, at hand.
fn cached() {
    static FETCHED: OnceLock<()> = OnceLock::new();
    FETCHED.get_or_init(|| {
        check(
            Command::new(cargo())
                .args(["fetch", "--locked", "--quiet"])
                .current_dir(workspace()),
        );
    });
}

/// Seconds of work in `burn`, all and those under `main`, by the top-down view.
fn burnt(view: &View, program: &str) -> (f64, f64) {
    let burn = format!("{program}::burn");
    let main = format!("{program}::main");
    let all = view.inclusive(&burn, "work");
    (all, view.inclusive_under(&[&main, &burn], "work"))
}

/// Nearly all work is in `burn`, and all of that under `main`.
fn assert_rooted(view: &View, program: &str) {
    let (all, rooted) = burnt(view, program);
    let total = view.totals["work"];
    assert!(all > 0.05 && all > 0.9 * total, "{all} of {total} s");
    assert!(rooted > 0.999 * all, "{rooted} of {all} s under main");
    let quality = &view.quality;
    assert!(
        quality.rooted as f64 > 0.99 * quality.samples as f64,
        "{quality:?}"
    );
}

#[test]
fn a_rayon_program_has_its_tasks_under_main_and_its_files_stay() {
    let _machine = machine();
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
    assert!(
        first.starts_with("sum ") && first.ends_with(" of 3 threads at src/main.rs"),
        "{outcome:#?}"
    );
    assert!(outcome.stdout.contains("\nquality: "), "{outcome:#?}");
    assert!(outcome.stdout.contains("hard::burn"), "{outcome:#?}");
    assert_rooted(&project.database("hpcrun-hard-database"), "hard");
    assert_eq!(project.files(), before, "the user's files are untouched");
    let target: Vec<_> = fs::read_dir(project.folder.join("target"))
        .expect("the build has a target folder")
        .map(|e| e.expect("it is readable").file_name())
        .collect();
    assert!(
        target.iter().all(|n| n == "hpcrun" || n == "CACHEDIR.TAG"),
        "{target:?}"
    );
    let left: Vec<_> = fs::read_dir(project.folder.join("target/hpcrun"))
        .expect("our folder")
        .map(|e| e.expect("it is readable").file_name())
        .collect();
    assert_eq!(left.len(), 1, "no measurement is left: {left:?}");

    // Again: nothing is compiled, the database gets a number. The published rayon prints the same.
    let again = Outcome::of(command.env("RAYON_NUM_THREADS", "3")).succeed();
    assert!(!again.stderr.contains("Compiling"), "{again:#?}");
    assert!(again.stdout.starts_with(first), "{again:#?}");
    assert_rooted(&project.database("hpcrun-hard-database-2"), "hard");
}

#[test]
fn the_published_rayon_can_be_kept() {
    let _machine = machine();
    let project = Project::new("stock")
        .manifest("stock", "[dependencies]\nrayon = \"1.11\"")
        .main("src/main.rs", RAYON_MAIN)
        .locked();
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
fn a_workspace_has_many_programs() {
    let _machine = machine();
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
        .file(
            "Cargo.toml",
            "[workspace]\nmembers = [\"one\", \"two\"]\nresolver = \"2\"",
        )
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
    project
        .run(&[])
        .assert_clear(&["several programs: one, two", "--bin"]);
    project
        .run(&["--example", "shew"])
        .assert_clear(&["shew", "show"]);
    project
        .run(&["-p", "three"])
        .assert_clear(&["three", "two"]);
    project
        .run(&["--bin", "one", "--target", "aarch64-apple-darwin"])
        .assert_clear(&["aarch64-apple-darwin"]);

    let rate = ["-e", "cpu-time@1000"];
    let outcome = project.run(&[&["-p", "two"], &rate[..]].concat()).succeed();
    assert!(
        outcome.ours()[0].contains("two does not use rayon"),
        "{outcome:#?}"
    );
    assert_rooted(&project.database("hpcrun-two-database"), "two");

    project
        .run(&[&["--example", "show"], &rate[..]].concat())
        .succeed();
    assert_rooted(&project.database("hpcrun-show-database"), "show");

    let bench = [
        &["--bench", "race", "-o", "raced"],
        &rate[..],
        &["--", "x y"],
    ]
    .concat();
    let outcome = project.run(&bench).succeed();
    let expected = "arguments [\"--bench\", \"x y\"]\ndata of one\nsum ";
    assert!(outcome.stdout.starts_with(expected), "{outcome:#?}");
    assert_rooted(&project.database("raced"), "race");
    // Not overwritten, and said before the program runs.
    let outcome = project.run(&bench);
    outcome.assert_clear(&["raced"]);
    assert!(!outcome.stdout.contains("arguments"), "{outcome:#?}");
}

#[test]
fn the_end_is_the_programs_and_the_report_comes_all_the_same() {
    let _machine = machine();
    let project = Project::new("ends")
        .manifest("ends", "")
        .main("src/main.rs", THREADS_MAIN)
        .locked();
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
    let outcome = Outcome::of(&mut short.bare(&["-q"])).succeed();
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
    empty
        .run(&["--manifest-path", "Cargo.toml"])
        .assert_clear(&["Cargo.toml", "does not exist"]);
    empty.run(&["-e", "sunspots"]).assert_clear(&["sunspots"]);
    empty
        .run(&["--cores", "0"])
        .assert_clear(&["--cores", "at least 1"]);
    for (arguments, word) in [
        (&["--bin"][..], "a value is required"),
        (&["x"], "-- x"),
        (&["run", "x"], "-- x"),
    ] {
        let outcome = empty.run(arguments);
        assert_eq!(outcome.output.status.code(), Some(125), "{outcome:#?}");
        assert!(outcome.stderr.contains(word), "{outcome:#?}");
    }
}

/// A wrapper of the compiler that writes its arguments into a file beside it.
fn logging_wrapper(project: &Project) -> (PathBuf, PathBuf) {
    let log = project.folder.with_file_name("log");
    let wrapper = project.folder.with_file_name("wrapper.sh");
    let script = format!(
        "#!/bin/sh\necho \"$*\" >> '{}'\nexec \"$@\"\n",
        log.display()
    );
    fs::write(&wrapper, script).expect("it can be written");
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).expect("it is ours");
    (wrapper, log)
}

#[test]
fn a_packages_own_profile_does_not_take_the_lines_away() {
    let _machine = machine();
    let project = Project::new("packages")
        .manifest(
            "packages",
            "[dependencies]\nrayon-core = \"1.13\"\n\
             [profile.release.package.\"*\"]\ndebug = false\nopt-level = 3\n\
             [profile.release.package.packages]\ndebug = 0",
        )
        .main("src/main.rs", JOIN_MAIN)
        .locked();
    let outcome = Outcome::of(&mut project.bare(&["-e", "cpu-time@1000"])).succeed();
    assert_eq!(outcome.ours(), [""; 0], "nothing needs to be said");
    assert!(outcome.stdout.contains("main.rs:"), "{outcome:#?}");
    assert_rooted(&project.database("hpcrun-packages-database"), "packages");
    // RUSTFLAGS no more than the profile.
    let plain = Project::new("flags")
        .manifest("flags", "")
        .main("src/main.rs", THREADS_MAIN)
        .locked();
    let mut command = plain.bare(&["-q"]);
    let outcome = Outcome::of(command.env("RUSTFLAGS", "-C debuginfo=0")).succeed();
    assert!(outcome.stdout.contains("main.rs:"), "{outcome:#?}");
}

#[test]
fn a_program_on_the_shared_standard_library_finds_it() {
    let _machine = machine();
    let project = Project::new("shared")
        .manifest("shared", "")
        .main("src/main.rs", THREADS_MAIN)
        .locked();
    let mut command = project.bare(&["-q"]);
    command.env("RUSTFLAGS", "-C prefer-dynamic");
    let outcome = Outcome::of(command.env_remove("LD_LIBRARY_PATH")).succeed();
    assert!(outcome.stdout.contains("shared::burn"), "{outcome:#?}");
}

#[test]
fn cargos_configuration_is_heeded() {
    let _machine = machine();
    let project = Project::new("configured")
        .manifest("configured", "[dependencies]\nrayon-core = \"1.13\"")
        .main("src/main.rs", JOIN_MAIN)
        .file(
            ".cargo/config.toml",
            "[build]\nrustc-wrapper = \"../wrapper.sh\"\ntarget-dir = \"what is built\"\n",
        )
        .locked();
    let (_, log) = logging_wrapper(&project);
    let outcome = Outcome::of(&mut project.bare(&["build"])).succeed();
    assert_eq!(outcome.ours(), [""; 0], "nothing needs to be said");
    assert!(outcome.stdout.contains("/what is built/"), "{outcome:#?}");
    let words = fs::read_to_string(&log).expect("the configured wrapper was run");
    assert!(words.contains("--crate-name work_stealing_rt "), "{words}");
    // The environment goes above it, with paths relative to the current folder.
    let mut command = project.bare(&["build", "--manifest-path", "../Cargo.toml"]);
    command.current_dir(project.folder.join("src"));
    fs::write(project.folder.join("src/none"), "").expect("it can be written");
    let broken = Outcome::of(command.env("RUSTC_WRAPPER", "./none"));
    let complaint = project.folder.join("src/./none").display().to_string();
    assert!(broken.stderr.contains(&complaint), "{broken:#?}");
    // What was wrong with a wrapper is forgotten with it.
    Outcome::of(command.env("RUSTC_WRAPPER", "")).succeed();

    let host = "x86_64-unknown-linux-gnu";
    let mut command = project.bare(&["build"]);
    command.env("CARGO_BUILD_TARGET", "wasm32-unknown-unknown");
    Outcome::of(&mut command).assert_clear(&["wasm32", "CARGO_BUILD_TARGET", "--target", host]);
    let config = "[build]\ntarget = [\"host-tuple\", \"wasm32-unknown-unknown\"]\n";
    let project = project.file(".cargo/config.toml", config);
    project
        .run(&["build"])
        .assert_clear(&["wasm32", "config.toml", "--target", host]);
}

#[test]
fn the_drop_in_may_be_the_projects_own_patch() {
    let _machine = machine();
    let drop_in = workspace().join("work-stealing-rt/rayon-core");
    let project = Project::new("patched")
        .manifest(
            "patched",
            &format!(
                "[dependencies]\nrayon-core = \"1.13\"\n[patch.crates-io]\nrayon-core = {{ path = {drop_in:?} }}"
            ),
        )
        .main("src/main.rs", JOIN_MAIN)
        .locked();
    let outcome = project.run(&["-e", "cpu-time@1000"]).succeed();
    assert_eq!(outcome.ours(), [""; 0], "nothing needs to be said");
    assert_rooted(&project.database("hpcrun-patched-database"), "patched");
}

/// rayon-core and what it needs.
const CORE_PACKAGES: [&str; 4] = [
    "rayon-core",
    "crossbeam-deque",
    "crossbeam-epoch",
    "crossbeam-utils",
];

/// Where cargo keeps a package that this workspace uses.
fn package_folder(name: &str) -> PathBuf {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let package = packages.iter().find(|p| p["name"] == name);
    let package = package.unwrap_or_else(|| panic!("the workspace uses {name}"));
    let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
    manifest.parent().expect("a manifest has a folder").into()
}

/// A project that has its dependencies in a folder of its own: rayon-core under another number.
fn vendored(test: &str, version: &str) -> Project {
    cached();
    let project = Project::new(test)
        .manifest(
            test,
            &format!("[dependencies]\nrayon-core = \"={version}\""),
        )
        .main("src/main.rs", JOIN_MAIN)
        .file(
            ".cargo/config.toml",
            "[source.crates-io]\nreplace-with = \"vendored\"\n[source.vendored]\ndirectory = \"vendor\"\n",
        );
    for name in CORE_PACKAGES {
        let from = package_folder(name);
        let to = project.folder.join("vendor").join(name);
        copy(&from, &to);
        let text = fs::read_to_string(from.join("Cargo.toml")).expect("it is readable");
        if name == "rayon-core" {
            let line = text.lines().find(|l| l.starts_with("version = "));
            let line = line.expect("the package has a version");
            let other = text.replacen(line, &format!("version = \"{version}\""), 1);
            fs::write(to.join("Cargo.toml"), other).expect("it can be written");
        }
        fs::write(to.join(".cargo-checksum.json"), "{\"files\":{}}").expect("it can be written");
    }
    project.locked()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("it can be made");
    for entry in fs::read_dir(from).expect("the package is there") {
        let path = entry.expect("the folder is readable").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("it can be copied");
        }
    }
}

#[test]
fn the_line_1_12_is_served_with_vendored_sources_and_another_wrapper() {
    let _machine = machine();
    let project = vendored("older", "1.12.1");
    let before = project.files();
    let (wrapper, log) = logging_wrapper(&project);
    let mut command = project.bare(&["-e", "cpu-time@1000", "--frozen"]);
    let outcome = Outcome::of(command.env("RUSTC_WRAPPER", &wrapper)).succeed();
    assert!(
        outcome.stderr.contains("rayon-core v1.12.1"),
        "{outcome:#?}"
    );
    assert_rooted(&project.database("hpcrun-older-database"), "older");
    assert_eq!(project.files(), before, "the user's files are untouched");
    let log = fs::read_to_string(log).expect("the user's wrapper was run");
    let of = |name: &str| {
        let calls = log
            .lines()
            .filter(|l| l.contains(&format!("--crate-name {name} ")));
        calls.collect::<Vec<_>>()
    };
    assert_eq!(of("work_stealing_rt").len(), 1, "{log}");
    assert!(
        of("rayon_core")[0].contains("work-stealing-rt/rayon-core/src/lib.rs"),
        "{log}"
    );
}

#[test]
fn a_dependency_of_tests_that_was_never_fetched_does_not_matter_offline() {
    let _machine = machine();
    let project = Project::new("partial")
        .manifest(
            "partial",
            "[dependencies]\nrayon-core = \"1.13\"\n[dev-dependencies]\nlibc = \"0.2\"",
        )
        .main("src/main.rs", JOIN_MAIN)
        .locked();
    // Cargo's home with the same index, but without the package libc.
    let home = project.folder.with_file_name("home");
    for name in CORE_PACKAGES {
        let source = package_folder(name);
        let [package, index, _, registry] = [0, 1, 2, 3].map(|n| source.ancestors().nth(n));
        let registry = registry.expect("REGISTRY/src/INDEX/PACKAGE");
        let file = |path: &Path| path.file_name().expect("a name").to_owned();
        let index = file(index.expect("a folder of an index"));
        let mut archive = file(package.expect("a package"));
        archive.push(".crate");
        let cache = home.join("registry/cache").join(&index);
        fs::create_dir_all(&cache).expect("it can be made");
        let from = registry.join("cache").join(&index).join(&archive);
        fs::copy(from, cache.join(archive)).expect("cargo keeps what it fetched");
        let link = home.join("registry/index");
        if !link.exists() {
            std::os::unix::fs::symlink(registry.join("index"), link).expect("it can be made");
        }
    }
    let before = project.files();
    let mut command = project.command(&["--offline", "-e", "cpu-time@1000"]);
    let outcome = Outcome::of(command.env("CARGO_HOME", &home)).succeed();
    assert_eq!(outcome.ours(), [""; 0], "nothing needs to be said");
    assert_rooted(&project.database("hpcrun-partial-database"), "partial");
    assert_eq!(project.files(), before, "the user's files are untouched");
}

#[test]
fn another_line_is_named_and_can_be_profiled_as_it_is() {
    let _machine = machine();
    let project = vendored("eldest", "1.10.0");
    let before = project.files();
    project
        .run(&[])
        .assert_clear(&["1.10.0", "1.12 and 1.13", "--no-patch"]);
    assert_eq!(project.files(), before, "the user's files are untouched");
    let outcome = project.run(&["--no-patch", "-q"]).succeed();
    assert!(outcome.stdout.contains("eldest::burn"), "{outcome:#?}");
}

#[test]
fn a_stripped_build_is_refused_in_words() {
    let _machine = machine();
    let project = Project::new("stripped")
        .manifest("stripped", "[dependencies]\nrayon = \"1.11\"")
        .main("src/main.rs", RAYON_MAIN)
        .locked();
    let mut command = project.bare(&[]);
    let outcome = Outcome::of(command.env("RUSTFLAGS", "-C strip=symbols"));
    outcome.assert_clear(&["without symbols", "RUSTFLAGS"]);
    assert!(release("cargo-hpcrun").is_file());
}
