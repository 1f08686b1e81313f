//! Load modules are analysed once: later builds take them from the user's cache, and nothing that
//! is kept there hides what a later run sampled.

use crate::support::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const C: &str = "\
volatile int word;
__attribute__((noinline)) int first(int n) { for (int i = 0; i < n; i++) word += i; return word; }
__attribute__((noinline)) int second(int n) { for (int i = 0; i < n; i++) word ^= i; return word; }
__attribute__((noinline)) int third(int n) { while (n--) word -= n; return word; }
int main(int argc, char **argv) { (void)argv; return first(argc) + second(argc) + third(argc); }
";

/// A program, and a cache of its own.
struct Place {
    temp: TempDir,
    addresses: BTreeMap<String, u64>,
}

impl Place {
    fn new() -> Place {
        let temp = TempDir::new();
        std::fs::write(temp.join("p.c"), C).expect("source");
        run("gcc", &["-O1", "-g", "p.c", "-o", "prog"], temp.path());
        let listed = run("nm", &["prog"], temp.path());
        let symbol = |line: &str| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            Some((words.nth(1)?.to_owned(), address))
        };
        let addresses = listed.lines().filter_map(symbol).collect();
        Place { temp, addresses }
    }

    fn address(&self, name: &str) -> u64 {
        *self.addresses.get(name).unwrap_or_else(|| panic!("{name}"))
    }

    /// Measurements with samples in these procedures, or at an address in none.
    fn measure(&self, directory: &str, names: &[&str]) {
        let mut run = Run::new();
        let program = self.temp.join("prog");
        run.module(1, &program.to_string_lossy(), &[]);
        let mut thread = ThreadBuilder::new(1);
        let entry = thread.entry();
        for name in names {
            let address = match *name {
                // The file's own header.
                "nowhere" => 0x10,
                name => self.address(name) + 1,
            };
            let node = thread.native(entry, at(1, address));
            thread.sample(node, 10, 0.0);
        }
        run.threads.push(thread);
        run.write(&self.temp.join(directory));
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hpcprof-rs"));
        command.args(arguments).env("XDG_CACHE_HOME", self.temp.join("cache")).current_dir(self.temp.path());
        command
    }

    /// Builds a database; the procedures that it names, and how the module's structure was got.
    fn build(&self, directory: &str, more: &[&str]) -> (String, String) {
        let all = [&[directory, "-v", "-o", "db", "--force"], more].concat();
        let output = self.command(&all).output().expect("the command starts");
        let said = finished(&output);
        let lines: Vec<&str> = said.lines().filter(|l| l.contains("/prog: ")).collect();
        assert_eq!(lines.len(), 1, "{said}");
        let how = if lines[0].contains(": from the cache in ") {
            "cache"
        } else {
            assert!(lines[0].contains(": analysed in "), "{said}");
            "analysed"
        };
        (self.names("db"), how.to_owned())
    }

    /// The view of a database, without what is not about procedures.
    fn names(&self, database: &str) -> String {
        let mut view = self.command(&["top-down", database, "--format", "csv"]);
        let output = view.output().expect("the command starts");
        finished(&output);
        String::from_utf8(output.stdout).expect("text")
    }

    fn entries(&self) -> Vec<PathBuf> {
        let folder = self.temp.join("cache/hpcrun-rs/structure");
        let Ok(entries) = std::fs::read_dir(folder) else {
            return Vec::new();
        };
        entries.map(|e| e.expect("entry").path()).collect()
    }
}

fn run(program: &str, arguments: &[&str], directory: &Path) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    finished(&output);
    String::from_utf8(output.stdout).expect("text")
}

/// Standard error of a command that succeeded.
fn finished(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn a_module_is_analysed_once() {
    let place = Place::new();
    place.measure("m", &["first", "nowhere"]);
    let (fresh, how) = place.build("m", &["--no-cache"]);
    assert_eq!(how, "analysed");
    assert!(fresh.contains("first") && place.entries().is_empty());
    assert_eq!(place.build("m", &[]), (fresh.clone(), "analysed".into()));
    assert_eq!(place.entries().len(), 1);
    assert_eq!(place.build("m", &[]), (fresh.clone(), "cache".into()));
    // Rules change the answer, so they have one of their own.
    std::fs::write(place.temp.join("rules"), "procedure first mine\n").expect("rules");
    let (other, how) = place.build("m", &["--rules", "rules"]);
    assert!(how == "analysed" && other != fresh);
    // A program that was built again is another one.
    std::fs::write(place.temp.join("p.c"), C.replace("+= i", "-= i * 3")).expect("source");
    run("gcc", &["-O1", "-g", "p.c", "-o", "prog"], place.temp.path());
    assert_eq!(place.build("m", &[]).1, "analysed");
}

#[test]
fn what_another_run_sampled_is_not_hidden() {
    let place = Place::new();
    place.measure("a", &["first"]);
    place.measure("b", &["second", "third", "nowhere"]);
    let of_a = place.build("a", &["--no-cache"]).0;
    let of_b = place.build("b", &["--no-cache"]).0;
    assert!(of_b.contains("second") && of_b.contains("third") && !of_b.contains("first"));
    assert_eq!(place.build("a", &[]), (of_a.clone(), "analysed".into()));
    assert_eq!(place.build("b", &[]), (of_b.clone(), "analysed".into()));
    // From now on both are kept: they do not take turns.
    for _ in 0..2 {
        assert_eq!(place.build("a", &[]), (of_a.clone(), "cache".into()));
        assert_eq!(place.build("b", &[]), (of_b.clone(), "cache".into()));
    }
    assert_eq!(place.entries().len(), 1);
}

#[test]
fn several_may_write_at_once() {
    let place = Place::new();
    let names = ["first", "second", "third"];
    for name in names {
        place.measure(name, &[name]);
    }
    for _ in 0..4 {
        let _ = std::fs::remove_dir_all(place.temp.join("cache"));
        let running: Vec<_> = (0..9)
            .map(|i| {
                let database = format!("db{i}");
                let arguments = [names[i % 3], "-o", &database, "--force"];
                let mut command = place.command(&arguments);
                command.stdout(Stdio::null()).stderr(Stdio::piped());
                let child = command.spawn().expect("starts");
                (child, database, names[i % 3])
            })
            .collect();
        for (child, database, name) in running {
            finished(&child.wait_with_output().expect("ends"));
            let view = place.names(&database);
            assert!(view.contains(name), "{name}: {view}");
        }
        assert_eq!(place.entries().len(), 1, "no half-written file is left");
        for name in names {
            assert!(place.build(name, &[]).0.contains(name));
        }
    }
}
