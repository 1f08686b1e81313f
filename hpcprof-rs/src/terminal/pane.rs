//! A tree on the screen: which nodes are open, which rows that makes, and where the cursor is. Nodes below a
//! closed one make no row, so a tree of a million contexts has as many rows as the user has opened.

use crate::catalogue::metrics::MetricSelector;
use crate::catalogue::{Catalogue, Projection};
use crate::error::Result;
use crate::model::hash::FastSet;
use crate::render::names;
use crate::views::fold::{FoldOptions, fold};
use crate::views::prune::Limits;
use crate::views::view::{View, ViewKind};
use crate::views::{bottom_up, flat, top_down};

/// Larger trees show so many levels of callers.
const MANY_CONTEXTS: usize = 100_000;
const LEVELS: usize = 6;
/// Columns of the lines that lead to a row.
const GUIDES: usize = 16;

pub struct Pane {
    pub view: View,
    open: FastSet<u32>,
    /// Nodes that were zoomed to, the last one on top of the screen.
    zoom: Vec<u32>,
    /// The rows: nodes, each with the lines that lead to it.
    pub rows: Vec<(u32, String)>,
    pub cursor: usize,
}

impl Pane {
    pub fn new(catalogue: &Catalogue, kind: ViewKind, projection: Projection) -> Result<Pane> {
        let options = FoldOptions { projection, ..FoldOptions::STORED };
        let tree = match projection {
            Projection::Logical => catalogue.folded()?,
            Projection::Physical => fold(&catalogue.contexts(projection)?, &catalogue.code, options).tree,
        };
        let depth = (tree.nodes.len() > MANY_CONTEXTS).then_some(LEVELS);
        let limits = Limits { depth, threshold: None };
        let (view, _) = match kind {
            ViewKind::TopDown => top_down::arrange(&tree),
            ViewKind::BottomUp => bottom_up::arrange(&tree, limits, MetricSelector::Effort),
            ViewKind::Flat => flat::arrange(&tree, &catalogue.code),
        };
        Ok(Pane { view, open: FastSet::default(), zoom: Vec::new(), rows: Vec::new(), cursor: 0 })
    }

    /// The node at the cursor; a database without samples has none.
    pub fn node(&self) -> Option<u32> {
        self.rows.get(self.cursor).map(|(id, _)| *id)
    }

    /// Makes the rows, with the cursor at a node if it has one.
    pub fn list(&mut self, at: Option<u32>) {
        let View { roots, children, .. } = &self.view;
        let roots = self.zoom.last().map_or(roots.as_slice(), std::slice::from_ref);
        let mut stack: Vec<(u32, String, String)> =
            roots.iter().rev().map(|id| (*id, String::new(), String::new())).collect();
        self.rows.clear();
        while let Some((id, guides, below)) = stack.pop() {
            let children = &children[id as usize];
            let is_open = self.open.contains(&id);
            let mark = match (children.is_empty(), is_open) {
                (true, _) => "  ",
                (_, true) => "- ",
                (_, false) => "+ ",
            };
            let hidden = guides.chars().count().saturating_sub(GUIDES);
            let guides: String = guides.chars().skip(hidden).collect();
            self.rows.push((id, format!("{guides}{mark}")));
            for (position, child) in children.iter().enumerate().rev().filter(|_| is_open) {
                let (branch, line) =
                    if position + 1 == children.len() { ("└ ", "  ") } else { ("├ ", "│ ") };
                stack.push((*child, format!("{below}{branch}"), format!("{below}{line}")));
            }
        }
        let found = at.and_then(|at| self.rows.iter().position(|(id, _)| *id == at));
        self.cursor = found.unwrap_or(self.cursor).min(self.rows.len().saturating_sub(1));
    }

    /// Opens the node at the cursor, and what is below it as long as there is no choice.
    pub fn expand(&mut self) {
        let Some(at) = self.node() else { return };
        let mut next = at;
        self.open.insert(next);
        while let [only] = self.view.children[next as usize][..] {
            next = only;
            self.open.insert(next);
        }
        self.list(Some(at));
    }

    /// Closes the node at the cursor, or goes to the one above it.
    pub fn collapse(&mut self) {
        let Some(at) = self.node() else { return };
        let has_rows = self.open.remove(&at) && !self.view.children[at as usize].is_empty();
        let above = self.view.node(at).parent.filter(|_| !has_rows);
        self.list(above.or(Some(at)));
    }

    /// Opens what leads to the largest node below the cursor: each time the first child, as long as it has
    /// half of what is above it by `amount`.
    pub fn follow(&mut self, amount: impl Fn(&[i64]) -> f64) {
        let Some(mut at) = self.node() else { return };
        let size = |pane: &Pane, id: u32| amount(pane.view.inclusive.of(id));
        while let Some(child) = self.view.children[at as usize].first().copied() {
            if size(self, child) * 2.0 < size(self, at) {
                break;
            }
            self.open.insert(at);
            at = child;
        }
        self.list(Some(at));
    }

    /// Shows the node at the cursor and what is below it alone; without `is_in`, what was shown before.
    pub fn zoom(&mut self, is_in: bool) {
        let at = self.node();
        match at.filter(|_| is_in) {
            Some(node) if self.zoom.last() != Some(&node) => {
                self.zoom.push(node);
                self.open.insert(node);
            }
            Some(_) => {}
            None => drop(self.zoom.pop()),
        }
        self.list(at);
    }

    /// Goes to the next node, in any depth, whose name has a text in it; says whether there is one.
    pub fn find(&mut self, catalogue: &Catalogue, text: &str) -> bool {
        let text = text.to_lowercase();
        let at = self.node();
        let matches =
            |id: u32| names::label(&catalogue.code, self.view.node(id).label).to_lowercase().contains(&text);
        // The first one behind the cursor, else the first one of all.
        let (mut first, mut next, mut is_behind) = (None, None, false);
        for (id, _) in self.view.preorder() {
            if (is_behind || first.is_none()) && matches(id) {
                next = next.or(Some(id).filter(|_| is_behind));
                first = first.or(Some(id));
            }
            if next.is_some() {
                break;
            }
            is_behind |= Some(id) == at;
        }
        let Some(found) = next.or(first) else { return false };
        let above = std::iter::successors(self.view.node(found).parent, |id| self.view.node(*id).parent);
        let above: Vec<u32> = above.collect();
        self.zoom.retain(|zoomed| *zoomed == found || above.contains(zoomed));
        self.open.extend(above);
        self.list(Some(found));
        true
    }
}
