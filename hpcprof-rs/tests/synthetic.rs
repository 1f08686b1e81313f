//! Synthetic measurements, which benchmarks use, are what their totals say.

use crate::support::synthetic::{Shape, Totals, write};
use crate::support::{TempDir, text, tool, view};
use std::path::Path;

const SHAPE: Shape = Shape { threads: 12, contexts: 700, depth: 25, procedures: 3000, share: 0.1, seed: 1 };

#[test]
fn the_database_has_the_totals_and_all_contexts() {
    let temp = TempDir::new();
    let database = temp.join("db");
    let directories: Vec<_> = (0..3).map(|run| temp.join(&format!("m{run}"))).collect();
    let mut truth = Totals::default();
    for (directory, run) in directories.iter().zip(0..) {
        let totals = write(&SHAPE, run, directory);
        truth.samples += totals.samples;
        truth.work_ns += totals.work_ns;
        truth.overhead_ns += totals.overhead_ns;
        truth.idleness_ns += totals.idleness_ns;
    }
    let mut arguments: Vec<&str> = directories.iter().map(|path| text(path)).collect();
    arguments.extend(["-o", text(&database)]);
    tool(&arguments).expect("build");
    let view = view(&database, "top-down", &["--flat", "--lines"]);
    for (metric, total) in
        [("work", truth.work_ns), ("overhead:sync", truth.overhead_ns), ("idleness", truth.idleness_ns)]
    {
        let read = crate::support::nanoseconds(&view["totals"][metric]);
        assert_eq!(read, total as i64, "{metric}");
        assert!(read > 0, "{metric}");
    }
    let quality = &view["quality"];
    assert_eq!((&quality["samples"], &quality["rooted"]), (&truth.samples.into(), &quality["samples"]));
    assert_eq!(quality["lost"], serde_json::json!({}));
    assert_eq!(quality["missing"], serde_json::json!([]));
    // A line is where a path ends: as many as there are contexts.
    let nodes = view["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.iter().filter(|node| node["kind"] == "line").count(), 700);
}

#[test]
fn a_seed_gives_the_same_files() {
    let temp = TempDir::new();
    let content = |name: &str, seed| {
        let directory = temp.join(name);
        write(&Shape { threads: 3, contexts: 50, seed, ..SHAPE }, 0, &directory);
        let entries = std::fs::read_dir(&directory).expect("directory");
        let paths = entries.map(|entry| entry.expect("entry").path());
        let read = |path: &Path| std::fs::read(path).expect("file");
        let mut files: Vec<_> = paths.filter(|path| path.is_file()).map(|path| read(&path)).collect();
        files.sort();
        files
    };
    let first = content("a", 1);
    assert_eq!(first.len(), 4);
    assert!(first == content("b", 1));
    assert!(first != content("c", 2));
}
