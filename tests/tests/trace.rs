//! `--trace`: what each thread did when agrees with its profile, up to a kill, in bounded space.

use hpc_formats::critical_path::Edge;
use hpc_formats::profile::{Profile, Record, profiles};
use hpc_formats::trace::{BLOCK_SIZE, Block, Event, State, Trace};
use hpcrun_tests::run::{Run, Spec};
use hpcrun_tests::tools::{c_program, exclusive_cores, tool};
use std::collections::BTreeMap;
use std::path::Path;

/// Periods by process image, thread and record.
type Periods = BTreeMap<(u64, u32, u32), u64>;

fn read(run: &Run, extension: &str) -> Vec<Vec<u8>> {
    run.files(extension).iter().map(|path| std::fs::read(path).expect("readable")).collect()
}

fn of_profiles(run: &Run) -> Periods {
    let mut sums = Periods::new();
    for bytes in read(run, "hpcprofile") {
        for bytes in profiles(&bytes) {
            let profile = Profile::parse(bytes).expect("a profile");
            let header = &profile.header;
            for record in (0..profile.len()).filter_map(|index| profile.record(index)) {
                if let Record::Metric { owner, group: 0, values: [_, periods, _] } = record {
                    *sums.entry((header.image, header.thread, owner)).or_default() += periods;
                }
            }
        }
    }
    sums.retain(|_, periods| *periods > 0);
    sums
}

/// Also checks each trace: it is whole, and each thread's times go on.
fn of_traces(run: &Run) -> (Periods, u64) {
    let (mut sums, mut lost) = (Periods::new(), 0);
    for bytes in read(run, "hpctrace") {
        let trace = Trace::parse(&bytes).expect("a trace");
        assert_eq!((trace.damaged, trace.replaced), (0, 0));
        lost += trace.lost;
        for blocks in trace.blocks.chunk_by(|a, b| a.thread == b.thread) {
            let mut last = trace.image;
            for event in blocks.iter().flat_map(Block::events) {
                let (time, event) = event.expect("an event");
                assert!(time >= last, "{time} after {last}");
                last = time;
                if let Event::Sample { state: State::Works, weight, context } = event {
                    *sums.entry((trace.image, blocks[0].thread, context)).or_default() += weight;
                }
            }
        }
    }
    (sums, lost)
}

#[test]
fn the_samples_of_a_trace_are_those_of_the_profile() {
    let _cores = exclusive_cores();
    for way in ["workers-left", "fork", "exec", "segv", "abort"] {
        let name = format!("trace-{way}");
        let run = Spec::fixture(&name, "lifecycle").arguments(&[way, "200"]).rate(1000).trace("4M").run();
        let (profile, (trace, lost)) = (of_profiles(&run), of_traces(&run));
        assert!(!profile.is_empty(), "{way}: {}", run.stderr());
        match lost {
            0 => assert_eq!(trace, profile, "{way}"),
            _ => assert!(trace.iter().all(|(key, periods)| periods <= &profile[key]), "{way}"),
        }
        let processes = run.processes().len();
        assert_eq!(run.files("hpctrace").len(), processes, "{way}: one for each image");
        // What a trace says of a context, the database knows.
        let database = run.database();
        assert!(database.path.join("trace").is_dir(), "{way}");
        database.top_down();
    }
}

#[test]
fn a_full_trace_keeps_the_newest() {
    let _cores = exclusive_cores();
    const NAPS: &str = "import time\nfor i in range(20000): time.sleep(0.00002)";
    let run = Spec::new("trace-ring", "/usr/bin/python3").arguments(&["-c", NAPS]).trace("64K").succeed();
    let file = read(&run, "hpctrace").remove(0);
    assert_eq!(file.len(), 64 << 10);
    let trace = Trace::parse(&file).expect("a trace");
    assert!(trace.replaced > 0 && trace.damaged == 0, "{} blocks replaced", trace.replaced);
    // Of one thread the blocks are the last ones, without a gap.
    let sequences: Vec<u64> = trace.blocks.iter().map(|block| block.sequence).collect();
    let last = sequences.last().copied().expect("a block");
    let blocks = (file.len() / BLOCK_SIZE - 1) as u64;
    assert_eq!(sequences, (last + 1 - blocks..=last).collect::<Vec<_>>());
    let events = trace.blocks.iter().flat_map(Block::events).flatten();
    let waits = events.filter(|(_, event)| *event == Event::Change(State::Waits)).count();
    assert!(waits > 1000, "{waits} waits");
    let output = run.database().output;
    assert!(String::from_utf8_lossy(&output.stderr).contains("since it was full"));
}

/// Of threads one after the other, by construction, the path goes into each worker and back.
#[test]
fn the_critical_path_leads_from_thread_to_thread() {
    let _cores = exclusive_cores();
    let spec = Spec::new("trace-chain", c_program("chain")).rate(1000).trace("4M").critical_path("");
    let run = spec.succeed();
    let file = read(&run, "hpctrace").remove(0);
    let trace = Trace::parse(&file).expect("a trace");
    let mut edges = Vec::new();
    for block in &trace.blocks {
        for (time, event) in block.events().flatten() {
            if let Event::Followed(followed) = event {
                assert!(followed.ago <= time - trace.image, "{followed:?}");
                edges.push((time, followed.edge, followed.from, block.thread, followed.is_path));
            }
        }
    }
    edges.sort_by_key(|edge| edge.0);
    // Whoever joins the first worker, which has done next to nothing, does not go on after it. Threads are
    // numbered as they begin, which the kernel decides.
    let joined = edges.iter().filter(|edge| edge.1 == Edge::Join && edge.4);
    let workers: Vec<u32> = joined.map(|edge| edge.2).collect();
    assert_eq!(workers.len(), 2, "{edges:?}");
    edges.retain(|edge| workers.contains(&edge.2) || workers.contains(&edge.3));
    let path: Vec<_> = edges.iter().map(|edge| (edge.1, edge.2, edge.3, edge.4)).collect();
    let expected: Vec<_> =
        workers.iter().flat_map(|w| [(Edge::Spawn, 1, *w, true), (Edge::Join, *w, 1, true)]).collect();
    assert_eq!(path, expected);
    let database = run.database().path.join("trace");
    let runs: Vec<_> = std::fs::read_dir(database).expect("a folder").flatten().collect();
    assert!(runs[0].path().join("edges.parquet").is_file());
}

/// Of the same threads a reduced trace has the two that are on the path, and the first one.
#[test]
fn a_reduced_trace_leaves_out_what_is_beside_the_path() {
    let _cores = exclusive_cores();
    let spec = Spec::new("trace-slack", c_program("chain")).rate(1000).trace("4M");
    let threads = |database: &Path, more: &[&str]| {
        let file = database.join("trace.pftrace");
        let mut tool = tool("hpcprof-rs");
        tool.arg("export").arg(database).args(["--format", "perfetto", "-o"]).arg(&file).args(more);
        let output = tool.output().expect("the tool");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        output
            .status
            .success()
            .then(|| {
                let bytes = std::fs::read(file).expect("a file");
                // Each thread has one track of this name.
                (bytes.windows(7).filter(|bytes| bytes == b"\x12\x05state").count(), bytes.len())
            })
            .ok_or(error)
    };
    let run = spec.critical_path("").succeed();
    let database = run.database();
    let (all, whole) = threads(&database.path, &[]).expect("an export");
    let (near, reduced) = threads(&database.path, &["--slack", "0"]).expect("an export");
    assert_eq!((all, near), (4, 3));
    assert!(reduced < whole, "{reduced} of {whole} bytes");
    assert_eq!(threads(&database.path, &["--slack", "100"]).expect("an export").0, all);
    let without = Spec::new("trace-no-slack", c_program("chain")).rate(1000).trace("4M").succeed();
    let error = threads(&without.database().path, &["--slack", "0"]).expect_err("no path");
    assert!(error.contains("hpcrun-rs --trace --critical-path"), "{error}");
}
