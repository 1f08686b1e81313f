//! Activity graphs whose nodes say what they took, and their longest paths.

use crate::run::Run;
use std::collections::BTreeMap;

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
