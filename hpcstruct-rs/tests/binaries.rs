//! Binaries as the world has them: linked statically, with musl, with debug packages of a
//! distribution, and whole system programs. What cannot be had here is named loudly.

use crate::common::{C, Folder, NAMES_RS, frames, has_name, procedure_name, whole};
use hpc_formats::structure::ScopeKind;
use hpcstruct_rs::{Options, Structure, analyse};
use object::{Object as _, ObjectSymbol as _};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Frames, loops among them, and line of all code of `entry` and `main`.
fn picture(structure: &Structure) -> BTreeSet<(Vec<String>, u32)> {
    assert!(structure.notes.is_empty(), "{:?}", structure.notes);
    let own = |name: &str| name == "entry" || name == "main";
    let spans = structure.spans.iter();
    let spans = spans.filter(|s| own(procedure_name(structure, s)));
    spans
        .filter_map(|span| {
            let chain = structure.scope_chain(span);
            let scope =
                |id: &hpc_formats::structure::ScopeId| structure.string(structure.scopes[id.0 as usize].name);
            let mut names: Vec<String> = chain.iter().map(|id| scope(id).to_owned()).collect();
            names.push(procedure_name(structure, span).to_owned());
            Some((names, span.line?.line))
        })
        .collect()
}

#[test]
fn the_number_of_threads_does_not_matter() {
    // Large enough for several parts of every table.
    let path = std::env::current_exe().expect("a path");
    let with_threads = |threads| {
        let options = Options { threads, ..Options::default() };
        analyse(&path, &options).expect("analysed")
    };
    let expected = with_threads(1);
    assert!(expected.spans.len() > 1 << 15 && expected.scopes.len() > 1 << 15);
    assert!(with_threads(3) == expected);
}

#[test]
fn linked_in_every_way_a_program_is_the_same() {
    let folder = Folder::new("binaries-static");
    folder.write("p.c", C);
    let build = |flags: &[&str]| {
        let flags = [&["-O2", "-g"], flags].concat();
        picture(&whole(&folder.gcc("p.c", "p", &flags)))
    };
    let truth = build(&[]);
    assert!(truth.iter().any(|(names, _)| names[0] == "twice"));
    assert!(truth.iter().any(|(names, _)| names.len() == 3), "{truth:?}");
    for flags in [
        &["-no-pie"][..],
        &["-static", "-no-pie"],
        &["-static-pie"],
        &["-Wl,-z,separate-code"],
        &["-Wl,--gc-sections", "-ffunction-sections"],
        &["-Wl,--build-id=none"],
    ] {
        assert_eq!(build(flags), truth, "{flags:?}");
    }
}

#[test]
fn rust_with_musl() {
    let folder = Folder::new("binaries-musl");
    folder.write("names.rs", NAMES_RS);
    let build = |flags: &[&str]| {
        let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
        Command::new(rustc)
            .args(["--edition", "2021", "names.rs", "-o", "p", "-O"])
            .args(["-Cdebuginfo=1"])
            .args(flags)
            .current_dir(&folder.0)
            .output()
            .expect("rustc runs")
    };
    let target = "--target=x86_64-unknown-linux-musl";
    let output = build(&[target]);
    if !output.status.success() {
        println!("SKIPPED: rustc has no {target}; programs with musl are not tested");
        return;
    }
    for flags in [&[][..], &["-Crelocation-model=static"]] {
        let flags = [&[target], flags].concat();
        assert!(build(&flags).status.success());
        let structure = whole(&folder.0.join("p"));
        for name in ["names::main", "names::shapes::Ring<T>::outline"] {
            assert!(has_name(&structure, name), "{name} {flags:?}");
        }
        assert!(structure.scopes.iter().any(|s| s.kind == ScopeKind::Loop));
    }
}

/// The address of a function of a library.
fn address_of(path: &Path, name: &str) -> u64 {
    let data = std::fs::read(path).expect("readable");
    let file = object::File::parse(&*data).expect("ELF");
    let mut symbols = file.dynamic_symbols();
    let found = symbols.find(|s| s.name() == Ok(name));
    found.expect("a symbol").address()
}

#[test]
fn debug_packages_of_the_distribution() {
    let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    let folder = Path::new("/usr/lib/debug/.build-id");
    let has_file = |path: &Path| {
        let data = std::fs::read(path).ok()?;
        let file = object::File::parse(&*data).ok()?;
        let id = file.build_id().ok()??;
        let hex: String = id[1..].iter().map(|b| format!("{b:02x}")).collect();
        let place = folder.join(format!("{:02x}/{hex}.debug", id[0]));
        place.is_file().then_some(())
    };
    if has_file(libc).is_none() {
        println!("SKIPPED: the C library's debug package is not installed, or is not Debian's");
        return;
    }
    let address = address_of(libc, "qsort_r");
    let options = Options { addresses: Some(vec![address]), ..Options::default() };
    let structure = analyse(libc, &options).expect("analysed");
    let span = structure.span_at(address).expect("code");
    let line = span.line.expect("a line");
    let file = structure.string(line.file);
    assert!(file.ends_with("sort.c"), "{file}");
    assert!(frames(&structure, span).iter().any(|f| f.contains("qsort_r")));
}

#[test]
fn whole_programs_of_the_system() {
    let mut found = 0;
    for path in [
        "/usr/bin/python3",
        "/usr/bin/gdb",
        "/usr/bin/perl",
        "/usr/bin/bash",
        "/usr/bin/node",
        "/usr/lib/chromium/chromium",
        "/lib64/ld-linux-x86-64.so.2",
    ] {
        let path = Path::new(path);
        if !path.is_file() {
            println!("SKIPPED: {} is not installed", path.display());
            continue;
        }
        let structure = whole(path);
        found += 1;
        let covered: u64 = structure.spans.iter().map(|s| s.end - s.start).sum();
        assert!(covered > 50_000, "{}: {covered}", path.display());
        let ordered = structure.spans.windows(2).all(|w| w[0].end <= w[1].start);
        assert!(ordered, "{}", path.display());
        let loops = structure.scopes.iter();
        let loops = loops.filter(|s| s.kind == ScopeKind::Loop).count();
        assert!(loops > 100, "{}: {loops}", path.display());
    }
    assert!(found > 0, "no program of the system was found");
}
