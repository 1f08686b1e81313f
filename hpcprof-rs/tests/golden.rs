//! Golden outputs of the text views, the first screen and one view of each other format.
//! `UPDATE_EXPECT=1` rewrites them; the sums in them are checked against the input all the same.

use crate::support::program::full_run;
use crate::support::*;
use expect_test::{ExpectFile, expect_file};
use std::path::Path;

fn check(expected: ExpectFile, database: &Path, arguments: &[&str]) -> String {
    let all: Vec<&str> = arguments
        .iter()
        .map(|a| if *a == "DB" { text(database) } else { a })
        .collect();
    let output = tool(&all)
        .expect("output")
        .replace(text(database), "DATABASE");
    expected.assert_eq(&output);
    output
}

#[test]
fn views() {
    let run = full_run();
    let database = database(&run);
    let check = |expected, arguments: &[&str]| check(expected, &database, arguments);
    check(expect_file!["golden/top-down.txt"], &["top-down", "DB"]);
    check(
        expect_file!["golden/top-down-idleness.txt"],
        &["top-down", "DB", "--metric", "idleness"],
    );
    check(
        expect_file!["golden/bottom-up-derived.txt"],
        &["bottom-up", "DB", "--metric", "idleness/work"],
    );
    check(expect_file!["golden/flat.txt"], &["flat", "DB", "--lines"]);
    check(
        expect_file!["golden/physical.txt"],
        &["top-down", "DB", "--projection", "physical"],
    );
    check(
        expect_file!["golden/top-down.json"],
        &["top-down", "DB", "--format", "json"],
    );
    check(
        expect_file!["golden/top-down.csv"],
        &["top-down", "DB", "--format", "csv"],
    );
    let folded = check(
        expect_file!["golden/top-down.folded"],
        &["top-down", "DB", "--format", "folded"],
    );
    let values = folded
        .lines()
        .filter_map(|l| l.rsplit(' ').next()?.parse::<i64>().ok());
    // All that was recorded except the 19 samples of overhead, in microseconds.
    assert_eq!(
        values.sum::<i64>() * 1000,
        run.recorded_work() - 19 * 5_000_000
    );
    // The reader's question: where does idleness sit, and who called it?
    let expected = expect_file!["golden/bottom-up-idleness.txt"];
    let bottom_up = check(expected, &["bottom-up", "DB", "--metric", "idleness"]);
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
    let database = database(&full_run());
    let screen = check(expect_file!["golden/first-screen.txt"], &database, &["DB"]);
    assert!(screen.lines().count() <= 25, "{screen}");
}
