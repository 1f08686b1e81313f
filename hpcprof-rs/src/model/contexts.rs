//! The tree of calling contexts of one projection, with sparse metric values.
//!
//! Siblings are one when kind, procedure, line, call site and role are equal, so the tree does
//! not depend on the order in which paths are added. A parent always comes before its children.

use crate::model::hash::FastMap;
use crate::model::symbols::{Kind, Line, ProcedureIndex, Text};
use std::hash::{Hash, Hasher};

/// Index into a [`ContextTree`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ContextIndex(pub u32);

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
    pub call: Option<Line>,
    /// At which column, where that tells parallel loops of one line apart; else 0.
    pub column: u32,
    /// Whether the agent said that this frame has no user-level frame (1<->0, M<->0).
    pub support: bool,
}

/// All fields, packed: this hash is taken for every frame of every path.
impl Hash for Context {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let line = |line: Option<Line>| line.map_or(u64::MAX, |l| pair(l.file.0, l.line));
        let parent = self.parent.map_or(u32::MAX, |p| p.0);
        state.write_u64(pair(parent, self.procedure.0));
        state.write_u64(line(self.line) ^ line(self.call).rotate_left(17));
        // Columns are rare, and tell few contexts apart.
        state.write_u64(pair(self.kind as u32, u32::from(self.support)));
    }
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

/// A tree of contexts.
#[derive(Debug, Default)]
pub struct ContextTree {
    /// Contexts; parents first.
    pub contexts: Vec<Context>,
    index: FastMap<Context, ContextIndex>,
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
        let next = ContextIndex(self.contexts.len() as u32);
        let id = *self.index.entry(context).or_insert(next);
        if id == next {
            self.contexts.push(context);
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
