//! A view as a database stores it: its large nodes, and the number of those left out.

use crate::model::tree::{Tree, TreeNode, Values};

/// A node of a stored view.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SummaryNode {
    /// The node above, which comes first.
    pub parent: Option<u32>,
    /// What it stands for, with what is around it; `None` for nodes of one level that are left out.
    pub context: Option<TreeNode>,
    /// How many nodes of the view it is.
    pub nodes: u64,
}

/// A stored view.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// Nodes.
    pub nodes: Vec<SummaryNode>,
    /// What each node has beside the nodes below it.
    pub own: Values,
}

impl Summary {
    /// Without nodes yet.
    pub fn new(metrics: usize) -> Summary {
        Summary { nodes: Vec::new(), own: Values::new(metrics) }
    }

    /// Adds a node without values.
    pub fn push(&mut self, node: SummaryNode) -> u32 {
        self.nodes.push(node);
        self.own.push();
        self.nodes.len() as u32 - 1
    }

    /// The values of each node with those of the nodes below it.
    pub fn inclusive(&self) -> Values {
        self.own.inclusive(self.nodes.iter().map(|n| n.parent))
    }

    /// The tree that it is if nothing is left out.
    pub fn into_tree(self) -> Tree {
        let nodes = self.nodes.into_iter().filter_map(|node| node.context);
        Tree { nodes: nodes.collect(), exclusive: self.own }
    }
}

impl From<Tree> for Summary {
    fn from(tree: Tree) -> Summary {
        let nodes = tree.nodes.into_iter().map(|node| SummaryNode {
            parent: node.parent,
            context: Some(node),
            nodes: 1,
        });
        Summary { nodes: nodes.collect(), own: tree.exclusive }
    }
}
