//! The trees that views work on: [`Tree`], contexts with exclusive values as the database has
//! them, and [`View`], arranged nodes with inclusive and exclusive values, ready to print.
//!
//! In both a parent comes before its children, and amounts are whole nanoseconds.

use crate::model::symbols::Kind;

/// A source line: index of a file, and a line from 1.
pub type Place = (u32, u32);

/// Where a context is called from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Not known.
    Unknown,
    /// The same everywhere.
    Unique(Place),
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
    pub place: Option<Place>,
    /// Where it is called.
    pub call: Call,
    /// Whether it has no user-level frame.
    pub support: bool,
    /// The parallel loop, by index, that it is the machinery of, or stands for.
    pub parallel_loop: Option<u32>,
    /// How many times the procedure is active at most, folded recursion included.
    pub recursion: u32,
}

/// Contexts with exclusive values.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Tree {
    /// Contexts, parents first.
    pub nodes: Vec<TreeNode>,
    /// Number of metrics.
    pub metrics: usize,
    /// Exclusive values: `metrics` numbers for each node.
    pub exclusive: Vec<i64>,
}

impl Tree {
    /// An empty tree.
    pub fn new(metrics: usize) -> Self {
        Tree {
            metrics,
            ..Tree::default()
        }
    }

    /// Adds a context without values.
    pub fn push(&mut self, node: TreeNode) -> u32 {
        let id = self.nodes.len() as u32;
        self.nodes.push(node);
        self.exclusive
            .resize(self.exclusive.len() + self.metrics, 0);
        id
    }

    /// Exclusive values of a context.
    pub fn values(&self, node: u32) -> &[i64] {
        let start = node as usize * self.metrics;
        &self.exclusive[start..start + self.metrics]
    }

    /// Adds to the exclusive values of a context.
    pub fn add(&mut self, node: u32, values: &[i64]) {
        let start = node as usize * self.metrics;
        add_all(&mut self.exclusive[start..start + self.metrics], values);
    }

    /// Sums over all contexts, by metric.
    pub fn totals(&self) -> Vec<i64> {
        let mut totals = vec![0; self.metrics];
        if self.metrics > 0 {
            for values in self.exclusive.chunks(self.metrics) {
                add_all(&mut totals, values);
            }
        }
        totals
    }

    /// Inclusive values of all contexts, laid out as `exclusive`.
    pub fn inclusive(&self) -> Vec<i64> {
        let mut inclusive = self.exclusive.clone();
        let n = self.metrics;
        for node in (0..self.nodes.len()).rev() {
            if let Some(parent) = self.nodes[node].parent {
                let (head, tail) = inclusive.split_at_mut(node * n);
                let start = parent as usize * n;
                add_all(&mut head[start..start + n], &tail[..n]);
            }
        }
        inclusive
    }
}

/// Adds `values` to `to`, element by element.
pub fn add_all(to: &mut [i64], values: &[i64]) {
    for (slot, value) in to.iter_mut().zip(values) {
        *slot = slot.saturating_add(*value);
    }
}

/// What a view's node is called.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Label {
    /// A procedure, by index.
    Procedure(u32),
    /// A source line.
    Line(Place),
    /// A load module, by index; `None` for what is in no module.
    Module(Option<u32>),
    /// A source file, by index; `None` when unknown.
    File(Option<u32>),
    /// A parallel loop, by index.
    ParallelLoop(u32),
    /// So many contexts that a depth or threshold cut off.
    Pruned(u64),
}

/// A node of a view.
#[derive(Clone, PartialEq, Debug)]
pub struct ViewNode {
    /// The node above.
    pub parent: Option<u32>,
    /// The nodes below, in the order of printing.
    pub children: Vec<u32>,
    /// Kind, as in the JSON views.
    pub kind: &'static str,
    /// Name.
    pub label: Label,
    /// Where it is called.
    pub call: Call,
    /// How many times the procedure is active at most.
    pub recursion: u32,
}

/// An arranged tree.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct View {
    /// `top-down`, `bottom-up` or `flat`.
    pub name: &'static str,
    /// Nodes, parents first.
    pub nodes: Vec<ViewNode>,
    /// The outermost nodes, in the order of printing.
    pub roots: Vec<u32>,
    /// Number of metrics.
    pub metrics: usize,
    /// Inclusive values: `metrics` numbers for each node.
    pub inclusive: Vec<i64>,
    /// Exclusive values, laid out alike.
    pub exclusive: Vec<i64>,
    /// Totals by metric.
    pub totals: Vec<i64>,
}

impl View {
    /// An empty view.
    pub fn new(name: &'static str, totals: Vec<i64>) -> Self {
        View {
            name,
            metrics: totals.len(),
            totals,
            ..View::default()
        }
    }

    /// Adds a node below its parent, without values.
    pub fn push(&mut self, node: ViewNode) -> u32 {
        let id = self.nodes.len() as u32;
        match node.parent {
            Some(parent) => self.nodes[parent as usize].children.push(id),
            None => self.roots.push(id),
        }
        self.nodes.push(node);
        let length = self.nodes.len() * self.metrics;
        self.inclusive.resize(length, 0);
        self.exclusive.resize(length, 0);
        id
    }

    /// Inclusive values of a node.
    pub fn inclusive_of(&self, node: u32) -> &[i64] {
        let start = node as usize * self.metrics;
        &self.inclusive[start..start + self.metrics]
    }

    /// Exclusive values of a node.
    pub fn exclusive_of(&self, node: u32) -> &[i64] {
        let start = node as usize * self.metrics;
        &self.exclusive[start..start + self.metrics]
    }

    /// Adds to the inclusive values of a node.
    pub fn add_inclusive(&mut self, node: u32, values: &[i64]) {
        let start = node as usize * self.metrics;
        add_all(&mut self.inclusive[start..start + self.metrics], values);
    }

    /// Adds to the exclusive values of a node.
    pub fn add_exclusive(&mut self, node: u32, values: &[i64]) {
        let start = node as usize * self.metrics;
        add_all(&mut self.exclusive[start..start + self.metrics], values);
    }

    /// Sorts siblings by `key`, largest first; equal ones stay in their order.
    pub fn sort(&mut self, key: impl Fn(&View, u32) -> i64) {
        let keys: Vec<i64> = (0..self.nodes.len() as u32).map(|n| key(self, n)).collect();
        for node in &mut self.nodes {
            node.children
                .sort_by_key(|c| std::cmp::Reverse(keys[*c as usize]));
        }
        self.roots
            .sort_by_key(|r| std::cmp::Reverse(keys[*r as usize]));
    }
}
