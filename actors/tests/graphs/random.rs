//! Random graphs against the evaluator.

use crate::builder;
use crate::dag::{Dag, PROCEDURES};

fn random(random: &mut fastrand::Rng) -> Dag {
    let mut dag = Dag::default();
    for n in 0..random.usize(1..60) {
        let count = random.usize(0..4.min(n + 1));
        let mut before: Vec<usize> = (0..count).map(|_| random.usize(0..n)).collect();
        before.sort_unstable();
        before.dedup();
        dag.node(random.usize(0..PROCEDURES), random.u64(0..100), &before);
    }
    dag
}

#[test]
fn every_figure_agrees_with_the_evaluator() {
    let mut numbers = fastrand::Rng::with_seed(11);
    for round in 0..60 {
        let dag = random(&mut numbers);
        for merges in [false, true] {
            dag.check(&dag.run(builder(1 + round % 3), merges));
        }
    }
}

/// A table that is too small loses the beginning of the path, never its length.
#[test]
fn a_short_table_keeps_the_length() {
    let mut dag = Dag::default();
    let mut last = Vec::new();
    for n in 0..5000 {
        last = vec![dag.node(n % 2, 10, &last)];
    }
    let report = dag.run(builder(1).path_capacity(1), false);
    assert_eq!((report.report.span, report.report.work), (50_000, 50_000));
    let segments = &report.report.segments;
    assert_eq!(segments[0].edge, critical_path::Edge::Folded);
    assert_eq!(segments.iter().map(|s| s.time).sum::<u64>(), 50_000);
    assert!(segments[0].time < 50_000 - 4000, "some of the path is there: {:?}", segments[0]);
    assert!(!report.report.quality.lost_edges.is_empty());
}
