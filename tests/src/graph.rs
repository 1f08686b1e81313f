//! Activity graphs whose nodes say what they took, their longest paths, and what they take on some workers.

use crate::run::Run;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// What a procedure is called, and which of its nodes.
pub type Node = (&'static str, usize);

/// Nodes in topological order, each with those before it.
#[derive(Clone, Debug, Default)]
pub struct Graph(pub Vec<(Node, Vec<Node>)>);

impl Graph {
    /// One more node.
    pub fn node(mut self, node: Node, before: &[Node]) -> Graph {
        self.0.push((node, before.to_vec()));
        self
    }

    /// `count` nodes one after another.
    pub fn chain(mut self, nodes: &[Node], after: &[Node]) -> Graph {
        let mut before = after.to_vec();
        for node in nodes {
            self = self.node(*node, &before);
            before = vec![*node];
        }
        self
    }

    /// The longest path by the nodes' times, if a procedure takes none.
    pub fn longest(&self, times: &Times, zeroed: Option<&str>) -> (f64, Vec<Node>) {
        self.longest_with(times, zeroed, 0.0)
    }

    /// The same, if it takes a part of its time.
    pub fn longest_with(&self, times: &Times, name: Option<&str>, part: f64) -> (f64, Vec<Node>) {
        let mut ends: BTreeMap<Node, (f64, Vec<Node>)> = BTreeMap::new();
        for (node, before) in &self.0 {
            let first = (0.0, Vec::new());
            let (begin, path) =
                before.iter().map(|b| ends[b].clone()).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or(first);
            let own = times.of(*node) * if name == Some(node.0) { part } else { 1.0 };
            ends.insert(*node, (begin + own, [path, vec![*node]].concat()));
        }
        let last = ends.into_values().max_by(|a, b| a.0.total_cmp(&b.0));
        last.expect("a graph has nodes")
    }
}

/// What the nodes took, in seconds.
#[derive(Clone, Debug)]
pub struct Times(pub BTreeMap<(String, usize), f64>);

impl Times {
    /// Of a program that prints them as JSON.
    pub fn of_run(run: &Run) -> Times {
        let text = run.stdout();
        let value: serde_json::Value = serde_json::from_str(text.trim()).expect("the fixture's nodes");
        let nodes = value["nodes"].as_array().expect("a list");
        let node = |node: &serde_json::Value| {
            let name = node[0].as_str().expect("a name").to_owned();
            let number = node[1].as_u64().expect("a number") as usize;
            ((name, number), node[2].as_f64().expect("a time") * 1e-9)
        };
        Times(nodes.iter().map(node).collect())
    }

    /// Of a node.
    pub fn of(&self, node: Node) -> f64 {
        self.0[&(node.0.to_owned(), node.1)]
    }

    /// Of all nodes, or of a procedure's.
    pub fn total(&self, name: Option<&str>) -> f64 {
        let is_it = |((n, _), _): &(&(String, usize), &f64)| name.is_none_or(|name| name == n);
        self.0.iter().filter(is_it).map(|(_, time)| time).sum()
    }
}

/// A graph that a program has recorded of itself: of each node its nanoseconds, and those before it.
#[derive(Clone, Debug)]
pub struct Recorded(Vec<(u64, Vec<usize>)>);

impl Recorded {
    /// Of a program's output. `net`: without what the recording took.
    pub fn of_output(text: &str, net: bool) -> Recorded {
        let value: serde_json::Value = serde_json::from_str(text.trim()).expect("the fixture's nodes");
        let node = |node: &serde_json::Value| {
            let time = node[usize::from(net)].as_u64().expect("a time");
            let before = node[2].as_array().expect("nodes before").iter();
            (time, before.map(|node| node.as_u64().expect("a number") as usize).collect())
        };
        let nodes: Vec<(u64, Vec<usize>)> =
            value["nodes"].as_array().expect("it is recorded").iter().map(node).collect();
        assert!(nodes.iter().enumerate().all(|(n, (_, before))| before.iter().all(|other| *other < n)));
        Recorded(nodes)
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.0.len()
    }

    /// The seconds of all nodes.
    pub fn work(&self) -> f64 {
        self.0.iter().map(|(time, _)| *time as f64 * 1e-9).sum()
    }

    /// The seconds of the longest path.
    pub fn span(&self) -> f64 {
        let mut ends: Vec<u64> = Vec::with_capacity(self.0.len());
        for (time, before) in &self.0 {
            let begin = before.iter().map(|node| ends[*node]).max().unwrap_or(0);
            ends.push(begin + time);
        }
        ends.into_iter().max().unwrap_or(0) as f64 * 1e-9
    }

    /// The seconds on so many workers, each of which takes, when it is free, the first node in the order of
    /// the recording whose turn has come. Starting one, and telling another worker of it, takes no time.
    pub fn simulate(&self, workers: usize) -> f64 {
        let mut after = vec![Vec::new(); self.0.len()];
        let mut missing: Vec<usize> = Vec::new();
        for (node, (_, before)) in self.0.iter().enumerate() {
            before.iter().for_each(|other| after[*other].push(node));
            missing.push(before.len());
        }
        let mut ready: BTreeSet<usize> = (0..self.0.len()).filter(|node| missing[*node] == 0).collect();
        let mut running = BinaryHeap::new();
        let mut now = 0;
        loop {
            while running.len() < workers {
                let Some(node) = ready.pop_first() else { break };
                running.push(Reverse((now + self.0[node].0, node)));
            }
            let Some(Reverse((end, node))) = running.pop() else {
                return now as f64 * 1e-9;
            };
            now = end;
            for next in &after[node] {
                missing[*next] -= 1;
                if missing[*next] == 0 {
                    ready.insert(*next);
                }
            }
        }
    }
}
