//! Loops whose way leads through exception handlers, in C++ and Rust code: what is in which loop is
//! known by construction, whatever the compiler and the level.

use crate::common::{Folder, procedure_name, whole};
use hpc_formats::structure::{ScopeKind, Structure};
use hpcstruct_rs::Options;
use std::path::PathBuf;
use std::process::Command;

/// No header is needed, so that any target will do. Each marked line calls a function, so it has code
/// at every level. A mark names the procedure and the number of loops around the line.
const CPP: &str = r#"
extern "C" { int step(int); void note(int); void done(int); void before(int); }
struct Guard { int n; ~Guard() { done(n); } };

extern "C" int retry(int n) {
    for (;;) {
        try { return step(n); }
        catch (...) { note(n); }  // retry 1: the only way back
    }
}
extern "C" int go_on(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) {
        try { sum += step(i); }  // go_on 1: may throw
        catch (int e) { note(e); continue; }  // go_on 1: goes on
        sum ^= 5;
        done(sum);  // go_on 1: without an exception
    }
    note(sum);  // go_on 0: after the loop
    return sum;
}
extern "C" int nested(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) {
        before(i);  // nested 1: in the outer loop
        for (;;) {
            try { sum += step(i); break; }
            catch (int e) { note(e); }  // nested 2: tries again
        }
    }
    return sum;
}
extern "C" int leaves(int n) {
    int sum = 0;
    while (n-- > 0) {
        try { sum += step(n); }  // leaves 1: leaves by an exception
        catch (...) { note(sum); return -1; }  // leaves 0: the handler is outside
    }
    return sum;
}
extern "C" int through_values(int (**steps)(int), int n) {
    for (;;) {
        try { return steps[n](n); }
        catch (...) { note(n); }  // through_values 1: the call is through a pointer
    }
}
extern "C" int once(int n) {
    Guard guard{n};
    try { return step(n); }
    catch (int e) { note(e); throw; }  // once 0: no loop at all
}
extern "C" __attribute__((noinline)) void fails(int n) { throw n; }
extern "C" __attribute__((noinline)) int by_handler_only(int n) {
    try { fails(n); }
    catch (int e) { return e + 1; }
    __builtin_unreachable();
}
extern "C" int repeated(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) {
        sum += by_handler_only(i);
        done(sum);  // repeated 1: comes back by the handler
    }
    return sum;
}
"#;

/// Procedures and their loops.
const LOOPS: [(&str, usize); 8] = [
    ("retry", 1),
    ("go_on", 1),
    ("nested", 2),
    ("leaves", 1),
    ("through_values", 1),
    ("once", 0),
    ("by_handler_only", 0),
    ("repeated", 1),
];

fn can_run(program: &str) -> bool {
    let run = Command::new(program).arg("--version").output();
    run.is_ok_and(|o| o.status.success())
}

/// A line that says how many loops are around it.
struct Mark<'s> {
    line: u32,
    procedure: &'s str,
    loops: usize,
}

fn marked(source: &str) -> Vec<Mark<'_>> {
    let mut marks = Vec::new();
    for (text, line) in source.lines().zip(1..) {
        if let Some((_, comment)) = text.split_once("// ") {
            let (mark, _) = comment.split_once(':').expect("a mark");
            let (procedure, loops) = mark.split_once(' ').expect("procedure and number");
            let loops = loops.parse().expect("a number");
            marks.push(Mark { line, procedure, loops });
        }
    }
    assert!(marks.len() > 2);
    marks
}

/// The most loops around the code of a line: some of it may be computed before.
fn depth(structure: &Structure, mark: &Mark<'_>) -> Option<usize> {
    let spans = structure.spans.iter();
    let of_line = spans.filter(|s| {
        let name = procedure_name(structure, s);
        let own = name.rsplit("::").next() == Some(mark.procedure);
        own && s.line.is_some_and(|l| l.line == mark.line && structure.string(l.file).contains("/pads."))
    });
    let is_loop =
        |id: &hpc_formats::structure::ScopeId| structure.scopes[id.0 as usize].kind == ScopeKind::Loop;
    let depths = of_line.map(|s| {
        let chain = structure.scope_chain(s);
        chain.iter().filter(|id| is_loop(id)).count()
    });
    depths.max()
}

fn loops_of(structure: &Structure, procedure: &str) -> usize {
    let named = |s: &&hpc_formats::structure::Scope| {
        let owner = &structure.procedures[s.procedure.0 as usize];
        s.kind == ScopeKind::Loop && structure.string(owner.name) == procedure
    };
    structure.scopes.iter().filter(named).count()
}

/// The line that names the only loop of a procedure.
fn line_of_loop(structure: &Structure, procedure: &str) -> Option<u32> {
    let named = |s: &&hpc_formats::structure::Scope| {
        let owner = &structure.procedures[s.procedure.0 as usize];
        s.kind == ScopeKind::Loop && structure.string(owner.name) == procedure
    };
    let found = structure.scopes.iter().find(named)?;
    found.site.map(|l| l.line)
}

fn check(structure: &Structure, source: &str, loops: &[(&str, usize)], what: &str) {
    for mark in marked(source) {
        let place = format!("{} line {}, {what}", mark.procedure, mark.line);
        assert_eq!(depth(structure, &mark), Some(mark.loops), "{place}");
    }
    for (name, expected) in loops {
        let has = |s: &&hpc_formats::structure::Span| procedure_name(structure, s) == *name;
        assert!(structure.spans.iter().any(|s| has(&s)), "{name}, {what}");
        assert_eq!(loops_of(structure, name), *expected, "{name}, {what}");
    }
}

/// Compiles the C++ code into a shared library that links nothing.
fn library(folder: &Folder, compiler: &str, linker: &str, flags: &[&str]) -> PathBuf {
    let mut arguments = vec!["-g", "-fPIC", "-c", "pads.cc", "-o", "pads.o"];
    arguments.extend(flags);
    folder.run(compiler, &arguments);
    let link = ["-shared", "-nostdlib", "pads.o", "-o", "pads.so"];
    folder.run(linker, &link);
    folder.0.join("pads.so")
}

const LEVELS: [&str; 5] = ["-O0", "-O1", "-O2", "-O3", "-Os"];

fn cpp(compiler: &str, linker: &str) {
    if !can_run(compiler) || !can_run(linker) {
        println!("SKIPPED: {compiler} or {linker} is not installed; its handlers are not tested");
        return;
    }
    let folder = Folder::new(&format!("pads-{compiler}"));
    folder.write("pads.cc", CPP);
    for level in LEVELS {
        let path = library(&folder, compiler, linker, &[level]);
        let structure = whole(&path);
        check(&structure, CPP, &LOOPS, &format!("{compiler} {level}"));
        // The handler's code does not name a loop that other code controls.
        let mut lines = CPP.lines().zip(1..).skip_while(|l| !l.0.contains("go_on"));
        let stated = lines.find(|l| l.0.contains("for (")).map(|l| l.1);
        assert_eq!(line_of_loop(&structure, "go_on"), stated, "{compiler} {level}");
        // By symbols and unwind entries alone the loops are the same.
        folder.run("strip", &["--strip-debug", "pads.so"]);
        let bare = whole(&path);
        for (procedure, expected) in LOOPS {
            // A cold part without debug information is a procedure of its own.
            let found = loops_of(&bare, procedure);
            assert_eq!(found, expected, "{procedure}, {compiler} {level}, stripped");
        }
    }
}

#[test]
fn loops_of_gcc_lead_through_handlers() {
    cpp("g++", "g++");
}

#[test]
fn loops_of_clang_lead_through_handlers() {
    cpp("clang++", "gcc");
}

const RUST: &str = r#"
use std::panic::catch_unwind;
#[inline(never)]
fn step(n: u64) -> u64 { if std::hint::black_box(n) % 3 == 0 { panic!("{n}") } n }
#[inline(never)]
fn note(n: u64) { std::hint::black_box(n); }
struct Guard(u64);
impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) { note(self.0); }
}
#[inline(never)]
fn retry(n: u64) -> u64 {
    loop {
        match catch_unwind(|| step(n)) {
            Ok(found) => return found,
            Err(_) => note(n), // retry 1: the only way back
        }
    }
}
#[inline(never)]
fn go_on(n: u64) -> u64 {
    let mut sum = 0;
    for i in 0..n {
        match catch_unwind(|| step(i)) {
            Ok(found) => sum ^= found,
            Err(_) => note(i), // go_on 1: goes on
        }
    }
    note(sum); // go_on 0: after the loop
    sum
}
#[inline(never)]
fn cleans_up(n: u64) -> u64 {
    let guard = Guard(n);
    let sum = step(n) ^ step(n + 1); // cleans_up 0: no loop
    sum ^ guard.0
}
fn main() {
    let n = std::env::args().count() as u64;
    println!("{} {} {}", retry(n), go_on(n), cleans_up(n));
}
"#;

#[test]
fn loops_of_rust_lead_through_handlers() {
    let folder = Folder::new("pads-rust");
    folder.write("pads.rs", RUST);
    let loops = [("pads::retry", 1), ("pads::go_on", 1), ("pads::cleans_up", 0)];
    for level in [
        &["-Copt-level=0"][..],
        &["-Copt-level=1"],
        &["-Copt-level=2"],
        &["-Copt-level=3"],
        &["-Copt-level=3", "-Clto=fat", "-Ccodegen-units=1"],
    ] {
        let flags = [&["-Cdebuginfo=2"], level].concat();
        let path = folder.rustc("pads.rs", "p", &flags);
        let first = whole(&path);
        check(&first, RUST, &loops, &format!("{level:?}"));
        let options = Options { threads: 1, ..Options::default() };
        let again = hpcstruct_rs::analyse(&path, &options).expect("analysed");
        assert!(first.encode() == again.encode(), "{level:?}");
    }
}

#[test]
fn damaged_tables_of_handlers_are_survived() {
    use object::{Object as _, ObjectSection as _};
    let folder = Folder::new("pads-damaged");
    folder.write("pads.cc", CPP);
    let path = library(&folder, "g++", "g++", &["-O2"]);
    let whole = std::fs::read(&path).expect("readable");
    let (start, length) = {
        let file = object::File::parse(&*whole).expect("ELF");
        let section = file.section_by_name(".gcc_except_table");
        let section = section.expect("code with handlers");
        section.file_range().expect("bytes")
    };
    let options = Options { threads: 1, ..Options::default() };
    let mut differ = 0;
    let sound = hpcstruct_rs::analyse_bytes("pads.so", &whole, &options).expect("sound");
    for at in start..start + length {
        for pattern in [0x00, 0xff, 0x80, whole[at as usize] ^ 1] {
            let mut data = whole.clone();
            data[at as usize] = pattern;
            let found = hpcstruct_rs::analyse_bytes("pads.so", &data, &options);
            let found = found.expect("the headers are sound");
            assert!(found.scopes.len() < 1000);
            let ordered = found.spans.windows(2).all(|w| w[0].end <= w[1].start);
            assert!(ordered, "{at:#x} {pattern:#x}");
            differ += usize::from(found.scopes.len() != sound.scopes.len());
        }
    }
    assert!(differ > 10, "the table is what is read: {differ}");
}
