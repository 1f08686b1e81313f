//! Simplifies a tree of contexts: each context is kept, or its cost goes to the context above.
//!
//! What is folded: lines; loops, where a view is about procedures only; standard-library code
//! inlined into its user; in the logical projection the task runtime and the glue between it and a
//! task, so that a task has one path whether it was stolen or not, and the machinery of a parallel
//! loop, which becomes one node; for reading only, also recursion and start-up frames.

use crate::model::hash::FastMap;
use crate::model::symbols::Kind;
use crate::views::load::{Database, Projection};
use crate::views::names::{is_glue, is_start_up};
use crate::views::tree::{Call, Tree, TreeNode};
use hpc_formats::structure::Origin;

/// What to fold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoldOptions {
    /// The projection that the tree shows.
    pub projection: Projection,
    /// Keep lines.
    pub lines: bool,
    /// Keep loops; otherwise their cost is their procedure's.
    pub loops: bool,
    /// Keep inlined code of the standard library and the system.
    pub std_inlined: bool,
    /// Keep the task runtime's frames in the logical projection.
    pub runtime_frames: bool,
    /// Fold recursion into the outermost activation.
    pub recursion: bool,
    /// Fold frames that start the program and its threads.
    pub start_up: bool,
}

/// The identity of a context among its siblings.
type Key = (Option<u32>, Kind, u32, Option<(u32, u32)>, Option<u32>);

/// Where a folded context's cost and callees go.
#[derive(Clone, Copy)]
struct Target {
    /// The node that its cost goes to; `None` only for a start-up root.
    cost: Option<u32>,
    /// The node that its callees are placed under.
    parent: Option<u32>,
    /// Whether the frames just above are the runtime's or glue after it.
    after_runtime: bool,
    /// The parallel loop that this is within, up to the next user code.
    within: Option<u32>,
    /// Set below folded frames: where the frame that took their cost calls them.
    site: Site,
}

/// The line that stands for folded code in the frame that took its cost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Site {
    /// Nothing is folded here.
    Own,
    /// The line of the outermost folded call, where it is known.
    Of(Option<(u32, u32)>),
}

impl Target {
    /// The target of what lies in a frame that is folded into this one.
    fn folding(self, node: &TreeNode) -> Target {
        let call = match node.call {
            Call::Unique(place) => Some(place),
            _ => None,
        };
        Target {
            site: match self.site {
                Site::Own => Site::Of(call),
                known => known,
            },
            ..self
        }
    }
}

/// Folds `tree`; the sum of every metric stays.
pub fn fold(tree: &Tree, database: &Database, options: FoldOptions) -> Tree {
    let mut folder = Folder {
        source: tree,
        database,
        options,
        out: Tree::new(tree.metrics),
        index: FastMap::default(),
        targets: Vec::with_capacity(tree.nodes.len()),
        levels: Vec::with_capacity(tree.nodes.len()),
        glue: vec![None; database.procedures.len()],
        start_up: vec![None; database.procedures.len()],
    };
    for (index, node) in tree.nodes.iter().enumerate() {
        let target = folder.place(node);
        folder.targets.push(target);
        let values = tree.values(index as u32);
        if values.iter().all(|v| *v == 0) {
            continue;
        }
        let cost = match target.cost {
            Some(cost) => cost,
            None => folder.child(None, node),
        };
        folder.out.add(cost, values);
    }
    folder.out
}

struct Folder<'a> {
    source: &'a Tree,
    database: &'a Database,
    options: FoldOptions,
    out: Tree,
    index: FastMap<Key, u32>,
    targets: Vec<Target>,
    /// Activations of the same procedure so far on the path, by source node.
    levels: Vec<u32>,
    glue: Vec<Option<bool>>,
    start_up: Vec<Option<bool>>,
}

impl Folder<'_> {
    fn place(&mut self, node: &TreeNode) -> Target {
        let above = match node.parent {
            Some(parent) => self.targets[parent as usize],
            None => Target {
                cost: None,
                parent: None,
                after_runtime: false,
                within: None,
                site: Site::Own,
            },
        };
        self.levels.push(1);
        let keep_as_root = above.parent.is_none();
        let origin = self.database.procedures[node.procedure as usize].origin;
        if node.kind == Kind::Line {
            return self.place_line(above, node);
        }
        if let Some(index) = node.parallel_loop.filter(|_| self.folds_runtime()) {
            return self.place_machinery(above, node, index);
        }
        if node.kind == Kind::Loop && !keep_as_root {
            return self.place_loop(above, node, origin);
        }
        if !keep_as_root && self.is_runtime(node, origin, above.after_runtime) {
            return Target {
                after_runtime: true,
                ..above.folding(node)
            };
        }
        let inlined_system = origin == Origin::System && node.kind != Kind::Procedure;
        // Below start-up frames that were folded away there is no context to fold into.
        let below_start_up = self.options.start_up && node.parent.is_some();
        if (!keep_as_root || below_start_up) && inlined_system && !self.options.std_inlined {
            return above.folding(node);
        }
        if self.options.start_up && node.kind == Kind::Procedure && self.is_start_up(node) {
            return above.folding(node);
        }
        self.keep(above, node)
    }

    /// A line is a line of the frame that takes its cost: below folded frames it is the line
    /// that calls them.
    fn place_line(&mut self, above: Target, node: &TreeNode) -> Target {
        let (Some(cost), true) = (above.cost, self.options.lines) else {
            return above;
        };
        let place = match above.site {
            Site::Own => node.place,
            Site::Of(place) => place,
        };
        if place.is_none() {
            return above;
        }
        let line = TreeNode {
            place,
            procedure: self.out.nodes[cost as usize].procedure,
            ..*node
        };
        self.keep(above, &line)
    }

    /// A loop folds as the code around it does. Where that is folded into its caller, a loop that
    /// is named by the caller stays, and so does the line that stands for the folded code.
    fn place_loop(&mut self, above: Target, node: &TreeNode, origin: Origin) -> Target {
        let of_system = origin == Origin::System && !self.options.std_inlined;
        if !self.options.loops || of_system || self.is_runtime(node, origin, above.after_runtime) {
            return above;
        }
        Target {
            after_runtime: above.after_runtime,
            site: above.site,
            ..self.keep(above, node)
        }
    }

    /// A loop's machinery goes to the loop's node, made where a path enters it.
    fn place_machinery(&mut self, above: Target, node: &TreeNode, index: u32) -> Target {
        if above.within == Some(index) {
            return Target {
                after_runtime: true,
                ..above.folding(node)
            };
        }
        let row = &self.database.loops[index as usize];
        let row_call = row.call;
        let own = TreeNode {
            kind: Kind::ParallelLoop,
            procedure: row.entry,
            place: None,
            call: row.call.map_or(node.call, Call::Unique),
            support: false,
            ..*node
        };
        let id = self.child(above.parent, &own);
        Target {
            cost: Some(id),
            parent: Some(id),
            after_runtime: true,
            within: Some(index),
            site: Site::Of(row_call),
        }
    }

    fn folds_runtime(&self) -> bool {
        self.options.projection == Projection::Logical && !self.options.runtime_frames
    }

    fn is_runtime(&mut self, node: &TreeNode, origin: Origin, after_runtime: bool) -> bool {
        if !self.folds_runtime() {
            return false;
        }
        let named = matches!(node.kind, Kind::Procedure | Kind::Inlined | Kind::Loop);
        named
            && (node.support
                || origin == Origin::Runtime
                || (after_runtime && origin == Origin::System && self.is_glue(node)))
    }

    fn is_glue(&mut self, node: &TreeNode) -> bool {
        let index = node.procedure as usize;
        let name = &self.database.procedures[index].name;
        *self.glue[index].get_or_insert_with(|| is_glue(name))
    }

    /// Start-up frames fold only where they lead on to the program, not where they are all.
    fn is_start_up(&mut self, node: &TreeNode) -> bool {
        let index = node.procedure as usize;
        let row = &self.database.procedures[index];
        *self.start_up[index].get_or_insert_with(|| {
            is_start_up(&row.name)
                || (row.origin == Origin::System && is_glue(&row.name))
                || (row.name == "main" && row.declared.is_none())
        })
    }

    fn keep(&mut self, above: Target, node: &TreeNode) -> Target {
        // System code leaves a parallel loop's machinery no more than its own recursion does.
        let origin = self.database.procedures[node.procedure as usize].origin;
        let within = above.within.filter(|_| origin != Origin::User);
        if self.options.recursion && self.can_recur(node) {
            if let Some(first) = self.activation(above.parent, node) {
                let level = self.level(node) + 1;
                if let Some(slot) = self.levels.last_mut() {
                    *slot = level;
                }
                let known = &mut self.out.nodes[first as usize];
                known.recursion = known.recursion.max(level);
                return Target {
                    cost: Some(first),
                    parent: Some(first),
                    after_runtime: false,
                    within,
                    site: Site::Own,
                };
            }
        }
        let id = self.child(above.parent, node);
        Target {
            cost: Some(id),
            parent: Some(id),
            after_runtime: false,
            within,
            site: Site::Own,
        }
    }

    /// Whether an inner activation may be folded into an outer one. A runtime's frames come up
    /// again with every task: folding them would put tasks under the wrong spawner.
    fn can_recur(&self, node: &TreeNode) -> bool {
        let origin = self.database.procedures[node.procedure as usize].origin;
        !matches!(node.kind, Kind::Line | Kind::Loop) && !node.support && origin != Origin::Runtime
    }

    /// The node above (or at) `from` that is the same procedure. System code that user code calls
    /// again does not recur: folding it would put what it calls under another caller.
    fn activation(&self, from: Option<u32>, node: &TreeNode) -> Option<u32> {
        let origin = |node: &TreeNode| self.database.procedures[node.procedure as usize].origin;
        let is_system = origin(node) == Origin::System;
        let kind = self.merged_kind(node.kind);
        let mut at = from;
        while let Some(id) = at {
            let other = &self.out.nodes[id as usize];
            if other.procedure == node.procedure && self.merged_kind(other.kind) == kind {
                return Some(id);
            }
            if is_system && (other.kind == Kind::ParallelLoop || origin(other) == Origin::User) {
                return None;
            }
            at = other.parent;
        }
        None
    }

    /// The activation count of the nearest source context above that is the same procedure.
    fn level(&self, node: &TreeNode) -> u32 {
        let mut at = node.parent;
        while let Some(id) = at {
            let other = &self.source.nodes[id as usize];
            if other.procedure == node.procedure && other.kind != Kind::Line {
                return self.levels[id as usize];
            }
            at = other.parent;
        }
        1
    }

    /// In the logical projection it does not matter whether a compiler inlined a procedure.
    fn merged_kind(&self, kind: Kind) -> Kind {
        match (self.options.projection, kind) {
            (Projection::Logical, Kind::Inlined) => Kind::Procedure,
            _ => kind,
        }
    }

    fn child(&mut self, parent: Option<u32>, node: &TreeNode) -> u32 {
        let key = (
            parent,
            self.merged_kind(node.kind),
            node.procedure,
            node.place,
            node.parallel_loop
                .filter(|_| node.kind == Kind::ParallelLoop),
        );
        if let Some(id) = self.index.get(&key) {
            let known = &mut self.out.nodes[*id as usize];
            known.call = known.call.join(node.call);
            known.kind = known.kind.min(node.kind);
            return *id;
        }
        let id = self.out.push(TreeNode {
            parent,
            recursion: 1,
            ..*node
        });
        self.index.insert(key, id);
        id
    }
}
