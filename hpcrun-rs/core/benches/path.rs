//! Cost of one logical call path, at several depths: a whole unwind, the same with insertion into the tree,
//! and both for a path that differs from the previous one in its two innermost frames; compared with framehop
//! alone on the same stack.
//!
//! Warm: the same stack repeatedly. Cold: after the program has touched as much memory as the second-level
//! cache holds, which is closer to a real sample.
//!
//! `cargo bench -p hpcrun-core`.

mod cold;
mod reference;

use hpcrun_core::lcct::{Identity, MetricSet, Tree, Words};
use hpcrun_core::logical::{self, BacktraceCache, PathBuffer, agents};
use hpcrun_core::tasks::Chain;
use hpcrun_core::unwind::stack::StackSlot;
use hpcrun_core::unwind::{Cursor, Registers, StackBounds, Unwind, loadmap};
use std::hint::black_box;
use std::time::Instant;

const ONE_SAMPLE: Words = [[1, 1, 0.5_f64.to_bits()], [0; 3], [0; 3], [0; 3]];
const ROUNDS: usize = 41;
const PER_ROUND: u32 = 2000;

#[inline(never)]
fn descend(depth: usize, bench: &mut Bench) {
    if depth == 0 {
        bench.measure();
    } else {
        descend(depth - 1, bench);
    }
    black_box(depth);
}

struct Bench {
    bounds: StackBounds,
    unwind: Unwind,
    path: PathBuffer,
    cache: BacktraceCache,
    tree: Tree,
    framehop: reference::Framehop,
}

impl Bench {
    fn backtrace(&mut self, regs: Registers) -> logical::PathRoot {
        // SAFETY: nobody refreshes the load map now.
        let pinned = unsafe { loadmap::Pinned::new() };
        let snapshot = pinned.snapshot().expect("a snapshot was taken");
        let cursor = Cursor::new(&mut self.unwind, snapshot, &regs, self.bounds);
        let root = logical::backtrace(cursor, Chain::NONE, &mut self.path, &mut self.cache);
        root.expect("the thread works")
    }

    fn with_insertion(&mut self, regs: Registers) -> u32 {
        let root = self.backtrace(regs);
        let (notes, outer) = (self.path.notes(), self.path.outer());
        let node = self.tree.insert(root, notes, outer).expect("room");
        self.tree.add(node, &ONE_SAMPLE).expect("room");
        node
    }

    fn framehop_alone(&mut self, regs: Registers) -> usize {
        let mut frames = 0;
        self.framehop.walk(regs, self.bounds, |_| frames += 1);
        frames
    }

    #[inline(never)]
    fn measure(&mut self) {
        let outer = Registers::here();
        // Two frames with two call sites each: the alternating paths.
        black_box(&mut *self).fork(outer);
        black_box(());
    }

    #[inline(never)]
    fn fork(&mut self, outer: Registers) {
        black_box(&mut *self).measure_from(outer, Registers::here());
        black_box(());
    }

    #[inline(never)]
    fn measure_from(&mut self, outer: Registers, inner: Registers) {
        let regs = Registers::here();
        let frames = self.framehop_alone(regs);
        self.cache.clear();
        self.with_insertion(regs);
        assert_eq!(self.path.notes().len(), frames, "both walks see the same frames");
        let mut unwarmed: [Vec<f64>; 3] = Default::default();
        for _ in 0..5 * ROUNDS {
            cold::evict();
            unwarmed[0].push(nanoseconds(1, || {
                black_box(self.framehop_alone(regs));
            }));
            self.cache.clear();
            cold::evict();
            unwarmed[1].push(nanoseconds(1, || {
                black_box(self.backtrace(regs));
            }));
            self.cache.clear();
            cold::evict();
            unwarmed[2].push(nanoseconds(1, || {
                black_box(self.with_insertion(regs));
            }));
        }
        let mut times: [Vec<f64>; 4] = Default::default();
        for _ in 0..ROUNDS {
            times[0].push(nanoseconds(PER_ROUND, || {
                black_box(self.framehop_alone(regs));
            }));
            times[1].push(nanoseconds(PER_ROUND, || {
                self.cache.clear();
                black_box(self.backtrace(regs));
            }));
            times[2].push(nanoseconds(PER_ROUND, || {
                self.cache.clear();
                black_box(self.with_insertion(regs));
            }));
            times[3].push(
                nanoseconds(PER_ROUND, || {
                    black_box(self.with_insertion(outer));
                    black_box(self.with_insertion(inner));
                }) / 2.0,
            );
        }
        println!("| {frames} | warm | {} |", times.map(quartiles).join(" | "));
        println!("| {frames} | cold | {} | |", unwarmed.map(quartiles).join(" | "));
    }
}

/// Median and quartiles, in microseconds.
fn quartiles(mut ns: Vec<f64>) -> String {
    ns.sort_by(f64::total_cmp);
    let q = |p: usize| ns[(ns.len() - 1) * p / 4] / 1e3;
    format!("{:.3} ({:.3}-{:.3})", q(2), q(1), q(3))
}

fn nanoseconds(times: u32, mut f: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..times {
        f();
    }
    start.elapsed().as_nanos() as f64 / f64::from(times)
}

fn main() {
    loadmap::refresh(|| true);
    let (low, high) = hpcrun_core::session::pthread_stack().expect("the stack has bounds");
    let slot: &'static StackSlot = Box::leak(Box::default());
    slot.set(low, high, true, (0, 0));
    slot.publish();
    let file = std::env::temp_dir().join(format!("hpcrun-bench-{}", std::process::id()));
    let name = std::ffi::CString::new(file.to_str().expect("UTF-8")).expect("no NUL");
    let identity =
        Identity { pid: 1, image: 1, thread: 1, tid: 1, period_ns: 1, creator_thread: 0, creator_node: 0 };
    // SAFETY: nobody refreshes the load map now.
    let pinned = unsafe { loadmap::Pinned::new() };
    let mut bench = Bench {
        bounds: StackBounds { low, high },
        unwind: Unwind::new(agents::owner_of).expect("memory"),
        path: PathBuffer::new().expect("memory"),
        cache: BacktraceCache::new().expect("memory"),
        tree: Tree::create(&name, &identity, &MetricSet::new(1)).expect("the temporary folder is writable"),
        framehop: reference::Framehop::new(pinned.snapshot().expect("taken above").modules()),
    };
    println!("microseconds a path, median (quartiles) of {ROUNDS} interleaved rounds");
    println!(
        "| frames | caches | framehop alone | logical unwind | unwind and insertion | \
         with the path before |"
    );
    println!("|---|---|---|---|---|---|");
    for depth in [0, 40, 190] {
        descend(depth, &mut bench);
    }
    std::fs::remove_file(&file).expect("the file is ours");
}
