//! The torture: random fork-join trees with panics in all places, sampled at 5000 Hz.
//!
//! The fixture `torture` compares each tree with a sequential evaluation and accounts for every
//! closure, result and panic payload; it fails by itself. Here its profile is judged: a frame's name
//! states family, depth and state of its place, a place's state determines those of its children, and
//! one `by_` procedure lies between a place and its child. Not one sample may be elsewhere, but for
//! those in the library that unwinds panics (see [`in_unwinder`]), of which there may be 1 %.
//!
//! `cargo xtask torture --minutes N` runs the ignored test for as long as is wanted.

use hpcrun_tests::run::{Spec, is_long};
use hpcrun_tests::tools::exclusive_cores;
use hpcrun_tests::view::{Node, View, value};
use serde_json::Value;
use std::time::{Duration, Instant};

const RATE: u32 = 5000;
/// Workers of the pool that the trees start in, on whatever cores there are.
const WORKERS: [usize; 5] = [1, 2, 3, 8, 16];
const FAMILIES: &str = "ab";

/// A frame of the fixture's trees.
#[derive(Clone, Debug, PartialEq)]
enum Frame {
    /// Family, depth and state of a place.
    Place(char, u32, u32),
    /// An operation of the runtime.
    By(String),
    /// The work of a leaf, or of a loop's iteration.
    Leaf(char),
}

/// Reads `torture::procedures::families::a::d03::s07`, `…::a::leaf` and
/// `torture::forks::by_join`; what lies inside of these (closures) counts as the same.
fn frame(name: &str) -> Option<Frame> {
    let name = name.strip_prefix("torture::")?;
    if let Some(operation) = name.strip_prefix("forks::by_") {
        let operation = operation.split("::").next().unwrap_or(operation);
        return Some(Frame::By(operation.to_owned()));
    }
    let mut parts = name.strip_prefix("procedures::families::")?.split("::");
    let family = parts.next()?.parse().ok().filter(|f| FAMILIES.contains(*f))?;
    let second = parts.next()?;
    if second == "leaf" {
        return Some(Frame::Leaf(family));
    }
    let depth = second.strip_prefix('d')?.parse().ok()?;
    let state = parts.next()?.strip_prefix('s')?.parse().ok()?;
    Some(Frame::Place(family, depth, state))
}

/// Whether a place in state `child` can be below one in state `parent`: the fixture's rule.
fn follows(family: char, parent: u32, child: u32) -> bool {
    let next = |k: u32| match family {
        'a' => (3 * parent + 1 + 5 * k) % 16,
        _ => (5 * parent + 2 + 7 * k) % 16,
    };
    (0..3).any(|k| next(k) == child)
}

/// What is wrong with a path, if anything.
fn fault(path: &[Frame]) -> Option<String> {
    let Some(Frame::Place(family, 0, mut state)) = path.first().cloned() else {
        return Some(format!("begins with {:?}", path.first()));
    };
    let (mut depth, mut by) = (0, None);
    for (at, frame) in path.iter().enumerate().skip(1) {
        match frame {
            Frame::Place(f, d, s) => {
                let right = *f == family && *d == depth + 1 && follows(family, state, *s);
                if !right || by.is_none() {
                    return Some(format!("{frame:?} below depth {depth}, {state}, {by:?}"));
                }
                (depth, state, by) = (*d, *s, None);
            }
            // An operation's closures come below it.
            Frame::By(operation) => {
                if by.get_or_insert(operation) != &operation {
                    return Some(format!("{frame:?} in {by:?}"));
                }
            }
            Frame::Leaf(f) => {
                let of_loop = by.is_none_or(|by| by == "par_for_throwing");
                if *f != family || !of_loop || at + 1 != path.len() {
                    return Some(format!("{frame:?} in {by:?}"));
                }
            }
        }
    }
    None
}

/// Seconds by what was found.
#[derive(Debug, Default)]
struct Verdict {
    right: f64,
    leaves: f64,
    deepest: usize,
    /// Of partial and wrong paths that end in the library that unwinds panics.
    in_unwinder: f64,
    /// Of other partial paths.
    partial: f64,
    wrong: Vec<String>,
}

/// Is the node a procedure of the library that unwinds panics?
///
/// It enters a handler by overwriting the registers that its own frame has saved: whoever unwinds
/// through that frame meanwhile gets the registers of another one. Such a path mostly ends there and
/// is partial; now and then it goes on through remains of dead frames. No call frame information
/// tells of it, so these samples are bounded, not excluded.
fn in_unwinder(node: &Node) -> bool {
    let module = node.module.as_deref().unwrap_or_default();
    module.contains("libgcc_s")
}

fn judge(view: &View) -> Verdict {
    let mut verdict = Verdict::default();
    view.walk(&mut |above, node| {
        let names = above.iter().copied().chain([node]);
        let path: Vec<Frame> = names.filter_map(|n: &Node| frame(&n.name)).collect();
        let seconds = node.busy();
        if above.first().is_some_and(|root| root.kind == "partial") {
            let sum = if in_unwinder(node) { &mut verdict.in_unwinder } else { &mut verdict.partial };
            *sum += seconds;
            return;
        }
        if path.is_empty() || seconds <= 0.0 {
            return;
        }
        if let Some(fault) = fault(&path) {
            if in_unwinder(node) {
                verdict.in_unwinder += seconds;
                return;
            }
            let names: Vec<&str> = above.iter().map(|n| n.name.as_str()).collect();
            let wrong = format!("{seconds:.4} s: {fault}: {path:?}\n{names:?}, {}", node.name);
            verdict.wrong.push(wrong);
            return;
        }
        verdict.right += seconds;
        verdict.deepest = verdict.deepest.max(path.len());
        if let Some(Frame::Leaf(_)) = path.last() {
            verdict.leaves += seconds;
        }
    });
    verdict
}

/// One run of the fixture, and all that must hold for its profile; the panics in stolen halves.
fn torture(test: &str, workers: usize, seed: u64, milliseconds: u64) -> u64 {
    let arguments = [workers as u64, seed, milliseconds].map(|a| a.to_string());
    let run = Spec::fixture(&format!("{test}-{workers}"), "torture")
        .arguments(&arguments.each_ref().map(String::as_str))
        .rate(RATE)
        .succeed();
    let done: Value = serde_json::from_str(run.stdout().trim()).expect("the fixture prints JSON");
    let view = run.database().top_down();
    let verdict = judge(&view);
    let (samples, rooted) = (view.quality.samples, view.quality.rooted);
    eprintln!(
        "{workers} workers, seed {seed}: {rooted} of {samples} samples rooted, lost {:?}, {:.3} s in \
         trees, {} wrong contexts, depth {}; {done}",
        view.quality.lost,
        verdict.right,
        verdict.wrong.len(),
        verdict.deepest
    );
    let what = format!("{workers} workers, seed {seed}");
    assert!(
        verdict.wrong.is_empty(),
        "{what}: {} wrong contexts, first {}",
        verdict.wrong.len(),
        verdict.wrong[0]
    );
    let all = value(&view.totals, "work") + value(&view.totals, "overhead");
    assert!(verdict.in_unwinder <= 0.01 * all, "{what}: {verdict:?}");
    assert!(verdict.partial <= 0.001 * all, "{what}: {:?}", view.quality);
    assert!(rooted as f64 >= 0.99 * samples as f64, "{what}: {:?}", view.quality);
    // A third of the operations captures a context: samples that arrive meanwhile are kept.
    let lost = &view.quality.lost;
    assert!(!lost.contains_key("reentered"), "{what}: {lost:?}");
    let count = |key: &str| done[key].as_u64().expect("a count");
    let kinds = done["kinds"].as_array().expect("counts by kind");
    assert!(kinds.iter().all(|kind| kind.as_u64() > Some(0)), "{done}");
    for key in ["trees", "thrown", "handler_calls", "tokens"] {
        assert!(count(key) > 10, "{what}: {done}");
    }
    assert!(workers == 1 || count("migrated") > 0, "{what}: {done}");
    assert!(samples > 200, "{what}: only {samples} samples");
    // At least the leaves' work lies in trees; what else there is: pools and the evaluation.
    assert!(verdict.leaves > 0.0 && verdict.deepest > 8, "{what}: {verdict:?}");
    count("thrown_stolen")
}

#[test]
fn random_trees_are_right_and_so_are_their_contexts() {
    let _cores = exclusive_cores();
    let mut stolen_panics = 0;
    let milliseconds = if is_long() { 1200 } else { 400 };
    for (workers, seed) in WORKERS.into_iter().zip(1..) {
        stolen_panics += torture("torture", workers, seed, milliseconds);
    }
    assert!(stolen_panics > 0, "no panic came from a stolen half");
}

/// For `TORTURE_MINUTES` (default 1), from `TORTURE_SEED` on (default: the clock).
#[test]
#[ignore = "takes as long as it is told; cargo xtask torture"]
fn random_trees_for_a_long_time() {
    let number = |name: &str| -> Option<u64> {
        let text = std::env::var(name).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{name}: {text}")))
    };
    let clock = std::time::SystemTime::UNIX_EPOCH.elapsed();
    let clock = clock.map_or(1, |since| since.as_secs() % 1_000_000);
    let first = number("TORTURE_SEED").unwrap_or(clock);
    let time = Duration::from_secs(60 * number("TORTURE_MINUTES").unwrap_or(1));
    let _cores = exclusive_cores();
    let start = Instant::now();
    let mut seed = first;
    while start.elapsed() < time {
        for workers in WORKERS {
            torture("torture-long", workers, seed, 4000);
            seed += 1;
        }
    }
    eprintln!("seeds {first} to {} held, in {:?}", seed - 1, start.elapsed());
}

#[test]
fn the_judge_accepts_right_paths_only() {
    let path = |names: &str| -> Vec<Frame> {
        let qualify = |name: &str| match name.strip_prefix("by_") {
            Some(_) => format!("torture::forks::{name}::{{closure#0}}"),
            None => format!("torture::procedures::families::{name}"),
        };
        names.split(' ').filter_map(|name| frame(&qualify(name))).collect()
    };
    for right in [
        "a::d00::s00",
        "a::d00::s00 by_join by_join a::d01::s01 by_scope a::d02::s04 a::leaf",
        "a::d00::s00 by_join a::d01::s06 by_install a::d02::s13",
        "b::d00::s15 by_join b::d01::s04 by_par_for_throwing b::leaf",
    ] {
        assert!(right.split(' ').count() == path(right).len(), "{right}");
        assert_eq!(fault(&path(right)), None, "{right}");
    }
    for wrong in [
        "a::d01::s00",
        "a::leaf",
        "a::d00::s00 a::d01::s01",
        "a::d00::s00 by_join by_scope a::d01::s01",
        "a::d00::s00 by_join a::d01::s02",
        "a::d00::s00 by_join b::d01::s02",
        "a::d00::s00 by_join a::d02::s01",
        "a::d00::s00 by_join a::leaf",
        "a::d00::s00 b::leaf",
        "a::d00::s00 a::leaf by_join",
    ] {
        assert!(fault(&path(wrong)).is_some(), "{wrong} is wrong");
    }
    assert_eq!(path("main a::other b::d00::t"), []);
}
