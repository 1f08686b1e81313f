//! HPCToolkit's XML: a strict reader that follows the rules of hpcprof's finds in it what the
//! structure says; `xmllint`, where it is installed, validates it; HPCToolkit itself, where it is
//! installed, attributes a run by it.

use crate::common::{Folder, NAMES_RS, whole};
use hpc_formats::structure::{
    Origin, Procedure, ProcedureId, Scope, ScopeId, ScopeKind, SourceLine, Span, StringId,
};
use hpcstruct_rs::load_module::LoadModule;
use hpcstruct_rs::{Options, Structure, xml};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::process::Command;

/// The elements and attributes of HPCToolkit's structure files 4.9, as its reader takes them.
const DTD: &str = r#"<!DOCTYPE HPCToolkitStructure [
<!ELEMENT HPCToolkitStructure (LM)*>
<!ATTLIST HPCToolkitStructure version CDATA #REQUIRED i CDATA #REQUIRED n CDATA #IMPLIED>
<!ELEMENT LM (F|P)*>
<!ATTLIST LM i CDATA #REQUIRED n CDATA #REQUIRED has-calls CDATA #REQUIRED v CDATA #IMPLIED>
<!ELEMENT F (P|L|S)*>
<!ATTLIST F i CDATA #REQUIRED n CDATA #REQUIRED>
<!ELEMENT P (P|A|L|S|C)*>
<!ATTLIST P i CDATA #REQUIRED n CDATA #REQUIRED ln CDATA #IMPLIED l CDATA #IMPLIED s CDATA #IMPLIED v CDATA #IMPLIED>
<!ELEMENT A (A|L|S|C)*>
<!ATTLIST A i CDATA #REQUIRED f CDATA #IMPLIED n CDATA #IMPLIED ln CDATA #IMPLIED l CDATA #IMPLIED v CDATA #IMPLIED>
<!ELEMENT L (A|L|S|C)*>
<!ATTLIST L i CDATA #REQUIRED l CDATA #REQUIRED f CDATA #IMPLIED v CDATA #IMPLIED>
<!ELEMENT S EMPTY>
<!ATTLIST S i CDATA #REQUIRED l CDATA #REQUIRED v CDATA #IMPLIED>
<!ELEMENT C (C)*>
<!ATTLIST C i CDATA #REQUIRED l CDATA #REQUIRED v CDATA #IMPLIED t CDATA #IMPLIED d CDATA #IMPLIED>
]>
"#;

/// One element on its way through the text.
#[derive(Debug)]
struct Element {
    tag: String,
    attributes: HashMap<String, String>,
}

fn unescape(text: &str) -> String {
    assert!(!text.contains('<'), "{text}");
    let mut out = text.to_owned();
    for (entity, c) in [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'")] {
        out = out.replace(entity, c);
    }
    out.replace("&amp;", "&")
}

/// `name="value"` pairs; anything else fails.
fn attributes(mut text: &str) -> HashMap<String, String> {
    let mut found = HashMap::new();
    while !text.trim().is_empty() {
        let (name, rest) = text.trim_start().split_once("=\"").expect("an attribute");
        let (value, rest) = rest.split_once('"').expect("a closed value");
        assert!(found.insert(name.to_owned(), unescape(value)).is_none(), "{name} twice");
        text = rest;
    }
    found
}

/// `{[0xstart-0xend) …}`.
fn ranges(text: &str) -> Vec<(u64, u64)> {
    let body = text.strip_prefix('{').and_then(|t| t.strip_suffix('}'));
    let number = |t: &str| u64::from_str_radix(t.strip_prefix("0x").expect("0x"), 16).expect("hex");
    body.expect("braces")
        .split_whitespace()
        .map(|range| {
            let inner = range.strip_prefix('[').and_then(|r| r.strip_suffix(')'));
            let (start, end) = inner.expect("a range").split_once('-').expect("two ends");
            (number(start), number(end))
        })
        // hpcprof reads signed numbers.
        .inspect(|(start, end)| assert!(start < end && *end <= i64::MAX as u64))
        .collect()
}

/// What one address means, outermost first: the procedure, places of calls, inlined procedures,
/// loops, the line; each with its file and line.
type Meaning = Vec<String>;

/// A load module as hpcprof has it after reading.
#[derive(Debug, Default)]
struct Read {
    module: String,
    /// Name by entry address.
    entries: BTreeMap<u64, String>,
    leaves: BTreeMap<(u64, u64), Meaning>,
}

/// What hpcprof carries from an element to those within it.
#[derive(Clone, Debug)]
struct Around {
    /// The element; the second of two `A` is `B`.
    tag: char,
    file: Option<String>,
    meaning: Meaning,
    /// Line of the call that the first of two `A` states.
    call_line: u32,
    /// Line of the procedure: older readers lower it to that of what is directly in it.
    first_line: u32,
}

/// Reads the XML by the rules of hpcprof; what would make it refuse the file fails.
fn read(text: &str) -> Read {
    let mut open: Vec<(Element, Around)> = Vec::new();
    let mut numbers = BTreeSet::new();
    let mut out = Read::default();
    let body = text.strip_prefix("<?xml version=\"1.0\"?>\n");
    for line in body.expect("a prologue").lines() {
        let inner = line.strip_prefix('<').and_then(|l| l.strip_suffix('>'));
        for piece in inner.expect("one or more elements a line").split("><") {
            if let Some(tag) = piece.strip_prefix('/') {
                assert_eq!(open.pop().map(|(e, _)| e.tag).as_deref(), Some(tag));
                continue;
            }
            let is_empty = piece.ends_with('/');
            let piece = piece.trim_end_matches('/');
            let (tag, rest) = piece.split_once(' ').expect("attributes");
            let element = Element { tag: tag.to_owned(), attributes: attributes(rest) };
            assert!(numbers.insert(element.attributes["i"].clone()), "{line}");
            let around = open.last();
            let parent = around.map(|(e, _)| e.tag.as_str());
            let state = around.map(|(_, a)| a.clone()).unwrap_or(Around {
                tag: 'R',
                file: None,
                meaning: Meaning::new(),
                call_line: 0,
                first_line: 0,
            });
            let state = enter(&element, parent, state, &mut out);
            assert_eq!(is_empty, tag == "S", "{line}");
            if !is_empty {
                open.push((element, state));
            }
        }
    }
    assert!(open.is_empty());
    out
}

/// The state within an element.
fn enter(element: &Element, parent: Option<&str>, mut state: Around, out: &mut Read) -> Around {
    let within = |allowed: &[&str]| assert!(allowed.contains(&parent.unwrap_or("")), "{element:?}");
    let own_file = || element.attributes.get("f").cloned().filter(|f| !f.is_empty());
    let place = |file: &Option<String>, line: u32| {
        let file = file.as_deref().expect("a file around");
        format!("{file}:{line}")
    };
    match element.tag.as_str() {
        "HPCToolkitStructure" => within(&[""]),
        "LM" => {
            within(&["HPCToolkitStructure"]);
            // Without calls, `C` elements would be taken for damage.
            assert_eq!(element.attributes["has-calls"], "0");
            assert_eq!(std::mem::take(&mut out.module), "", "one module");
            out.module.clone_from(&element.attributes["n"]);
        }
        "F" => {
            within(&["LM"]);
            assert!(!element.attributes["n"].is_empty(), "a file has a name");
            state.file = element.attributes.get("n").cloned();
        }
        "P" => {
            within(&["F"]);
            let name = &element.attributes["n"];
            let entry = ranges(&element.attributes["v"]);
            assert!(matches!(entry[..], [(start, end)] if end == start + 1));
            let known = out.entries.insert(entry[0].0, name.clone());
            assert_eq!(known, None, "entries are distinct");
            state.first_line = number(element, "l");
            let at = place(&state.file, state.first_line);
            state.meaning = vec![format!("procedure {name} @ {at}")];
        }
        "L" => {
            within(&["P", "A", "L"]);
            assert_eq!(ranges(&element.attributes["v"]).len(), 1);
            let line = number(element, "l");
            assert!(line == 0 || line >= state.first_line, "{element:?}");
            state.first_line = 0;
            state.file = own_file().or(state.file);
            let at = place(&state.file, line);
            state.meaning.push(format!("loop {at}"));
        }
        "A" if state.tag == 'A' => {
            within(&["A"]);
            let call = place(&state.file, state.call_line);
            state.file = own_file().or(state.file);
            state.first_line = number(element, "l");
            let at = place(&state.file, state.first_line);
            let name = &element.attributes["n"];
            let inlined = [format!("call {call}"), format!("inlined {name} @ {at}")];
            state.meaning.extend(inlined);
            state.tag = 'B';
            return state;
        }
        "A" => {
            within(&["P", "A", "L"]);
            state.file = own_file().or(state.file);
            state.call_line = number(element, "l");
            state.first_line = 0;
        }
        "S" => {
            within(&["P", "A", "L"]);
            let line = number(element, "l");
            assert!(line == 0 || line >= state.first_line, "{element:?}");
            let at = place(&state.file, line);
            let mut meaning = state.meaning.clone();
            meaning.push(format!("line {at}"));
            for range in ranges(&element.attributes["v"]) {
                assert!(out.leaves.insert(range, meaning.clone()).is_none());
            }
        }
        other => panic!("unknown element {other}"),
    }
    state.tag = element.tag.chars().next().expect("a name");
    state
}

fn number(element: &Element, name: &str) -> u32 {
    element.attributes[name].parse().expect("a number")
}

/// The same from the structure itself.
fn meaning(structure: &Structure, span: &Span) -> Meaning {
    let name_of = |line: SourceLine| structure.string(line.file).to_owned();
    let at = |line: Option<SourceLine>, file: &str| {
        line.map_or(format!("{file}:0"), |l| format!("{}:{}", name_of(l), l.line))
    };
    // Where nothing is declared, the first code that lies directly in it tells the file.
    let first_line = |scope: Option<ScopeId>| {
        let spans = structure.spans.iter();
        let mut own = spans.filter(|s| s.procedure == span.procedure && s.scope == scope);
        own.find_map(|s| s.line)
    };
    let procedure = &structure.procedures[span.procedure.0 as usize];
    let declared = procedure.declared.or_else(|| first_line(None));
    let module = structure.module.rsplit('/').next().expect("a path");
    let mut file = declared.map_or(format!("[{module}]"), name_of);
    let line = declared.map_or(0, |l| l.line);
    let name = structure.string(procedure.name);
    let mut out = vec![format!("procedure {name} @ {file}:{line}")];
    for id in structure.scope_chain(span) {
        let scope = &structure.scopes[id.0 as usize];
        match scope.kind {
            ScopeKind::Inlined => {
                out.push(format!("call {}", at(scope.site, &file)));
                file = scope.site.map_or(file, name_of);
                let declared = scope.declared.or_else(|| first_line(Some(id)));
                let name = structure.string(scope.name);
                out.push(format!("inlined {name} @ {}", at(declared, &file)));
                file = declared.map_or(file, name_of);
            }
            ScopeKind::Loop => {
                out.push(format!("loop {}", at(scope.site, &file)));
                file = scope.site.map_or(file, name_of);
            }
        }
    }
    out.push(format!("line {}", at(span.line, &file)));
    out
}

/// Compares, address by address, what hpcprof would read with the structure.
fn check(structure: &Structure) -> Read {
    let module = LoadModule::read(structure, &Options::default()).expect("still there");
    let read = read(&xml::render(structure, &module));
    assert_eq!(read.module, structure.module);
    let bytes = |ranges: &mut dyn Iterator<Item = (u64, u64)>| -> u64 {
        ranges.map(|(start, end)| end - start).sum()
    };
    let covered = bytes(&mut read.leaves.keys().copied());
    let stated = bytes(&mut structure.spans.iter().map(|s| (s.start, s.end)));
    assert_eq!(covered, stated, "every byte once");
    for span in &structure.spans {
        let (range, found) = read.leaves.range(..=(span.start, u64::MAX)).next_back().expect("covered");
        assert!(range.0 <= span.start && span.end <= range.1);
        assert_eq!(found, &meaning(structure, span), "at {:#x}", span.start);
    }
    read
}

#[test]
fn every_address_means_in_the_xml_what_it_means_in_the_structure() {
    let folder = Folder::new("xml");
    folder.write("names.rs", NAMES_RS);
    let program = folder.rustc("names.rs", "names", &["-O", "-g"]);
    let structure = whole(&program);
    check(&structure);
    folder.run("strip", &["-s", "names"]);
    check(&whole(&program));

    let module = LoadModule::read(&structure, &Options::default()).expect("still there");
    let text = xml::render(&structure, &module);
    let (prologue, rest) = text.split_once('\n').expect("lines");
    let path = folder.write("with-dtd.xml", format!("{prologue}\n{DTD}{rest}"));
    match Command::new("xmllint").args(["--huge", "--noout", "--valid"]).arg(&path).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr))
        }
        Err(_) => eprintln!("SKIPPED: xmllint is not installed; only our own reader looked"),
    }
}

/// A call that never happens, whose code gcc moves to the front of the text.
const COLD_C: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static inline __attribute__((always_inline)) int twice(int x) { int s = 0; for (int i = 0; i < x; i++) s += i * x; return s; }
__attribute__((noinline)) int hot(int n) {
    int t = 0;
    for (int i = 0; i < n; i++) {
        if (__builtin_expect(i == 12345678, 0)) { for (int k = 0; k < n; k++) fprintf(stderr, "%d", k); abort(); }
        t += twice(i);
    }
    return t;
}
int main(int argc, char **argv) { (void)argv; printf("%d\n", hot(argc)); return 0; }
"#;

/// Addresses of symbols as binutils print them.
fn nm(path: &Path) -> HashMap<String, u64> {
    let output = Command::new("nm").arg(path).output().expect("nm runs");
    let text = String::from_utf8(output.stdout).expect("ASCII");
    let symbols = text.lines().filter_map(|line| {
        let (address, rest) = line.split_once(' ')?;
        let (_, name) = rest.split_once(' ')?;
        Some((name.to_owned(), u64::from_str_radix(address, 16).ok()?))
    });
    symbols.collect()
}

#[test]
fn a_procedure_whose_cold_part_comes_first_is_entered_at_its_symbol() {
    let folder = Folder::new("xml-cold");
    folder.write("cold.c", COLD_C);
    let program = folder.gcc("cold.c", "cold", &["-O2", "-g"]);
    let symbols = nm(&program);
    assert!(symbols["hot.cold"] < symbols["hot"], "the case that is tested");
    let structure = whole(&program);
    let cold = structure.span_at(symbols["hot.cold"]).expect("known code");
    let hot = structure.span_at(symbols["hot"]).expect("known code");
    assert_eq!(cold.procedure, hot.procedure, "one procedure in two parts");
    let read = check(&structure);
    for name in ["hot", "main", "_start"] {
        assert_eq!(read.entries.get(&symbols[name]), Some(&name.to_owned()));
    }
    assert!(!read.entries.contains_key(&symbols["hot.cold"]));

    // Without a symbol table of its own the symbols are the separate file's.
    folder.run("objcopy", &["--only-keep-debug", "cold", "cold.debug"]);
    folder.run("strip", &["-s", "cold"]);
    folder.run("objcopy", &["--add-gnu-debuglink=cold.debug", "cold"]);
    let read = check(&whole(&program));
    assert_eq!(read.entries.get(&symbols["hot"]), Some(&"hot".to_owned()));
}

#[test]
fn the_module_has_the_path_that_measurements_name() {
    let folder = Folder::new("xml-path");
    folder.write("p.c", "int main(void) { return 0; }\n");
    let program = folder.gcc("p.c", "p", &["-O1"]);
    std::fs::create_dir(folder.0.join("sub")).expect("a folder");
    // hpcprof passes over a module whose path is not absolute.
    for name in ["p", "./p", "sub/../p"] {
        let output = Command::new(env!("CARGO_BIN_EXE_hpcstruct-rs"))
            .args(["--no-cache", "--format", "hpcstruct", "-o", "-", name])
            .current_dir(&folder.0)
            .output()
            .expect("the command runs");
        let read = read(std::str::from_utf8(&output.stdout).expect("UTF-8"));
        assert_eq!(Path::new(&read.module), program, "{name}");
    }
    // An absolute path is kept: links, such as a library's, are known by their own names.
    std::os::unix::fs::symlink(&program, folder.0.join("link")).expect("a link");
    let link = folder.0.join("link");
    let module = LoadModule::read(&whole(&link), &Options::default()).expect("still there");
    assert_eq!((Path::new(&module.path), module.note), (&*link, None));

    // No text of ours could be equal to such a path.
    let odd = folder.0.join("odd\u{1}name");
    std::fs::copy(&program, &odd).expect("a copy");
    let output = Command::new(env!("CARGO_BIN_EXE_hpcstruct-rs"))
        .args(["--no-cache", "--format", "hpcstruct", "-o", "odd.hpcstruct"])
        .arg(&odd)
        .current_dir(&folder.0)
        .output()
        .expect("the command runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && messages.contains("XML cannot state this one"), "{messages}");
}

/// One procedure, of which the first two spans lie in an inlined scope and in a loop.
fn small(strings: [&str; 4]) -> Structure {
    let line = |file, line| {
        let file = StringId(file);
        Some(SourceLine { file, line })
    };
    let scope = |kind, name| Scope {
        kind,
        procedure: ProcedureId(0),
        parent: None,
        name: StringId(name),
        declared: line(3, 4),
        site: line(2, 5),
        origin: Origin::User,
    };
    let span = |start, scope: Option<u32>, line| Span {
        start,
        end: start + 4,
        procedure: ProcedureId(0),
        scope: scope.map(ScopeId),
        line,
        tag: None,
    };
    Structure {
        module: "/gone".to_owned(),
        strings: strings.map(str::to_owned).to_vec(),
        procedures: vec![Procedure {
            name: StringId(0),
            linkage_name: StringId(0),
            declared: line(2, 1),
            origin: Origin::User,
            tag: None,
        }],
        scopes: vec![
            scope(ScopeKind::Inlined, 1),
            scope(ScopeKind::Loop, 1),
            // Nothing lies in it.
            scope(ScopeKind::Loop, 1),
        ],
        spans: vec![
            span(0x10, Some(0), line(3, 7)),
            span(0x14, Some(1), line(2, 8)),
            span(0x18, None, line(3, 9)),
            span(0x1c, None, None),
        ],
        ..Structure::default()
    }
}

#[test]
fn names_that_xml_or_hpcprof_refuse_are_replaced() {
    let rendered = |strings| {
        let structure = small(strings);
        let module = LoadModule { path: structure.module.clone(), ..LoadModule::default() };
        read(&xml::render(&structure, &module))
    };
    let meanings = |strings| rendered(strings).leaves.into_values().collect::<Vec<_>>();
    let p = "procedure operator<&> @ /a b.c:1";
    let expected = [
        vec![p, "call /a b.c:5", "inlined it's \"q\" @ /ü\u{fffd}.c:4", "line /ü\u{fffd}.c:7"],
        vec![p, "loop /a b.c:5", "line /a b.c:8"],
        vec![p, "line /ü\u{fffd}.c:9"],
        vec![p, "line /a b.c:0"],
    ];
    let strings = ["operator<&>", "it's \"q\"", "/a\tb.c", "/ü\u{1}.c"];
    assert_eq!(meanings(strings), expected);

    // A file without a name would make hpcprof refuse all procedures, or name another file.
    let unknown = rendered(["f", "g", "", ""]);
    assert_eq!(unknown.entries[&0x10], "f");
    let places = unknown.leaves.values().flatten();
    for place in places.filter(|p| !p.starts_with("procedure")) {
        assert!(place.contains("[gone]:"), "{place}");
    }
}

/// A second of work in a loop of an inlined function, beside code that gcc moves away.
const BUSY_C: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static inline __attribute__((always_inline)) unsigned inner(unsigned x) { unsigned s = 0; for (unsigned i = 0; i < x % 64 + 64; i++) s += i * x ^ s >> 3; return s; }
__attribute__((noinline)) unsigned hot(unsigned n) {
    unsigned t = 0;
    for (unsigned i = 0; i < n; i++) {
        if (__builtin_expect(i == 4000000000u, 0)) { for (unsigned k = 0; k < n; k++) fprintf(stderr, "%u", k); abort(); }
        t += inner(i);
    }
    return t;
}
int main(int argc, char **argv) { printf("%u\n", hot(argc > 1 ? atoi(argv[1]) : 1)); return 0; }
"#;

/// Runs HPCToolkit's hpcrun. Cargo lets tests find libraries in the target folder, where a library
/// of ours has the name of one of hpcrun's.
fn run_hpcrun(folder: &Folder, arguments: &[&str]) {
    let test = std::env::current_exe().expect("a path");
    let target = test.ancestors().nth(2).expect("in target/PROFILE/deps");
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let others = std::env::split_paths(&path).filter(|p| !p.starts_with(target));
    let status = Command::new("hpcrun")
        .args(["-e", "CPUTIME@1000"])
        .args(arguments)
        .env("LD_LIBRARY_PATH", std::env::join_paths(others).expect("as before"))
        .current_dir(&folder.0)
        .status();
    assert!(status.expect("hpcrun runs").success());
}

#[test]
fn hpcprof_attributes_a_run_by_the_structure() {
    let found = |tool| Command::new(tool).arg("--version").output().is_ok();
    if !found("hpcrun") || !found("hpcprof") {
        eprintln!("SKIPPED: HPCToolkit is not installed; only a reader by its rules looked");
        return;
    }
    let folder = Folder::new("xml-hpcprof");
    folder.write("busy.c", BUSY_C);
    let program = folder.gcc("busy.c", "busy", &["-O2", "-g"]);
    run_hpcrun(&folder, &["-o", "run", "./busy", "8000000"]);
    let structure = whole(&program);
    let module = LoadModule::read(&structure, &Options::default()).expect("still there");
    // The debug information knows none of these names: what has them came through the XML.
    let told = [(" n=\"hot\"", " n=\"told procedure\""), (" n=\"inner\"", " n=\"told callee\"")];
    let mut text = xml::render(&structure, &module);
    for (name, other) in told {
        assert!(text.contains(name), "{text}");
        text = text.replace(name, other);
    }
    let lines = text.lines().map(|line| match line.strip_prefix("<L ") {
        Some(rest) => format!("<L {}\n", rest.replace("busy.c", "told loop.c")),
        None => format!("{line}\n"),
    });
    folder.write("run/structs/any.hpcstruct", lines.collect::<String>());
    let output = Command::new("hpcprof")
        .args(["-o", "database", "run"])
        .current_dir(&folder.0)
        .output()
        .expect("hpcprof runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    assert!(!messages.contains("pars"), "{messages}");
    let strings = std::fs::read(folder.0.join("database/meta.db")).expect("a database");
    for name in ["told procedure", "told callee", "told loop.c"] {
        let has_name = strings.windows(name.len()).any(|w| w == name.as_bytes());
        assert!(has_name, "{name} is not in the database: {messages}");
    }
}
