//! The command: files it writes, measurement directories, errors.

use crate::common::{Folder, has_name, spans_of, whole};
use hpc_formats::address::{CodeAddress, ModuleId};
use hpc_formats::process::{self, Entry, Module, Stamp, Start};
use hpc_formats::profile::{self, HEADER_SIZE, RECORD_SIZE, RecordKind, header};
use hpcstruct_rs::Structure;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Output};

const C: &str = r#"
#include <stdio.h>
__attribute__((noinline)) int hot(int x) { int s = 0; for (int i = 0; i < x; i++) s ^= i * x; return s; }
__attribute__((noinline)) int unused(int x) { return x * 5; }
int main(int argc, char **argv) { (void)argv; printf("%d\n", hot(argc) + (argc > 9 ? unused(argc) : 0)); return 0; }
"#;

fn command(folder: &Folder, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hpcstruct-rs"))
        .args(arguments)
        .env("XDG_CACHE_HOME", folder.0.join("cache"))
        .current_dir(&folder.0)
        .output()
        .expect("the command runs")
}

fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn decode(path: &Path) -> Structure {
    let data = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Structure::decode(&data).expect("a structure file")
}

/// A profile with one sampled address.
fn profile(pid: u32, image: u64, addresses: &[CodeAddress]) -> Vec<u8> {
    let mut data = vec![0; HEADER_SIZE + RECORD_SIZE * (addresses.len() + 2)];
    let mut put = |at: usize, bytes: &[u8]| data[at..at + bytes.len()].copy_from_slice(bytes);
    put(header::MAGIC, &profile::KIND.magic);
    put(header::VERSION, &profile::KIND.version().to_le_bytes());
    put(header::HEADER_SIZE, &(HEADER_SIZE as u32).to_le_bytes());
    put(header::PID, &pid.to_le_bytes());
    put(header::THREAD, &1u32.to_le_bytes());
    put(header::IMAGE, &image.to_le_bytes());
    put(header::PERIOD_NS, &5_000_000u64.to_le_bytes());
    put(header::RECORDS, &(addresses.len() as u64 + 2).to_le_bytes());
    put(HEADER_SIZE, &profile::meta(RecordKind::Root, 0, 0).to_le_bytes());
    put(HEADER_SIZE + RECORD_SIZE, &profile::meta(RecordKind::Entry, 0, 0).to_le_bytes());
    for (i, address) in addresses.iter().enumerate() {
        let at = HEADER_SIZE + RECORD_SIZE * (i + 2);
        put(at, &profile::meta(RecordKind::Note, 1, 1).to_le_bytes());
        put(at + 4, &(i as u32 + 1).to_le_bytes());
        put(at + 8, &address.0.to_le_bytes());
        put(at + 16, &address.0.to_le_bytes());
    }
    data
}

fn load_map(pid: u32, image: u64, modules: &[(u16, &str, &[u8])]) -> Vec<u8> {
    let mut data = process::encode_header().to_vec();
    data.extend(process::encode(&Entry::Start(Start { pid, image, ..Start::default() })));
    for (id, path, build_id) in modules {
        data.extend(process::encode(&Entry::Module(Module {
            id: ModuleId(*id),
            path: (*path).to_owned(),
            build_id: build_id.to_vec(),
            stamp: Stamp::default(),
            copy: String::new(),
        })));
    }
    data
}

#[test]
fn a_binary_is_written_beside_or_where_asked_or_printed() {
    let folder = Folder::new("command-binary");
    folder.write("p.c", C);
    folder.gcc("p.c", "prog", &["-O2", "-g"]);
    let output = command(&folder, &["prog"]);
    assert!(output.status.success(), "{}", error_of(&output));
    let structure = decode(&folder.0.join("prog.hpcstruct"));
    assert!(has_name(&structure, "hot") && structure.complete);

    let output = command(&folder, &["prog", "-j", "2", "-o", "other.file"]);
    assert!(output.status.success());
    assert_eq!(decode(&folder.0.join("other.file")), structure);

    let output = command(&folder, &["prog", "-o", "-"]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.starts_with("module prog\n") && text.contains("\nhot [hot] User "));

    let output = command(&folder, &["prog", "-o", "-", "--format", "binary"]);
    assert_eq!(Structure::decode(&output.stdout).as_ref(), Ok(&structure));
}

#[test]
fn measurements_select_sampled_procedures_of_each_module() {
    let folder = Folder::new("command-measure");
    folder.write("p.c", C);
    let program = folder.gcc("p.c", "prog", &["-O2", "-g"]);
    let everything = whole(&program);
    let hot = spans_of(&everything, "hot")[0].start;
    let path = program.to_str().expect("UTF-8");
    folder.write(
        "m/process-7-9.hpcproc",
        load_map(7, 9, &[(1, path, &everything.build_id), (2, "/absent/lib.so", &[1, 2])]),
    );
    let sampled = CodeAddress::new(ModuleId(1), hot);
    folder.write("m/thread-7-9-1.hpcprofile", profile(7, 9, &[sampled]));
    folder.write("m/thread-7-9-2.hpcprofile", "damaged");

    let output = command(&folder, &["m"]);
    assert!(output.status.success(), "{}", error_of(&output));
    assert!(error_of(&output).contains("thread-7-9-2.hpcprofile"));
    let id: String = everything.build_id.iter().map(|b| format!("{b:02x}")).collect();
    let file = folder.0.join(format!("m/structure/{id}.hpcstruct"));
    let structure = decode(&file);
    assert!(!structure.complete && has_name(&structure, "hot") && !has_name(&structure, "unused"));
    assert_eq!(structure.module, path);

    let output = command(&folder, &["m", "--all"]);
    assert!(output.status.success());
    assert!(has_name(&decode(&file), "unused"));

    // Other formats lie apart from what hpcprof-rs reads.
    let output = command(&folder, &["m", "--format", "text"]);
    assert!(output.status.success());
    assert!(folder.0.join("m/structs").is_dir());
    assert!(has_name(&decode(&file), "unused"), "left as it was");

    // A sampled module that is gone: a warning, the others are written, the status tells.
    let lost = CodeAddress::new(ModuleId(2), 0x10);
    folder.write("m/thread-7-9-3.hpcprofile", profile(7, 9, &[lost]));
    let output = command(&folder, &["m", "-o", "elsewhere"]);
    assert!(!output.status.success());
    assert!(error_of(&output).contains("cannot read /absent/lib.so"));
    assert!(folder.0.join(format!("elsewhere/{id}.hpcstruct")).exists());
}

#[test]
fn a_program_that_was_rebuilt_is_refused() {
    let folder = Folder::new("command-rebuilt");
    folder.write("p.c", C);
    let program = folder.gcc("p.c", "prog", &["-O2", "-g"]);
    let path = program.to_str().expect("UTF-8");
    folder.write("m/process-1-1.hpcproc", load_map(1, 1, &[(1, path, &[9; 20])]));
    let address = CodeAddress::new(ModuleId(1), 0x1000);
    folder.write("m/thread-1-1-1.hpcprofile", profile(1, 1, &[address]));
    let output = command(&folder, &["m"]);
    assert!(!output.status.success());
    assert!(error_of(&output).contains("rebuilt since the measurement"));
}

/// The files of the cache, with their contents.
fn cached(folder: &Folder) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(folder.0.join("cache/hpcrun-rs/structure"));
    let Ok(entries) = entries else {
        return Vec::new();
    };
    let read = |path: std::path::PathBuf| (path.clone(), std::fs::read(path).expect("readable"));
    let mut files: Vec<_> = entries.map(|e| read(e.expect("readable").path())).collect();
    files.sort();
    files
}

#[test]
fn answers_are_kept_and_damaged_ones_made_anew() {
    let folder = Folder::new("command-cache");
    folder.write("p.c", C);
    folder.gcc("p.c", "prog", &["-O2", "-g"]);
    let text = |arguments: &[&str]| {
        let mut all = vec!["prog", "-o", "-"];
        all.extend(arguments);
        let output = command(&folder, &all);
        assert!(output.status.success(), "{}", error_of(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    let fresh = text(&["--no-cache"]);
    assert!(cached(&folder).is_empty());
    assert_eq!(text(&[]), fresh);
    let kept = cached(&folder);
    assert_eq!(kept.len(), 1);
    // All procedures were asked for, so no address lies nowhere: the structure follows the head.
    let (head, stored) = kept[0].1.split_at(24);
    let stored = Structure::decode(stored).expect("whole");
    assert!(stored.complete && has_name(&stored, "unused"));

    // It is what later answers come from: an entry that says something else is believed …
    let mut other = stored.clone();
    let hot = other.strings.iter_mut().find(|s| *s == "hot");
    *hot.expect("a procedure") = "cold".to_owned();
    std::fs::write(&kept[0].0, [head, &other.encode()].concat()).expect("written");
    assert!(text(&[]).contains("\ncold ") && text(&["--no-cache"]) == fresh);
    // … one that is damaged or cut is not, and is replaced.
    let mut flipped = kept[0].1.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 4;
    let cut = &kept[0].1[..middle];
    let older = [b"hpckept0", &kept[0].1[8..]].concat();
    for damage in [cut, &flipped, &older, &kept[0].1[24..], b"nonsense", b""] {
        std::fs::write(&kept[0].0, damage).expect("written");
        assert_eq!(text(&[]), fresh);
        assert_eq!(cached(&folder), kept);
    }

    // Other rules, a stripped module: other answers.
    folder.write("rules", "procedure hot mine\n");
    assert!(text(&["--rules", "rules"]).contains("overhead:mine"));
    folder.run("strip", &["-s", "prog"]);
    assert!(!text(&[]).contains("\nhot "));
    assert_eq!(cached(&folder).len(), 3);
}

#[test]
fn a_cache_that_cannot_be_written_costs_only_time() {
    let folder = Folder::new("command-no-cache");
    folder.write("p.c", C);
    folder.gcc("p.c", "prog", &["-O2", "-g"]);
    folder.write("cache", "a file where the folder should be");
    let output = command(&folder, &["prog", "-o", "-"]);
    assert!(output.status.success(), "{}", error_of(&output));
    assert!(!output.stdout.is_empty());
}

#[test]
fn tags_are_reported_by_category_and_cause() {
    let folder = Folder::new("command-tags");
    folder.write(
        "p.c",
        "#include <stdio.h>\nvolatile int s;\n__attribute__((noinline)) void locked(int x) { while (x--) s++; }\n\
         int main(int c, char **v) { (void)v; locked(c);\n#line 1 \"hpctoolkit:parallel-overhead:alloc\"\n s *= 3;\n\
         #line 9 \"p.c\"\n return 0; }\n",
    );
    folder.gcc("p.c", "prog", &["-O0", "-g"]);
    folder.write("rules", "procedure lock* sync\n");
    let output = command(&folder, &["prog", "--tags", "--rules", "rules"]);
    let text = String::from_utf8(output.stdout).expect("text");
    let whole = whole(&folder.0.join("prog"));
    let locked: u64 = spans_of(&whole, "locked").iter().map(|s| s.end - s.start).sum();
    let alloc = text.find("overhead:alloc").expect("tagged by its line");
    let sync = text.find(&format!("overhead:sync {locked} bytes")).expect("tagged by a rule");
    assert!(alloc < sync, "{text}");
    assert!(text[alloc..sync].contains("by `#line` file name"), "{text}");
    assert!(
        text.contains(&format!("{locked} bytes in 1 procedures by rule `procedure lock* sync` (rules)")),
        "{text}"
    );
    folder.write("q.c", "int main(void) { return 0; }");
    folder.gcc("q.c", "plain", &["-g", "-nostartfiles", "-Wl,-emain"]);
    let output = command(&folder, &["plain", "--tags"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("nothing is tagged"));
}

fn pipe(folder: &Folder, name: &str) {
    let status = Command::new("mkfifo").arg(folder.0.join(name)).status();
    assert!(status.expect("mkfifo runs").success());
}

#[test]
fn a_pipe_is_written_to_and_not_replaced() {
    let folder = Folder::new("command-pipe");
    folder.write("p.c", C);
    folder.gcc("p.c", "prog", &["-O2", "-g"]);
    pipe(&folder, "pipe");
    let path = folder.0.join("pipe");
    // The test's own end is both, so that nobody waits for the other.
    let end = File::options().read(true).write(true).open(&path);
    let mut end = end.expect("a pipe can be opened at both ends");
    let output = command(&folder, &["prog", "-o", "pipe", "--no-cache"]);
    assert!(output.status.success(), "{}", error_of(&output));
    let kind = std::fs::metadata(&path).expect("it is there").file_type();
    assert!(kind.is_fifo(), "{kind:?}");
    let mut data = vec![0; 1 << 16];
    let size = end.read(&mut data).expect("it was written to");
    let structure = Structure::decode(&data[..size]).expect("a structure file");
    assert!(has_name(&structure, "hot"));
}

#[test]
fn errors_are_one_line_and_never_a_panic() {
    let folder = Folder::new("command-errors");
    folder.write("script", "#!/bin/sh\n");
    folder.write("rules", "procedure only-two\n");
    folder.write("p.c", C);
    folder.gcc("p.c", "prog", &["-g"]);
    std::fs::create_dir(folder.0.join("empty")).expect("created");
    pipe(&folder, "pipe");
    let program = std::fs::read(folder.0.join("prog")).expect("built");
    for (arguments, message) in [
        (&["absent"][..], "cannot read absent"),
        (&["script"], "script is not an ELF file"),
        (&["empty"], "give a directory that hpcrun-rs wrote"),
        (&["prog", "--rules", "rules"], "rules:1: no category"),
        (&["prog", "-o", "absent/file"], "cannot write absent/file"),
        (&["pipe"], "cannot read pipe: not a regular file"),
        (&["prog", "-o", "./prog"], "./prog: it is the binary"),
    ] {
        let output = command(&folder, arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let text = error_of(&output);
        assert!(text.contains(message) && text.lines().count() == 1, "{text}");
    }
    assert_eq!(std::fs::read(folder.0.join("prog")).ok(), Some(program));
    let output = command(&folder, &["prog", "-j", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
}

#[test]
fn help_has_three_examples() {
    let folder = Folder::new("command-help");
    let long = command(&folder, &["--help"]);
    let text = String::from_utf8(long.stdout).expect("text");
    let examples = text.split("Examples:").nth(1).expect("examples");
    assert_eq!(examples.matches("\n  hpcstruct-rs ").count(), 3);
    let short = command(&folder, &["-h"]);
    assert!(short.stdout.len() < text.len());
}

#[test]
fn a_binary_that_becomes_shorter_while_it_is_read_is_told_and_ends_nothing() {
    let folder = Folder::new("command-shorter");
    let program = std::env::current_exe().expect("a path");
    let mut told = 0;
    for delay in [0, 2, 5, 10, 20, 40, 80, 160] {
        std::fs::copy(&program, folder.0.join("p")).expect("copied");
        let child = Command::new(env!("CARGO_BIN_EXE_hpcstruct-rs"))
            .args(["--no-cache", "p"])
            .current_dir(&folder.0)
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("the command runs");
        std::thread::sleep(std::time::Duration::from_millis(delay));
        let file = File::options().write(true).open(folder.0.join("p"));
        file.expect("opened").set_len(1 << 16).expect("cut");
        let output = child.wait_with_output().expect("it ends");
        let error = error_of(&output);
        // Not by a signal, whenever it was.
        match output.status.code() {
            Some(0) => assert!(error.contains("procedures"), "{error}"),
            Some(1) => {
                assert_eq!(error.lines().count(), 1, "{error}");
                assert!(error.contains("while it was read") || error.contains("truncated"), "{error}");
                told += 1;
            }
            _ => panic!("{delay} ms: {}: {error}", output.status),
        }
    }
    assert!(told > 0, "it was always faster");
}
