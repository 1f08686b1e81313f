//! Loops against those of LLVM: its assembly says of every basic block which loop it is in, by
//! LLVM's own dominator trees over its own blocks.
//!
//! Every block of that assembly gets a symbol, the assembly becomes a shared library, and headers,
//! depths and members are compared address by address. Procedures that have irreducible loops
//! are counted apart: LLVM has no notion of those. `rustc` is always there; `clang` is used
//! where it is installed. Further sources: `HPCSTRUCT_LOOP_SOURCES`, a list of .c files and Rust
//! crate roots, separated by colons; `HPCSTRUCT_LOOP_FLAGS` for flags of theirs. Assembly that LLVM
//! has written already: `HPCSTRUCT_LOOP_ASSEMBLY`, a folder of folders of .s files.

use crate::common::Folder;
use hpcstruct_rs::code::ProcedureLoops;
use object::{Object, ObjectSymbol};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the compiler says of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Block {
    procedure: String,
    /// Name of the block, as in `Header=BB0_3`.
    name: String,
    /// Name of the header of its innermost loop, and that loop's depth from 1.
    inner: Option<(String, u32)>,
    /// Whether it calls a procedure of [`never_back`].
    is_last: bool,
}

/// Procedures that never return by their documentation, though their declarations do not tell the
/// compiler: `HPCSTRUCT_LOOP_NEVER`, separated by commas. LLVM goes on after their calls.
fn never_back() -> Vec<String> {
    let names = std::env::var("HPCSTRUCT_LOOP_NEVER").unwrap_or_default();
    let names = names.split(',').filter(|n| !n.is_empty());
    names.map(str::to_owned).collect()
}

/// Appends the blocks in the order of the symbols `.Lhpc0`, `.Lhpc1` … to `blocks`; returns the
/// assembly with those. `file` tells procedures of several files apart.
fn instrument(file: usize, assembly: &str, blocks: &mut Vec<Block>) -> String {
    let mut out = String::with_capacity(assembly.len() * 2);
    let mut procedure = String::new();
    let mut open = false;
    let never = never_back();
    for line in assembly.lines() {
        let (code, comment) = match line.find(['#', ';']).or_else(|| line.find("//")) {
            Some(at) => line.split_at(at),
            None => (line, ""),
        };
        let code = code.trim();
        if let Some(name) = code.strip_suffix(':').filter(|n| !n.starts_with('.')) {
            procedure = name.trim_matches('"').to_owned();
        }
        let label = code.strip_suffix(':').and_then(|l| l.strip_prefix(".LBB"));
        let unnamed = comment.trim_start_matches(['#', '/', ';', ' ']).strip_prefix("%bb.");
        let name = match (label, unnamed) {
            (Some(label), _) => Some(format!("BB{label}")),
            // Unnamed blocks are no headers: any name will do.
            (None, Some(_)) if code.is_empty() => Some(String::new()),
            _ => None,
        };
        // Lines of the source are of no interest, and assemblers differ about them.
        if !code.starts_with(".file\t") && !code.starts_with(".loc\t") {
            let _ = writeln!(out, "{line}");
        }
        let called = code.split_once('\t').filter(|c| c.0.starts_with("call") || c.0 == "bl");
        let called = called.map_or("", |c| c.1.trim_end_matches("@PLT"));
        if let Some(block) = blocks.last_mut().filter(|_| never.iter().any(|n| n == called)) {
            block.is_last = true;
        }
        if let Some(name) = name {
            let _ = writeln!(out, ".Lhpc{}:", blocks.len());
            blocks.push(Block {
                procedure: format!("{file}: {procedure}"),
                name,
                inner: None,
                is_last: false,
            });
            open = true;
        } else if !code.is_empty() {
            open = false;
        }
        if let Some(block) = blocks.last_mut().filter(|_| open) {
            note(block, comment);
        }
    }
    out
}

/// Reads `in Loop: Header=BB0_3 Depth=2` and `This [Inner ]Loop Header: Depth=2`.
fn note(block: &mut Block, comment: &str) {
    let number = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().expect("a depth")
    };
    if let Some((_, rest)) = comment.split_once("in Loop: Header=") {
        let (header, depth) = rest.split_once(" Depth=").expect("a depth");
        block.inner = Some((header.to_owned(), number(depth)));
    }
    if comment.contains("This Loop Header: ") || comment.contains("This Inner Loop Header: ") {
        let (_, depth) = comment.split_once("Header: Depth=").expect("a depth");
        block.inner = Some((block.name.clone(), number(depth)));
    }
}

/// Assembles; returns the object file's name.
fn assemble(folder: &Folder, name: &str, assembly: &str) -> String {
    let source = format!("{name}.hpc.s");
    folder.write(&source, assembly);
    let object = format!("{name}.o");
    let flags = ["-c", "-Wa,--keep-locals", &source, "-o", &object];
    folder.run("gcc", &flags);
    object
}

/// Links objects into a library, whatever they lack.
fn link(folder: &Folder, name: &str, objects: &[String]) -> PathBuf {
    let library = format!("{name}.so");
    let mut arguments =
        vec!["-shared", "-nostdlib", "-Wl,-Bsymbolic,--discard-none,-z,muldefs", "-o", &library];
    arguments.extend(objects.iter().map(String::as_str));
    folder.run("gcc", &arguments);
    folder.0.join(library)
}

/// Addresses of the blocks' symbols.
fn addresses(library: &Path, count: usize) -> Vec<u64> {
    let data = std::fs::read(library).expect("readable");
    let file = object::File::parse(&*data).expect("ELF");
    let mut found = vec![u64::MAX; count];
    for symbol in file.symbols() {
        let name = symbol.name().unwrap_or("");
        if let Some(number) = name.strip_prefix(".Lhpc").and_then(|n| n.parse::<usize>().ok()) {
            found[number] = symbol.address();
        }
    }
    assert!(!found.contains(&u64::MAX), "every block has a symbol");
    found
}

/// What came of a comparison.
#[derive(Debug, Default, Clone, Copy)]
struct Score {
    /// Procedures in which either side sees a loop, and those that are the same in all.
    procedures: usize,
    equal: usize,
    /// Procedures with irreducible loops, left out of the rest.
    irreducible: usize,
    /// Procedures without loops in which we find one.
    invented: usize,
    /// Loops (header and depth) of the compiler, of ours, and of both.
    theirs: usize,
    ours: usize,
    both: usize,
}

impl Score {
    fn add(&mut self, other: Score) {
        self.procedures += other.procedures;
        self.equal += other.equal;
        self.irreducible += other.irreducible;
        self.invented += other.invented;
        self.theirs += other.theirs;
        self.ours += other.ours;
        self.both += other.both;
    }
}

impl Score {
    /// A row of a Markdown table.
    fn row(&self, name: &str) -> String {
        let percent = |part: usize, of: usize| 100.0 * part as f64 / of.max(1) as f64;
        format!(
            "| {name} | {} | {} ({:.2} %) | {} | {} | {} | {:.2} % | {:.2} % | {} |",
            self.procedures,
            self.equal,
            percent(self.equal, self.procedures),
            self.theirs,
            self.ours,
            self.both,
            percent(self.both, self.ours),
            percent(self.both, self.theirs),
            self.irreducible
        )
    }
}

/// Our header and depth of the innermost loop at an address.
fn inner(found: &ProcedureLoops, address: u64) -> Option<(u64, u32)> {
    let after = found.regions.partition_point(|r| r.range.end <= address);
    let region = found.regions.get(after)?;
    if region.range.start > address {
        return None;
    }
    let header = found.loops[region.inner as usize].header;
    let (mut depth, mut next) = (1, found.loops[region.inner as usize].parent);
    while let Some(parent) = next {
        depth += 1;
        next = found.loops[parent as usize].parent;
    }
    Some((header, depth))
}

fn compare(library: &Path, blocks: &[Block], verbose: bool) -> Score {
    let addresses = addresses(library, blocks.len());
    let loops = hpcstruct_rs::loops(library, 2).expect("a module");
    let by_entry: HashMap<u64, &ProcedureLoops> = loops.iter().map(|l| (l.entry, l)).collect();
    let mut procedures: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, block) in blocks.iter().enumerate() {
        procedures.entry(&block.procedure).or_default().push(i);
    }
    let mut score = Score::default();
    let nothing = ProcedureLoops::default();
    for (name, members) in procedures {
        let Some(entry) = members.iter().map(|i| addresses[*i]).min() else {
            continue;
        };
        let found = by_entry.get(&entry).copied().unwrap_or(&nothing);
        let names: HashMap<&str, u64> =
            members.iter().map(|i| (blocks[*i].name.as_str(), addresses[*i])).collect();
        // Empty blocks share the address of the next one: the last one there has the code.
        let expected: BTreeMap<u64, Option<(u64, u32)>> = members
            .iter()
            .map(|i| {
                let theirs = blocks[*i].inner.as_ref();
                let theirs = theirs.map(|(h, depth)| (names[h.as_str()], *depth));
                let ours = inner(found, addresses[*i]);
                // What does not come back is in fewer loops than LLVM believes.
                let depth = |l: Option<(u64, u32)>| l.map_or(0, |l| l.1);
                let leaves = blocks[*i].is_last && depth(ours) < depth(theirs);
                (addresses[*i], if leaves { ours } else { theirs })
            })
            .collect();
        if found.loops.iter().any(|l| l.irreducible) {
            score.irreducible += 1;
            continue;
        }
        let one = score_of(&expected, found);
        if verbose && one.equal < one.procedures {
            println!("{name} at {entry:#x}");
            for (address, theirs) in &expected {
                let ours = inner(found, *address);
                if ours != *theirs {
                    println!("  {address:#x}: ours {ours:x?} theirs {theirs:x?}");
                }
            }
        }
        score.add(one);
    }
    score
}

fn score_of(expected: &BTreeMap<u64, Option<(u64, u32)>>, found: &ProcedureLoops) -> Score {
    let mut theirs: Vec<(u64, u32)> = expected.values().flatten().copied().collect();
    theirs.sort_unstable();
    theirs.dedup();
    let ours: Vec<(u64, u32)> = found.loops.iter().filter_map(|l| inner(found, l.header)).collect();
    if theirs.is_empty() && ours.is_empty() {
        return Score::default();
    }
    let same = expected.iter().all(|(a, theirs)| inner(found, *a) == *theirs);
    Score {
        procedures: 1,
        equal: usize::from(same),
        irreducible: 0,
        invented: usize::from(theirs.is_empty()),
        both: ours.iter().filter(|l| theirs.contains(l)).count(),
        theirs: theirs.len(),
        ours: ours.len(),
    }
}

/// Compares the procedures of assembly files that make one module.
fn oracle(folder: &Folder, name: &str, assembly: &[PathBuf]) -> Score {
    let mut blocks = Vec::new();
    let mut objects = Vec::new();
    for (i, file) in assembly.iter().enumerate() {
        let text = std::fs::read_to_string(file).expect("assembly");
        let text = instrument(i, &text, &mut blocks);
        objects.push(assemble(folder, &format!("{name}{i}"), &text));
    }
    let library = link(folder, name, &objects);
    let verbose = std::env::var_os("HPCSTRUCT_LOOP_VERBOSE").is_some();
    let score = compare(&library, &blocks, verbose);
    println!("{name}: {score:?}");
    score
}

fn rustc(folder: &Folder, source: &Path, name: &str, flags: &[&str]) -> Score {
    let output = format!("{name}.s");
    let source = source.to_string_lossy();
    let mut arguments = vec!["--edition=2021", "--crate-type=lib", "--emit=asm", "-Zverbose-asm"];
    arguments.extend(["-Ccodegen-units=1", "--cap-lints=allow", &source, "-o", &output]);
    arguments.extend(flags);
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let status = Command::new(rustc)
        .args(&arguments)
        // The comments are an unstable option of every release.
        .env("RUSTC_BOOTSTRAP", "1")
        .current_dir(&folder.0)
        .status();
    assert!(status.expect("rustc runs").success(), "{arguments:?}");
    oracle(folder, name, &[folder.0.join(&output)])
}

fn clang(folder: &Folder, source: &Path, name: &str, flags: &[&str]) -> Score {
    let output = format!("{name}.s");
    let source = source.to_string_lossy();
    let mut arguments = vec!["-S", "-fPIC", "-w", "-fno-addrsig", &source, "-o", &output];
    arguments.extend(flags);
    folder.run("clang", &arguments);
    oracle(folder, name, &[folder.0.join(&output)])
}

fn can_run(program: &str) -> bool {
    let run = Command::new(program).arg("--version").output();
    run.is_ok_and(|o| o.status.success())
}

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/loops").join(name)
}

/// Precision and recall of loops, and the share of equal procedures, are at least `least` percent.
fn expect(score: Score, least: usize, loops: usize) {
    assert!(score.theirs >= loops, "only {} loops compared", score.theirs);
    for (part, of) in [(score.both, score.theirs), (score.both, score.ours), (score.equal, score.procedures)]
    {
        assert!(part * 100 >= of * least, "{part} of {of}: {score:?}");
    }
}

#[test]
fn rust_code_agrees_with_llvm() {
    let folder = Folder::new("loops-rust");
    let mut sum = Score::default();
    for (level, flags) in [
        ("o0", ["-Copt-level=0", "-Cpanic=unwind"]),
        ("o1", ["-Copt-level=1", "-Cpanic=unwind"]),
        ("o2", ["-Copt-level=2", "-Cpanic=abort"]),
        ("o3", ["-Copt-level=3", "-Ctarget-cpu=x86-64-v3"]),
        ("os", ["-Copt-level=s", "-Cpanic=unwind"]),
    ] {
        sum.add(rustc(&folder, &corpus("corpus.rs"), level, &flags));
    }
    println!("all: {sum:?}");
    expect(sum, 98, 100);
}

#[test]
fn c_code_agrees_with_llvm() {
    if !can_run("clang") {
        println!("SKIPPED: clang is not installed; C code was not compared with LLVM's loops");
        return;
    }
    let folder = Folder::new("loops-c");
    let mut sum = Score::default();
    for flags in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        sum.add(clang(&folder, &corpus("corpus.c"), &flags[1..], &[flags]));
    }
    println!("all: {sum:?}");
    expect(sum, 98, 60);
}

#[test]
fn further_sources_agree_with_llvm() {
    let Some(sources) = std::env::var_os("HPCSTRUCT_LOOP_SOURCES") else {
        println!("SKIPPED: HPCSTRUCT_LOOP_SOURCES names no further sources");
        return;
    };
    let flags = std::env::var("HPCSTRUCT_LOOP_FLAGS").unwrap_or_default();
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let folder = Folder::new("loops-further");
    let mut sum = Score::default();
    for (i, source) in std::env::split_paths(&sources).enumerate() {
        let name = format!("further{i}");
        let is_rust = source.extension().is_some_and(|e| e == "rs");
        sum.add(if is_rust {
            rustc(&folder, &source, &name, &flags)
        } else {
            clang(&folder, &source, &name, &flags)
        });
    }
    println!("all: {sum:?}");
    expect(sum, 98, 1);
}

/// The .s files of a folder.
fn assembly_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut files: Vec<PathBuf> = entries.map(|e| e.expect("readable").path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "s"));
    files.sort();
    files
}

#[test]
fn assembly_agrees_with_llvm() {
    let Some(root) = std::env::var_os("HPCSTRUCT_LOOP_ASSEMBLY") else {
        println!("SKIPPED: HPCSTRUCT_LOOP_ASSEMBLY names no folder with LLVM's assembly");
        return;
    };
    let groups = std::fs::read_dir(Path::new(&root)).expect("a folder");
    let mut groups: Vec<PathBuf> = groups.map(|g| g.expect("readable").path()).collect();
    groups.retain(|g| g.is_dir());
    groups.sort();
    let folder = Folder::new("loops-assembly");
    let mut sum = Score::default();
    let mut rows = String::new();
    for group in groups {
        let name = group.file_name().unwrap_or_default().to_string_lossy();
        println!("{name}");
        let score = oracle(&folder, "group", &assembly_files(&group));
        let _ = writeln!(rows, "{}", score.row(&name));
        sum.add(score);
    }
    println!(
        "| code | procedures with loops | equal | loops of LLVM | ours | both | precision | recall | irreducible, left out |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    println!("{rows}{}", sum.row("all"));
    expect(sum, 98, 1);
}
