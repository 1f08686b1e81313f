//! Damaged, foreign, missing and hostile input: one line that names the file and the remedy,
//! everything readable kept, never a panic.

use crate::support::program::{MAIN_SERIAL, SERIAL, START, full_run};
use crate::support::*;
use fastrand::Rng;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs the command itself, in `directory`.
fn command(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hpcprof-rs"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("the command starts")
}

/// Runs a script in `directory`, to which the command is `$TOOL`.
fn bash(directory: &Path, script: &str) -> Output {
    Command::new("bash")
        .args(["-c", script])
        .env("TOOL", env!("CARGO_BIN_EXE_hpcprof-rs"))
        .current_dir(directory)
        .output()
        .expect("bash starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
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

#[test]
fn what_is_not_a_measurement_directory() {
    let temp = TempDir::new();
    let here = temp.path();
    std::fs::create_dir(temp.join("empty")).expect("directory");
    std::fs::create_dir(temp.join("other")).expect("directory");
    std::fs::write(temp.join("other/notes.txt"), "hello").expect("file");
    assert_error(&command(here, &["missing"]), &["missing", "check the path"]);
    assert_error(
        &command(here, &["empty"]),
        &["is empty", "hpcrun-rs PROGRAM"],
    );
    assert_error(
        &command(here, &["other"]),
        &["not a measurement directory", "hpcrun-rs PROGRAM"],
    );
    assert_error(
        &command(here, &["other/notes.txt"]),
        &["is a file, not a measurement directory"],
    );
    assert_error(&command(here, &[]), &["holds no hpcrun-*-measurements"]);
    assert_error(
        &command(here, &["top-down"]),
        &["holds no hpcrun-*-database"],
    );
    // Nothing was left behind.
    assert_eq!(std::fs::read_dir(here).expect("directory").count(), 2);
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
    assert_error(
        &command(temp.path(), &["m"]),
        &["m: the program ended before its first sample", "longer run"],
    );
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
    let output = command(temp.path(), &["m"]);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn without_arguments_the_newest_of_the_current_directory() {
    let temp = TempDir::new();
    full_run().write(&temp.join("hpcrun-app-measurements"));
    let built = command(temp.path(), &[]);
    assert!(built.status.success(), "{}", stderr(&built));
    assert!(temp.join("hpcrun-app-database/database.sqlite").is_file());
    let again = command(temp.path(), &["hpcrun-app-measurements"]);
    assert!(again.status.success(), "{}", stderr(&again));
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
    assert_error(
        &command(here, &["m", "-o", "full"]),
        &["full", "is not a database", "another name"],
    );
    assert_error(
        &command(here, &["m", "-o", "full", "--force"]),
        &["is not a database"],
    );
    assert_error(&command(here, &["m", "-o", "file"]), &["not a directory"]);
    assert_error(&command(here, &["m", "-o", "file/db"]), &["cannot create"]);
    assert!(command(here, &["m", "-o", "free"]).status.success());
    assert_error(&command(here, &["m", "-o", "free"]), &["--force"]);
    assert!(
        command(here, &["m", "-o", "free", "--force"])
            .status
            .success()
    );
    assert!(temp.join("free/database.sqlite").is_file());
    assert_eq!(
        std::fs::read_to_string(temp.join("full/precious")).expect("kept"),
        "x"
    );
    let hidden = std::fs::read_dir(here)
        .expect("directory")
        .filter(|e| {
            e.as_ref()
                .is_ok_and(|e| e.file_name().to_string_lossy().starts_with('.'))
        })
        .count();
    assert_eq!(hidden, 0, "no temporary directory is left");
}

#[test]
fn a_full_disk_leaves_no_half_database() {
    let temp = TempDir::new();
    full_run().write(&temp.join("m"));
    // A limit on file size fails writes as a full disk does.
    let limited = "trap '' XFSZ; ulimit -f 8; exec \"$TOOL\" m -o db";
    let output = bash(temp.path(), limited);
    assert_error(&output, &["db", "cannot write the database", "-o"]);
    assert!(!temp.join("db").exists());
    assert_eq!(
        std::fs::read_dir(temp.path()).expect("directory").count(),
        1
    );
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
    let output = command(temp.path(), &["m", "-o", "db"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stderr(&output);
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(
        text.lines().all(|l| l.starts_with("hpcprof-rs: warning: ")),
        "{text}"
    );
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
    let path = temp
        .join("m")
        .join(format!("thread-100-{IMAGE}-2.hpcprofile"));
    let whole = std::fs::read(&path).expect("profile");
    let header = hpc_formats::profile::HEADER_SIZE;
    let mut last = run.threads[0].samples;
    for length in [0, 7, header - 1, header, header + 32 * 8, whole.len()] {
        std::fs::write(&path, &whole[..length]).expect("profile");
        let output = command(temp.path(), &["m", "-o", "db", "--force"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let is_told = stderr(&output).contains(".hpcprofile: ");
        assert_eq!(is_told, length < whole.len(), "{}", stderr(&output));
        let quality = &view(&temp.join("db"), "top-down", &[])["quality"];
        let samples = quality["samples"].as_u64().expect("a number");
        assert!(
            samples >= last,
            "{length} bytes hold {samples}, fewer bytes {last}"
        );
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
    let output = command(temp.path(), &["m", "-o", "db"]);
    assert!(output.status.success());
    has(&stderr(&output), "did not end in order");
    let view = view(&temp.join("db"), "top-down", &[]);
    assert_eq!(view["quality"]["samples"], run.samples());
    // Up to the last sample.
    assert_eq!(view["wall_seconds"].as_f64(), Some(2.0));
    // Without any process file there are samples still.
    std::fs::remove_file(temp.join("m").join(run.process_name())).expect("process file");
    let output = command(temp.path(), &["m", "-o", "db2"]);
    assert!(output.status.success());
    has(&stderr(&output), "process file is missing");
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
    let output = command(temp.path(), &["m", "-o", "db"]);
    assert!(output.status.success());
    let text = stderr(&output);
    has(&text, "/opt/app: ");
    has(&text, "measure again");
    let view = view(&temp.join("db"), "flat", &[]);
    let app = named(&view["roots"], "/opt/app");
    assert_eq!(app["children"][0]["children"][0]["name"], "[app]");
    assert!(inclusive(app, "work") > 0);
}

#[test]
fn few_rooted_samples_give_no_verdict() {
    let mut run = full_run();
    let thread = &mut run.threads[1];
    let partial = thread.partial(hpc_formats::loss::LossCause::NoUnwindInfo);
    thread.sample(partial, 200, 0.0);
    let screen = tool(&[text(&database(&run))]).expect("first screen");
    has(&screen, "no verdict");
    lacks(&screen, "refine");
}

#[test]
fn foreign_and_damaged_databases() {
    let temp = TempDir::new();
    let here = temp.path();
    std::fs::create_dir_all(temp.join("text")).expect("directory");
    std::fs::write(temp.join("text/database.sqlite"), "not a database at all").expect("file");
    assert_error(
        &command(here, &["top-down", "text"]),
        &["text", "hpcprof-rs MEASUREMENTS"],
    );
    std::fs::create_dir_all(temp.join("foreign")).expect("directory");
    let foreign = rusqlite::Connection::open(temp.join("foreign/database.sqlite")).expect("open");
    foreign.execute_batch("CREATE TABLE t(a)").expect("table");
    drop(foreign);
    assert_error(
        &command(here, &["top-down", "foreign"]),
        &["not a database of hpcprof-rs"],
    );
    assert_error(&command(here, &["flat", "missing"]), &["does not exist"]);
    full_run().write(&temp.join("m"));
    assert_error(&command(here, &["flat", "m"]), &["is not a database"]);
    assert!(command(here, &["m", "-o", "db"]).status.success());
    for version in ["1", "99"] {
        let other = rusqlite::Connection::open(temp.join("db/database.sqlite")).expect("open");
        other
            .execute_batch(&format!("PRAGMA user_version = {version}"))
            .expect("pragma");
        drop(other);
        assert_error(
            &command(here, &["flat", "db"]),
            &[&format!("version {version} "), "build it again"],
        );
    }
    assert_error(
        &command(here, &["m", "-o", "db", "--rules", "none"]),
        &["none"],
    );
}

#[test]
fn an_unknown_metric_names_those_that_exist() {
    let database = database(&full_run());
    let output = command(&database, &["flat", ".", "--metric", "cycles"]);
    assert_error(
        &output,
        &["no metric `cycles`", "idleness", "overhead:sched"],
    );
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
        let whole: Vec<_> = paths
            .map(|path| (std::fs::read(&path).expect("file"), path))
            .collect();
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
    assert!(
        30 * built >= 29 * ones,
        "one damaged file never costs the others: {built}"
    );
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
    let path = temp
        .join("m")
        .join(format!("thread-100-{IMAGE}-2.hpcprofile"));
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
        for arguments in [
            &["top-down"][..],
            &["bottom-up", "--format", "json"],
            &["flat", "--projection", "physical"],
        ] {
            let mut all = vec![arguments[0], text(&database)];
            all.extend(&arguments[1..]);
            if let Err(error) = tool(&all) {
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

/// The Parquet file of a database's only run.
fn contexts_of(database: &Path, name: &str) -> PathBuf {
    let mut runs = std::fs::read_dir(database.join("contexts")).expect("a folder");
    runs.next()
        .expect("a run")
        .expect("readable")
        .path()
        .join(name)
}

const PROJECTIONS: [(&str, &str); 2] = [
    ("logical", "logical.parquet"),
    ("physical", "physical.parquet"),
];

/// Whatever happened to the contexts, the command prints the totals that it printed before, or one line.
fn contexts_are_right_or_refused(database: &Path, projection: &str, what: &str) -> bool {
    let view = |database: &str| {
        let arguments = [
            "top-down",
            database,
            "--format",
            "json",
            "--projection",
            projection,
        ];
        command(Path::new("/"), &arguments)
    };
    let output = view(text(database));
    if output.status.success() {
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let run = full_run();
        let total = |metric: &str| nanoseconds(&json["totals"][metric]);
        assert_eq!(
            total("work") + total("overhead"),
            run.recorded_work(),
            "{what}"
        );
        assert_eq!(total("idleness"), run.recorded_idleness(), "{what}");
        let roots = json["roots"].as_array().expect("roots");
        let sum: i64 = roots.iter().map(|root| inclusive(root, "work")).sum();
        assert_eq!(sum, total("work"), "{what}");
        assert_eq!(stderr(&output), "", "{what}");
        return true;
    }
    assert_error(&output, &[text(database), "build it again"]);
    false
}

#[test]
fn cut_and_mutated_contexts_are_refused_in_one_line() {
    let database = database(&full_run());
    let mut random = Rng::with_seed(8);
    for (projection, name) in PROJECTIONS {
        let path = contexts_of(&database, name);
        let whole = std::fs::read(&path).expect("contexts");
        assert!(contexts_are_right_or_refused(
            &database, projection, "whole"
        ));
        for cut in 0..40 {
            let length = whole.len() * cut / 40;
            std::fs::write(&path, &whole[..length]).expect("writable");
            let what = format!("{name} cut to {length} bytes");
            assert!(
                !contexts_are_right_or_refused(&database, projection, &what),
                "{what}"
            );
        }
        for round in 0..150 {
            let damaged = mutate(&whole, &mut random);
            std::fs::write(&path, &damaged).expect("writable");
            let what = format!("{name} round {round}");
            let is_right = contexts_are_right_or_refused(&database, projection, &what);
            assert_eq!(is_right, damaged == whole, "{what}");
        }
        std::fs::write(&path, &whole).expect("writable");
    }
}

#[test]
fn contexts_of_another_database_or_none_are_refused() {
    let database = database(&full_run());
    let path = contexts_of(&database, "logical.parquet");
    let refused = |part: &str| {
        let output = command(&database, &["top-down", ".", "--format", "json"]);
        assert_error(&output, &["contexts", part, "build it again"]);
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
    for other in ["runs", "thread_values"] {
        let folder = std::fs::read_dir(database.join(other)).expect("a folder");
        let run = folder
            .map(|run| run.expect("readable").path())
            .next()
            .expect("a run");
        let file = std::fs::read_dir(run)
            .expect("a folder")
            .next()
            .expect("a file");
        replaced_by(&file.expect("readable").path(), "");
    }
    // Contexts of a program with more of them, and with fewer.
    for (notes, part) in [(400, "leads nowhere"), (3, "contexts are missing")] {
        let other = crate::support::database(&random::run(9, 2, notes));
        replaced_by(&contexts_of(&other, "logical.parquet"), part);
    }
    // The same contexts with other amounts.
    let mut run = full_run();
    let more = &mut run.threads[0];
    let serial = more.natives(1, &[START, MAIN_SERIAL, SERIAL]);
    more.sample(serial, 1, 0.0);
    let other = crate::support::database(&run);
    let other = contexts_of(&other, "logical.parquet");
    replaced_by(&other, "do not add up to the totals");
    std::fs::remove_file(&path).expect("removed");
    refused("No such file");
    std::fs::remove_dir_all(database.join("contexts")).expect("removed");
    refused("No such file");
}
