//! The programs under test, in the target directory of the test run: the tools in the profile of the tests,
//! so that both are built together, and what is profiled in release.
//!
//! Input: cargo and cc. Invariant: only one test at a time holds the [`ExclusiveCores`], over all test
//! binaries, so that no measurement is disturbed by another or by a build.

use nix::fcntl::{Flock, FlockArg};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

/// The repository's root.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace")
}

/// The folder of this test run's profile: the test binary is `TARGET/PROFILE/deps/NAME`.
fn profile() -> PathBuf {
    let binary = std::env::current_exe().expect("the test binary has a path");
    let profile = binary.ancestors().nth(2).expect("TARGET/PROFILE/deps/NAME");
    profile.to_path_buf()
}

/// The target directory of this test run.
pub fn target() -> PathBuf {
    let profile = profile();
    profile.parent().expect("TARGET/PROFILE").to_path_buf()
}

/// A folder of this package's own in the target directory.
pub fn scratch() -> PathBuf {
    let path = target().join("hpcrun-tests");
    std::fs::create_dir_all(&path).expect("the target directory is writable");
    path
}

/// Exclusive use of the machine's cores among all tests; released on drop.
#[derive(Debug)]
pub struct ExclusiveCores {
    _lock: Flock<File>,
    since: Instant,
}

impl Drop for ExclusiveCores {
    /// Notes for how long which test had the cores; `.ci/run` prints the longest.
    fn drop(&mut self) {
        let path = scratch().join("times");
        let seconds = self.since.elapsed().as_secs_f64();
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("a thread without a name");
        let file = File::options().create(true).append(true).open(path);
        let noted = file.and_then(|mut file| writeln!(file, "{seconds:.1} {test}"));
        if let Err(error) = noted {
            eprintln!("the test's time cannot be noted: {error}");
        }
    }
}

/// Waits for exclusive use of the cores, then builds what is not built yet.
pub fn exclusive_cores() -> ExclusiveCores {
    cores(FlockArg::LockExclusive)
}

/// As [`exclusive_cores`], beside others that ask for no more: programs with one thread, and what is the same
/// however busy the cores are.
pub fn one_core() -> ExclusiveCores {
    cores(FlockArg::LockShared)
}

fn cores(lock: FlockArg) -> ExclusiveCores {
    static BUILT: OnceLock<()> = OnceLock::new();
    let file = File::create(scratch().join("cores.lock")).expect("the lock file can be made");
    let lock = Flock::lock(file, lock).expect("the lock file can be locked");
    BUILT.get_or_init(build);
    let since = Instant::now();
    ExclusiveCores { _lock: lock, since }
}

/// The same command, with interrupts as at a terminal: whoever started the tests in the background of
/// a shell has them ignored, and so would all programs that are started here.
pub fn interruptible(command: &Command) -> Command {
    behind(&["env", "--default-signal=INT"], command)
}

/// The same command, by a program that executes it at the end of its own arguments.
pub fn behind(program: &[&str], command: &Command) -> Command {
    let mut whole = Command::new(program[0]);
    whole.args(&program[1..]).arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        whole.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => whole.env(name, value),
            None => whole.env_remove(name),
        };
    }
    whole
}

/// Runs a command to its end and panics with its output when it fails.
pub fn check(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?} cannot be run: {e}"));
    assert!(
        output.status.success(),
        "{command:?} failed with {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn build() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let as_tests = if profile().ends_with("release") { "release" } else { "dev" };
    // As `cargo test --workspace` has built them, down to the features of every dependency: those that only
    // tests need count where an example is asked for.
    let tools = "--bin hpcrun-rs --bin cargo-hpcrun --bin hpcprof-rs --bin hpcstruct-rs --example cholesky";
    for arguments in [&format!("--workspace --profile {as_tests} {tools}"), "--release -p hpcrun-fixtures"] {
        check(
            Command::new(&cargo)
                .current_dir(workspace())
                .env("CARGO_TARGET_DIR", target())
                .args(["build", "--quiet"])
                .args(arguments.split(' ')),
        );
    }
    build_c();
}

fn build_c() {
    let sources = workspace().join("fixtures/c");
    let flags: &[(&str, &[&str])] = &[
        ("pthreads", &["-pthread"]),
        ("locks", &["-pthread"]),
        ("paths", &["-pthread"]),
        ("inlined", &["-pthread"]),
        ("meets", &["-pthread"]),
        ("chain", &["-pthread"]),
        ("small_stack", &["-pthread"]),
        ("guest", &["-pthread", "-Wno-deprecated-declarations"]),
        ("drap", &[]),
        ("overhead", &[]),
        ("kernel", &[]),
        ("other_runtime", &[]),
        ("scenarios", &["-pthread", "-lrt"]),
        ("processes", &[]),
        ("cores", &["-pthread"]),
        ("library.so", &["-shared", "-fPIC"]),
        ("slow_clock.so", &["-shared", "-fPIC"]),
        ("static", &["-static"]),
        ("ends", &["-pthread"]),
        ("house", &["-pthread"]),
        ("bounds", &["-pthread"]),
        ("own_names", &["-pthread", "-fno-builtin"]),
        ("unloads", &["-pthread"]),
        ("early.so", &["-shared", "-fPIC", "-pthread", "-DLIBRARY"]),
        ("around_main", &[]),
        ("around_main.so", &["-shared", "-fPIC", "-DLIBRARY"]),
        ("elsewhere", &["-pthread", "-no-pie", "-Wl,--section-start=.hot=0x900000"]),
        ("children", &[]),
        ("sanitized", &["-rdynamic"]),
        ("musl", &["-Wl,--dynamic-linker=/lib/ld-musl-no-such.so.1"]),
        ("freestanding", &["-nostdlib", "-fno-stack-protector", "-fno-builtin", "-fPIE", "-pie"]),
        ("raw_child", &["-Wno-clobbered"]),
    ];
    let compile = |(name, flags): &(&str, &[&str])| {
        let source = match *name {
            "library.so" => "library.c",
            "static" | "musl" => "drap.c",
            "slow_clock.so" => "slow_clock.c",
            "early.so" => "ends.c",
            "around_main.so" => "around_main.c",
            _ => &format!("{name}.c"),
        };
        let mut cc = Command::new("cc");
        cc.current_dir(&sources)
            .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(scratch().join(name))
            .arg(source)
            .args(*flags);
        (source.to_owned(), cc.spawn().expect("cc can be run"))
    };
    // All start before the first is waited for.
    let compilers: Vec<_> = flags.iter().map(compile).collect();
    for (source, mut cc) in compilers {
        let status = cc.wait().expect("it was started");
        assert!(status.success(), "{source} by cc: {status}");
    }
}

/// A release binary of the workspace: a program to be profiled.
pub fn release(name: &str) -> PathBuf {
    target().join("release").join(name)
}

/// A built C program or library.
pub fn c_program(name: &str) -> PathBuf {
    scratch().join(name)
}

/// A fixture of `fixtures/c` by a compiler and with a library that not every machine has; without them this
/// says so and is `None`. `flags` name all that an empty program needs to be built with the library.
pub fn optional_program(name: &str, compiler: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let program = scratch().join(name);
    let compile = |source: &Path, program: &Path| {
        Command::new(compiler)
            .current_dir(workspace().join("fixtures/c"))
            .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(program)
            .arg(source)
            .args(flags)
            .output()
    };
    let extension = Path::new(source).extension().expect("a source has one");
    let empty = scratch().join("empty").with_extension(extension);
    let nothing = match extension.to_str() {
        Some("f90") => "end\n",
        _ => "int main(void) { return 0; }\n",
    };
    write_if_new(&empty, nothing);
    let tried = compile(&empty, &program);
    if !tried.as_ref().is_ok_and(|output| output.status.success()) {
        let why = tried.map_or_else(|e| e.to_string(), |o| String::from_utf8_lossy(&o.stderr).into_owned());
        println!("SKIPPED: {name}: {compiler} {} cannot be used here: {why}", flags.join(" "));
        return None;
    }
    let output = compile(Path::new(source), &program).expect("it has just run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{source} by {compiler}: {errors}");
    Some(program)
}

/// The Python interpreter itself, behind any script of that name; without one this says so and is `None`.
pub fn python() -> Option<PathBuf> {
    let mut ask = Command::new("python3");
    let output = ask.args(["-c", "import os, sys; print(os.path.realpath(sys.executable))"]).output();
    let found = output.ok().filter(|output| output.status.success());
    if found.is_none() {
        println!("SKIPPED: python3 is not installed; programs in Python were not profiled");
    }
    found.map(|output| String::from_utf8_lossy(&output.stdout).trim().into())
}

/// A script of `fixtures/python`.
pub fn python_script(name: &str) -> String {
    let path = workspace().join("fixtures/python").join(name);
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// Whether a program of the system can be run.
pub fn can_run(program: &str) -> bool {
    let run = Command::new(program).arg("--version").output();
    run.is_ok_and(|o| o.status.success())
}

/// A fresh folder for one test, removed by the next run of the same test.
pub fn folder(test: &str) -> PathBuf {
    let path = scratch().join("work").join(test);
    if path.exists() {
        std::fs::remove_dir_all(&path).expect("the last run's folder can be removed");
    }
    std::fs::create_dir_all(&path).expect("the target directory is writable");
    path
}

/// A command that runs one of our tools with the settings of a user who set none, and a cache that is
/// not the user's.
pub fn tool(name: &str) -> Command {
    let mut command = Command::new(tool_path(name));
    command.env("XDG_CACHE_HOME", scratch().join("user-cache"));
    for (variable, _) in std::env::vars_os() {
        if is_ours(&variable) {
            command.env_remove(variable);
        }
    }
    command
}

/// One of our tools.
pub fn tool_path(name: &str) -> PathBuf {
    profile().join(name)
}

fn is_ours(variable: &OsStr) -> bool {
    variable
        .to_str()
        .is_some_and(|v| v.starts_with("HPCRUN_") || v.starts_with("WORK_STEALING_RT_") || v == "LD_PRELOAD")
}

/// Which rayon-core a fixture of `fixtures/rayon` is built with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rayon {
    /// The published one, as users have it.
    Stock,
    /// The one on top of work-stealing-rt.
    Patched,
}

/// A release binary of `fixtures/rayon`, built when it is first asked for.
///
/// The package lies outside of the workspace, because one build graph holds one rayon-core only:
/// it is copied with absolute paths, once for each rayon-core, and starts from the workspace's lock
/// file, so that both have the same rayon.
pub fn rayon_program(rayon: Rayon, name: &str) -> PathBuf {
    static STOCK: OnceLock<PathBuf> = OnceLock::new();
    static PATCHED: OnceLock<PathBuf> = OnceLock::new();
    let built = match rayon {
        Rayon::Stock => STOCK.get_or_init(|| build_rayon("rayon-stock", "")),
        Rayon::Patched => PATCHED.get_or_init(|| {
            let core = workspace().join("work-stealing-rt/rayon-core");
            let patch = format!("\n[patch.crates-io]\nrayon-core = {{ path = {core:?} }}\n");
            build_rayon("rayon-patched", &patch)
        }),
    };
    built.join(name)
}

fn build_rayon(folder_name: &str, patch: &str) -> PathBuf {
    let source = workspace().join("fixtures/rayon");
    let copy = scratch().join(folder_name);
    let programs = copy.join("src/bin");
    std::fs::create_dir_all(&programs).expect("the target directory is writable");
    let manifest = std::fs::read_to_string(source.join("Cargo.toml")).expect("the manifest");
    let absolute = format!("{:?}", workspace().join("fixtures/programs"));
    let manifest = manifest.replace("\"../programs\"", &absolute);
    write_if_new(&copy.join("Cargo.toml"), &format!("{manifest}{patch}"));
    let lock = std::fs::read_to_string(workspace().join("Cargo.lock")).expect("the lock file");
    if !copy.join("Cargo.lock").exists() {
        write_if_new(&copy.join("Cargo.lock"), &lock);
    }
    let entries = std::fs::read_dir(source.join("src/bin")).expect("the fixtures' sources");
    for entry in entries {
        let path = entry.expect("the folder is readable").path();
        let text = std::fs::read_to_string(&path).expect("a source file");
        let name = path.file_name().expect("a file has a name");
        write_if_new(&programs.join(name), &text);
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    check(Command::new(cargo).current_dir(&copy).env("CARGO_TARGET_DIR", copy.join("target")).args([
        "build",
        "--release",
        "--quiet",
    ]));
    copy.join("target/release")
}

/// Writes a file unless it has that text already: cargo goes by the time of change.
fn write_if_new(path: &Path, text: &str) {
    if std::fs::read_to_string(path).is_ok_and(|old| old == text) {
        return;
    }
    std::fs::write(path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}
