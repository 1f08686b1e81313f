//! Damaged, foreign, missing and hostile input: one line that names the file and the remedy,
//! everything readable kept, never a panic.

use crate::support::program::{MAIN_SERIAL, SERIAL, START, full_run};
use crate::support::*;
use fastrand::Rng;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs a script in `directory`, to which the command is `$TOOL`.
fn bash(directory: &Path, script: &str) -> Output {
    Command::new("bash")
        .args(["-c", script])
        .env("TOOL", env!("CARGO_BIN_EXE_hpcprof-rs"))
        .current_dir(directory)
        .output()
        .expect("bash starts")
}

/// It failed with exit status 1 and one line that has all of `parts`.
fn assert_error(output: &Output, parts: &[&str]) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("hpcprof-rs: "), "{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` in: {text}");
    }
}

/// A command line fails in `directory`, as [`assert_error`] says.
fn fails(directory: &Path, line: &str, parts: &[&str]) {
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_error(&command(directory, &words), parts);
}

/// A command line succeeds in `directory`; what it says on standard error.
fn warnings(directory: &Path, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = command(directory, &words);
    assert!(output.status.success(), "{}", stderr(&output));
    stderr(&output)
}

/// How many files and folders a folder has.
fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).expect("a folder").count()
}

#[test]
fn what_is_not_a_measurement_directory() {
    let temp = TempDir::new();
    let here = temp.path();
    std::fs::create_dir(temp.join("empty")).expect("directory");
    std::fs::create_dir(temp.join("other")).expect("directory");
    std::fs::write(temp.join("other/notes.txt"), "hello").expect("file");
    fails(here, "missing", &["missing", "check the path"]);
    fails(here, "empty", &["is empty", "hpcrun-rs PROGRAM"]);
    let parts = ["not a measurement directory", "hpcrun-rs PROGRAM"];
    fails(here, "other", &parts);
    let part = "is a file, not a measurement directory";
    fails(here, "other/notes.txt", &[part]);
    fails(here, "", &["holds no hpcrun-*-measurements"]);
    fails(here, "top-down", &["holds no hpcrun-*-database"]);
    assert_eq!(entries(here), 2, "nothing is left behind");
}

#[test]
fn a_run_without_a_sample_is_told_from_one_whose_profiles_are_lost() {
    let temp = TempDir::new();
    let run = full_run();
    run.write(&temp.join("m"));
    let profiles: Vec<_> = std::fs::read_dir(temp.join("m"))
        .expect("directory")
        .map(|e| e.expect("entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "hpcprofile"))
        .collect();
    for path in &profiles {
        std::fs::write(path, "no profile").expect("file");
    }
    let output = command(temp.path(), &["m"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = stderr(&output);
    has(&text, "m: has no readable profile");
    for path in &profiles {
        std::fs::remove_file(path).expect("file");
    }
    let part = "m: the program ended before its first sample";
    fails(temp.path(), "m", &[part, "longer run"]);
    // From its start on, so that it is not known what it used.
    let mut traced = crate::support::program::run();
    traced.end.as_mut().expect("an end").reason = "traced by another program".to_owned();
    traced.write(&temp.join("traced"));
    fails(temp.path(), "traced", &["traced: has no samples: another program traced it", "measure it alone"]);
}

#[test]
fn what_waits_for_a_writer_is_not_waited_for() {
    let temp = TempDir::new();
    full_run().write(&temp.join("m"));
    std::fs::create_dir_all(temp.join("m/structure")).expect("directory");
    for name in ["a.hpcprofile", "a.hpcproc", "structure/a.hpcstruct"] {
        let path = temp.join("m").join(name);
        let status = Command::new("mkfifo").arg(path).status();
        assert!(status.expect("mkfifo runs").success());
    }
    warnings(temp.path(), "m");
}

#[test]
fn without_arguments_the_newest_of_the_current_directory() {
    let temp = TempDir::new();
    full_run().write(&temp.join("hpcrun-app-measurements"));
    warnings(temp.path(), "");
    assert!(temp.join("hpcrun-app-database/database.sqlite").is_file());
    warnings(temp.path(), "hpcrun-app-measurements");
    assert!(temp.join("hpcrun-app-database-2/database.sqlite").is_file());
    let view = command(temp.path(), &["bottom-up"]);
    assert!(String::from_utf8_lossy(&view.stdout).contains("app::serial"));
}

#[test]
fn an_output_directory_is_never_overwritten_by_accident() {
    let temp = TempDir::new();
    let here = temp.path();
    full_run().write(&temp.join("m"));
    std::fs::create_dir(temp.join("full")).expect("directory");
    std::fs::write(temp.join("full/precious"), "x").expect("file");
    std::fs::write(temp.join("file"), "x").expect("file");
    std::fs::create_dir(temp.join("free")).expect("directory");
    let parts = ["full", "is not a database", "another name"];
    fails(here, "m -o full", &parts);
    fails(here, "m -o full --force", &["is not a database"]);
    fails(here, "m -o file", &["not a directory"]);
    fails(here, "m -o file/db", &["cannot create"]);
    warnings(here, "m -o free");
    fails(here, "m -o free", &["--force"]);
    warnings(here, "m -o free --force");
    assert!(temp.join("free/database.sqlite").is_file());
    let precious = std::fs::read_to_string(temp.join("full/precious"));
    assert_eq!(precious.expect("kept"), "x");
    assert_eq!(entries(here), 4, "no temporary directory is left");
}

#[test]
fn a_full_disk_leaves_no_half_database() {
    let temp = TempDir::new();
    full_run().write(&temp.join("m"));
    // A limit on file size fails writes as a full disk does.
    let limited = "trap '' XFSZ; ulimit -f 8; exec \"$TOOL\" m -o db";
    let output = bash(temp.path(), limited);
    assert_error(&output, &["db", "cannot write the database", "-o"]);
    assert_eq!(entries(temp.path()), 1);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let database = database(&crate::support::random::run(3, 4, 3000));
    let pipe = "set -o pipefail; \"$TOOL\" top-down . --format json | head -c 10 >/dev/null";
    let output = bash(&database, pipe);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
}

#[test]
fn damaged_files_cost_only_themselves() {
    let temp = TempDir::new();
    let run = full_run();
    let m = temp.join("m");
    run.write(&m);
    // The second thread's profile ends within its records.
    let path = m.join(format!("thread-100-{IMAGE}-2.hpcprofile"));
    let whole = std::fs::read(&path).expect("profile");
    std::fs::write(&path, &whole[..whole.len() - 40]).expect("profile");
    std::fs::write(m.join("thread-100-1-9.hpcprofile"), b"garbage").expect("file");
    std::fs::write(m.join("process-7-7.hpcproc"), b"garbage").expect("file");
    std::fs::write(m.join("structure/bad.hpcstruct"), b"garbage").expect("file");
    let text = warnings(temp.path(), "m -o db");
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.lines().all(|l| l.starts_with("hpcprof-rs: warning: ")), "{text}");
    has(&text, "2 of 21 records unreadable, 2 of 112 samples lost");
    let view = view(&temp.join("db"), "top-down", &[]);
    assert_eq!(view["quality"]["samples"], run.samples() - 2);
    assert_eq!(view["quality"]["lost"]["damaged-profile"], 2);
}

#[test]
fn a_truncated_profile_keeps_what_it_holds() {
    let temp = TempDir::new();
    let run = full_run();
    run.write(&temp.join("m"));
    let path = temp.join("m").join(format!("thread-100-{IMAGE}-2.hpcprofile"));
    let whole = std::fs::read(&path).expect("profile");
    let header = hpc_formats::profile::HEADER_SIZE;
    let mut last = run.threads[0].samples;
    for length in [0, 7, header - 1, header, header + 32 * 8, whole.len()] {
        std::fs::write(&path, &whole[..length]).expect("profile");
        let told = warnings(temp.path(), "m -o db --force");
        let is_told = told.contains(".hpcprofile: ");
        assert_eq!(is_told, length < whole.len(), "{told}");
        let quality = &view(&temp.join("db"), "top-down", &[])["quality"];
        let samples = quality["samples"].as_u64().expect("a number");
        assert!(samples >= last, "{length} bytes hold {samples}, fewer bytes {last}");
        last = samples;
    }
    assert_eq!(last, run.samples());
}

#[test]
fn a_crashed_program_keeps_its_samples() {
    let temp = TempDir::new();
    let mut run = full_run();
    run.end = None;
    run.write(&temp.join("m"));
    has(&warnings(temp.path(), "m -o db"), "did not end in order");
    let view = view(&temp.join("db"), "top-down", &[]);
    assert_eq!(view["quality"]["samples"], run.samples());
    // Up to the last sample.
    assert_eq!(view["wall_seconds"].as_f64(), Some(2.0));
    // Without any process file there are samples still.
    std::fs::remove_file(temp.join("m").join(run.process_name())).expect("process file");
    let told = warnings(temp.path(), "m -o db2");
    has(&told, "process file is missing");
    let totals = &crate::support::view(&temp.join("db2"), "flat", &[])["totals"];
    let work = nanoseconds(&totals["work"]) + nanoseconds(&totals["overhead"]);
    assert_eq!(work, run.recorded_work());
}

#[test]
fn modules_without_structure_keep_their_samples_under_their_name() {
    let temp = TempDir::new();
    let mut run = full_run();
    run.structures.clear();
    run.write(&temp.join("m"));
    let text = warnings(temp.path(), "m -o db");
    has(&text, "100 % of the samples are in code without names or source lines, of app, libc.so.6");
    has(&text, "; /opt/app: ");
    has(&text, "measure again");
    assert_eq!(text.lines().count(), 1, "{text}");
    let view = view(&temp.join("db"), "flat", &[]);
    let app = named(&view["roots"], "/opt/app");
    assert_eq!(app["children"][0]["children"][0]["name"], "[app]");
    assert!(inclusive(app, "work") > 0);
}

#[test]
fn foreign_and_damaged_databases() {
    let temp = TempDir::new();
    let here = temp.path();
    std::fs::create_dir_all(temp.join("text")).expect("directory");
    std::fs::write(temp.join("text/database.sqlite"), "not a database at all").expect("file");
    let parts = ["text", "hpcprof-rs MEASUREMENTS"];
    fails(here, "top-down text", &parts);
    std::fs::create_dir_all(temp.join("foreign")).expect("directory");
    let foreign = rusqlite::Connection::open(temp.join("foreign/database.sqlite")).expect("open");
    foreign.execute_batch("CREATE TABLE t(a)").expect("table");
    drop(foreign);
    let part = "not a database of hpcprof-rs";
    fails(here, "top-down foreign", &[part]);
    fails(here, "flat missing", &["does not exist"]);
    full_run().write(&temp.join("m"));
    fails(here, "flat m", &["is not a database"]);
    warnings(here, "m -o db");
    for version in ["1", "99"] {
        let other = rusqlite::Connection::open(temp.join("db/database.sqlite")).expect("open");
        other.execute_batch(&format!("PRAGMA user_version = {version}")).expect("pragma");
        drop(other);
        let part = format!("version {version} ");
        fails(here, "flat db", &[&part, "build it again"]);
    }
    fails(here, "m -o db --rules none", &["none"]);
}

/// Flips, cuts and repeats bytes.
fn mutate(data: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut out = data.to_vec();
    let at = random.usize(..data.len());
    match random.u8(..4) {
        0 => out.truncate(at),
        1 => {
            for _ in 0..random.u8(1..9) {
                let at = random.usize(..out.len());
                out[at] = random.u8(..);
            }
        }
        2 => {
            let end = (at + 8).min(out.len());
            out[at..end].fill(if random.bool() { 0 } else { 0xff });
        }
        _ => out[at] ^= 1 << random.u8(..8),
    }
    out
}

/// Whatever the bytes are, the tool answers with data or with one line.
fn survives(temp: &TempDir, what: &str) -> bool {
    match tool(&[text(&temp.join("m")), "-o", text(&temp.join("db"))]) {
        Ok(_) => {
            for name in ["top-down", "bottom-up", "flat"] {
                for format in ["json", "text"] {
                    tool(&[name, text(&temp.join("db")), "--format", format])
                        .unwrap_or_else(|e| panic!("{what}: {name} {format}: {e}"));
                }
            }
            std::fs::remove_dir_all(temp.join("db")).expect("database");
            true
        }
        Err(error) => {
            assert_eq!(error.lines().count(), 1, "{what}: {error}");
            assert!(!temp.join("db").exists());
            false
        }
    }
}

/// How often a test changes its input: so often in a nightly run, and for a third of these in others.
fn rounds(nightly: usize) -> usize {
    match std::env::var_os("HPCRUN_TEST_LONG") {
        Some(_) => nightly,
        None => nightly / 3,
    }
}

#[test]
fn mutated_measurements_never_panic() {
    let temp = TempDir::new();
    let run = full_run();
    run.write(&temp.join("m"));
    let mut random = Rng::with_seed(5);
    let mut built = 0;
    let names = [
        format!("thread-100-{IMAGE}-1.hpcprofile"),
        format!("thread-100-{IMAGE}-2.hpcprofile"),
        run.process_name(),
        "structure/0.hpcstruct".to_owned(),
    ];
    let mut round = |names: &[String]| {
        let paths = names.iter().map(|name| temp.join("m").join(name));
        let whole: Vec<_> = paths.map(|path| (std::fs::read(&path).expect("file"), path)).collect();
        for (bytes, path) in &whole {
            std::fs::write(path, mutate(bytes, &mut random)).expect("file");
        }
        let is_built = survives(&temp, &format!("{names:?}"));
        for (bytes, path) in whole {
            std::fs::write(path, bytes).expect("file");
        }
        is_built
    };
    let ones = rounds(300);
    for index in 0..ones {
        built += usize::from(round(&names[index % names.len()..][..1]));
    }
    assert!(30 * built >= 29 * ones, "one damaged file never costs the others: {built}");
    for _ in 0..rounds(30) {
        round(&names);
    }
}

#[test]
fn records_of_any_content_never_panic() {
    // Behind an intact header everything may be forged.
    let temp = TempDir::new();
    let run = full_run();
    run.write(&temp.join("m"));
    let mut random = Rng::with_seed(6);
    let path = temp.join("m").join(format!("thread-100-{IMAGE}-2.hpcprofile"));
    let whole = std::fs::read(&path).expect("file");
    let header = hpc_formats::profile::HEADER_SIZE;
    for round in 0..rounds(300) {
        let mut data = whole.clone();
        for _ in 0..random.u8(1..31) {
            let at = random.usize(header..data.len());
            let values = [0, 1, 2, 5, 6, 0x7f, 0x80, 0xff];
            data[at] = random.choice(values).expect("a value");
        }
        std::fs::write(&path, data).expect("file");
        assert!(survives(&temp, &format!("round {round}")));
    }
}

#[test]
fn mutated_databases_never_panic() {
    let database = database(&full_run());
    let file = database.join("database.sqlite");
    let whole = std::fs::read(&file).expect("database");
    let mut random = Rng::with_seed(7);
    let mut failed = 0;
    let times = rounds(400);
    for _ in 0..times {
        std::fs::write(&file, mutate(&whole, &mut random)).expect("database");
        let line = ["top-down", "bottom-up --format json", "flat --projection physical"];
        for line in line {
            if let Err(error) = on(&database, line) {
                assert_eq!(error.lines().count(), 1, "{error}");
                failed += 1;
            }
        }
        if let Err(error) = tool(&[text(&database)]) {
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
    assert!(failed > times / 8, "damage is noticed: {failed}");
}

/// The file of a database's only run in a folder.
fn file_of(database: &Path, folder: &str, name: &str) -> PathBuf {
    let mut runs = std::fs::read_dir(database.join(folder)).expect("a folder");
    let run = runs.next().expect("a run").expect("readable");
    run.path().join(name)
}

#[test]
fn any_damage_of_a_parquet_file_is_one_line() {
    let database = database(&full_run());
    let mut random = Rng::with_seed(8);
    for (folder, name, line) in [
        ("contexts", "logical.parquet", "top-down --format json"),
        ("contexts", "logical.parquet", "threads --context leaf"),
        ("contexts", "physical.parquet", "flat --projection physical"),
        ("thread_values", "part-0000.parquet", "threads --context leaf"),
    ] {
        let path = file_of(&database, folder, name);
        let whole = std::fs::read(&path).expect("a file");
        let right = show(&database, line);
        let check = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("writable");
            if bytes == whole {
                assert_eq!(show(&database, line), right);
                return;
            }
            let error = refused(&database, line);
            has(&error, "cannot be read");
            has(&error, &format!("{name}: it is not as it was written"));
            has(&error, "build it again");
        };
        (0..40).for_each(|cut| check(&whole[..whole.len() * cut / 40]));
        (0..100).for_each(|_| check(&mutate(&whole, &mut random)));
        check(&whole);
        std::fs::remove_file(&path).expect("removed");
        has(&refused(&database, line), "build it again");
        check(&whole);
    }
}

#[test]
fn contexts_of_another_database_or_none_are_refused() {
    let database = database(&full_run());
    let path = file_of(&database, "contexts", "logical.parquet");
    let refused = |part: &str| {
        let error = refused(&database, "top-down --format json");
        for part in ["contexts", part, "build it again"] {
            has(&error, part);
        }
    };
    // The file of another database is seen, and what is wrong with it if the catalogue was forged to it.
    let replaced_by = |other: &Path, part: &str| {
        std::fs::copy(other, &path).expect("copied");
        refused("it is not as it was written");
        let bytes = std::fs::read(&path).expect("a file");
        let connection = rusqlite::Connection::open(database.join("database.sqlite"));
        let sql = "UPDATE data_file SET bytes = ?, crc32 = ? WHERE path LIKE '%/logical.parquet'";
        let forged = (bytes.len() as i64, crc32fast::hash(&bytes));
        let changed = connection.expect("SQLite").execute(sql, forged);
        assert_eq!(changed, Ok(1));
        refused(part);
    };
    // Other columns.
    replaced_by(&file_of(&database, "runs", "run.parquet"), "");
    let values = file_of(&database, "thread_values", "part-0000.parquet");
    replaced_by(&values, "");
    // Contexts of a program with more of them, and with fewer.
    for (notes, part) in [(400, "leads nowhere"), (3, "contexts are missing")] {
        let other = crate::support::database(&random::run(9, 2, notes));
        replaced_by(&file_of(&other, "contexts", "logical.parquet"), part);
    }
    // The same contexts with other amounts.
    let mut run = full_run();
    let more = &mut run.threads[0];
    let serial = more.natives(1, &[START, MAIN_SERIAL, SERIAL]);
    more.sample(serial, 1, 0.0);
    let other = crate::support::database(&run);
    let other = file_of(&other, "contexts", "logical.parquet");
    replaced_by(&other, "do not add up to the totals");
    std::fs::remove_file(&path).expect("removed");
    refused("No such file");
    std::fs::remove_dir_all(database.join("contexts")).expect("removed");
    refused("No such file");
}

#[test]
fn what_was_meant_is_said() {
    let temp = TempDir::new();
    let database = database(&full_run());
    let file = temp.join("pool");
    std::fs::write(&file, "#!/bin/sh\n").expect("a file");
    let nowhere = temp.join("none/x.svg");
    for (line, said) in [
        (vec!["botom-up"], "no such directory: botom-up; did you mean `hpcprof-rs bottom-up`?"),
        (vec!["top-down", text(&file)], "is a file, but not a database"),
        (
            vec!["bottom-up", text(&database), "--metric", "lock-wait"],
            "lock-wait was not measured (`hpcrun-rs -e lock-wait PROGRAM`)",
        ),
        (
            vec!["export", text(&database), "--format", "flamegraph", "-o", text(&nowhere)],
            "none: is no folder; make it, or give -o another path",
        ),
    ] {
        has(&tool(&line).expect_err("refused"), said);
    }
}
