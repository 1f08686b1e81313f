//! Numbers the scopes that the contexts of a database stand for.

use crate::model::code::Code;
use crate::model::hash::NumberedSet;
use crate::model::summary::Summary;
use crate::model::symbols::Kind;
use crate::model::tree::{Call, SourceLocation, Tree, TreeNode};

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

/// Scopes, and the scope of each context.
#[derive(Debug, Default)]
pub struct ScopeIds {
    /// All scopes.
    pub all: NumberedSet<Scope>,
    /// By context of the logical projection.
    pub logical: Vec<u32>,
    /// By context of the physical projection, if that differs.
    pub physical: Vec<u32>,
    /// By context of the folded tree.
    pub folded: Vec<u32>,
}

impl ScopeIds {
    /// Numbers the scopes of all trees.
    pub fn new(code: &Code, logical: &Tree, physical: Option<&Tree>, folded: &Tree) -> ScopeIds {
        let mut ids = ScopeIds::default();
        ids.folded = ids.add(code, folded);
        ids.logical = ids.add(code, logical);
        ids.physical = physical.map_or(Vec::new(), |tree| ids.add(code, tree));
        ids
    }

    /// The same scopes, to be added to, without those of contexts.
    pub fn without_contexts(&self) -> ScopeIds {
        ScopeIds {
            all: self.all.clone(),
            ..ScopeIds::default()
        }
    }

    /// The scopes of the nodes of a stored view; `None` for what is left out.
    pub fn of_summary(&mut self, code: &Code, summary: &Summary) -> Vec<Option<u32>> {
        let nodes = summary.nodes.iter().map(|node| node.context.as_ref());
        self.add_nodes(code, nodes)
    }

    fn add(&mut self, code: &Code, tree: &Tree) -> Vec<u32> {
        let ids = self.add_nodes(code, tree.nodes.iter().map(Some));
        ids.into_iter().flatten().collect()
    }

    fn add_nodes<'t>(
        &mut self,
        code: &Code,
        nodes: impl Iterator<Item = Option<&'t TreeNode>>,
    ) -> Vec<Option<u32>> {
        // The procedure around each context.
        let mut around: Vec<Option<u32>> = Vec::with_capacity(nodes.size_hint().0);
        let mut own = |node: Option<&TreeNode>| {
            let Some(node) = node else {
                around.push(None);
                return None;
            };
            let above = node.parent.and_then(|p| around[p as usize]);
            let is_region = node.procedure as usize >= code.procedure_count;
            let inside = matches!(node.kind, Kind::Loop | Kind::Line | Kind::Partial);
            // Below nothing that is a procedure, a line has the one that it is of.
            let named = (!is_region).then_some(node.procedure);
            let procedure = if inside {
                above.or(named)
            } else {
                Some(node.procedure)
            };
            around.push(procedure);
            let scope = Scope {
                kind: node.kind,
                procedure: procedure.filter(|p| (*p as usize) < code.procedure_count),
                region: is_region.then_some(node.procedure),
                parallel_loop: node
                    .parallel_loop
                    .filter(|_| node.kind == Kind::ParallelLoop),
                location: node.location,
                call: node.call,
                is_runtime: node.is_runtime,
            };
            Some(self.all.insert_full(scope).0 as u32)
        };
        nodes.map(&mut own).collect()
    }
}
