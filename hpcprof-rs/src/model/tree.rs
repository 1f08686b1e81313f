//! A tree of contexts with exclusive values, by final number. A parent comes before its children, and amounts
//! are whole base units.

use crate::model::code::{Code, ParallelLoop, Procedure};
use crate::model::symbols::Kind;
use hpc_formats::structure::Origin;

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
    Unknown,
    /// The same everywhere.
    Unique(SourceLocation),
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

/// What a context or a node of a view stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Label {
    /// A procedure, by index.
    Procedure(u32),
    /// A procedure inlined in what is above it.
    Inlined(u32),
    /// A loop, by index among the regions.
    Loop(u32),
    /// The root of paths whose outer part is missing, by index among the regions.
    Partial(u32),
    /// A source line of what is above it.
    Line(SourceLocation),
    /// A parallel loop, by index.
    ParallelLoop(u32),
    /// A load module, by index; `None` for what is in no module.
    Module(Option<u32>),
    /// A source file, by index; `None` when unknown.
    File(Option<u32>),
    /// So many contexts that are left out.
    Pruned(u32),
}

impl Label {
    pub fn kind(self) -> Kind {
        match self {
            Label::Procedure(_) => Kind::Procedure,
            Label::Inlined(_) => Kind::Inlined,
            Label::Loop(_) => Kind::Loop,
            Label::Partial(_) => Kind::Partial,
            Label::Line(_) => Kind::Line,
            Label::ParallelLoop(_) => Kind::ParallelLoop,
            Label::Module(_) => Kind::Module,
            Label::File(_) => Kind::File,
            Label::Pruned(_) => Kind::Pruned,
        }
    }

    /// The same, whether a compiler inlined it or not.
    pub fn merged(self) -> Label {
        match self {
            Label::Inlined(procedure) => Label::Procedure(procedure),
            other => other,
        }
    }

    pub fn procedure(self) -> Option<u32> {
        match self {
            Label::Procedure(procedure) | Label::Inlined(procedure) => Some(procedure),
            _ => None,
        }
    }

    pub fn is_loop(self) -> bool {
        matches!(self, Label::Loop(_))
    }

    pub fn is_pruned(self) -> bool {
        matches!(self, Label::Pruned(_))
    }

    pub fn parallel_loop(self, code: &Code) -> Option<&ParallelLoop> {
        match self {
            Label::ParallelLoop(index) => Some(code.parallel_loop(index)),
            _ => None,
        }
    }

    /// The code that it is: a procedure, a loop or a partial root; of a parallel loop its entry.
    pub fn code(self, code: &Code) -> Option<&Procedure> {
        match self {
            Label::Procedure(p) | Label::Inlined(p) => Some(code.procedure(p)),
            Label::Loop(r) | Label::Partial(r) => Some(&code.regions[r as usize]),
            Label::ParallelLoop(l) => Some(code.procedure(code.parallel_loop(l).entry)),
            Label::Line(_) | Label::Module(_) | Label::File(_) | Label::Pruned(_) => None,
        }
    }

    /// Whose code it is; the user's where that is not known.
    pub fn origin(self, code: &Code) -> Origin {
        self.code(code).map_or(Origin::User, |own| own.origin)
    }

    /// The path of its load module.
    pub fn module(self, code: &Code) -> Option<&str> {
        match self {
            Label::Module(m) => m.map(|m| code.module(m)),
            other => code.module_of(other.code(code)?),
        }
    }

    /// Where it is in the source: a procedure's declaration, the call of a parallel loop.
    pub fn location(self, code: &Code) -> Option<SourceLocation> {
        match self {
            Label::ParallelLoop(l) => code.parallel_loop(l).call,
            Label::Line(location) => Some(location),
            Label::File(file) => file.map(|file| SourceLocation { file, line: 0 }),
            other => other.code(code)?.declared,
        }
    }
}

/// A context, or a node of a view.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TreeNode {
    /// What is above it: the calling or enclosing context.
    pub parent: Option<u32>,
    pub label: Label,
    pub call: Call,
    /// Whether it is a task runtime's frame, which has no user-level frame.
    pub is_runtime: bool,
    /// The parallel loop, by index, that it is a frame of, or stands for.
    pub parallel_loop: Option<u32>,
    /// How many times the procedure is active at most, folded recursion included.
    pub recursion: u32,
}

impl TreeNode {
    /// A node of which nothing else is known.
    pub fn new(parent: Option<u32>, label: Label) -> TreeNode {
        TreeNode {
            parent,
            label,
            call: Call::Unknown,
            is_runtime: false,
            parallel_loop: match label {
                Label::ParallelLoop(index) => Some(index),
                _ => None,
            },
            recursion: 1,
        }
    }
}

/// The values of all metrics for each node of a tree.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Values {
    metrics: usize,
    all: Vec<i64>,
}

impl Values {
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

    pub fn of(&self, node: u32) -> &[i64] {
        let start = node as usize * self.metrics;
        &self.all[start..start + self.metrics]
    }

    pub fn add(&mut self, node: u32, values: &[i64]) {
        let start = node as usize * self.metrics;
        add_all(&mut self.all[start..start + self.metrics], values);
    }

    pub fn subtract(&mut self, node: u32, values: &[i64]) {
        let start = node as usize * self.metrics;
        for (slot, value) in self.all[start..].iter_mut().zip(values) {
            *slot = slot.saturating_sub(*value);
        }
    }

    pub fn add_one(&mut self, node: u32, metric: usize, value: i64) {
        let slot = &mut self.all[node as usize * self.metrics + metric];
        *slot = slot.saturating_add(value);
    }

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

/// All nodes of a tree in preorder, siblings in their order.
pub fn preorder(parents: impl ExactSizeIterator<Item = Option<u32>> + DoubleEndedIterator) -> Vec<u32> {
    // By parent, 0 for none: its last child; by node: its next sibling. Later siblings are found first.
    let mut first = vec![u32::MAX; parents.len() + 1];
    let mut next = vec![u32::MAX; parents.len()];
    let mut order = Vec::with_capacity(parents.len());
    for (id, parent) in parents.enumerate().rev() {
        let slot = parent.map_or(0, |p| p as usize + 1);
        next[id] = std::mem::replace(&mut first[slot], id as u32);
    }
    let mut stack = vec![first[0]];
    while let Some(id) = stack.pop() {
        if id != u32::MAX {
            order.push(id);
            stack.extend([next[id as usize], first[id as usize + 1]]);
        }
    }
    order
}

pub fn add_all(to: &mut [i64], values: &[i64]) {
    for (slot, value) in to.iter_mut().zip(values) {
        *slot = slot.saturating_add(*value);
    }
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Tree {
    /// Contexts, parents first.
    pub nodes: Vec<TreeNode>,
    pub exclusive: Values,
}

impl Tree {
    pub fn new(metrics: usize) -> Tree {
        Tree { nodes: Vec::new(), exclusive: Values::new(metrics) }
    }

    /// Adds a context without values.
    pub fn push(&mut self, node: TreeNode) -> u32 {
        self.nodes.push(node);
        self.exclusive.push();
        self.nodes.len() as u32 - 1
    }

    pub fn inclusive(&self) -> Values {
        self.exclusive.inclusive(self.nodes.iter().map(|n| n.parent))
    }
}
