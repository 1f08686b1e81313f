//! The tree that the sampler writes, read by the reader of the format: they must agree for every order of
//! insertion.

use hpc_formats::address::CodeAddress;
use hpc_formats::loss::LossCause;
use hpc_formats::profile::{
    Aggregation, Association, Metric, Profile, Record, RecordKind, Representation, Unit, default_metrics,
    meta, profiles, square_metrics,
};
use hpcrun_core::lcct::{Identity, MetricSet, Tree, Words};
use hpcrun_core::logical::{Note, PathRoot};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

const IDENTITY: Identity = Identity {
    pid: 7,
    image: 99,
    thread: 3,
    tid: 70,
    period_ns: 1_000_000,
    creator_thread: 1,
    creator_node: 5,
};

/// One sample that stands for two periods.
const SAMPLE: Words = [[1, 2, 0.5_f64.to_bits()], [0; 3], [0; 3], [0; 3]];

fn metrics() -> MetricSet {
    MetricSet::new(IDENTITY.period_ns)
}

/// A path that no other test uses.
fn fresh_path() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("hpcrun-tree-{}-{n}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

fn create(path: &std::path::Path) -> Tree {
    let name = CString::new(path.to_str().unwrap()).unwrap();
    Tree::create(&name, &IDENTITY, &metrics()).unwrap()
}

fn note(association: Association, note_id: u32, ip: u64, lip: u64) -> Note {
    Note {
        ip: CodeAddress(ip),
        lip: CodeAddress(lip),
        meta: meta(RecordKind::Note, association as u8, note_id),
    }
}

fn native(ip: u64) -> Note {
    note(Association::OneToOne, 1, ip, ip)
}

/// A record's path from the root, as text. It must not depend on the order of insertion.
fn path_of(profile: &Profile<'_>, mut index: usize) -> String {
    let mut parts = Vec::new();
    loop {
        match profile.record(index).unwrap() {
            Record::Note { parent, note_id, ip, lip, association } => {
                let class = hpcrun_core::lcct::key::class_of(association);
                parts.push(format!("{class:?}.{note_id}({ip},{lip})"));
                index = parent as usize;
            }
            other => {
                parts.push(format!("{other:?}"));
                break;
            }
        }
    }
    parts.reverse();
    parts.join(" ")
}

/// The values by path.
fn contents(bytes: &[u8]) -> BTreeMap<String, (u64, u64, f64)> {
    let profile = Profile::parse(bytes).unwrap();
    assert_eq!(profile.missing_records, 0);
    let mut all = BTreeMap::new();
    for i in 0..profile.len() {
        if let Record::Metric { owner, group, values: [samples, work, idleness] } = profile.record(i).unwrap()
        {
            if group > 0 {
                continue;
            }
            let idleness = f64::from_bits(idleness);
            let old = all.insert(path_of(&profile, owner as usize), (samples, work, idleness));
            assert_eq!(old, None, "a context appears twice");
        }
    }
    all
}

/// A deterministic shuffle.
fn shuffled<T: Clone>(items: &[T], seed: u64) -> Vec<T> {
    let mut items = items.to_vec();
    let mut x = seed | 1;
    for i in (1..items.len()).rev() {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        items.swap(i, (x % (i as u64 + 1)) as usize);
    }
    items
}

fn sample_paths() -> Vec<(PathRoot, Vec<Note>)> {
    let mut paths = Vec::new();
    let roots = [
        PathRoot::Entry,
        PathRoot::Anchor { thread: 1, node: 4 },
        PathRoot::Partial(LossCause::NoUnwindInfo),
    ];
    for root in roots {
        for a in 1..4 {
            for b in 1..6 {
                // Innermost first: plain calls, and a stolen task under its spawner's frames.
                paths.push((root, vec![native(b), native(a)]));
                paths.push((
                    root,
                    vec![
                        native(b),
                        note(Association::OneToMany, 2, 0, a),
                        note(Association::OneToMany, 1, 50, 9),
                    ],
                ));
                // M <-> 1 and its base case 1 <-> 1 share a node.
                paths.push((
                    root,
                    vec![note(Association::ManyToOne, 2, b, 0), note(Association::ManyToOne, 1, a, a)],
                ));
                paths.push((root, vec![note(Association::OneToZero, 1, b, 0), native(a)]));
            }
        }
    }
    paths
}

fn write_all(paths: &[(PathRoot, Vec<Note>)]) -> Vec<u8> {
    let file = fresh_path();
    let mut tree = create(&file);
    for (root, notes) in paths {
        let node = tree.insert(*root, notes, 0).unwrap();
        tree.add(node, &SAMPLE).unwrap();
    }
    tree.finish();
    drop(tree);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    bytes
}

#[test]
fn the_tree_does_not_depend_on_insertion_order() {
    let paths = sample_paths();
    let expected = contents(&write_all(&paths));
    assert_eq!(expected.len(), paths.len());
    for seed in 1..20 {
        assert_eq!(contents(&write_all(&shuffled(&paths, seed))), expected);
    }
}

/// Paths that diverge anywhere: some nodes directly follow their parents, others are in the index.
#[test]
fn no_context_has_two_nodes() {
    let mut random = 0x1234_5678_9abc_def1_u64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let paths: Vec<Vec<Note>> =
        (0..500).map(|_| (0..next(70)).map(|_| native(1 + next(3) / 2)).collect()).collect();
    let file = fresh_path();
    let mut tree = create(&file);
    let mut insert = |notes: &Vec<Note>| tree.insert(PathRoot::Entry, notes, 0).unwrap();
    let nodes: Vec<u32> = paths.iter().map(&mut insert).collect();
    let again: Vec<u32> = paths.iter().rev().map(&mut insert).collect();
    assert!(nodes.iter().eq(again.iter().rev()));
    let bytes = std::fs::read(&file).unwrap();
    let profile = Profile::parse(&bytes).unwrap();
    let mut seen = BTreeMap::new();
    for index in 0..profile.len() {
        if let Some(Record::Note { parent, ip, .. }) = profile.record(index) {
            assert_eq!(seen.insert((parent, ip), index), None, "two nodes");
        }
    }
    for (notes, node) in paths.iter().zip(&nodes) {
        // Outermost last: upwards from the node, each record is the path's next note.
        let mut at = *node as usize;
        for note in notes {
            match profile.record(at).unwrap() {
                Record::Note { parent, ip, .. } if ip == note.ip => at = parent as usize,
                other => panic!("{other:?} for {note:?}"),
            }
        }
        assert!(matches!(profile.record(at), Some(Record::Entry)));
    }
    tree.finish();
    drop(tree);
    std::fs::remove_file(&file).unwrap();
}

/// Each profile of a file with several is the same as in its own file, and is complete before the chain leads
/// to it.
#[test]
fn profiles_in_one_file_are_independent() {
    let paths = sample_paths();
    let alone = contents(&write_all(&paths));
    let file = fresh_path();
    let mut tree = create(&file);
    for thread in 3..40 {
        if thread > 3 {
            assert!(tree.has_room());
            tree.begin_next(&Identity { thread, ..IDENTITY }, &metrics()).unwrap();
        }
        for (root, notes) in paths.iter().take(if thread % 5 == 0 { 0 } else { paths.len() }) {
            let node = tree.insert(*root, notes, 0).unwrap();
            tree.add(node, &SAMPLE).unwrap();
        }
        let bytes = std::fs::read(&file).unwrap();
        let last = profiles(&bytes).last().unwrap();
        let header = Profile::parse(last).unwrap().header;
        assert_eq!((header.thread, header.finished), (thread, false), "as after a kill");
        tree.finish();
    }
    drop(tree);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let mut threads = 3;
    for profile in profiles(&bytes) {
        let header = Profile::parse(profile).unwrap().header;
        assert_eq!((header.thread, header.finished), (threads, true));
        if threads % 5 != 0 {
            assert_eq!(contents(profile), alone);
        }
        threads += 1;
    }
    assert_eq!(threads, 40);
    // After a cut at any length, the profiles before the cut are complete, and missing data is an error or
    // counted.
    let used = bytes.len() - profiles(&bytes).last().unwrap().len();
    for length in (0..used).step_by(997) {
        let cut = bytes[..length].to_vec();
        let is_whole = |p: &[u8]| Profile::parse(p).is_ok_and(|p| p.missing_records == 0);
        let parsed: Vec<bool> = profiles(&cut).map(is_whole).collect();
        // The profile that is cut, and an empty one instead of those that should follow.
        let whole = parsed.iter().take_while(|p| **p).count();
        assert!(whole < parsed.len() && parsed.len() <= whole + 2, "{length}: {parsed:?}");
    }
}

#[test]
fn a_shared_base_case_keeps_its_association() {
    let long = vec![note(Association::ManyToOne, 2, 8, 0), note(Association::ManyToOne, 1, 4, 4)];
    for paths in [
        [(PathRoot::Entry, long.clone()), (PathRoot::Entry, vec![native(4)])],
        [(PathRoot::Entry, vec![native(4)]), (PathRoot::Entry, long.clone())],
    ] {
        let bytes = write_all(&paths);
        let profile = Profile::parse(&bytes).unwrap();
        let outer: Vec<_> = (0..profile.len())
            .filter_map(|i| match profile.record(i) {
                Some(Record::Note { note_id: 1, association, .. }) => Some(association),
                _ => None,
            })
            .collect();
        assert_eq!(outer, [Association::OneToOne], "one shared node, of the base case");
    }
}

#[test]
fn outer_notes_need_not_be_given_again() {
    let paths: Vec<_> = (1..200u64)
        .map(|i| {
            let notes = [i % 13 + 1, i % 5 + 1, i % 3 + 1, i % 2 + 1, 1].map(native);
            (PathRoot::Anchor { thread: 1, node: 1 + (i as u32 / 50) }, notes.to_vec())
        })
        .collect();
    let file = fresh_path();
    let mut tree = create(&file);
    let mut last: &(PathRoot, Vec<Note>) = &(PathRoot::Entry, Vec::new());
    let mut left_out = 0;
    for path in &paths {
        let common = path.1.iter().rev().zip(last.1.iter().rev());
        let common = common.take_while(|(a, b)| a == b).count();
        let outer = if path.0 == last.0 { common } else { 0 };
        let inner = &path.1[..path.1.len() - outer];
        let node = tree.insert(path.0, inner, outer).unwrap();
        tree.add(node, &SAMPLE).unwrap();
        last = path;
        left_out += outer;
    }
    tree.finish();
    drop(tree);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(left_out > 100);
    let expected = write_all(&paths);
    let (values, records) = (contents(&bytes), Profile::parse(&bytes).unwrap().len());
    assert_eq!(values, contents(&expected));
    assert_eq!(records, Profile::parse(&expected).unwrap().len());
}

#[test]
fn header_and_totals_agree_with_the_records() {
    let paths = sample_paths();
    let bytes = write_all(&[&paths[..], &paths[..]].concat());
    let profile = Profile::parse(&bytes).unwrap();
    let h = &profile.header;
    assert_eq!((h.pid, h.image, h.thread, h.tid), (7, 99, 3, 70));
    assert_eq!((h.creator_thread, h.creator_node), (1, 5));
    assert_eq!(h.period_ns, 1_000_000);
    assert!(h.finished);
    let values = contents(&bytes);
    assert_eq!(h.samples, 2 * paths.len() as u64);
    assert_eq!(values.values().map(|v| v.0).sum::<u64>(), h.samples);
    assert_eq!(values.values().map(|v| v.1).sum::<u64>(), h.weight);
    assert!(values.values().all(|v| *v == (2, 4, 1.0)));
}

#[test]
fn a_tree_that_is_still_being_written_is_readable() {
    let file = fresh_path();
    let mut tree = create(&file);
    // Enough to grow both the file and the index several times.
    for i in 1..=50_000u64 {
        let node = tree.insert(PathRoot::Entry, &[native(i), native(i % 7 + 1)], 0).unwrap();
        tree.add(node, &SAMPLE).unwrap();
    }
    let bytes = std::fs::read(&file).unwrap();
    let profile = Profile::parse(&bytes).unwrap();
    assert!(!profile.header.finished);
    assert_eq!(profile.missing_records, 0);
    assert_eq!(contents(&bytes).len(), 50_000);
    tree.finish();
    drop(tree);
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_profile_that_cannot_be_created_is_an_error() {
    let name = CString::new("/nonexistent-folder/profile").unwrap();
    assert_eq!(Tree::create(&name, &IDENTITY, &metrics()).err(), Some(LossCause::NoFile));
    let file = fresh_path();
    std::fs::write(&file, b"somebody else's").unwrap();
    let name = CString::new(file.to_str().unwrap()).unwrap();
    assert_eq!(Tree::create(&name, &IDENTITY, &metrics()).err(), Some(LossCause::NoFile));
    assert_eq!(std::fs::read(&file).unwrap(), b"somebody else's");
    std::fs::remove_file(&file).unwrap();
}

/// Eight metrics are three groups of each node, which is added to as a whole.
#[test]
fn further_metrics_are_further_groups() {
    let metric = |name: &str, representation, scale| Metric {
        name: name.to_owned(),
        unit: Unit::Count,
        aggregation: Aggregation::Sum,
        representation,
        scale,
    };
    let further = [
        metric("instructions", Representation::Integer, 1000.0),
        metric("sixteen-letters-", Representation::Float, 0.5),
    ];
    let mut set = metrics();
    assert!(further.iter().all(|metric| set.push(metric)));
    let path = fresh_path();
    let name = CString::new(path.to_str().unwrap()).unwrap();
    let mut tree = Tree::create(&name, &IDENTITY, &set).unwrap();
    let words = |n: u64| {
        let float = |value: f64| value.to_bits();
        [[1, 2, float(0.5)], [4, float(0.25), float(6.25)], [n, float(n as f64 * 0.25), 0], [0; 3]]
    };
    for thread in [3, 4] {
        if thread > 3 {
            let identity = Identity { thread, ..IDENTITY };
            tree.begin_next(&identity, &set).unwrap();
        }
        // Each node twice, and a child after its parent's values.
        for n in [1, 2, 1, 2] {
            let notes = [native(7), native(n)];
            for notes in [&notes[1..], &notes[..]] {
                let node = tree.insert(PathRoot::Entry, notes, 0).unwrap();
                tree.add(node, &words(n)).unwrap();
            }
        }
        tree.finish();
    }
    drop(tree);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    for bytes in profiles(&bytes) {
        let profile = Profile::parse(bytes).unwrap();
        let table = &profile.header.metrics;
        assert_eq!(table[..3], default_metrics(IDENTITY.period_ns));
        assert_eq!(table[3..6], square_metrics(IDENTITY.period_ns));
        assert_eq!(table[6..], further);
        let mut found = Vec::new();
        for index in 0..profile.len() {
            let record = profile.record(index).expect("readable");
            if let Record::Metric { owner, group, values } = record {
                let first = group as usize * values.len();
                let amounts: Vec<f64> =
                    table[first..].iter().zip(values).map(|(metric, word)| metric.amount(word)).collect();
                found.push((path_of(&profile, owner as usize), group, amounts));
            }
        }
        // Two samples a node: four periods of 1 ms, and one of idleness; squares are in (1 us)^2.
        let of_node = |path: &str, n: f64| {
            let of_group = |group, amounts| (path.to_owned(), group, amounts);
            [
                of_group(0, vec![2.0, 4e6, 1e6]),
                of_group(1, vec![8e6, 0.5e6, 12.5e6]),
                of_group(2, vec![2000.0 * n, 0.25 * n]),
            ]
        };
        let [one, two] = [1, 2].map(|n| format!("Entry One.1(0:0x{n},0:0x{n})"));
        let expected = [
            of_node(&one, 1.0),
            of_node(&format!("{one} One.1(0:0x7,0:0x7)"), 1.0),
            of_node(&two, 2.0),
            of_node(&format!("{two} One.1(0:0x7,0:0x7)"), 2.0),
        ];
        assert_eq!(found, expected.concat());
        let header = &profile.header;
        assert_eq!((header.samples, header.weight), (8, 16));
    }
}

#[test]
fn a_set_has_room_for_ten_sums() {
    let mut metric = default_metrics(1)[0].clone();
    let mut set = metrics();
    for n in 6..10 {
        assert_eq!(set.groups(), u32::div_ceil(n, 3));
        metric.aggregation = Aggregation::Max;
        assert!(!set.push(&metric), "no sum");
        metric.aggregation = Aggregation::Sum;
        assert!(!set.push(&metric), "a name twice");
        for name in [String::new(), "n".repeat(49)] {
            metric.name = name;
            assert!(!set.push(&metric), "{:?} is no name", metric.name);
        }
        metric.name = format!("{n}{}", "n".repeat(47));
        assert!(set.push(&metric));
    }
    metric.name = "10".to_owned();
    assert!(!set.push(&metric), "no room");
    assert_eq!((set.count(), set.groups()), (10, 4));
}
