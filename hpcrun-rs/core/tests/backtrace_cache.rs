//! Unwinds with the backtrace cache find the same path as unwinds of the whole stack, and as framehop.
//!
//! The program recurses at random through functions of several kinds. At random points it unwinds twice: with
//! the cache of the previous path, and without.

#[path = "../benches/reference/mod.rs"]
mod reference;

use hpc_formats::address::CodeAddress;
use hpcrun_core::logical::{self, BacktraceCache, Note, PathBuffer, PathRoot, agents};
use hpcrun_core::session;
use hpcrun_core::tasks::Chain;
use hpcrun_core::unwind::stack::StackSlot;
use hpcrun_core::unwind::{Cursor, Registers, StackBounds, Unwind, loadmap};
use std::hint::black_box;

struct Walker {
    bounds: StackBounds,
    unwind: Unwind,
    framehop: reference::Framehop,
    path: PathBuffer,
    cache: BacktraceCache,
    no_cache: BacktraceCache,
    /// The previous path, innermost note first.
    last: Vec<Note>,
    random: u64,
    paths: usize,
    shared: usize,
    notes: usize,
}

impl Walker {
    fn new() -> Walker {
        loadmap::refresh(|| true);
        let (low, high) = session::pthread_stack().expect("the stack has bounds");
        let slot: &'static StackSlot = Box::leak(Box::default());
        slot.set(low, high, true, (0, 0));
        slot.publish();
        // SAFETY: nobody refreshes the load map now.
        let pinned = unsafe { loadmap::Pinned::new() };
        Walker {
            bounds: StackBounds { low, high },
            unwind: Unwind::new(agents::owner_of).expect("memory"),
            framehop: reference::Framehop::new(pinned.snapshot().expect("taken above").modules()),
            path: PathBuffer::new().expect("memory"),
            cache: BacktraceCache::new().expect("memory"),
            no_cache: BacktraceCache::new().expect("memory"),
            last: Vec::new(),
            random: 0x9e37_79b9_7f4a_7c15,
            paths: 0,
            shared: 0,
            notes: 0,
        }
    }

    fn next(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) % below
    }

    fn walk(&mut self, registers: Registers, is_whole: bool) -> (PathRoot, Vec<Note>, usize) {
        // SAFETY: nobody refreshes the load map now.
        let pinned = unsafe { loadmap::Pinned::new() };
        let snapshot = pinned.snapshot().expect("a snapshot was taken");
        let physical = Cursor::new(&mut self.unwind, snapshot, &registers, self.bounds);
        let cache = if is_whole {
            self.no_cache.clear();
            &mut self.no_cache
        } else {
            &mut self.cache
        };
        let root = logical::backtrace(physical, Chain::NONE, &mut self.path, cache);
        let root = root.expect("the thread works");
        (root, self.path.notes().to_vec(), self.path.outer())
    }

    #[inline(never)]
    fn compare(&mut self) {
        let registers = Registers::here();
        let (root, mut notes, outer) = self.walk(registers, false);
        let shared = &self.last[self.last.len() - outer..];
        notes.extend_from_slice(shared);
        let (expected_root, expected, none) = self.walk(registers, true);
        assert_eq!(none, 0);
        assert_eq!(root, expected_root);
        assert_eq!(notes, expected);
        self.compare_with_framehop(registers, &expected);
        self.paths += 1;
        self.shared += outer;
        self.notes += notes.len();
        self.last = notes;
    }

    fn compare_with_framehop(&mut self, registers: Registers, expected: &[Note]) {
        // SAFETY: nobody refreshes the load map now.
        let pinned = unsafe { loadmap::Pinned::new() };
        let snapshot = pinned.snapshot().expect("a snapshot was taken");
        let mut frames = vec![];
        self.framehop.walk(registers, self.bounds, |lookup| {
            let module = loadmap::locate(snapshot, lookup).expect("code of a module");
            frames.push(CodeAddress::new(module.id, lookup - module.bias));
        });
        assert!(expected.iter().map(|note| note.ip).eq(frames));
    }

    /// Calls further functions at random.
    fn call_on(&mut self, depth: u64) {
        for _ in 0..=self.next(3) {
            if self.next(3) == 0 {
                self.compare();
            }
            if depth > 0 {
                match self.next(4) {
                    0 => small(self, depth - 1),
                    1 => large(self, depth - 1),
                    2 => dynamic(self, depth - 1),
                    _ => twin(self, depth - 1),
                }
            }
        }
    }
}

#[inline(never)]
fn small(walker: &mut Walker, depth: u64) {
    walker.call_on(depth);
    black_box(depth);
}

/// Like `small`: a frame of the same shape in another function.
#[inline(never)]
fn twin(walker: &mut Walker, depth: u64) {
    walker.call_on(depth);
    black_box(depth + 1);
}

#[inline(never)]
fn large(walker: &mut Walker, depth: u64) {
    let room = black_box([depth; 40]);
    walker.call_on(depth);
    black_box(room);
}

/// Calls through frames of the standard library, with a closure.
#[inline(never)]
fn dynamic(walker: &mut Walker, depth: u64) {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        walker.call_on(depth);
    }));
    caught.expect("nothing panics");
}

#[test]
fn a_path_is_the_same_with_and_without_the_one_before() {
    let mut walker = Walker::new();
    while walker.paths < 20_000 {
        let depth = 4 + walker.next(12);
        walker.call_on(depth);
        if walker.next(5) == 0 {
            walker.cache.clear();
        }
    }
    // Most notes of a path are shared with the previous path.
    assert!(walker.shared * 2 > walker.notes, "{} of {} notes shared", walker.shared, walker.notes);
}

#[test]
fn a_changed_return_address_is_noticed() {
    // The frames of both functions occupy the same place on the stack, one after the other.
    let mut walker = Walker::new();
    for round in 0..200 {
        match round % 3 {
            0 => leaf_of_small(&mut walker),
            1 => leaf_of_twin(&mut walker),
            _ => {
                leaf_of_twin(&mut walker);
                leaf_of_small(&mut walker);
            }
        }
    }
    assert!(walker.shared > 0);
}

#[inline(never)]
fn leaf_of_small(walker: &mut Walker) {
    walker.compare();
    black_box(1);
}

#[inline(never)]
fn leaf_of_twin(walker: &mut Walker) {
    walker.compare();
    black_box(2);
}

#[test]
fn an_unregistered_stack_invalidates_the_cache() {
    let mut walker = Walker::new();
    let other: &'static StackSlot = Box::leak(Box::default());
    other.publish();
    let mut shared_before = 0;
    for round in 0..50 {
        other.set(16, 32, false, (0, 0));
        leaf_of_small(&mut walker);
        leaf_of_small(&mut walker);
        shared_before += walker.shared;
        walker.shared = 0;
        other.clear();
        leaf_of_small(&mut walker);
        assert_eq!(walker.shared, 0, "round {round}");
    }
    // Another test may unregister its stack and empty the cache, but not in every round.
    assert!(shared_before > 0);
}

/// Goes down to a depth of 100,000 calls, and walks there and on the way back.
#[inline(never)]
fn deep(walker: &mut Walker, depth: u32, most: &mut usize) {
    if depth > 0 {
        deep(walker, depth - 1, most);
    }
    if depth % 10_000 == 0 {
        let (root, notes, outer) = walker.walk(Registers::here(), false);
        assert_eq!(root, PathRoot::Entry);
        assert!(notes.len() + outer > 100_000 - depth as usize);
        if depth > 0 {
            *most = notes.len().max(*most);
        }
    }
}

#[test]
fn a_deep_stack_takes_as_many_steps_as_frames_changed() {
    let run = || {
        let mut walker = Walker::new();
        // Another test may unregister its stack and empty the cache, but not in every round.
        let rounds = (0..5).map(|_| {
            let mut most = 0;
            deep(&mut walker, 100_000, &mut most);
            most
        });
        assert!(rounds.min() < Some(100));
    };
    let thread = std::thread::Builder::new().stack_size(1 << 28).spawn(run);
    thread.expect("memory").join().expect("no failure");
}
