//! Traces in the database: what a thread did when agrees with its profile, whatever the order of its samples,
//! and damage is one warning.

use crate::support::*;
use crate::support::{program, random};
use fastrand::Rng;
use hpc_formats::profile::{Profile, Record};
use hpc_formats::trace::{BLOCK_SIZE, Event, State, Writer, block, header};
use hpcprof_rs::catalogue::trace::Slice;
use hpcprof_rs::catalogue::{Catalogue, Projection};
use std::collections::BTreeMap;

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
