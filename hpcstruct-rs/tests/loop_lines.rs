//! Loops by the lines that name them, their nesting and the inlined calls they lie in: C by gcc,
//! Rust by rustc, at all optimisation levels. The corpus says in comments which loops there are.

use crate::common::{Folder, procedure_name, whole};
use hpc_formats::structure::{ScopeId, ScopeKind, Structure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const C: &str = include_str!("loops/corpus.c");
const RUST: &str = include_str!("loops/corpus.rs");

/// A loop as the corpus or a structure states it: its line, and that of the loop around it.
type Line = (u32, Option<u32>);

/// Loops by procedure; the second list is of procedures that have some loop.
fn marks(source: &str) -> (BTreeMap<String, BTreeSet<Line>>, Vec<String>) {
    let mut lines: BTreeMap<&str, u32> = BTreeMap::new();
    let mut some = Vec::new();
    for (i, line) in source.lines().enumerate() {
        let comment = line.split_once("/* ").or_else(|| line.split_once("// "));
        let Some((code, mark)) = comment else {
            continue;
        };
        let mark = mark.split([' ', ':']).next().unwrap_or("");
        if code.trim().is_empty() {
            continue;
        }
        match mark.strip_prefix('~') {
            Some(name) => some.push(name.to_owned()),
            None => {
                lines.insert(mark, i as u32 + 1);
            }
        }
    }
    let mut out: BTreeMap<String, BTreeSet<Line>> = BTreeMap::new();
    for (mark, line) in &lines {
        let procedure = mark.split('.').next().unwrap_or(mark);
        let around = mark.rsplit_once('.').and_then(|(outer, _)| lines.get(outer));
        let loops = out.entry(procedure.to_owned()).or_default();
        loops.insert((*line, around.copied()));
    }
    (out, some)
}

/// The loops around a scope, innermost first, as (file, line).
fn loops_around(structure: &Structure, scope: Option<ScopeId>) -> Vec<(String, u32)> {
    let mut out = Vec::new();
    let mut next = scope;
    while let Some(id) = next {
        let scope = &structure.scopes[id.0 as usize];
        if scope.kind == ScopeKind::Loop {
            let site = scope.site.expect("a place in the source");
            let file = structure.string(site.file);
            let base = file.rsplit('/').next().unwrap_or(file);
            assert_eq!(structure.string(scope.name), format!("loop at {base}:{}", site.line));
            out.push((base.to_owned(), site.line));
        }
        next = scope.parent;
    }
    out
}

/// The loops of each procedure of the corpus. Loops of one line around each other count once.
fn found(path: &Path, file: &str) -> BTreeMap<String, BTreeSet<Line>> {
    let structure = whole(path);
    let mut out: BTreeMap<String, BTreeSet<Line>> = BTreeMap::new();
    for span in &structure.spans {
        let procedure = &structure.procedures[span.procedure.0 as usize];
        let declared = procedure.declared.map(|d| structure.string(d.file).to_owned());
        let name = procedure_name(&structure, span);
        if !declared.is_some_and(|d| d.ends_with(file)) && !name.starts_with("corpus::") {
            continue;
        }
        let name = name.rsplit("::").next().unwrap_or(name);
        let mut around = loops_around(&structure, span.scope);
        around.dedup();
        for (i, (at, line)) in around.iter().enumerate() {
            assert_eq!(at, file, "{name}: a loop at {at}:{line}");
            let outer = around.get(i + 1).map(|l| l.1);
            out.entry(name.to_owned()).or_default().insert((*line, outer));
        }
    }
    out
}

#[test]
fn c_loops_have_the_lines_of_their_source() {
    let (expected, some) = marks(C);
    assert!(expected.len() >= 13 && some.len() == 2, "{expected:?} {some:?}");
    let folder = Folder::new("loop-lines-c");
    folder.write("corpus.c", C);
    let inner = *expected["inlined_sum"].first().expect("marked");
    for flags in [
        vec!["-O0"],
        vec!["-O1"],
        vec!["-O2"],
        vec!["-O3"],
        vec!["-O3", "-mavx2", "-funroll-loops"],
        vec!["-Os"],
        vec!["-O2", "-gdwarf-4"],
    ] {
        let mut all = vec!["-g", "-shared", "-fPIC"];
        all.extend(&flags);
        let library = folder.gcc("corpus.c", "corpus.so", &all);
        let found = found(&library, "corpus.c");
        for name in &some {
            assert!(found.contains_key(name), "{flags:?}: no loop in {name}");
        }
        for (name, loops) in &expected {
            let mut loops = loops.clone();
            match name.as_str() {
                "inlined_sum" => continue,
                "calls_inlined" => {
                    let outer = loops.first().expect("marked").0;
                    loops.insert((inner.0, Some(outer)));
                }
                _ => {}
            }
            assert_eq!(found.get(name), Some(&loops), "{flags:?}: {name}");
        }
    }
}

#[test]
fn a_loop_of_inlined_code_lies_in_the_inlined_call() {
    let folder = Folder::new("loop-lines-inlined");
    folder.write("corpus.c", C);
    let flags = ["-g", "-O2", "-shared", "-fPIC"];
    let structure = whole(&folder.gcc("corpus.c", "corpus.so", &flags));
    let (expected, _) = marks(C);
    let line = |name: &str| expected[name].first().expect("marked").0;
    let chain = [
        format!("loop at corpus.c:{}", line("calls_inlined")),
        "inlined_sum".to_owned(),
        format!("loop at corpus.c:{}", line("inlined_sum")),
    ];
    let is_there = structure.spans.iter().any(|span| {
        let scopes = structure.scope_chain(span);
        let names = scopes.iter().map(|s| structure.string(structure.scopes[s.0 as usize].name));
        names.eq(chain.iter().map(String::as_str))
    });
    assert!(is_there, "loop > inlined call > loop");
}

/// LLVM gives a call that it has put together from several the line 0.
#[test]
fn a_loop_of_a_call_without_a_line_goes_by_its_own_line() {
    const SOURCE: &str = r#"
#line 5 "/usr/include/inner.h"
static inline __attribute__((always_inline)) long total(const long *p, long n)
{
    long sum = 0;
    for (long i = 0; i < n; i++)
        sum += p[i] * p[i];
    return sum;
}
#line 20 "user.c"
long outer(const long *p, long n)
{
    return total(p, n);
}
"#;
    const CALL: &str = "\t# DW_AT_call_line";
    let folder = Folder::new("loop-lines-zero");
    folder.write("user.c", SOURCE);
    let assembly = ["-g", "-gdwarf-4", "-O1", "-dA", "-S", "-fPIC"];
    let text = std::fs::read_to_string(folder.gcc("user.c", "user.s", &assembly));
    let text = text.expect("gcc writes assembly");
    let without: Vec<String> = text
        .lines()
        .map(|line| match line.strip_suffix(CALL) {
            Some(_) => format!("\t.byte\t0{CALL}"),
            None => line.to_owned(),
        })
        .collect();
    folder.write("without.s", without.join("\n"));
    folder.write("with.s", &text);
    for (source, expected) in [("with.s", "loop at user.c:22"), ("without.s", "loop at inner.h:8")] {
        let structure = whole(&folder.gcc(source, &format!("{source}.so"), &["-shared"]));
        let loops = structure.scopes.iter().filter(|s| s.kind == ScopeKind::Loop);
        let names: Vec<&str> = loops.map(|s| structure.string(s.name)).collect();
        assert_eq!(names, [expected], "{source}");
    }
}

#[test]
fn rust_loops_have_the_lines_of_the_users_source() {
    let (expected, _) = marks(RUST);
    assert!(expected.len() >= 10, "{expected:?}");
    let folder = Folder::new("loop-lines-rust");
    folder.write("corpus.rs", RUST);
    for flags in [
        vec!["-Cdebuginfo=2", "-Copt-level=2"],
        vec!["-Cdebuginfo=1", "-Copt-level=3"],
        vec!["-Cdebuginfo=line-tables-only", "-Copt-level=3"],
        vec!["-Cdebuginfo=1", "-Copt-level=3", "-Clto=fat", "-Cpanic=abort"],
    ] {
        let mut all = vec!["--crate-type=cdylib", "-Ccodegen-units=1"];
        all.extend(&flags);
        let library = folder.rustc("corpus.rs", "corpus.so", &all);
        let found = found(&library, "corpus.rs");
        for (name, loops) in &expected {
            // `repeat` is inlined into `closures`.
            let name = if name == "repeat" { "closures" } else { name };
            let here = found.get(name);
            let here = here.unwrap_or_else(|| panic!("{flags:?}: no loop in {name}: {found:?}"));
            assert!(loops.is_subset(here), "{flags:?}: {name} has {here:?}, expected {loops:?}");
        }
    }
}

#[test]
fn the_result_does_not_depend_on_threads_nor_on_what_else_is_wanted() {
    use hpcstruct_rs::{Options, analyse};
    let folder = Folder::new("loop-lines-threads");
    folder.write("corpus.rs", RUST);
    let flags = ["--crate-type=cdylib", "-Cdebuginfo=1", "-Copt-level=2"];
    let library = folder.rustc("corpus.rs", "corpus.so", &flags);
    let with = |threads, addresses| {
        let options = Options { threads, addresses, ..Options::default() };
        analyse(&library, &options).expect("a module")
    };
    let one = with(1, None);
    assert!(one == with(7, None), "threads make a difference");
    // Each procedure alone has the same loops as among all.
    let describe = |structure: &Structure, from: u64, to: u64| -> Vec<_> {
        let spans = structure.spans.iter();
        spans
            .filter(|s| s.start >= from && s.end <= to)
            .map(|s| (s.start, s.end, loops_around(structure, s.scope)))
            .filter(|s| !s.2.is_empty())
            .collect()
    };
    let mut compared = 0;
    for span in one.spans.iter().filter(|s| s.scope.is_some()) {
        let name = procedure_name(&one, span);
        if !name.starts_with("corpus::") {
            continue;
        }
        let alone = with(1, Some(vec![span.start]));
        let (Some(first), Some(last)) = (alone.spans.first(), alone.spans.last()) else {
            panic!("{name} is gone");
        };
        let expected = describe(&one, first.start, last.end);
        assert_eq!(describe(&alone, first.start, last.end), expected, "{name}");
        compared += expected.len();
        if compared > 200 {
            break;
        }
    }
    assert!(compared > 50, "only {compared} spans in loops");
}
