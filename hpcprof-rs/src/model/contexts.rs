//! The tree of calling contexts of one projection, with sparse metric values.
//!
//! Siblings are one when kind, procedure, line, call site and role are equal, so the tree does
//! not depend on the order in which paths are added. A parent always comes before its children.

use crate::model::hash::{FastMap, NumberedSet};
use crate::model::symbols::{Kind, Line, ProcedureIndex, Text};

/// Index into a [`ContextTree`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ContextIndex(pub u32);

/// One calling context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
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
    pub call: Option<Line>,
    /// Column of the call, where it tells parallel loops of one line apart; else 0.
    pub column: u32,
    /// Whether it is a task runtime's frame, which has no user-level frame (1<->0, M<->0).
    pub is_runtime: bool,
}

/// What a value measures, before overhead categories become metrics.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum MetricKey {
    /// Useful work.
    Work,
    /// Idleness.
    Idleness,
    /// Overhead of a category.
    Overhead(Text),
}

/// A tree of contexts.
#[derive(Debug, Default)]
pub struct ContextTree {
    /// Contexts; parents first.
    pub contexts: NumberedSet<Context>,
    /// Nanoseconds.
    pub exclusive_values: FastMap<(ContextIndex, MetricKey), i64>,
}

impl ContextTree {
    /// The child of `context.parent` that equals `context`, made if absent.
    pub fn child(&mut self, context: Context) -> ContextIndex {
        ContextIndex(self.contexts.insert_full(context).0 as u32)
    }

    /// Adds to the exclusive value of a context.
    pub fn add(&mut self, context: ContextIndex, metric: MetricKey, nanoseconds: i64) {
        if nanoseconds != 0 {
            let slot = self.exclusive_values.entry((context, metric)).or_insert(0);
            *slot = slot.saturating_add(nanoseconds);
        }
    }
}
