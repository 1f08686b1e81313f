//! Where rows rest on so few samples that their order may be chance, every view says so in one line.

use crate::support::program::{LEAF, MAIN, MAIN_SERIAL, SERIAL, START, run};
use crate::support::*;

/// A program with two procedures, and a thread for each, which took so many samples in it.
fn program(samples: [u64; 2]) -> Database {
    let mut run = run();
    let paths = [[START, MAIN_SERIAL, SERIAL], [START, MAIN, LEAF]];
    run.threads = (1..)
        .zip(paths.into_iter().zip(samples))
        .map(|(ordinal, (path, samples))| {
            let mut thread = ThreadBuilder::new(ordinal);
            let entry = thread.entry();
            let leaf = thread.natives(entry, &path);
            thread.sample(leaf, samples, 1.0);
            thread
        })
        .collect();
    database(&run)
}

#[test]
fn an_order_that_may_be_chance_is_said_once_in_every_view() {
    let views = ["top-down", "bottom-up", "bottom-up --metric idleness", "flat", "flat --metric samples"];
    // A part p of n samples errs by the root of p (1 - p) n.
    for (samples, percent) in [
        ([25, 16], Some("±13 %")),
        ([36, 27], Some("±11 %")),
        // Nobody doubts these.
        ([64, 16], None),
        // Here each errs by a tenth at most.
        ([64, 50], None),
        ([400, 390], None),
    ] {
        let database = program(samples);
        for view in views {
            for columns in [60, 80] {
                let screen = show_on(columns, &database, view);
                let said: Vec<&str> = screen.lines().filter(|l| l.contains("few samples")).collect();
                let times = usize::from(percent.is_some());
                assert_eq!(said.len(), times, "{view}: {screen}");
                for line in said {
                    assert_eq!(Some(line), screen.lines().last());
                    has(line, percent.unwrap_or_default());
                    assert!(line.chars().count() <= columns, "{line}");
                }
            }
        }
        match percent {
            Some(percent) => has(&database.screen, &format!("few samples (first row: {percent})")),
            None => lacks(&database.screen, "few samples"),
        }
        // What a thread took is no matter of chance.
        lacks(&show(&database, "threads"), "few samples");
        // A quotient has no such error.
        let shown = show(&database, "bottom-up --metric idleness/work");
        lacks(&shown, "few samples");
    }
}
