//! The oracle: call paths that prove themselves, through steals, at 5000 Hz, on 1 to 8 workers.
//!
//! In the fixture `oracle` a frame's name states its tree, depth and side. A logical path is right
//! exactly when its frames are those of one tree from depth 0 without a gap, when the sides taken
//! (left costs 1 of the parameter, right 2) never use up more than there is, and when the leaf comes
//! where less than 2 is left and only there. Not one sample may be elsewhere.

use hpcrun_tests::run::{Run, Spec, is_long};
use hpcrun_tests::tools::exclusive_cores;
use hpcrun_tests::view::{Node, View, value};
use serde_json::Value;

const RATE: u32 = 5000;
/// Parameter of tree A; tree B has one less.
const N: u32 = 16;

/// A frame of the fixture's trees.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Frame {
    /// Tree, depth, and how much of the parameter the edge into it uses.
    Fork(char, u32, u32),
    /// The leaf of a tree.
    Leaf(char),
}

/// Reads `oracle::a07l`, `oracle::leaf_b`; other names are no frames of the trees.
fn frame(name: &str) -> Option<Frame> {
    let name = name.strip_prefix("oracle::")?;
    if let Some(tree) = name.strip_prefix("leaf_") {
        return tree.parse().ok().map(Frame::Leaf);
    }
    let tree = name.chars().next().filter(|c| "ab".contains(*c))?;
    let depth: u32 = name.get(1..3)?.parse().ok()?;
    match name.get(3..)? {
        "" if depth == 0 => Some(Frame::Fork(tree, 0, 0)),
        "l" => Some(Frame::Fork(tree, depth, 1)),
        "r" => Some(Frame::Fork(tree, depth, 2)),
        _ => None,
    }
}

/// What is wrong with a path, if anything.
fn fault(path: &[Frame]) -> Option<String> {
    let tree = match path.first()? {
        Frame::Fork(tree, 0, 0) => *tree,
        other => return Some(format!("begins with {other:?}")),
    };
    let mut left = if tree == 'a' { N } else { N - 1 };
    for (depth, frame) in path.iter().enumerate().skip(1) {
        match *frame {
            Frame::Fork(t, d, cost) if t == tree && d as usize == depth && left >= 2 => {
                left -= cost;
            }
            Frame::Leaf(t) if t == tree && left < 2 && depth + 1 == path.len() => {}
            other => return Some(format!("{other:?} at depth {depth}, {left} left")),
        }
    }
    None
}

/// Seconds by what was found.
#[derive(Debug, Default)]
struct Verdict {
    right: f64,
    leaf_a: f64,
    leaf_b: f64,
    deepest: usize,
    wrong: Vec<String>,
}

fn judge(view: &View) -> Verdict {
    let mut verdict = Verdict::default();
    view.walk(&mut |above, node| {
        let names = above.iter().copied().chain([node]);
        let path: Vec<Frame> = names.filter_map(|n: &Node| frame(&n.name)).collect();
        let seconds = node.busy();
        if path.is_empty() || seconds <= 0.0 {
            return;
        }
        match fault(&path) {
            Some(fault) => verdict.wrong.push(format!("{seconds:.4} s: {fault}: {path:?}")),
            None => verdict.right += seconds,
        }
        verdict.deepest = verdict.deepest.max(path.len());
        match path.last() {
            Some(Frame::Leaf('a')) => verdict.leaf_a += seconds,
            Some(Frame::Leaf('b')) => verdict.leaf_b += seconds,
            _ => {}
        }
    });
    verdict
}

/// A number from the line that the fixture prints.
fn printed(run: &Run, key: &str) -> f64 {
    let line: Value = serde_json::from_str(run.stdout().trim()).expect("the fixture prints JSON");
    line[key].as_f64().expect("a number")
}

fn check(workers: usize) {
    let time = if is_long() { "1500" } else { "750" };
    let run = Spec::fixture(&format!("oracle-{workers}"), "oracle")
        .arguments(&[&workers.to_string(), &N.to_string(), time])
        .rate(RATE)
        .cores(workers)
        .succeed();
    let view = run.database().top_down();
    let verdict = judge(&view);
    let samples = view.quality.samples;
    eprintln!(
        "{workers} workers: {samples} samples, {:.3} s right, {} wrong contexts, depth {}",
        verdict.right,
        verdict.wrong.len(),
        verdict.deepest
    );
    assert!(samples > 300, "{workers} workers: only {samples} samples");
    assert!(
        verdict.wrong.is_empty(),
        "{workers} workers: {} wrong contexts, first {}",
        verdict.wrong.len(),
        verdict.wrong[0]
    );
    assert!(view.quality.rooted as f64 >= 0.999 * samples as f64, "{workers} workers: {:?}", view.quality);
    let all = value(&view.totals, "work") + value(&view.totals, "overhead");
    assert!(verdict.right > 0.9 * all, "{workers} workers: {} s of {all} s lie in the trees", verdict.right);
    assert!(verdict.deepest >= N as usize / 2 + 2, "paths reach the leaves: {}", verdict.deepest);
    let recorded = run.recorded();
    let cpu = printed(&run, "process_cpu");
    let seen = recorded.working + recorded.idle;
    assert!((seen / cpu - 1.0).abs() < 0.05, "{workers} workers: {seen} s in samples, {cpu} s of CPU time");
    // The fixture has measured what the leaves of each tree cost.
    let expected = printed(&run, "leaves_a") / printed(&run, "leaves_b");
    let measured = verdict.leaf_a / verdict.leaf_b;
    assert!(
        (measured / expected - 1.0).abs() < 0.15,
        "{workers} workers: A to B is {measured}, should be {expected}"
    );
}

#[test]
fn no_sample_is_under_a_wrong_parent_on_1_to_8_workers() {
    let _cores = exclusive_cores();
    for workers in 1..=8 {
        check(workers);
    }
}

#[test]
fn the_judge_accepts_right_paths_only() {
    let path = |names: &str| -> Vec<Frame> {
        let qualified = names.split(' ').map(|name| format!("oracle::{name}"));
        qualified.filter_map(|name| frame(&name)).collect()
    };
    assert_eq!(fault(&path("a00 a01l a02r a03l")), None);
    assert_eq!(fault(&path("b00 b01r b02r b03r b04r b05r b06r b07r leaf_b")), None);
    assert_eq!(fault(&path("a00 a01r a02r a03r a04r a05r a06r a07r a08r leaf_a")), None);
    for wrong in [
        "a01l a02r",
        "a00 a02l",
        "a00 b01l",
        "a00 a01l a01l",
        "a00 leaf_a",
        "a00 a01r a02r a03r a04r a05r a06r a07r a08r a09l",
        "a00 a01r a02r a03r a04r a05r a06r a07r a08r leaf_b",
        "b00 b01r b02r b03r b04r b05r b06r b07r leaf_b b00",
        "leaf_a",
    ] {
        assert!(fault(&path(wrong)).is_some(), "{wrong} is wrong");
    }
    assert_eq!(path("main other a0x a1 spin"), []);
}
