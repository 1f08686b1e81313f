//! Full disks: one clear line, and the profiled program never notices. What hpcprof-rs does with damaged
//! files is tested beside it, on synthetic ones.

use hpcrun_tests::run::{Spec, build};
use hpcrun_tests::tools::{exclusive_cores, folder, release, tool};
use hpcrun_tests::view::View;
use nix::mount::{MsFlags, mount, umount};
use std::path::{Path, PathBuf};
use std::process::Output;

/// No panic, lines that name something, and a status of 0 or 1.
fn assert_orderly(what: &str, output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{what}: {}\n{stderr}", output.status);
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
        tool("hpcprof-rs").arg("top-down").arg(database).args(["--format", "json"]),
    );
    let view = View::parse(&json);
    view.assert_conserved();
    view
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
    let _cores = exclusive_cores();
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
        assert!(matches!(code, Some(0 | 125)), "{kilobytes} KiB: {}: {stderr}", output.status);
        if code == Some(0) {
            let stdout = String::from_utf8_lossy(&output.stdout);
            assert!(stdout.contains("rounds"), "{kilobytes} KiB: the program's output: {stdout}");
        } else {
            assert!(!stderr.trim().is_empty(), "{kilobytes} KiB: a failure says why");
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
    let _cores = exclusive_cores();
    let run = Spec::fixture("full-database", "phases").arguments(&["60"]).rate(1000).succeed();
    let Some(disk) = SmallDisk::mount("full-database-disk", 16 * 1024) else {
        return;
    };
    let output = build(&run.measurements, &disk.0.join("database"));
    let stderr = assert_orderly("a full disk", &output);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "one line: {stderr}");
}
