//! Numbers the scopes that the contexts of a database stand for.

use crate::model::code::Code;
use crate::model::hash::NumberedSet;
use crate::model::tree::{Call, Label, TreeNode};

/// What contexts stand for, wherever they are called from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Scope {
    pub label: Label,
    /// The procedure whose code it is; `None` for a partial root or what lies in one.
    pub procedure: Option<u32>,
    /// The loop or partial root that it is, or whose line it is.
    pub region: Option<u32>,
    pub call: Call,
    /// Whether it is a task runtime's frame.
    pub is_runtime: bool,
}

#[derive(Debug, Default)]
pub struct Scopes(NumberedSet<Scope>);

impl Scopes {
    /// All that are known, by number.
    pub fn all(&self) -> impl ExactSizeIterator<Item = &Scope> {
        self.0.iter()
    }

    /// The scope of each node of a tree.
    pub fn add(&mut self, code: &Code, nodes: impl Iterator<Item = TreeNode>) -> impl Iterator<Item = u32> {
        // The procedure and the region around each context.
        let mut around: Vec<(Option<u32>, Option<u32>)> = Vec::with_capacity(nodes.size_hint().0);
        nodes.map(move |node| {
            let above = node.parent.map_or((None, None), |p| around[p as usize]);
            let (procedure, region) = match node.label {
                Label::Procedure(p) | Label::Inlined(p) => (Some(p), None),
                Label::ParallelLoop(l) => (Some(code.parallel_loop(l).entry), None),
                Label::Loop(region) | Label::Partial(region) => (above.0, Some(region)),
                _ => above,
            };
            around.push((procedure, region));
            let TreeNode { label, call, is_runtime, .. } = node;
            let scope = Scope { label, procedure, region, call, is_runtime };
            self.0.insert_full(scope).0 as u32
        })
    }
}
