//! Golden outputs of the text views, the first screen and one view of each other format.
//! `UPDATE_EXPECT=1` rewrites them; the sums in them are checked against the input all the same.

use crate::support::program::full_run;
use crate::support::*;
use expect_test::{ExpectFile, expect_file};

#[test]
fn views() {
    let run = full_run();
    let database = database(&run);
    let check = |expected: ExpectFile, line: &str| {
        let output = show(&database, line).replace(text(&database), "DATABASE");
        expected.assert_eq(&output);
        output
    };
    check(expect_file!["golden/top-down.txt"], "top-down");
    let expected = expect_file!["golden/top-down-idleness.txt"];
    check(expected, "top-down --metric idleness");
    let expected = expect_file!["golden/bottom-up-derived.txt"];
    check(expected, "bottom-up --metric idleness/work");
    check(expect_file!["golden/flat.txt"], "flat --lines");
    let expected = expect_file!["golden/physical.txt"];
    check(expected, "top-down --projection physical");
    let expected = expect_file!["golden/top-down.json"];
    check(expected, "top-down --format json");
    check(expect_file!["golden/top-down.csv"], "top-down --format csv");
    let expected = expect_file!["golden/top-down.folded"];
    let folded = check(expected, "top-down --format folded");
    let values = folded.lines().filter_map(|l| l.rsplit(' ').next()?.parse::<i64>().ok());
    // All that was recorded except the 19 samples of overhead, in microseconds.
    let work = run.recorded_work() - 19 * 5_000_000;
    assert_eq!(values.sum::<i64>() * 1000, work);
    // The reader's question: where does idleness sit, and who called it?
    let expected = expect_file!["golden/bottom-up-idleness.txt"];
    let bottom_up = check(expected, "bottom-up --metric idleness");
    let lines: Vec<&str> = bottom_up.lines().collect();
    has(lines[1], "idleness is in app::serial called from app::main 97.8 %");
    has(lines[3], "app::serial");
    has(lines[4], "app::main");
}

#[test]
fn first_screen() {
    let database = database(&full_run());
    let screen = database.screen.replace(text(&database), "DATABASE");
    expect_file!["golden/first-screen.txt"].assert_eq(&screen);
    assert!(screen.lines().count() <= 25, "{screen}");
}
