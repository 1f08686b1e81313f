//! The tree of calling contexts of one projection, with sparse metric values.
//!
//! Siblings are one when kind, procedure, line and role are equal, so the tree does not depend
//! on the order in which paths are added. A parent always comes before its children.

use crate::model::hash::FastMap;
use crate::model::symbols::{Kind, Line, ProcedureIndex, Text};

/// Index into a [`ContextTree`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ContextIndex(pub u32);

/// Where a context is called from, as far as it is the same in all paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallSite {
    /// No path has said.
    Unknown,
    /// The same in all paths that know.
    Unique(Line),
    /// Several places.
    Several,
}

impl CallSite {
    /// Joins two observations; associative and commutative.
    pub fn join(self, other: CallSite) -> CallSite {
        match (self, other) {
            (CallSite::Unknown, x) | (x, CallSite::Unknown) => x,
            (CallSite::Unique(a), CallSite::Unique(b)) if a == b => self,
            _ => CallSite::Several,
        }
    }

    /// The place, where it is unique.
    pub fn line(self) -> Option<Line> {
        match self {
            CallSite::Unique(line) => Some(line),
            _ => None,
        }
    }
}

/// One calling context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    /// The calling or enclosing context; `None` for a root.
    pub parent: Option<ContextIndex>,
    /// What it stands for.
    pub kind: Kind,
    /// Its procedure (of a line: the one whose line it is).
    pub procedure: ProcedureIndex,
    /// The line of a [`Kind::Line`].
    pub line: Option<Line>,
    /// Where it is called.
    pub call: CallSite,
    /// Whether the agent said that this frame has no user-level frame (1<->0, M<->0).
    pub support: bool,
}

/// What an amount measures, before overhead categories become metrics.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Amount {
    /// Useful work.
    Work,
    /// Idleness.
    Idleness,
    /// Overhead of a category.
    Overhead(Text),
}

type Key = (
    Option<ContextIndex>,
    Kind,
    ProcedureIndex,
    Option<Line>,
    bool,
);

/// A tree of contexts.
#[derive(Debug, Default)]
pub struct ContextTree {
    /// Contexts; parents first.
    pub contexts: Vec<Context>,
    index: FastMap<Key, ContextIndex>,
    /// Exclusive values, nanoseconds.
    pub values: FastMap<(ContextIndex, Amount), i64>,
}

impl ContextTree {
    /// An empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// The child of `context.parent` that equals `context`, made if absent.
    pub fn child(&mut self, context: Context) -> ContextIndex {
        let key = (
            context.parent,
            context.kind,
            context.procedure,
            context.line,
            context.support,
        );
        let next = ContextIndex(self.contexts.len() as u32);
        let id = *self.index.entry(key).or_insert(next);
        if id == next {
            self.contexts.push(context);
        } else {
            let known = &mut self.contexts[id.0 as usize];
            known.call = known.call.join(context.call);
        }
        id
    }

    /// Adds to the exclusive value of a context.
    pub fn add(&mut self, context: ContextIndex, amount: Amount, nanoseconds: i64) {
        if nanoseconds != 0 {
            let slot = self.values.entry((context, amount)).or_insert(0);
            *slot = slot.saturating_add(nanoseconds);
        }
    }
}
