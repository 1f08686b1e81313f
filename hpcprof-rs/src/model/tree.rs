//! A tree of contexts with exclusive values, by final number. A parent comes before its children, and amounts
//! are whole base units.

use crate::model::symbols::Kind;

/// A place in the source.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SourceLocation {
    /// Index of the file.
    pub file: u32,
    /// Line, from 1; 0 when unknown.
    pub line: u32,
}

/// Where a context is called from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Call {
    /// Not known.
    Unknown,
    /// The same everywhere.
    Unique(SourceLocation),
    /// From several places.
    Several,
}

impl Call {
    /// Joins two observations.
    pub fn join(self, other: Call) -> Call {
        match (self, other) {
            (Call::Unknown, x) | (x, Call::Unknown) => x,
            (a, b) if a == b => a,
            _ => Call::Several,
        }
    }

    /// The place, where there is one only.
    pub fn location(self) -> Option<SourceLocation> {
        match self {
            Call::Unique(location) => Some(location),
            Call::Unknown | Call::Several => None,
        }
    }
}

/// A context.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TreeNode {
    /// The calling or enclosing context.
    pub parent: Option<u32>,
    /// What it stands for.
    pub kind: Kind,
    /// Index of its procedure.
    pub procedure: u32,
    /// The line of a [`Kind::Line`].
    pub location: Option<SourceLocation>,
    /// Where it is called.
    pub call: Call,
    /// Whether it is a task runtime's frame, which has no user-level frame.
    pub is_runtime: bool,
    /// The parallel loop, by index, that it is a frame of, or stands for.
    pub parallel_loop: Option<u32>,
    /// How many times the procedure is active at most, folded recursion included.
    pub recursion: u32,
}

/// The values of all metrics for each node of a tree.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Values {
    metrics: usize,
    all: Vec<i64>,
}

impl Values {
    /// Of no node yet.
    pub fn new(metrics: usize) -> Values {
        Values { metrics, all: Vec::new() }
    }

    /// Zeros for a number of nodes.
    pub fn of_nodes(metrics: usize, nodes: usize) -> Values {
        Values { metrics, all: vec![0; metrics * nodes] }
    }

    /// Adds the values of other nodes, one by one.
    pub fn add_values(&mut self, other: &Values) {
        add_all(&mut self.all, &other.all);
    }

    /// How many metrics there are.
    pub fn metrics(&self) -> usize {
        self.metrics
    }

    /// Zeros for one more node.
    pub fn push(&mut self) {
        self.all.resize(self.all.len() + self.metrics, 0);
    }

    /// All values, node by node.
    pub fn all_mut(&mut self) -> &mut [i64] {
        &mut self.all
    }

    /// The values of a node.
    pub fn of(&self, node: u32) -> &[i64] {
        let start = node as usize * self.metrics;
        &self.all[start..start + self.metrics]
    }

    /// Adds to the values of a node.
    pub fn add(&mut self, node: u32, values: &[i64]) {
        let start = node as usize * self.metrics;
        add_all(&mut self.all[start..start + self.metrics], values);
    }

    /// Subtracts from the values of a node.
    pub fn subtract(&mut self, node: u32, values: &[i64]) {
        let start = node as usize * self.metrics;
        for (slot, value) in self.all[start..].iter_mut().zip(values) {
            *slot = slot.saturating_sub(*value);
        }
    }

    /// Adds to one value of a node.
    pub fn add_one(&mut self, node: u32, metric: usize, value: i64) {
        let slot = &mut self.all[node as usize * self.metrics + metric];
        *slot = slot.saturating_add(value);
    }

    /// Sums over all nodes, by metric.
    pub fn totals(&self) -> Vec<i64> {
        let mut totals = vec![0; self.metrics];
        for values in self.all.chunks(self.metrics.max(1)) {
            add_all(&mut totals, values);
        }
        totals
    }

    /// Each node's values and those of all nodes below it; `parents` are in the order of the nodes.
    pub fn inclusive(&self, parents: impl DoubleEndedIterator<Item = Option<u32>>) -> Values {
        let mut inclusive = self.clone();
        let mut end = self.all.len();
        for parent in parents.rev() {
            let (above, below) = inclusive.all.split_at_mut(end - self.metrics);
            if let Some(parent) = parent {
                let start = parent as usize * self.metrics;
                add_all(&mut above[start..start + self.metrics], &below[..self.metrics]);
            }
            end -= self.metrics;
        }
        inclusive
    }
}

/// Of each node of a tree in preorder the first one behind all that are below it.
pub fn ends(parents: impl ExactSizeIterator<Item = Option<u32>> + DoubleEndedIterator) -> Vec<u32> {
    let mut ends: Vec<u32> = (1..=parents.len() as u32).collect();
    for (node, parent) in parents.enumerate().rev() {
        if let Some(parent) = parent {
            ends[parent as usize] = ends[parent as usize].max(ends[node]);
        }
    }
    ends
}

/// Adds `values` to `to`, element by element.
pub fn add_all(to: &mut [i64], values: &[i64]) {
    for (slot, value) in to.iter_mut().zip(values) {
        *slot = slot.saturating_add(*value);
    }
}

/// Contexts with exclusive values.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Tree {
    /// Contexts, parents first.
    pub nodes: Vec<TreeNode>,
    /// Exclusive values.
    pub exclusive: Values,
}

impl Tree {
    /// An empty tree.
    pub fn new(metrics: usize) -> Tree {
        Tree { nodes: Vec::new(), exclusive: Values::new(metrics) }
    }

    /// Adds a context without values.
    pub fn push(&mut self, node: TreeNode) -> u32 {
        self.nodes.push(node);
        self.exclusive.push();
        self.nodes.len() as u32 - 1
    }

    /// Inclusive values.
    pub fn inclusive(&self) -> Values {
        self.exclusive.inclusive(self.nodes.iter().map(|n| n.parent))
    }
}
