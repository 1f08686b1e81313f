//! Graphs with known figures; the numbers are procedures.

use crate::dag::Dag;

/// T6: create_seq 0, bench 1, do_rank 2, barrier 3.
pub(crate) fn integer_sort() -> Dag {
    let mut dag = Dag::default();
    let c0 = dag.node(0, 42, &[]);
    let b0 = dag.node(1, 56, &[c0]);
    let mut ends = vec![dag.node(2, 2, &[b0])];
    for _ in 1..4 {
        let rank = dag.node(2, 12, &[]);
        ends.push(dag.node(1, 56, &[rank, c0]));
    }
    dag.node(3, 0, &ends);
    dag
}

/// T7: the share of the path is not what zeroing gains. P 0, A 1, D 2, E 3.
pub(crate) fn share_against_zeroing() -> Dag {
    let mut dag = Dag::default();
    let p = dag.node(0, 20, &[]);
    let branches = [dag.node(1, 30, &[p]), dag.node(2, 28, &[p])];
    dag.node(3, 25, &branches);
    dag
}

/// T9: branches of 100, 98, 95 and 50 (1 to 4) between 10 and 10 (0, 5).
pub(crate) fn near_critical() -> Dag {
    let mut dag = Dag::default();
    let before = dag.node(0, 10, &[]);
    let branches = [(1, 100), (2, 98), (3, 95), (4, 50)].map(|(p, t)| dag.node(p, t, &[before]));
    dag.node(5, 10, &branches);
    dag
}

/// T10: y0 (2) leads to 16 leaves (3), x0 (0) to one long task (1).
pub(crate) fn parallelism_exposing() -> Dag {
    let mut dag = Dag::default();
    let x0 = dag.node(0, 10, &[]);
    dag.node(1, 70, &[x0]);
    let y0 = dag.node(2, 10, &[]);
    for _ in 0..16 {
        dag.node(3, 5, &[y0]);
    }
    dag
}

/// T11: eight rounds, in each of which another of four ranks is slow (0), the others fast (1); barriers (2).
pub(crate) fn rotating_imbalance() -> Dag {
    let mut dag = Dag::default();
    let mut barrier = Vec::new();
    for round in 0..8 {
        let rank = |rank: usize| if rank == round % 4 { (0, 10) } else { (1, 2) };
        let ranks: Vec<usize> = (0..4).map(rank).map(|(p, time)| dag.node(p, time, &barrier)).collect();
        barrier = vec![dag.node(2, 0, &ranks)];
    }
    dag
}

/// T12: a root (0, 1) broadcasts in the middle of its work to leaves (2, 3).
pub(crate) fn broadcast() -> Dag {
    let mut dag = Dag::default();
    let root = dag.node(0, 10, &[]);
    let leaves = [0; 3].map(|_| dag.node(2, 30, &[]));
    dag.node(1, 25, &[root]);
    for leaf in leaves {
        dag.node(3, 1, &[leaf, root]);
    }
    dag
}

/// T13: overlap (0), three producers (1), use (2).
pub(crate) fn awaited_together() -> Dag {
    let mut dag = Dag::default();
    let overlap = dag.node(0, 20, &[]);
    let [a, b, c] = [10, 30, 25].map(|time| dag.node(1, time, &[]));
    dag.node(2, 5, &[overlap, a, b, c]);
    dag
}

/// T14: 20 steps on 4 x 4 cells with halos; one cell (0) takes 5, the others (1) take 2.
pub(crate) fn stencil() -> Dag {
    let mut dag = Dag::default();
    for step in 0..20_i32 {
        for (i, j) in (0..16).map(|n| (n / 4, n % 4)) {
            let around = [(i, j), (i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)];
            let inside = around.iter().filter(|(i, j)| (0..4).contains(i) && (0..4).contains(j));
            let before: Vec<usize> = match step {
                0 => Vec::new(),
                _ => inside.map(|(i, j)| ((step - 1) * 16 + i * 4 + j) as usize).collect(),
            };
            let (procedure, time) = if (i, j) == (1, 1) { (0, 5) } else { (1, 2) };
            dag.node(procedure, time, &before);
        }
    }
    dag
}

/// T15: a reduction tree over times 1 to 8 (0); each combination (1) takes 1.
pub(crate) fn reduction_tree() -> Dag {
    let mut dag = Dag::default();
    let mut level: Vec<usize> = (1..=8).map(|time| dag.node(0, time, &[])).collect();
    while level.len() > 1 {
        level = level.chunks(2).map(|pair| dag.node(1, 1, pair)).collect();
    }
    dag
}

/// T16: 40 fillers of 5 (0) beside a chain of 20 times 10 (1).
pub(crate) fn chain_and_fillers() -> Dag {
    let mut dag = Dag::default();
    for _ in 0..40 {
        dag.node(0, 5, &[]);
    }
    let mut last = Vec::new();
    for _ in 0..20 {
        last = vec![dag.node(1, 10, &last)];
    }
    dag
}
