//! Damaged input, full disks and unwritable places: one clear line, everything else kept.
//! `hpcprof-rs/tests/bad_input.rs` changes any bytes of measurements and databases.

use hpc_formats::profile::HEADER_SIZE;
use hpcrun_tests::run::{Run, Spec, build};
use hpcrun_tests::tools::{folder, machine, release, tool};
use hpcrun_tests::view::{View, value};
use nix::mount::{MsFlags, mount, umount};
use std::path::{Path, PathBuf};
use std::process::Output;

fn measured(test: &str) -> Run {
    Spec::fixture(test, "phases")
        .arguments(&["60"])
        .rate(1000)
        .succeed()
}

/// A copy of the measurements, with `damage` done to every file of one kind.
fn damaged(run: &Run, name: &str, extension: &str, damage: impl Fn(&mut Vec<u8>)) -> PathBuf {
    let copy = run.folder.join(name);
    std::fs::create_dir_all(&copy).expect("the folder is writable");
    for kind in ["hpcprofile", "hpcproc"] {
        for path in run.files(kind) {
            let mut bytes = std::fs::read(&path).expect("the file is readable");
            if kind == extension {
                damage(&mut bytes);
            }
            let target = copy.join(path.file_name().expect("a file"));
            std::fs::write(target, bytes).expect("the folder is writable");
        }
    }
    copy
}

/// No panic, lines that name something, and a status of 0 or 1.
fn assert_orderly(what: &str, output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{what}: {}\n{stderr}",
        output.status
    );
    assert!(!stderr.contains("panicked"), "{what}: {stderr}");
    assert!(stderr.lines().count() <= 12, "{what}: few lines:\n{stderr}");
    if !output.status.success() {
        assert!(!stderr.trim().is_empty(), "{what}: a failure says why");
    }
    stderr
}

/// The view of a database that was built.
fn top_down(database: &Path) -> View {
    let json = hpcrun_tests::tools::check(
        tool("hpcprof-rs")
            .arg("top-down")
            .arg(database)
            .args(["--format", "json"]),
    );
    let view = View::parse(&json);
    view.assert_conserved();
    view
}

#[test]
fn truncated_profiles_keep_what_they_hold() {
    let _machine = machine();
    let run = measured("truncated");
    let whole = run.database().top_down();
    for (index, keep) in [0, 7, HEADER_SIZE - 1, HEADER_SIZE, HEADER_SIZE + 32 * 8]
        .into_iter()
        .enumerate()
    {
        let copy = damaged(&run, &format!("cut-{keep}"), "hpcprofile", |b| {
            b.truncate(keep)
        });
        let database = run.folder.join(format!("database-{index}"));
        let output = build(&copy, &database);
        let stderr = assert_orderly(&format!("profiles of {keep} bytes"), &output);
        assert!(!stderr.is_empty(), "{keep} bytes: the reader is told");
        if output.status.success() {
            let view = top_down(&database);
            assert!(value(&view.totals, "work") <= value(&whole.totals, "work"));
        }
    }
    // One damaged profile of several costs that profile only.
    let copy = damaged(&run, "one-cut", "none", |_| {});
    let victim = std::fs::read_dir(&copy)
        .expect("readable")
        .map(|e| e.expect("readable").path())
        .filter(|p| p.extension().is_some_and(|e| e == "hpcprofile"))
        .min_by_key(|p| std::fs::metadata(p).expect("readable").len())
        .expect("there are profiles");
    std::fs::write(&victim, b"HPCRSPRF").expect("writable");
    let database = run.folder.join("database-one");
    let output = build(&copy, &database);
    let stderr = assert_orderly("one damaged profile", &output);
    assert!(output.status.success(), "{stderr}");
    let name = victim
        .file_name()
        .expect("a file")
        .to_string_lossy()
        .into_owned();
    assert!(
        stderr.contains(&name),
        "the damaged file is named: {stderr}"
    );
    let kept = value(&top_down(&database).totals, "work");
    assert!(
        kept > 0.3 * value(&whole.totals, "work"),
        "{kept} s are kept"
    );
}

#[test]
fn what_is_no_measurement_is_refused_in_one_line() {
    let _machine = machine();
    let place = folder("refused");
    let empty = place.join("empty");
    std::fs::create_dir(&empty).expect("writable");
    let file = place.join("file");
    std::fs::write(&file, "text").expect("writable");
    for input in [&place.join("missing"), &empty, &file] {
        let output = build(input, &place.join("database"));
        let stderr = assert_orderly(&input.display().to_string(), &output);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "one line: {stderr}");
        let name = input.file_name().expect("a name").to_string_lossy();
        assert!(stderr.contains(&*name), "{name} is named: {stderr}");
    }
    for database in [&place.join("missing"), &empty, &file] {
        let output = tool("hpcprof-rs").arg("top-down").arg(database).output();
        let output = output.expect("hpcprof-rs runs");
        let stderr = assert_orderly(&database.display().to_string(), &output);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "one line: {stderr}");
    }
}

#[test]
fn an_unwritable_database_is_refused_in_one_line() {
    let _machine = machine();
    let run = measured("unwritable-database");
    let file = run.folder.join("file");
    std::fs::write(&file, "a file, not a folder").expect("writable");
    let output = build(&run.measurements, &file.join("database"));
    let stderr = assert_orderly("a database below a file", &output);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "one line: {stderr}");
}

/// A file system of `bytes` bytes, unmounted on drop.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None`, with a loud word, where mounting is not allowed.
    fn mount(test: &str, bytes: u32) -> Option<SmallDisk> {
        let path = folder(test).join("disk");
        std::fs::create_dir(&path).expect("writable");
        let options = format!("size={bytes}");
        let flags = MsFlags::empty();
        match mount(Some("tmpfs"), &path, Some("tmpfs"), flags, Some(&*options)) {
            Ok(()) => Some(SmallDisk(path)),
            Err(error) => {
                eprintln!("SKIPPED: a full disk cannot be tried: mount: {error} (needs root)");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Err(error) = umount(&self.0) {
            eprintln!("{} stays mounted: {error}", self.0.display());
        }
    }
}

#[test]
fn a_full_disk_costs_samples_but_never_the_program() {
    let _machine = machine();
    for kilobytes in [0, 12, 64, 200] {
        // One page more than nothing: size=0 would mean no limit.
        let Some(disk) = SmallDisk::mount("full-disk", kilobytes * 1024 + 4096) else {
            return;
        };
        let output = tool("hpcrun-rs")
            .arg("-o")
            .arg(disk.0.join("measurements"))
            .args(["-e", "cpu-time@1000", "--"])
            .arg(release("oracle"))
            .args(["2", "16", "300"])
            .output()
            .expect("hpcrun-rs runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("panicked"), "{kilobytes} KiB: {stderr}");
        let code = output.status.code();
        assert!(
            matches!(code, Some(0 | 125)),
            "{kilobytes} KiB: {}: {stderr}",
            output.status
        );
        if code == Some(0) {
            let stdout = String::from_utf8_lossy(&output.stdout);
            assert!(
                stdout.contains("rounds"),
                "{kilobytes} KiB: the program's output: {stdout}"
            );
        } else {
            assert!(
                !stderr.trim().is_empty(),
                "{kilobytes} KiB: a failure says why"
            );
        }
        let database = folder("full-disk-database").join("database");
        let built = build(&disk.0.join("measurements"), &database);
        let told = format!("{stderr}{}", assert_orderly("a full disk's files", &built));
        assert!(
            told.contains("disk") || told.contains("space") || told.contains("truncated"),
            "{kilobytes} KiB: the reader is told: {told}"
        );
        if built.status.success() {
            top_down(&database);
        }
    }
}

#[test]
fn a_database_on_a_full_disk_is_refused_in_one_line() {
    let _machine = machine();
    let run = measured("full-database");
    let Some(disk) = SmallDisk::mount("full-database-disk", 16 * 1024) else {
        return;
    };
    let output = build(&run.measurements, &disk.0.join("database"));
    let stderr = assert_orderly("a full disk", &output);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "one line: {stderr}");
}
