//! Names, inlining and lines against an independent reader of the same debug information, the
//! `addr2line` crate: at every span of small C and Rust programs, at all optimisation levels.

use crate::common::{Folder, NAMES_RS, whole};
use gimli::{EndianSlice, RunTimeEndian};
use hpc_formats::structure::{Origin, ScopeKind, SourceLine, Span, Structure};
use object::{Object, ObjectSection};
use std::path::Path;

type Oracle = addr2line::Context<EndianSlice<'static, RunTimeEndian>>;

fn oracle(path: &Path) -> Oracle {
    let data = std::fs::read(path).expect("readable");
    let file = object::File::parse(&*data).expect("ELF");
    let load = |id: gimli::SectionId| {
        let section = file.section_by_name(id.name());
        let bytes = section.map(|s| s.uncompressed_data().expect("undamaged").into_owned());
        // Kept until the test ends.
        let bytes: &'static [u8] = bytes.unwrap_or_default().leak();
        Ok::<_, gimli::Error>(EndianSlice::new(bytes, RunTimeEndian::Little))
    };
    Oracle::from_dwarf(gimli::Dwarf::load(load).expect("loads")).expect("DWARF")
}

/// A frame as (linkage or plain name, file, line), innermost first.
type Frame = (String, Option<String>, u32);

fn oracle_frames(oracle: &Oracle, address: u64) -> Vec<Frame> {
    let mut found = oracle.find_frames(address).skip_all_loads().expect("undamaged");
    let mut frames = Vec::new();
    while let Some(frame) = found.next().expect("undamaged") {
        let name = frame.function.and_then(|f| Some(f.raw_name().ok()?.into_owned()));
        let (file, line) = frame.location.map_or((None, None), |l| (l.file.map(normal), l.line));
        frames.push((name.unwrap_or_default(), file, line.unwrap_or(0)));
    }
    frames
}

/// Paths as we clean them.
fn normal(path: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    for segment in path.split('/').filter(|s| !s.is_empty() && *s != ".") {
        if segment == ".." {
            out.pop();
        } else {
            out.push(segment);
        }
    }
    format!("/{}", out.join("/"))
}

fn our_frames(structure: &Structure, span: &Span) -> Vec<Frame> {
    let place = |line: Option<SourceLine>| match line {
        Some(l) => (Some(structure.string(l.file).to_owned()), l.line),
        None => (None, 0),
    };
    let mut here = place(span.line);
    let mut frames = Vec::new();
    for id in structure.scope_chain(span).iter().rev() {
        let scope = &structure.scopes[id.0 as usize];
        if scope.kind == ScopeKind::Loop {
            continue;
        }
        frames.push((structure.string(scope.name).to_owned(), here.0, here.1));
        here = place(scope.site);
    }
    let procedure = &structure.procedures[span.procedure.0 as usize];
    frames.push((structure.string(procedure.name).to_owned(), here.0, here.1));
    frames
}

/// The comparable core of a name: the last path segment, without closure numbers.
fn core_of(name: &str) -> String {
    let demangled = match rustc_demangle::try_demangle(name) {
        Ok(name) => format!("{name:#}").replace("{{", "{").replace("}}", "}"),
        Err(_) => name.to_owned(),
    };
    let mut depth = 0;
    let mut plain = String::new();
    for c in demangled.replace("->", "").chars() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let last = plain.trim_end_matches(':').rsplit("::").next().unwrap_or("");
    let last = if last.contains("closure") { "closure" } else { last };
    last.to_owned()
}

/// Whether our frames at an address agree with the oracle's.
fn agree(ours: &[Frame], theirs: &[Frame], names: bool) -> bool {
    ours.len() == theirs.len()
        && ours.iter().zip(theirs).all(|(a, b)| {
            // Line 0 has no file in ours; the oracle keeps the line table's left-over.
            let same_place = a.2 == b.2 && (a.2 == 0 || a.1 == b.1);
            same_place && (!names || b.0.is_empty() || core_of(&a.0) == core_of(&b.0))
        })
}

/// Compares at the first and the last byte of every span; returns how many places differ.
fn compare(path: &Path) -> (usize, usize, String) {
    let structure = whole(path);
    let oracle = oracle(path);
    let (mut places, mut different, mut example) = (0, 0, String::new());
    for (i, span) in structure.spans.iter().enumerate() {
        // The standard library has most of the spans: a sample of them is enough.
        let procedure = &structure.procedures[span.procedure.0 as usize];
        if procedure.origin == Origin::System && i % 7 != 0 {
            continue;
        }
        for address in [span.start, span.end - 1] {
            let theirs = oracle_frames(&oracle, address);
            if theirs.iter().all(|f| f.0.is_empty()) {
                continue;
            }
            places += 1;
            let ours = our_frames(&structure, span);
            if !agree(&ours, &theirs, true) {
                different += 1;
                if example.is_empty() {
                    example = format!("{address:#x}\n ours   {ours:#?}\n theirs {theirs:#?}");
                }
            }
        }
    }
    (places, different, example)
}

fn expect_agreement(path: &Path, at_least: usize) {
    let (places, different, example) = compare(path);
    assert!(places >= at_least, "only {places} places compared");
    assert!(
        different * 10_000 <= places,
        "{different} of {places} places differ in {}, first: {example}",
        path.display()
    );
}

#[test]
fn rust_programs_at_all_levels() {
    let folder = Folder::new("oracle-rust");
    folder.write("shapes.rs", NAMES_RS);
    for (name, flags) in [
        ("o0", vec!["-Cdebuginfo=2"]),
        ("o1", vec!["-Cdebuginfo=1", "-Copt-level=1"]),
        ("o2", vec!["-Cdebuginfo=line-tables-only", "-Copt-level=2"]),
        ("o3", vec!["-Cdebuginfo=2", "-Copt-level=3", "-Csymbol-mangling-version=v0"]),
        ("lto", vec!["-Cdebuginfo=1", "-Copt-level=3", "-Clto=fat", "-Ccodegen-units=1"]),
    ] {
        let path = folder.rustc("shapes.rs", name, &flags);
        expect_agreement(&path, 5_000);
    }
}

const C: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static inline int twice(int x) { return x * 2 + (x >> 3); }
static inline int spread(int x) { int s = 0; for (int i = 0; i < x; i++) s += twice(i) ^ x; return s; }
__attribute__((cold, noinline)) static void complain(int x) { fprintf(stderr, "%d\n", x); }
int entry(int x) {
  if (__builtin_expect(x == 12345, 0)) { complain(x); abort(); }
  switch (x & 7) { case 0: return spread(x); case 1: return twice(x); case 2: return x; case 3: complain(x); return 5; default: break; }
  return spread(x + 1) + spread(x * 3);
}
int main(int argc, char **argv) { printf("%d %p\n", entry(argc), (void *)argv); return 0; }
"#;

#[test]
fn c_programs_at_all_levels_and_dwarf_versions() {
    let folder = Folder::new("oracle-c");
    folder.write("p.c", C);
    for level in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        for version in ["-gdwarf-3", "-gdwarf-4", "-gdwarf-5"] {
            let path = folder.gcc("p.c", "p", &[level, version]);
            expect_agreement(&path, 15);
        }
    }
    for flags in [["-O2", "-g", "-flto"], ["-O2", "-g", "-gz"], ["-O2", "-g", "-static"]] {
        let path = folder.gcc("p.c", "p", &flags);
        expect_agreement(&path, 15);
    }
}
