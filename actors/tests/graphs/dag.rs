//! Any activity graph as a program, with an actor for each node, and an evaluator of the graph itself.

use std::sync::Arc;

use work_stealing_actors::{Array, Context, Handle, MergePoint, PathReport, System, SystemBuilder};

use crate::spend;

/// Procedures of a graph: as many as entry methods here.
pub(crate) const PROCEDURES: usize = 6;

#[derive(Clone, Default, Debug)]
pub(crate) struct Dag {
    /// Procedure, time and predecessors of each node; these come before it.
    pub(crate) nodes: Vec<(usize, u64, Vec<usize>)>,
}

impl Dag {
    pub(crate) fn node(&mut self, procedure: usize, time: u64, before: &[usize]) -> usize {
        assert!(procedure < PROCEDURES && before.iter().all(|b| *b < self.nodes.len()));
        self.nodes.push((procedure, time, before.to_vec()));
        self.nodes.len() - 1
    }

    /// The ends of all nodes if a procedure took no time.
    fn ends(&self, zeroed: Option<usize>) -> Vec<u64> {
        let mut ends: Vec<u64> = Vec::new();
        for (procedure, time, before) in &self.nodes {
            let start = before.iter().map(|b| ends[*b]).max().unwrap_or(0);
            ends.push(start + if zeroed == Some(*procedure) { 0 } else { *time });
        }
        ends
    }

    pub(crate) fn span(&self, zeroed: Option<usize>) -> u64 {
        self.ends(zeroed).into_iter().max().unwrap_or(0)
    }

    pub(crate) fn work(&self) -> u64 {
        self.nodes.iter().map(|(_, time, _)| time).sum()
    }

    /// How much longer each node may take before the span grows.
    pub(crate) fn slacks(&self) -> Vec<u64> {
        let (ends, span) = (self.ends(None), self.span(None));
        let mut tails = vec![0; self.nodes.len()];
        for (node, (_, time, before)) in self.nodes.iter().enumerate().rev() {
            for b in before {
                tails[*b] = tails[*b].max(tails[node] + time);
            }
        }
        ends.iter().zip(tails).map(|(end, tail)| span - end - tail).collect()
    }

    /// Runs the graph, `merges` by the paper's merge points, and returns the report.
    pub(crate) fn run(&self, builder: SystemBuilder, merges: bool) -> PathReport {
        let system = builder.actor_order(!merges).build().expect("threads");
        let nodes = self.actors(&system, merges);
        system.run(|| self.start(&nodes)).expect("no panic");
        system.critical_path()
    }

    /// The graph's actors.
    pub(crate) fn actors(&self, system: &System, merges: bool) -> Array<Node> {
        let mut after = vec![Vec::new(); self.nodes.len()];
        for (node, (procedure, _, before)) in self.nodes.iter().enumerate() {
            before.iter().for_each(|b| after[*b].push((node, *procedure)));
        }
        system.array("node", self.nodes.len(), |n, array| Node {
            before: self.nodes[n].2.len().max(1),
            arrived: 0,
            time: self.nodes[n].1,
            after: after[n].clone().into(),
            nodes: array.clone(),
            merge: merges.then(MergePoint::default),
        })
    }

    /// Starts the nodes without predecessors.
    pub(crate) fn start(&self, nodes: &Array<Node>) {
        for (n, (procedure, _, before)) in self.nodes.iter().enumerate() {
            if before.is_empty() {
                send(nodes, n, *procedure);
            }
        }
    }

    /// Checks everything that the report says of the graph.
    pub(crate) fn check(&self, report: &PathReport) {
        let found = &report.report;
        assert_eq!((found.work, found.span), (self.work(), self.span(None)));
        let sum: u64 = found.segments.iter().map(|s| s.time).sum();
        assert_eq!(sum, found.span, "{:?}", found.segments);
        assert!(found.burdened_span >= found.span && found.quality.lost_edges.is_empty());
        for procedure in found.procedures.iter().filter(|p| p.name != "program") {
            let number: usize = procedure.name.to_string().parse().expect("the name is a number");
            assert_eq!(procedure.zeroed_span, self.span(Some(number)), "{procedure:?}");
            let of = self.nodes.iter().filter(|node| node.0 == number);
            assert_eq!(procedure.work, of.map(|node| node.1).sum::<u64>());
        }
        let mut slacks: Vec<(u64, u64)> = report.tasks(1.0).map(|t| (t.time, t.slack)).collect();
        let times = self.nodes.iter().map(|node| node.1).zip(self.slacks());
        let mut expected: Vec<(u64, u64)> = times.filter(|(time, _)| *time != 0).collect();
        slacks.sort_unstable();
        expected.sort_unstable();
        assert_eq!(slacks, expected);
        let on_path = report.tasks(0.0).count();
        assert_eq!(on_path, expected.iter().filter(|(_, slack)| *slack == 0).count());
    }
}

/// A predecessor has ended; `P` is the receiver's procedure.
struct Ended<const P: usize>;

pub(crate) struct Node {
    before: usize,
    arrived: usize,
    time: u64,
    after: Arc<[(usize, usize)]>,
    nodes: Array<Node>,
    merge: Option<MergePoint>,
}

impl<const P: usize> Handle<Ended<P>> for Node {
    fn handle(&mut self, _: Ended<P>, context: &mut Context<'_, Self>) {
        self.arrived += 1;
        if self.arrived % self.before != 0 {
            if let Some(merge) = &mut self.merge {
                context.add_to(merge);
            }
            return;
        }
        if let Some(merge) = &mut self.merge {
            context.depend_on(merge);
        }
        spend(self.time);
        for (node, procedure) in &*self.after {
            send(&self.nodes, *node, *procedure);
        }
    }

    fn entry_name() -> String {
        P.to_string()
    }
}

fn send(nodes: &Array<Node>, node: usize, procedure: usize) {
    let node = &nodes[node];
    match procedure {
        0 => node.send(Ended::<0>),
        1 => node.send(Ended::<1>),
        2 => node.send(Ended::<2>),
        3 => node.send(Ended::<3>),
        4 => node.send(Ended::<4>),
        _ => node.send(Ended::<5>),
    }
}
