//! The nodes of a view, with inclusive and exclusive values. A parent comes before its children.

use crate::catalogue::Catalogue;
use crate::catalogue::metrics::MetricSelector;
use crate::catalogue::spreads::Spread;
use crate::model::code::{Code, ParallelLoop};
use crate::model::symbols::Kind;
use crate::model::tree::{Call, SourceLocation, TreeNode, Values};
use std::cmp::Ordering;

/// What a node is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Label {
    /// A procedure, by index.
    Procedure(u32),
    /// A source line.
    Line(SourceLocation),
    /// A load module, by index; `None` for what is in no module.
    Module(Option<u32>),
    /// A source file, by index; `None` when unknown.
    File(Option<u32>),
    /// A parallel loop, by index.
    ParallelLoop(u32),
    /// A number of contexts that a depth or a threshold cut off.
    Pruned(u64),
}

impl Label {
    /// What a context is called.
    pub fn of(node: &TreeNode) -> Label {
        match (node.kind, node.location, node.parallel_loop) {
            (Kind::Line, Some(location), _) => Label::Line(location),
            (Kind::ParallelLoop, _, Some(index)) => Label::ParallelLoop(index),
            _ => Label::Procedure(node.procedure),
        }
    }

    /// The parallel loop that it names.
    pub fn parallel_loop(self, code: &Code) -> Option<&ParallelLoop> {
        match self {
            Label::ParallelLoop(index) => Some(code.parallel_loop(index)),
            _ => None,
        }
    }

    /// The path of its load module.
    pub fn module(self, code: &Code) -> Option<&str> {
        match self {
            Label::Procedure(p) => code.module_of(code.procedure(p)),
            Label::ParallelLoop(l) => code.module_of(code.procedure(code.parallel_loop(l).entry)),
            Label::Module(m) => m.map(|m| code.module(m)),
            Label::Line(_) | Label::File(_) | Label::Pruned(_) => None,
        }
    }

    /// The span of the critical path if the procedure took no time, where that is known.
    pub fn zeroed_span(self, catalogue: &Catalogue) -> Option<i64> {
        match self {
            Label::Procedure(p) => catalogue.zeroed_spans.get(&p).copied(),
            _ => None,
        }
    }

    /// Where it is in the source: a procedure's declaration, the call of a parallel loop.
    pub fn location(self, code: &Code) -> Option<SourceLocation> {
        match self {
            Label::Procedure(p) => code.procedure(p).declared,
            Label::ParallelLoop(l) => code.parallel_loop(l).call,
            Label::Line(location) => Some(location),
            Label::File(file) => file.map(|file| SourceLocation { file, line: 0 }),
            Label::Module(_) | Label::Pruned(_) => None,
        }
    }
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
    /// How its work is spread over threads, where that is asked for.
    pub spread: Option<Spread>,
}

impl ViewNode {
    /// A node without callers or children.
    pub fn new(parent: Option<u32>, kind: &'static str, label: Label) -> ViewNode {
        ViewNode {
            parent,
            children: Vec::new(),
            kind,
            label,
            call: Call::Unknown,
            recursion: 1,
            spread: None,
        }
    }

    /// A node for a context.
    pub fn of(context: &TreeNode, parent: Option<u32>) -> ViewNode {
        ViewNode {
            call: context.call,
            recursion: context.recursion,
            ..ViewNode::new(parent, context.kind.name(), Label::of(context))
        }
    }
}

/// An arranged tree.
#[derive(Clone, PartialEq, Debug)]
pub struct View {
    /// `top-down`, `bottom-up` or `flat`.
    pub name: &'static str,
    /// Nodes, parents first.
    pub nodes: Vec<ViewNode>,
    /// The outermost nodes, in the order of printing.
    pub roots: Vec<u32>,
    /// Inclusive values.
    pub inclusive: Values,
    /// Exclusive values.
    pub exclusive: Values,
    /// Totals by metric.
    pub totals: Vec<i64>,
}

impl View {
    /// An empty view.
    pub fn new(name: &'static str, totals: Vec<i64>) -> Self {
        View {
            name,
            nodes: Vec::new(),
            roots: Vec::new(),
            inclusive: Values::new(totals.len()),
            exclusive: Values::new(totals.len()),
            totals,
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
        self.inclusive.push();
        self.exclusive.push();
        id
    }

    /// A node.
    pub fn node(&self, id: u32) -> &ViewNode {
        &self.nodes[id as usize]
    }

    /// All nodes in the order of printing, with the number of nodes above each.
    pub fn preorder(&self) -> impl Iterator<Item = (u32, usize)> {
        let mut stack: Vec<(u32, usize)> = self.roots.iter().rev().map(|r| (*r, 0)).collect();
        std::iter::from_fn(move || {
            let (id, depth) = stack.pop()?;
            let children = self.node(id).children.iter().rev();
            stack.extend(children.map(|c| (*c, depth + 1)));
            Some((id, depth))
        })
    }

    /// Sorts siblings by a metric, largest first, undefined values last; equal ones stay in their order.
    pub fn sort(&mut self, metric: MetricSelector<'_>) {
        let values = &self.inclusive;
        let siblings = self.nodes.iter_mut().map(|n| &mut n.children);
        for siblings in siblings.chain([&mut self.roots]) {
            siblings.sort_by(|a, b| largest_first(metric, values.of(*a), values.of(*b)));
        }
    }
}

/// The order of two nodes with these values: the one with more of a metric first, undefined values last.
pub fn largest_first(metric: MetricSelector<'_>, a: &[i64], b: &[i64]) -> Ordering {
    let (a, b) = (metric.value(a), metric.value(b));
    b.partial_cmp(&a).unwrap_or(Ordering::Equal)
}
