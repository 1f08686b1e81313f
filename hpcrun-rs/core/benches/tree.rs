//! Cost of inserting a call path into the tree with cold caches: before each insertion, the processor's own
//! caches are filled with other data, as a program does between two samples. A third of the notes of each
//! path are in the tree already.
//!
//! `cargo bench -p hpcrun-core --bench tree`.

mod cold;

use hpc_formats::address::CodeAddress;
use hpc_formats::profile::{Association, RecordKind, meta};
use hpcrun_core::lcct::{Identity, MetricSet, Tree, Words};
use hpcrun_core::logical::{Note, PathRoot};
use std::time::Instant;

const PATHS: usize = 1500;
const NOTES: u64 = 27;

const ONE_SAMPLE: Words = [[1, 1, 0.5_f64.to_bits()], [0; 3], [0; 3], [0; 3]];

const IDENTITY: Identity =
    Identity { pid: 1, image: 1, thread: 1, tid: 1, period_ns: 1, creator_thread: 0, creator_node: 0 };

fn native(address: u64) -> Note {
    Note {
        ip: CodeAddress(address),
        lip: CodeAddress(address),
        meta: meta(RecordKind::Note, Association::OneToOne as u8, 1),
    }
}

fn main() {
    let file = std::env::temp_dir().join(format!("hpcrun-bench-{}", std::process::id()));
    let name = std::ffi::CString::new(file.to_str().expect("UTF-8")).expect("no NUL");
    let mut tree = Tree::create(&name, &IDENTITY, &MetricSet::new(IDENTITY.period_ns))
        .expect("the temporary folder is writable");
    let mut random = 0x1234_5678_9abc_def1_u64;
    let mut nanoseconds = Vec::new();
    for _ in 0..PATHS {
        let mut path: Vec<Note> = (0..NOTES)
            .map(|depth| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                // One of three call sites in a function per depth.
                native(0x5500_0000 + 64 * depth + 5 * (random % 3))
            })
            .collect();
        path.reverse();
        cold::evict();
        let start = Instant::now();
        let node = tree.insert(PathRoot::Entry, &path, 0).expect("room");
        tree.add(node, &ONE_SAMPLE).expect("room");
        nanoseconds.push(start.elapsed().as_nanos() as f64);
    }
    nanoseconds.sort_by(f64::total_cmp);
    let q = |percent: usize| nanoseconds[(PATHS - 1) * percent / 100] / 1e3;
    let typical = &nanoseconds[..PATHS - PATHS / 100];
    println!(
        "a path of {NOTES} notes, us: mean of all but the slowest hundredth {:.2}, \
         median {:.2} ({:.2}-{:.2}), p90 {:.2}, max {:.0}",
        typical.iter().sum::<f64>() / typical.len() as f64 / 1e3,
        q(50),
        q(25),
        q(75),
        q(90),
        q(100)
    );
    std::fs::remove_file(&file).expect("the file is ours");
}
