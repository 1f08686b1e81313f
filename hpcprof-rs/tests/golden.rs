//! Golden outputs of the text views, the first screen and one JSON view. `UPDATE_GOLDEN=1`
//! rewrites them; the sums in them are checked against the input all the same.

mod support;

use std::path::{Path, PathBuf};
use support::program::full_run;
use support::*;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

fn check(name: &str, output: &str, database: &Path) {
    let output = output.replace(text(database), "DATABASE");
    let path = golden(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(golden("")).expect("golden directory");
        std::fs::write(&path, &output).expect("golden file");
    }
    let expected = std::fs::read_to_string(&path).expect("golden file; UPDATE_GOLDEN=1 writes it");
    assert_eq!(
        output, expected,
        "{name} changed; UPDATE_GOLDEN=1 accepts it"
    );
}

#[test]
fn views() {
    let temp = TempDir::new();
    let run = full_run();
    let database = database(&run, &temp);
    let view = |arguments: &[&str]| {
        let mut all = vec![arguments[0], text(&database)];
        all.extend(&arguments[1..]);
        tool(&all).expect("view")
    };
    check("top-down.txt", &view(&["top-down"]), &database);
    check(
        "top-down-idleness.txt",
        &view(&["top-down", "--metric", "idleness"]),
        &database,
    );
    let bottom_up = view(&["bottom-up", "--metric", "idleness"]);
    check("bottom-up-idleness.txt", &bottom_up, &database);
    check("flat.txt", &view(&["flat", "--lines"]), &database);
    check(
        "physical.txt",
        &view(&["top-down", "--projection", "physical"]),
        &database,
    );
    check(
        "top-down.json",
        &view(&["top-down", "--format", "json"]),
        &database,
    );
    check(
        "top-down.csv",
        &view(&["top-down", "--format", "csv"]),
        &database,
    );
    let folded = view(&["top-down", "--format", "folded"]);
    check("top-down.folded", &folded, &database);
    let sum: i64 = folded
        .lines()
        .filter_map(|l| l.rsplit(' ').next()?.parse::<i64>().ok())
        .sum();
    // All that was recorded except the 19 samples of overhead, in microseconds.
    assert_eq!(sum * 1000, run.recorded_work() - 19 * 5_000_000);
    // The reader's question: where does idleness sit, and who called it?
    let lines: Vec<&str> = bottom_up.lines().collect();
    assert!(
        lines[1].starts_with("idleness is in app::serial called from app::main 97.8 %"),
        "{bottom_up}"
    );
    assert!(
        lines[3].contains("app::serial") && lines[4].contains("app::main"),
        "{bottom_up}"
    );
}

#[test]
fn first_screen() {
    let temp = TempDir::new();
    let database = database(&full_run(), &temp);
    let screen = tool(&[text(&database)]).expect("first screen");
    assert!(screen.lines().count() <= 25, "{screen}");
    check("first-screen.txt", &screen, &database);
}
