//! Traces in the database: what a thread did when agrees with its profile, whatever the order of its samples,
//! and damage is one warning.

#[path = "../../formats/tests/support/writer.rs"]
mod writer;

use crate::support::*;
use crate::support::{program, random};
use fastrand::Rng;
use hpc_formats::profile::{Profile, Record};
use hpc_formats::trace::{BLOCK_SIZE, Event, State, block, header};
use hpcprof_rs::catalogue::trace::Slice;
use hpcprof_rs::catalogue::{Catalogue, Projection};
use hpcprof_rs::timeline::bins::binned;
use hpcprof_rs::views::fold::FoldOptions;
use std::collections::BTreeMap;
use writer::Writer;

/// A trace whose samples are those of the profiles, in a random order, with waits between.
fn traced(run: &Run, random: &mut Rng) -> Vec<u8> {
    let mut writer = Writer::new(run.start.pid, run.start.image, PERIOD_NS);
    for thread in &run.threads {
        let bytes = thread.bytes();
        let profile = Profile::parse(&bytes).expect("a profile");
        let mut samples = Vec::new();
        for record in (0..profile.len()).filter_map(|index| profile.record(index)) {
            if let Record::Metric { owner, values, .. } = record {
                let one = random.u64(..=values[1]);
                samples.extend([one, values[1] - one].map(|weight| (owner, weight)));
            }
        }
        random.shuffle(&mut samples);
        let mut time = run.start.image + random.u64(..1000);
        writer.begin(thread.ordinal, time, State::Works);
        for (context, weight) in samples {
            time += weight * PERIOD_NS + random.u64(..PERIOD_NS);
            let mut events = vec![(time, Event::Sample { state: State::Works, weight, context })];
            if random.u8(..4) == 0 {
                events.push((time, Event::Change(State::Waits)));
                time += random.u64(..10 * PERIOD_NS);
                events.push((time, Event::Change(State::Works)));
            }
            for (time, event) in events {
                if !writer.add(time, event) {
                    writer.begin(thread.ordinal, time, State::Works);
                    assert!(writer.add(time, event));
                }
            }
        }
    }
    writer.finish()
}

fn slices(database: &Database) -> Vec<Slice> {
    let mut slices = Vec::new();
    let catalogue = Catalogue::open(database).expect("a database");
    catalogue.each_slice(|slice| slices.push(slice)).expect("a trace");
    slices
}

/// By construction the samples of the trace are those of the profile: so they are by context, to the
/// nanosecond, and no two slices of a thread overlap.
#[test]
fn the_samples_of_each_context_add_up_to_its_work() {
    for seed in 1..=8 {
        let mut run = random::run(seed, 3, 80);
        run.trace = Some(traced(&run, &mut Rng::with_seed(seed)));
        let database = database(&run);
        let catalogue = Catalogue::open(&database).expect("a database");
        let contexts = catalogue.contexts(Projection::Logical).expect("contexts");
        let position = |name: &str| catalogue.metrics.iter().position(|m| m.name == name).expect("a metric");
        let (work, overhead) = (position("work"), position("overhead"));
        let mut sums: BTreeMap<u32, i64> = BTreeMap::new();
        let mut ends: BTreeMap<u32, i64> = BTreeMap::new();
        for slice in slices(&database) {
            let end = ends.entry(slice.thread.expect("a profile")).or_insert(0);
            assert!(slice.start >= *end, "seed {seed}: {slice:?}");
            *end = slice.start + slice.duration;
            match slice.state {
                Some(State::Works) => {
                    *sums.entry(slice.context.expect("a context")).or_default() += slice.sampled;
                }
                _ => assert_eq!(slice.sampled, 0),
            }
        }
        sums.retain(|_, sum| *sum != 0);
        let expected = (0..contexts.nodes.len() as u32).map(|id| {
            let values = contexts.exclusive.of(id);
            (id, values[work] + values[overhead])
        });
        let expected: BTreeMap<u32, i64> = expected.filter(|(_, value)| *value != 0).collect();
        assert_eq!(sums, expected, "seed {seed}");
        assert_eq!(sums.values().sum::<i64>(), run.recorded_work());
    }
}

#[test]
fn a_wait_has_a_context_that_no_sample_has() {
    let mut run = program::full_run();
    let start = run.start.image;
    let thread = &mut run.threads[0];
    let waits = thread.natives(1, &[program::START, program::MAIN_SERIAL, program::FUTEX]);
    let mut writer = Writer::new(run.start.pid, start, PERIOD_NS);
    writer.begin(1, start + 5, State::Works);
    for (time, event) in [
        (start + 10, Event::Change(State::Waits)),
        (start + 90, Event::Change(State::Works)),
        (start + 91, Event::Waited(waits)),
        (start + 100, Event::Change(State::Ended)),
    ] {
        assert!(writer.add(time, event));
    }
    // A thread without a profile.
    writer.begin(9, start + 50, State::Idle);
    assert!(writer.add(start + 60, Event::Change(State::Ended)));
    run.trace = Some(writer.finish());
    let database = database(&run);
    let found = slices(&database);
    let short = |s: &Slice| (s.owner.1, s.thread, s.start, s.duration, s.state.map(State::name));
    let expected = [
        (1, Some(0), 5, 5, Some("works")),
        (1, Some(0), 10, 80, Some("waits")),
        (1, Some(0), 90, 10, Some("works")),
        (9, None, 50, 10, Some("idle")),
    ];
    assert_eq!(found.iter().map(short).collect::<Vec<_>>(), expected);
    let catalogue = Catalogue::open(&database).expect("a database");
    let contexts = catalogue.contexts(Projection::Logical).expect("contexts");
    let mut at = found[1].context;
    assert!(found.iter().enumerate().all(|(index, s)| (index == 1) == s.context.is_some()));
    let mut names = Vec::new();
    while let Some(context) = at {
        let node = &contexts.nodes[context as usize];
        names.extend(node.label.procedure().map(|p| catalogue.code.procedures[p as usize].name.clone()));
        at = node.parent;
    }
    names.reverse();
    assert!(
        names.contains(&"app::main".to_owned()) && names.last() == Some(&"syscall".to_owned()),
        "{names:?}"
    );
}

#[test]
fn what_a_trace_lacks_is_said() {
    let warnings = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut run = random::run(1, 1, 30);
        let mut bytes = traced(&run, &mut Rng::with_seed(1));
        change(&mut bytes);
        run.trace = Some(bytes);
        let temp = TempDir::new();
        run.write(&temp.join("measurements"));
        let output = command(temp.path(), &["measurements", "-o", "database"]);
        assert!(output.status.success());
        stderr(&output)
    };
    assert_eq!(warnings(&|_| {}), "");
    let replaced = warnings(&|bytes| bytes[header::REPLACED] = 1);
    assert!(replaced.contains("are gone, since it was full"), "{replaced}");
    let lost = warnings(&|bytes| bytes[header::LOST] = 3);
    assert!(lost.contains("3 events are not in the trace"), "{lost}");
    let damaged = warnings(&|bytes| bytes[BLOCK_SIZE + block::STATE] = 99);
    assert!(damaged.contains("1 parts of the trace are damaged"), "{damaged}");
    let refused = warnings(&|bytes| bytes[0] = 0);
    assert!(refused.contains("not a trace: wrong first bytes"), "{refused}");
}

/// The fields of a message by number: numbers, or the bytes of a text or message.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    let number = |bytes: &mut &[u8]| {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (byte, rest) = bytes.split_first().expect("a varint");
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                break;
            }
        }
        value
    };
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (tag, value) = (number(&mut bytes), number(&mut bytes));
        match tag & 7 {
            0 => found.push((tag >> 3, value, &[][..])),
            2 => {
                let (inner, rest) = bytes.split_at(value as usize);
                found.push((tag >> 3, value, inner));
                bytes = rest;
            }
            other => panic!("wire type {other}"),
        }
    }
    found
}

fn field<'a>(message: &[(u64, u64, &'a [u8])], number: u64) -> Option<(u64, &'a [u8])> {
    message.iter().find(|f| f.0 == number).map(|f| (f.1, f.2))
}

/// Perfetto's packets, read by another reader than wrote them: the states' times are those of the database,
/// all slices end, and the counters end at zero.
#[test]
fn perfetto_has_the_states_times_of_the_database() {
    let mut run = random::run(7, 3, 60);
    run.trace = Some(traced(&run, &mut Rng::with_seed(7)));
    let database = database(&run);
    let temp = TempDir::new();
    let file = temp.join("trace.pftrace");
    tool(&[
        "export",
        database.to_str().expect("text"),
        "--format",
        "perfetto",
        "-o",
        file.to_str().expect("text"),
    ])
    .expect("an export");
    let bytes = std::fs::read(&file).expect("a file");
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    let mut open: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    let mut times: BTreeMap<String, i64> = BTreeMap::new();
    let mut counters: BTreeMap<u64, (i64, i64)> = BTreeMap::new();
    let mut states: Vec<u64> = Vec::new();
    for (number, _, packet) in fields(&bytes) {
        assert_eq!(number, 1);
        let packet = fields(packet);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        if let Some((_, data)) = field(&packet, 12) {
            for (_, _, name) in fields(data) {
                let name = fields(name);
                names.insert(field(&name, 1).expect("an id").0, text(field(&name, 2).expect("a name").1));
            }
        }
        if let Some((_, track)) = field(&packet, 60) {
            let track = fields(track);
            if field(&track, 2).is_some_and(|(_, name)| name == b"state") {
                states.push(field(&track, 1).expect("an id").0);
            }
        }
        let Some((_, event)) = field(&packet, 11) else { continue };
        let (event, time) = (fields(event), field(&packet, 8).expect("a time").0);
        let (kind, track) = (field(&event, 9).expect("a kind").0, field(&event, 11).expect("a track").0);
        match kind {
            1 => open.entry(track).or_default().push((time, field(&event, 10).expect("a name").0)),
            2 => {
                let (begin, name) = open.get_mut(&track).and_then(Vec::pop).expect("an open slice");
                if states.contains(&track) {
                    *times.entry(names[&name].clone()).or_default() += (time - begin) as i64;
                }
            }
            _ => {
                let value = field(&event, 30).map_or(0, |(value, _)| value as i64);
                let known = counters.entry(track).or_default();
                *known = (value, known.1.max(value));
            }
        }
    }
    assert!(open.values().all(Vec::is_empty) && open.len() == 6, "stacks and states of three threads");
    let mut expected: BTreeMap<String, i64> = BTreeMap::new();
    for slice in slices(&database) {
        let state = slice.state.map_or("unseen", State::name);
        *expected.entry(state.to_owned()).or_default() += slice.duration;
    }
    assert_eq!(times, expected);
    assert!(counters.values().all(|(last, _)| *last == 0), "{counters:?}");
    assert_eq!(counters[&(1 << 63)].1, 3, "three threads work at a time");
}

#[test]
fn perfetto_needs_a_trace() {
    let database = database(&random::run(1, 1, 10));
    let line = ["export", database.to_str().expect("text"), "--format", "perfetto", "-o", "-"];
    let error = tool(&line).expect_err("no trace");
    assert!(error.contains("hpcrun-rs --trace PROGRAM"), "{error}");
}

/// Bins lose nothing but what they round, whatever the number of threads and slices.
#[test]
fn the_tracks_of_the_timeline_have_all_work() {
    let mut run = random::run(5, 70, 40);
    run.trace = Some(traced(&run, &mut Rng::with_seed(5)));
    let database = database(&run);
    let catalogue = Catalogue::open(&database).expect("a database");
    let timeline = binned(&catalogue, FoldOptions::STORED).expect("a trace").expect("a timeline");
    let work: i64 =
        slices(&database).iter().filter(|s| s.state == Some(State::Works)).map(|s| s.duration).sum();
    let tracks = timeline["tracks"].as_array().expect("tracks");
    let sum: f64 = tracks.iter().map(|track| track["work"].as_f64().expect("seconds")).sum();
    assert!((sum - work as f64 * 1e-9).abs() < 1e-6, "{sum}");
    assert!(tracks.iter().any(|track| track["name"] == "main"));
    let hundredths = |row: &serde_json::Value| {
        let bins: Vec<i64> =
            row.as_array().expect("bins").iter().map(|bin| bin.as_i64().expect("a number")).collect();
        assert!(bins.len() <= 2000);
        (bins.iter().sum::<i64>() as f64, bins.len() as f64)
    };
    let bin = timeline["bin"].as_f64().expect("seconds");
    let (works, bins) = hundredths(&timeline["states"]["works"]);
    let least = (works + bins) / 100.0 * bin;
    assert!(works / 100.0 * bin <= sum + 1e-6 && sum <= least + 1e-6, "{works} {sum}");
    assert_eq!(timeline["threads"], 70);
    assert_eq!(timeline["of_threads"].as_array().expect("threads").len(), 64, "a bound");
    for thread in timeline["of_threads"].as_array().expect("threads") {
        let runs = thread["runs"].as_array().expect("runs").iter();
        let length: i64 = runs.map(|run| run[1].as_i64().expect("a number")).sum();
        assert_eq!(length as f64, bins);
    }
}

/// What works for less than a hundredth of its time and else waits is counted, but for the first thread.
#[test]
fn the_waits_of_threads_that_stand_by_are_left_out() {
    const END: u64 = 2_000_000;
    let mut run = program::full_run();
    let start = run.start.image;
    let mut writer = Writer::new(run.start.pid, start, PERIOD_NS);
    for (thread, work, then) in [
        (1, 10_000, State::Waits),
        (7, 10_000, State::Waits),
        (8, 19_000, State::Waits),
        (9, 100_000, State::Waits),
        (10, 10_000, State::Idle),
    ] {
        writer.begin(thread, start, State::Works);
        assert!(writer.add(start + work, Event::Change(then)));
        assert!(writer.add(start + END, Event::Change(State::Ended)));
    }
    run.trace = Some(writer.finish());
    let database = database(&run);
    let catalogue = Catalogue::open(&database).expect("a database");
    let timeline = binned(&catalogue, FoldOptions::STORED).expect("a trace").expect("a timeline");
    let standing_by = &timeline["standing_by"];
    assert_eq!(standing_by["threads"], 2);
    assert!((standing_by["work"].as_f64().expect("seconds") - 29e-6).abs() < 1e-12, "{standing_by}");
    // A bin is a microsecond, and counts are in hundredths.
    let all = |state: &str| {
        let bins = timeline["states"][state].as_array().expect("bins").iter();
        bins.map(|bin| bin.as_u64().expect("a number")).sum::<u64>() * 10
    };
    assert_eq!(["works", "waits", "idle"].map(all), [149_000, 1_990_000 + 1_900_000, 1_990_000]);
}
