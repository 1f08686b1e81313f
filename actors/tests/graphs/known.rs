//! Graphs whose figures are known from elsewhere.

use actors::PathReport;

use crate::builder;
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
        let name = report.place(segment.begin).name;
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

/// T6: create_seq 0, bench 1, do_rank 2, barrier 3.
#[test]
fn an_integer_sort() {
    let mut dag = Dag::default();
    let c0 = dag.node(0, 42, &[]);
    let b0 = dag.node(1, 56, &[c0]);
    let mut ends = vec![dag.node(2, 2, &[b0])];
    for _ in 1..4 {
        let rank = dag.node(2, 12, &[]);
        ends.push(dag.node(1, 56, &[rank, c0]));
    }
    dag.node(3, 0, &ends);
    let report = check(&dag, 304, 100, &[(0, 68), (1, 44), (2, 98), (3, 100)]);
    expect(&report, &[(0, 42), (1, 56), (2, 2)]);
}

/// T7: the share of the path is not what zeroing gains. P 0, A 1, D 2, E 3.
#[test]
fn a_share_that_promises_too_much() {
    let mut dag = Dag::default();
    let p = dag.node(0, 20, &[]);
    let branches = [dag.node(1, 30, &[p]), dag.node(2, 28, &[p])];
    dag.node(3, 25, &branches);
    let report = check(&dag, 103, 75, &[(0, 55), (1, 73), (2, 75), (3, 50)]);
    expect(&report, &[(0, 20), (1, 30), (3, 25)]);
}

/// T9: branches of 100, 98, 95 and 50 between 10 and 10.
#[test]
fn near_critical_branches() {
    let mut dag = Dag::default();
    let before = dag.node(0, 10, &[]);
    let branches = [(1, 100), (2, 98), (3, 95), (4, 50)].map(|(p, t)| dag.node(p, t, &[before]));
    dag.node(5, 10, &branches);
    let report = check(&dag, 363, 120, &[(1, 118), (0, 110), (5, 110)]);
    let near: Vec<_> = report
        .near
        .iter()
        .map(|b| (b.entry.as_str(), b.time, b.slack))
        .collect();
    assert_eq!(near, [("2", 98, 2), ("3", 95, 5)]);
}

/// T10: y0 (2) leads to 16 leaves (3), x0 (0) to one long task (1).
#[test]
fn a_task_that_exposes_parallelism() {
    let mut dag = Dag::default();
    let x0 = dag.node(0, 10, &[]);
    dag.node(1, 70, &[x0]);
    let y0 = dag.node(2, 10, &[]);
    for _ in 0..16 {
        dag.node(3, 5, &[y0]);
    }
    let report = check(&dag, 170, 80, &[(0, 70), (1, 15)]);
    let first = &report.exposing[0];
    assert_eq!((first.entry.as_str(), first.time), ("2", 75));
}

/// T11: eight rounds, in each of which another of four ranks is slow (0), the others fast (1); barriers (2).
#[test]
fn a_rotating_imbalance() {
    let mut dag = Dag::default();
    let mut barrier = Vec::new();
    for round in 0..8 {
        let rank = |rank: usize| if rank == round % 4 { (0, 10) } else { (1, 2) };
        let ranks: Vec<usize> = (0..4)
            .map(rank)
            .map(|(p, time)| dag.node(p, time, &barrier))
            .collect();
        barrier = vec![dag.node(2, 0, &ranks)];
    }
    let report = check(&dag, 128, 80, &[(0, 16), (1, 80)]);
    expect(&report, &[(0, 80)]);
}

/// T12: a root that broadcasts in the middle of its work waits for nobody. Root 0 and 1, leaves 2 and 3.
#[test]
fn the_direction_of_a_broadcast() {
    let mut dag = Dag::default();
    let root = dag.node(0, 10, &[]);
    let leaves = [0; 3].map(|_| dag.node(2, 30, &[]));
    dag.node(1, 25, &[root]);
    for leaf in leaves {
        dag.node(3, 1, &[leaf, root]);
    }
    let report = check(&dag, 128, 35, &[(0, 31), (1, 31), (2, 35)]);
    expect(&report, &[(0, 10), (1, 25)]);
}

/// T13: overlap (0), three producers (1), use (2).
#[test]
fn messages_that_are_awaited_together() {
    let mut dag = Dag::default();
    let overlap = dag.node(0, 20, &[]);
    let producers = [10, 30, 25].map(|time| dag.node(1, time, &[]));
    let [a, b, c] = producers;
    dag.node(2, 5, &[overlap, a, b, c]);
    let report = check(&dag, 90, 35, &[(0, 35), (1, 25), (2, 30)]);
    expect(&report, &[(1, 30), (2, 5)]);
}

/// T14: 20 steps on 4 x 4 cells with halos; one cell (0) takes 5, the others (1) take 2.
#[test]
fn a_stencil_with_a_slow_cell() {
    let mut dag = Dag::default();
    for step in 0..20_i32 {
        for (i, j) in (0..16).map(|n| (n / 4, n % 4)) {
            let around = [(i, j), (i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)];
            let inside = around
                .iter()
                .filter(|(i, j)| (0..4).contains(i) && (0..4).contains(j));
            let before: Vec<usize> = match step {
                0 => Vec::new(),
                _ => inside
                    .map(|(i, j)| ((step - 1) * 16 + i * 4 + j) as usize)
                    .collect(),
            };
            if (i, j) == (1, 1) {
                dag.node(0, 5, &before);
            } else {
                dag.node(1, 2, &before);
            }
        }
    }
    let report = check(&dag, 700, 100, &[(0, 40)]);
    expect(&report, &[(0, 100)]);
    assert_eq!(report.phase(6).expect("it repeats").period, 1);
}

/// T15: a reduction tree over times 1 to 8 (0); each combination (1) takes 1.
#[test]
fn a_reduction_tree() {
    let mut dag = Dag::default();
    let mut level: Vec<usize> = (1..=8).map(|time| dag.node(0, time, &[])).collect();
    while level.len() > 1 {
        level = level.chunks(2).map(|pair| dag.node(1, 1, pair)).collect();
    }
    let report = check(&dag, 43, 11, &[(0, 3), (1, 8)]);
    expect(&report, &[(0, 8), (1, 3)]);
}

/// T16: 40 fillers (0) beside a chain of 20 (1).
#[test]
fn a_chain_beside_fillers() {
    let mut dag = Dag::default();
    for _ in 0..40 {
        dag.node(0, 5, &[]);
    }
    let mut last = Vec::new();
    for _ in 0..20 {
        last = vec![dag.node(1, 10, &last)];
    }
    let report = check(&dag, 400, 200, &[(0, 200), (1, 5)]);
    expect(&report, &[(1, 200)]);
}
