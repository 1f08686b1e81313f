//! The nodes of a view, with inclusive and exclusive values. A parent comes before its children.

use crate::catalogue::metrics::MetricSelector;
use crate::catalogue::spreads::Spread;
use crate::model::tree::{Tree, TreeNode, Values};
use std::cmp::Ordering;

/// The views that `show` prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ViewKind {
    TopDown,
    BottomUp,
    Flat,
}

impl ViewKind {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ViewKind::TopDown => "top-down",
            ViewKind::BottomUp => "bottom-up",
            ViewKind::Flat => "flat",
        }
    }
}

/// An arranged tree.
#[derive(Clone, PartialEq, Debug)]
pub struct View {
    pub kind: ViewKind,
    /// Nodes, parents first.
    pub nodes: Vec<TreeNode>,
    /// The nodes below each, in the order of printing.
    pub children: Vec<Vec<u32>>,
    /// How the work of each is spread over threads, where that is asked for.
    pub spreads: Vec<Option<Spread>>,
    /// The outermost nodes, in the order of printing.
    pub roots: Vec<u32>,
    pub inclusive: Values,
    pub exclusive: Values,
    pub totals: Vec<i64>,
}

impl View {
    pub fn new(kind: ViewKind, totals: Vec<i64>) -> Self {
        View {
            kind,
            nodes: Vec::new(),
            children: Vec::new(),
            spreads: Vec::new(),
            roots: Vec::new(),
            inclusive: Values::new(totals.len()),
            exclusive: Values::new(totals.len()),
            totals,
        }
    }

    pub fn of(kind: ViewKind, tree: &Tree) -> Self {
        let mut view = View::new(kind, tree.exclusive.totals());
        for node in &tree.nodes {
            view.push(*node);
        }
        view.inclusive = tree.inclusive();
        view.exclusive.clone_from(&tree.exclusive);
        view
    }

    /// Adds a node below its parent, without values.
    pub fn push(&mut self, node: TreeNode) -> u32 {
        let id = self.nodes.len() as u32;
        match node.parent {
            Some(parent) => self.children[parent as usize].push(id),
            None => self.roots.push(id),
        }
        self.nodes.push(node);
        self.children.push(Vec::new());
        self.spreads.push(None);
        self.inclusive.push();
        self.exclusive.push();
        id
    }

    pub fn node(&self, id: u32) -> &TreeNode {
        &self.nodes[id as usize]
    }

    /// All nodes in the order of printing, with the number of nodes above each.
    pub fn preorder(&self) -> impl Iterator<Item = (u32, usize)> {
        let mut stack: Vec<(u32, usize)> = self.roots.iter().rev().map(|r| (*r, 0)).collect();
        std::iter::from_fn(move || {
            let (id, depth) = stack.pop()?;
            let children = self.children[id as usize].iter().rev();
            stack.extend(children.map(|c| (*c, depth + 1)));
            Some((id, depth))
        })
    }

    /// Sorts siblings by a metric, largest first, undefined values last; equal ones stay in their order.
    pub fn sort(&mut self, metric: MetricSelector<'_>) {
        let values = &self.inclusive;
        for siblings in self.children.iter_mut().chain([&mut self.roots]) {
            siblings.sort_by(|a, b| largest_first(metric, values.of(*a), values.of(*b)));
        }
    }
}

/// The order of two nodes with these values: the one with more of a metric first, undefined values last.
pub fn largest_first(metric: MetricSelector<'_>, a: &[i64], b: &[i64]) -> Ordering {
    let (a, b) = (metric.value(a), metric.value(b));
    b.partial_cmp(&a).unwrap_or(Ordering::Equal)
}
