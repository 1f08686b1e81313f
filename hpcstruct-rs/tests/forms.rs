//! Every form in which debug information comes: what is found must not depend on the form.
//!
//! The truth is the same program built with plain `-g`: the same compiler makes the same code, so
//! the same frames and lines must come out. Tools that are not installed are named loudly.

use crate::common::{Folder, NAMES_RS, frames, has_name, whole};
use hpcstruct_rs::{Options, Structure, analyse};
use std::path::Path;
use std::process::Command;

const C: &str = r#"
#include <stdio.h>
volatile int sink;
struct pair { int a, b; };
static inline int twice(int x) { for (int i = 0; i < x; i++) sink += i; return x * 2; }
static inline int sum(struct pair p) { return twice(p.a) + p.b; }
__attribute__((noinline)) static int entry(int x) { struct pair p = { x, 3 }; return sum(p) + 1; }
int main(int argc, char **argv) { (void)argv; printf("%d\n", entry(argc)); return 0; }
"#;

/// Frames and line of every span of the program's own procedures, in the order of the code.
fn picture(structure: &Structure, own: &[&str]) -> Vec<(Vec<String>, Option<u32>)> {
    let spans = structure.spans.iter();
    spans
        .filter_map(|span| {
            let names = frames(structure, span);
            let procedure = names.last()?;
            own.iter().any(|o| procedure.starts_with(o)).then(|| {
                let names = names.iter().map(|n| (*n).to_owned()).collect();
                (names, span.line.map(|l| l.line))
            })
        })
        .collect()
}

fn of_c(structure: &Structure) -> Vec<(Vec<String>, Option<u32>)> {
    assert!(structure.notes.is_empty(), "{:?}", structure.notes);
    picture(structure, &["entry", "main"])
}

/// Whether `tool` can be run; says so when not.
fn installed(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: {tool} is not installed; its form of debug information is not tested");
    }
    found
}

#[test]
fn every_version_and_every_place_of_dwarf_tells_the_same() {
    let folder = Folder::new("forms-c");
    folder.write("p.c", C);
    for compiler in ["gcc", "clang"] {
        if !installed(compiler) {
            continue;
        }
        let build = |output: &str, flags: &[&str]| {
            let mut arguments = vec!["p.c", "-O2", "-o", output];
            arguments.extend(flags);
            folder.run(compiler, &arguments);
            whole(&folder.0.join(output))
        };
        let truth = of_c(&build("plain", &["-g"]));
        let has = |name: &str| truth.iter().any(|(frames, _)| frames[0] == name);
        assert!(has("twice") && has("entry"), "{truth:?}");
        for flags in [
            &["-gdwarf-3"][..],
            &["-gdwarf-4"],
            &["-gdwarf-5"],
            &["-gdwarf-4", "-gsplit-dwarf"],
            &["-gdwarf-5", "-gsplit-dwarf"],
            &["-g", "-gz=zlib"],
            &["-gdwarf-5", "-gsplit-dwarf", "-gz=zlib"],
            &["-g", "-fPIC", "-pie"],
            &["-g", "-no-pie"],
        ] {
            let got = of_c(&build("p", flags));
            // A position-dependent program has other instructions, not other lines.
            let lines = |p: &[(Vec<String>, Option<u32>)]| {
                let stated = p.iter().filter(|(_, line)| line.is_some());
                let mut all: Vec<_> = stated.cloned().collect();
                all.sort();
                all.dedup();
                all
            };
            assert_eq!(lines(&got), lines(&truth), "{compiler} {flags:?}");
        }
    }
}

#[test]
fn compressed_sections_tell_the_same() {
    let folder = Folder::new("forms-compressed");
    folder.write("p.c", C);
    let truth = of_c(&whole(&folder.gcc("p.c", "plain", &["-O2", "-g"])));
    for kind in ["zlib", "zlib-gnu", "zstd"] {
        let flag = format!("--compress-debug-sections={kind}");
        let done = Command::new("objcopy")
            .args([&flag, "plain", "packed"])
            .current_dir(&folder.0)
            .output()
            .expect("objcopy runs");
        if !done.status.success() {
            eprintln!("SKIPPED: this objcopy cannot compress by {kind}");
            continue;
        }
        let packed = folder.0.join("packed");
        let size = |p: &Path| std::fs::metadata(p).expect("exists").len();
        assert!(size(&packed) < size(&folder.0.join("plain")), "{kind}");
        assert_eq!(of_c(&whole(&packed)), truth, "{kind}");
    }
}

#[test]
fn rustc_packages_and_objects_tell_the_same() {
    let folder = Folder::new("forms-rust");
    folder.write("names.rs", NAMES_RS);
    let own = |s: &Structure| {
        assert!(s.notes.is_empty(), "{:?}", s.notes);
        picture(s, &["names::", "<names::"])
    };
    let flags = ["-O", "-g", "-C", "codegen-units=4"];
    let truth = own(&whole(&folder.rustc("names.rs", "plain", &flags)));
    let has = |name: &str| truth.iter().any(|(frames, _)| frames[0].contains(name));
    assert!(has("mixed") && has("{closure#0}"), "{truth:?}");
    for mode in ["packed", "unpacked"] {
        let split = format!("split-debuginfo={mode}");
        let mut all = flags.to_vec();
        all.extend(["-C", &split]);
        let path = folder.rustc("names.rs", mode, &all);
        assert_eq!(own(&whole(&path)), truth, "{mode}");
        // Only some procedures are asked for: only their units are read.
        let structure = whole(&path);
        let wanted =
            structure.spans.iter().find(|s| frames(&structure, s).contains(&"names::shapes::helper::mixed"));
        let options =
            Options { addresses: Some(vec![wanted.expect("it is inlined").start]), ..Options::default() };
        let some = analyse(&path, &options).expect("analysed");
        assert!(some.procedures.len() == 1 && has_name(&some, "names::shapes::helper::mixed"));
    }
    // Objects that were moved beside the program, and are gone from where they were built.
    let moved = folder.0.join("moved");
    std::fs::create_dir(&moved).expect("created");
    let entries = std::fs::read_dir(&folder.0).expect("readable");
    for entry in entries.map(|e| e.expect("readable").path()) {
        if entry.extension().is_some_and(|e| e == "dwo") {
            let name = entry.file_name().expect("a name");
            std::fs::rename(&entry, moved.join(name)).expect("moved");
        }
    }
    let lost = whole(&folder.0.join("unpacked"));
    assert!(lost.notes.iter().any(|n| n.contains("--debug-dir")));
    let options = Options { debug_directories: vec![moved], ..Options::default() };
    let found = analyse(&folder.0.join("unpacked"), &options).expect("analysed");
    assert_eq!(own(&found), truth);
}

#[test]
fn a_mapped_compilation_directory_is_written_once() {
    let folder = Folder::new("forms-prefix");
    folder.write("sub/a.c", "#include \"../inc/b.h\"\nint main(int c, char **v) { return of(c); }");
    folder.write("inc/b.h", "static __attribute__((noinline)) int of(int c) { return c * 3; }");
    let top = folder.0.to_str().expect("UTF-8");
    for compiler in ["gcc", "clang"] {
        if !installed(compiler) {
            continue;
        }
        for version in ["-gdwarf-4", "-gdwarf-5"] {
            let build = format!("cd sub && {compiler} -O1 {version} -ffile-prefix-map={top}=. a.c -o ../p");
            folder.run("sh", &["-c", &build]);
            let structure = whole(&folder.0.join("p"));
            let lines = structure.spans.iter().filter_map(|span| span.line);
            let files = lines.map(|line| structure.string(line.file));
            let mut files: Vec<&str> = files.map(|file| file.strip_prefix("./").unwrap_or(file)).collect();
            files.sort_unstable();
            files.dedup();
            assert_eq!(files, ["inc/b.h", "sub/a.c"], "{compiler} {version}");
        }
    }
}

#[test]
fn what_dwz_moved_to_a_shared_file_is_found() {
    if !installed("dwz") {
        return;
    }
    let folder = Folder::new("forms-dwz");
    folder.write("p.c", C);
    folder.write("q.c", C.replace("x * 2", "x * 4"));
    let truth = of_c(&whole(&folder.gcc("p.c", "p", &["-O2", "-g"])));
    folder.gcc("q.c", "q", &["-O2", "-g"]);
    folder.run("dwz", &["-m", "common.dwz", "p", "q"]);
    let moved =
        Command::new("readelf").args(["-SW", "p"]).current_dir(&folder.0).output().expect("readelf runs");
    assert!(String::from_utf8_lossy(&moved.stdout).contains(".gnu_debugaltlink"));
    assert_eq!(of_c(&whole(&folder.0.join("p"))), truth);
    std::fs::remove_file(folder.0.join("common.dwz")).expect("dwz wrote it");
    let lost = whole(&folder.0.join("p"));
    assert!(lost.notes.iter().any(|n| n.contains("common.dwz")));
}

#[test]
fn symbols_that_distributions_pack_into_stripped_modules_are_found() {
    if !installed("xz") {
        return;
    }
    let folder = Folder::new("forms-mini");
    folder.write("p.c", C);
    let path = folder.gcc("p.c", "p", &["-O2", "-Wl,--build-id=none"]);
    folder.run("objcopy", &["--only-keep-debug", "p", "p.debug"]);
    folder.run("objcopy", &["-S", "--keep-symbol=entry", "--keep-symbol=main", "p.debug", "mini"]);
    folder.run("xz", &["mini"]);
    folder.run("strip", &["-s", "p"]);
    assert!(!has_name(&whole(&path), "entry"));
    folder.run("objcopy", &["--add-section=.gnu_debugdata=mini.xz", "p"]);
    assert!(has_name(&whole(&path), "entry") && has_name(&whole(&path), "main"));

    // Damaged: said, and the rest is kept.
    let mut packed = std::fs::read(folder.0.join("mini.xz")).expect("readable");
    let middle = packed.len() / 2;
    packed[middle] ^= 0x55;
    folder.write("bad.xz", packed);
    folder.run("objcopy", &["--update-section=.gnu_debugdata=bad.xz", "p"]);
    let damaged = whole(&path);
    assert!(!has_name(&damaged, "entry") && !damaged.procedures.is_empty());
    assert!(damaged.notes.iter().any(|n| n.contains(".gnu_debugdata")));
}
