//! The signal handler is async-signal-safe: proved on the machine code of the library that is
//! preloaded, and watched while it runs.
//!
//! Static: from the handler, over every direct call and jump in the library's disassembly, only
//! functions of libc that are async-signal-safe (or documented to be so by glibc) are reached, no
//! allocator, no lock, no thread-local look-up. Panics are where the walk stops: they abort the
//! process, and the code states why they cannot happen. Calls through a pointer in a register
//! are listed by the function that makes them, and that list is fixed here (a function that keeps
//! libc's address in a register is judged by that address).
//!
//! Dynamic: programs that allocate all the time, at 5000 Hz; the library counts allocations of
//! its own that happen inside the handler, and the program reads the counter at its end.

use hpcrun_tests::run::Spec;
use hpcrun_tests::tools::{check, exclusive_cores, folder, tool};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

/// What the handler may call in libc: POSIX's list, plus system call wrappers that keep no state.
const ALLOWED: &[&str] = &[
    "__errno_location",
    "bcmp",
    "clock_getres",
    "clock_gettime",
    "fallocate",
    "fcntl",
    "getpid",
    "ioctl",
    "madvise",
    "memcmp",
    "memcpy",
    "memmove",
    "memset",
    "mmap",
    "munmap",
    "open",
    "pread",
    "process_vm_readv",
    "pwrite",
    "pwrite64",
    "strlen",
];

/// Functions that call through a pointer: libc's `sigaction`, glibc's `_dl_find_object`, and the
/// owner-of-a-frame function (walked as a root of its own).
const INDIRECT: &[&str] = &["6signal10set_action", "7loadmap6locate", "6cursor6Cursor"];

/// The handler, what the entry calls before it, and what may have been inlined into its only callers.
const ROOTS: &[&str] = &["6signal6handle17h", "5entry13handler_stack17h", "6agents8owner_of17h"];

/// The library, as the launcher installs it.
fn library() -> PathBuf {
    let folder = folder("signal-safety");
    let output = folder.join("measurements");
    check(tool("hpcrun-rs").env("XDG_CACHE_HOME", &folder).args(["-q", "-o"]).arg(&output).arg("/bin/true"));
    let cache = folder.join("hpcrun-rs");
    let mut found = std::fs::read_dir(cache).expect("the launcher made its cache folder");
    let entry = found.next().expect("the library is there");
    entry.expect("the folder is readable").path()
}

/// What one function's code leads to.
#[derive(Debug, Default)]
struct Function {
    local: BTreeSet<String>,
    imported: BTreeSet<String>,
    indirect: bool,
    holds_import: bool,
}

fn disassemble(library: &PathBuf) -> BTreeMap<String, Function> {
    let text = check(Command::new("objdump").args(["-d", "-M", "intel", "--no-show-raw-insn"]).arg(library));
    let mut functions: BTreeMap<String, Function> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(name) = header(line) {
            current = name.to_owned();
            functions.entry(current.clone()).or_default();
        } else if let Some(function) = functions.get_mut(&current) {
            branch(line, &current, function);
        }
    }
    functions
}

/// `0000000000016940 <name>:`
fn header(line: &str) -> Option<&str> {
    line.strip_suffix(">:")?.split_once('<').map(|(_, name)| name)
}

fn branch(line: &str, current: &str, function: &mut Function) {
    let instruction = line.split('\t').nth(1).unwrap_or("");
    let target = instruction.rsplit_once('<').and_then(|(_, rest)| rest.strip_suffix('>'));
    let transfers = instruction.starts_with("call") || instruction.starts_with('j');
    if !transfers {
        // A libc function's address kept in a register for several calls.
        if instruction.starts_with("mov") && instruction.contains("QWORD PTR [rip") {
            if let Some((name, _)) = target.and_then(|t| t.split_once('@')) {
                function.imported.insert(name.to_owned());
                function.holds_import = true;
            }
        }
        return;
    }
    match target {
        Some(target) if instruction.contains("QWORD PTR") => match target.split_once('@') {
            Some((name, _)) => {
                function.imported.insert(name.to_owned());
            }
            // A jump table or a static function pointer of the library's own.
            None => function.indirect = true,
        },
        Some(target) => {
            let name = target.split('+').next().unwrap_or(target);
            match name.strip_suffix("@plt") {
                Some(name) => function.imported.insert(name.to_owned()),
                None if name != current => function.local.insert(name.to_owned()),
                None => false,
            };
        }
        // `jmp rax` is a jump table within the function; `call rax` is a call to anywhere.
        None => function.indirect |= instruction.starts_with("call"),
    }
}

fn is_panic(name: &str) -> bool {
    ["panic", "_fail", "unwrap_failed", "expect_failed"].iter().any(|word| name.contains(word))
}

#[test]
fn the_handler_reaches_only_async_signal_safe_code() {
    let _cores = exclusive_cores();
    let functions = disassemble(&library());
    let root = |part: &&str| {
        let mut all = functions.keys().filter(|name| name.contains(*part));
        let name = all.next().unwrap_or_else(|| panic!("no function {part}"));
        assert_eq!(all.next(), None, "{part} is ambiguous");
        name.clone()
    };
    let mut open: Vec<String> = ROOTS[..2].iter().map(root).collect();
    open.extend(functions.keys().filter(|n| n.contains(ROOTS[2])).cloned());
    let mut seen: BTreeSet<String> = open.iter().cloned().collect();
    let mut imported = BTreeMap::new();
    let mut indirect = BTreeSet::new();
    while let Some(name) = open.pop() {
        let function = functions.get(&name).unwrap_or_else(|| panic!("no code for {name}"));
        for import in &function.imported {
            imported.insert(import.clone(), name.clone());
        }
        if function.indirect && !function.holds_import {
            indirect.insert(name.clone());
        }
        for next in function.local.iter().filter(|n| !is_panic(n)) {
            if seen.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    assert!(seen.len() >= 5, "the walk found the handler's callees: {seen:?}");
    for word in ["alloc", "dealloc", "Mutex", "OnceLock", "__tls_get_addr"] {
        let bad: Vec<_> = seen.iter().filter(|n| n.contains(word)).collect();
        assert!(bad.is_empty(), "the handler reaches {bad:?}");
    }
    for (import, from) in &imported {
        assert!(ALLOWED.contains(&import.as_str()), "{from}, which the handler reaches, calls {import}");
    }
    // The walk is not vacuous: these are known to be needed.
    for needed in ["mmap", "open", "process_vm_readv", "__errno_location"] {
        assert!(imported.contains_key(needed), "{needed} is not reached");
    }
    for name in &indirect {
        assert!(
            INDIRECT.iter().any(|part| name.contains(part)),
            "{name}, which the handler reaches, calls through a pointer"
        );
    }
}

#[test]
fn the_handler_allocates_nothing_while_the_program_does() {
    let _cores = exclusive_cores();
    let run = Spec::fixture("signal-safety-allocations", "allocations").rate(5000).succeed();
    let text = run.stdout();
    let inside = text.lines().find_map(|l| l.strip_prefix("inside the handler: "));
    assert_eq!(inside, Some("0"), "{text}");
    let view = run.database().top_down();
    let samples = view.quality.samples;
    assert!(samples > 1000, "only {samples} samples were taken");
}
