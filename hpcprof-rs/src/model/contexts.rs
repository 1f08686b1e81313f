//! The tree of calling contexts while it is merged. It has those of both projections, which share what is the
//! same in both: without a task runtime that is all.
//!
//! Siblings are one when their scopes are equal, so the tree does not depend on the order in which paths are
//! added. A parent always comes before its children. A context is a parent and a scope, eight bytes: the
//! scopes of a program are few, whatever the number of its contexts.

use crate::model::hash::{DenseSet, NumberedSet};
use crate::model::symbols::{Kind, Line, ProcedureIndex};

/// Index into a [`ContextTree`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ContextIndex(pub u32);

/// What a context stands for, wherever it is called from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Scope {
    pub kind: Kind,
    /// Its procedure (of a line: the one whose line it is).
    pub procedure: ProcedureIndex,
    /// The line of a [`Kind::Line`].
    pub line: Option<Line>,
    pub call: Option<Line>,
    /// Column of the call, where it tells parallel loops of one line apart; else 0.
    pub column: u32,
    /// Whether it is a task runtime's frame, which has no user-level frame (1<->0, M<->0).
    pub is_runtime: bool,
}

/// A context: its parent, or [`NO_PARENT`], and the index of its scope.
type Node = (u32, u32);
const NO_PARENT: u32 = u32::MAX;

#[derive(Debug, Default)]
pub struct ContextTree {
    scopes: NumberedSet<Scope>,
    contexts: DenseSet<Node>,
    /// The projections in which samples belong to a context, as bits.
    sampled: Vec<u8>,
}

/// A projection of the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Part {
    Logical = 1,
    Physical = 2,
}

impl ContextTree {
    /// The context of a scope below `parent`, made if absent.
    pub fn child(&mut self, parent: Option<ContextIndex>, scope: Scope) -> ContextIndex {
        let scope = self.scopes.insert_full(scope).0 as u32;
        self.add(parent, scope)
    }

    fn add(&mut self, parent: Option<ContextIndex>, scope: u32) -> ContextIndex {
        let node = (parent.map_or(NO_PARENT, |p| p.0), scope);
        ContextIndex(self.contexts.insert(node))
    }

    /// The calling or enclosing context; `None` for a root.
    pub fn parent(&self, context: ContextIndex) -> Option<ContextIndex> {
        let parent = self.contexts.keys()[context.0 as usize].0;
        (parent != NO_PARENT).then_some(ContextIndex(parent))
    }

    /// What a context stands for.
    pub fn scope(&self, context: ContextIndex) -> &Scope {
        &self.scopes[self.scope_index(context) as usize]
    }

    /// The index of its scope among [`ContextTree::scopes`].
    pub fn scope_index(&self, context: ContextIndex) -> u32 {
        self.contexts.keys()[context.0 as usize].1
    }

    pub fn scopes(&self) -> &NumberedSet<Scope> {
        &self.scopes
    }

    /// All contexts, parents first.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = ContextIndex> + use<> {
        (0..self.len() as u32).map(ContextIndex)
    }

    pub fn len(&self) -> usize {
        self.contexts.keys().len()
    }

    pub fn is_empty(&self) -> bool {
        self.contexts.keys().is_empty()
    }

    pub fn mark_sampled(&mut self, context: ContextIndex, part: Part) {
        self.mark(context, part as u8);
    }

    fn mark(&mut self, context: ContextIndex, parts: u8) {
        let index = context.0 as usize;
        if self.sampled.len() <= index {
            self.sampled.resize(index + 1, 0);
        }
        self.sampled[index] |= parts;
    }

    fn sampled_in(&self, context: ContextIndex) -> u8 {
        self.sampled.get(context.0 as usize).copied().unwrap_or(0)
    }

    pub fn is_sampled(&self, context: ContextIndex, part: Part) -> bool {
        self.sampled_in(context) & part as u8 != 0
    }

    /// The contexts of a projection, by index: those with samples and those above them.
    pub fn part(&self, part: Part) -> Vec<bool> {
        let mut is_in = vec![false; self.len()];
        for context in self.all().rev() {
            let index = context.0 as usize;
            is_in[index] |= self.is_sampled(context, part);
            if let (true, Some(parent)) = (is_in[index], self.parent(context)) {
                is_in[parent.0 as usize] = true;
            }
        }
        is_in
    }

    /// Whether both projections have their samples in the same contexts.
    pub fn has_equal_parts(&self) -> bool {
        let both = Part::Logical as u8 | Part::Physical as u8;
        self.sampled.iter().all(|parts| [0, both].contains(parts))
    }

    /// Adds all contexts of another tree; returns which each of them became, by index.
    pub fn merge(&mut self, other: &ContextTree) -> Vec<ContextIndex> {
        let scopes: Vec<u32> =
            other.scopes.iter().map(|scope| self.scopes.insert_full(*scope).0 as u32).collect();
        let mut became: Vec<ContextIndex> = Vec::with_capacity(other.len());
        for context in other.all() {
            let parent = other.parent(context).map(|p| became[p.0 as usize]);
            let own = self.add(parent, scopes[other.scope_index(context) as usize]);
            match other.sampled_in(context) {
                0 => {}
                parts => self.mark(own, parts),
            }
            became.push(own);
        }
        became
    }
}
