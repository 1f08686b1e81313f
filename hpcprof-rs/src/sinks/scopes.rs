//! Numbers the scopes that the contexts of a database stand for.

use crate::model::code::Code;
use crate::model::hash::NumberedSet;
use crate::model::symbols::Kind;
use crate::model::tree::{Call, SourceLocation, TreeNode};

/// What contexts stand for, wherever they are called from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Scope {
    /// Its kind.
    pub kind: Kind,
    /// The procedure whose code it is; `None` for a partial root or what lies in one.
    pub procedure: Option<u32>,
    /// The loop or partial root that it is, or whose line it is: an index among the procedures.
    pub region: Option<u32>,
    /// The parallel loop that it is.
    pub parallel_loop: Option<u32>,
    /// The line of a line.
    pub location: Option<SourceLocation>,
    /// Where it is called.
    pub call: Call,
    /// Whether it is a task runtime's frame.
    pub is_runtime: bool,
}

/// All scopes of a database.
#[derive(Debug, Default)]
pub struct Scopes(NumberedSet<Scope>);

impl Scopes {
    /// All that are known, by number.
    pub fn all(&self) -> impl ExactSizeIterator<Item = &Scope> {
        self.0.iter()
    }

    /// The scope of each context of a tree.
    pub fn add(&mut self, code: &Code, nodes: impl Iterator<Item = TreeNode>) -> Vec<u32> {
        let scopes = self.add_some(code, nodes.map(Some));
        scopes.into_iter().flatten().collect()
    }

    /// The same for nodes of which some are absent.
    pub fn add_some(
        &mut self,
        code: &Code,
        nodes: impl Iterator<Item = Option<TreeNode>>,
    ) -> Vec<Option<u32>> {
        // The procedure around each context.
        let mut around: Vec<Option<u32>> = Vec::with_capacity(nodes.size_hint().0);
        let mut own = |node: Option<TreeNode>| {
            let Some(node) = node else {
                around.push(None);
                return None;
            };
            let above = node.parent.and_then(|p| around[p as usize]);
            let is_region = node.procedure as usize >= code.procedure_count;
            let inside = matches!(node.kind, Kind::Loop | Kind::Line | Kind::Partial);
            // A line outside of all procedures has the procedure whose line it is.
            let named = (!is_region).then_some(node.procedure);
            let procedure = if inside { above.or(named) } else { Some(node.procedure) };
            around.push(procedure);
            let scope = Scope {
                kind: node.kind,
                procedure: procedure.filter(|p| (*p as usize) < code.procedure_count),
                region: is_region.then_some(node.procedure),
                parallel_loop: node.parallel_loop.filter(|_| node.kind == Kind::ParallelLoop),
                location: node.location,
                call: node.call,
                is_runtime: node.is_runtime,
            };
            Some(self.0.insert_full(scope).0 as u32)
        };
        nodes.map(&mut own).collect()
    }
}
