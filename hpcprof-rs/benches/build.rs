//! Time to build a database from a million notes and to print its views:
//! `cargo bench -p hpcprof-rs --bench build [-- NOTES]`. No figure is checked; the medians of
//! three runs are printed.

#[path = "../tests/support/mod.rs"]
#[allow(dead_code)] // a part of it is used here
mod support;

use fastrand::Rng;
use std::time::{Duration, Instant};
use support::program::{
    CALLER, CALLER_JOIN_CLOSURE, CALLER_PUSH, CLOSURE, LEAF, LEAF_ITERATOR, MEMCPY, SCHEDULER,
    SERIAL, START,
};
use support::*;

/// A run of four threads whose trees have `notes` notes in all: deep, with shared prefixes, and
/// with samples at half of them.
fn large_run(notes: u64, stolen: bool) -> Run {
    let mut random = Rng::with_seed(1);
    let mut run = support::program::run();
    let addresses = [
        CALLER,
        CALLER_JOIN_CLOSURE,
        CALLER_PUSH,
        LEAF,
        LEAF_ITERATOR,
        CLOSURE,
        SERIAL,
        MEMCPY,
    ];
    for ordinal in 1..=4 {
        let mut thread = ThreadBuilder::new(ordinal);
        let entry = thread.entry();
        let frames = [START, support::program::MAIN];
        let base = if stolen {
            // The two projections differ, as they do under a task runtime.
            thread.spawner(entry, SCHEDULER, &frames)
        } else {
            thread.natives(entry, &frames)
        };
        let mut nodes = vec![base];
        for _ in 0..notes / 4 {
            let recent = nodes.len().saturating_sub(2000) as u64;
            let parent = recent + random.u64(..nodes.len() as u64 - recent);
            let node = thread.native(
                nodes[parent as usize],
                random.choice(addresses).expect("some"),
            );
            nodes.push(node);
            if random.bool() {
                thread.sample(node, 1, 0.25);
            }
        }
        run.threads.push(thread);
    }
    run
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn main() {
    let notes = std::env::args().skip(1).find_map(|a| a.parse().ok());
    let notes = notes.unwrap_or(1_000_000_u64);
    for stolen in [false, true] {
        let what = if stolen {
            "stolen tasks"
        } else {
            "native threads"
        };
        println!("{notes} notes, {what}");
        measure(&large_run(notes, stolen));
    }
}

fn measure(run: &Run) {
    let temp = TempDir::new();
    let (measurements, database) = (temp.join("m"), temp.join("db"));
    run.write(&measurements);
    let mut times = Vec::new();
    for _ in 0..3 {
        let _ = std::fs::remove_dir_all(&database);
        let start = Instant::now();
        tool(&[text(&measurements), "-o", text(&database)]).expect("build");
        times.push(start.elapsed());
    }
    let size = std::fs::metadata(database.join("database.sqlite")).map_or(0, |m| m.len());
    println!(
        "  build and first screen: {:.2} s, database {:.1} MB",
        median(times).as_secs_f64(),
        size as f64 / 1e6
    );
    for arguments in [
        ["top-down", "text"],
        ["top-down", "json"],
        ["bottom-up", "text"],
        ["flat", "text"],
    ] {
        let mut times = Vec::new();
        let mut bytes = 0;
        for _ in 0..3 {
            let start = Instant::now();
            let options = [arguments[0], text(&database), "--format", arguments[1]];
            bytes = tool(&options).expect("view").len();
            times.push(start.elapsed());
        }
        println!(
            "  {} as {}: {:.2} s, {:.1} MB",
            arguments[0],
            arguments[1],
            median(times).as_secs_f64(),
            bytes as f64 / 1e6
        );
    }
}
