//! Graphs whose figures are known from elsewhere.

use work_stealing_actors::PathReport;

use crate::builder;
use crate::catalogue as graph;
use crate::dag::Dag;

/// Runs and checks the graph on one to four workers, with both ways to follow dependencies.
fn check(dag: &Dag, work: u64, span: u64, zeroed: &[(usize, u64)]) -> PathReport {
    let mut last = None;
    for workers in [1, 2, 4] {
        for merges in [false, true] {
            let report = dag.run(builder(workers), merges);
            dag.check(&report);
            assert_eq!((report.report.work, report.report.span), (work, span));
            for (procedure, span) in zeroed {
                let name = procedure.to_string();
                let found = report.report.procedures.iter().find(|p| p.name == name);
                assert_eq!(found.expect("it ran").zeroed_span, *span, "{name}");
            }
            last = Some(report);
        }
    }
    last.expect("some ran")
}

/// The path by procedures.
fn path(report: &PathReport) -> Vec<(String, u64)> {
    let mut path: Vec<(String, u64)> = Vec::new();
    for segment in &report.report.segments {
        let name = segment.begin.name.clone();
        match path.last_mut() {
            Some(last) if last.0 == name => last.1 += segment.time,
            _ => path.push((name, segment.time)),
        }
    }
    path
}

fn expect(report: &PathReport, expected: &[(usize, u64)]) {
    let expected: Vec<(String, u64)> = expected.iter().map(|(p, t)| (p.to_string(), *t)).collect();
    assert_eq!(path(report), expected);
}

#[test]
fn an_integer_sort() {
    let report = check(&graph::integer_sort(), 304, 100, &[(0, 68), (1, 44), (2, 98), (3, 100)]);
    expect(&report, &[(0, 42), (1, 56), (2, 2)]);
}

#[test]
fn a_share_that_promises_too_much() {
    let graph = graph::share_against_zeroing();
    let report = check(&graph, 103, 75, &[(0, 55), (1, 73), (2, 75), (3, 50)]);
    expect(&report, &[(0, 20), (1, 30), (3, 25)]);
}

#[test]
fn near_critical_branches() {
    let report = check(&graph::near_critical(), 363, 120, &[(1, 118), (0, 110), (5, 110)]);
    let near: Vec<_> = report.report.near.iter().map(|b| (b.begin.name.as_str(), b.time, b.slack)).collect();
    assert_eq!(near, [("2", 98, 2), ("3", 95, 5)]);
}

#[test]
fn a_task_that_exposes_parallelism() {
    let report = check(&graph::parallelism_exposing(), 170, 80, &[(0, 70), (1, 15)]);
    let exposing = report.report.exposing();
    let exposing: Vec<_> = exposing.map(|s| (s.place.name.as_str(), s.count, s.beside)).collect();
    assert_eq!(exposing, [("2", 16, 75)]);
}

#[test]
fn a_rotating_imbalance() {
    let report = check(&graph::rotating_imbalance(), 128, 80, &[(0, 16), (1, 80)]);
    expect(&report, &[(0, 80)]);
}

#[test]
fn the_direction_of_a_broadcast() {
    let report = check(&graph::broadcast(), 128, 35, &[(0, 31), (1, 31), (2, 35)]);
    expect(&report, &[(0, 10), (1, 25)]);
}

#[test]
fn messages_that_are_awaited_together() {
    let report = check(&graph::awaited_together(), 90, 35, &[(0, 35), (1, 25), (2, 30)]);
    expect(&report, &[(1, 30), (2, 5)]);
}

#[test]
fn a_stencil_with_a_slow_cell() {
    let report = check(&graph::stencil(), 700, 100, &[(0, 40)]);
    expect(&report, &[(0, 100)]);
    assert_eq!(report.phase(6).expect("it repeats").period, 1);
}

#[test]
fn a_reduction_tree() {
    let report = check(&graph::reduction_tree(), 43, 11, &[(0, 3), (1, 8)]);
    expect(&report, &[(0, 8), (1, 3)]);
}

#[test]
fn a_chain_beside_fillers() {
    let report = check(&graph::chain_and_fillers(), 400, 200, &[(0, 200), (1, 5)]);
    expect(&report, &[(1, 200)]);
}
