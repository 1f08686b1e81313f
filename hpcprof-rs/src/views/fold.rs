//! Simplifies a tree of contexts: each context is kept, or its cost goes to the context above.
//!
//! | folded | where |
//! |---|---|
//! | lines | unless asked for |
//! | system code inlined into its user | unless asked for |
//! | the task runtime's frames, and shims between them and a task | logical projection |
//! | the frames of a parallel loop, which become one node | logical projection |
//! | recursion, start-up frames | text |
//!
//! So in the logical projection a task has one path whether it was stolen or not.

use crate::catalogue::Projection;
use crate::model::code::Code;
use crate::model::hash::FastMap;
use crate::model::tree::{self, Call, Label, SourceLocation, Tree, TreeNode, Values};
use hpc_formats::structure::Origin;
use hpcstruct_rs::known;

/// What to fold: options of commands, and what follows from their formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::Args)]
pub struct FoldOptions {
    /// Call paths of the user's program, or of the machine
    #[arg(long, value_enum, default_value_t = Projection::Logical)]
    pub projection: Projection,
    /// Show source lines; pprof has the line of each frame in any case
    #[arg(long)]
    pub lines: bool,
    /// Show inlined code of the standard library and the system
    #[arg(long)]
    pub std_inlined: bool,
    /// Show the task runtime's own frames and those of parallel loops in the logical projection
    #[arg(long, visible_alias = "unfold")]
    pub runtime_frames: bool,
    // Keeps contexts apart by the line in their caller that calls them, whatever is folded between the two.
    #[arg(skip)]
    pub call_lines: bool,
    // Folds recursion into the outermost activation.
    #[arg(skip)]
    pub recursion: bool,
    // Folds frames that start the program and its threads.
    #[arg(skip)]
    pub start_up: bool,
}

impl FoldOptions {
    /// The folding of the tree that a database stores: that of the text of a top-down view.
    pub const STORED: FoldOptions = FoldOptions {
        projection: Projection::Logical,
        lines: false,
        std_inlined: false,
        runtime_frames: false,
        recursion: true,
        start_up: true,
        call_lines: false,
    };

    /// Whether the frames of task runtimes and parallel loops are folded.
    pub fn folds_runtime(self) -> bool {
        self.projection == Projection::Logical && !self.runtime_frames
    }
}

/// The identity of a context among its siblings.
type Key = (Option<u32>, Label, Option<SourceLocation>);

/// Where a folded context's cost and callees go.
#[derive(Clone, Copy)]
struct Target {
    /// The node that its cost goes to; `None` only for a start-up root.
    cost: Option<u32>,
    /// The node that its callees are placed under.
    parent: Option<u32>,
    /// Whether the frames just above are the runtime's, or shims after it.
    after_runtime: bool,
    /// The parallel loop around it, up to the next user code.
    within: Option<u32>,
    /// The line of what is below.
    line: LineOf,
}

/// Which line a sample has in the frame that takes its cost.
#[derive(Clone, Copy)]
enum LineOf {
    /// Its own.
    Sample,
    /// Below folded frames: that of the outermost folded call, where it is known.
    Call(Option<SourceLocation>),
}

impl Target {
    /// Above all contexts.
    const ROOT: Target =
        Target { cost: None, parent: None, after_runtime: false, within: None, line: LineOf::Sample };

    fn kept(node: u32) -> Target {
        Target { cost: Some(node), parent: Some(node), ..Target::ROOT }
    }

    /// The target of what lies in a frame that is folded into this one.
    fn folding(self, node: &TreeNode) -> Target {
        let line = match self.line {
            LineOf::Sample => LineOf::Call(node.call.location()),
            known => known,
        };
        Target { line, ..self }
    }
}

/// What folding made of a tree.
#[derive(Debug)]
pub struct Folded<T> {
    /// The folded tree, or its contexts, in preorder.
    pub tree: T,
    /// For each context that has values, the folded context that takes them.
    pub of: Vec<Option<u32>>,
}

/// The values of a folded tree with a number of nodes. `of` has the folded context of each context, `values`
/// are those of the tree that was folded.
pub fn sums(nodes: usize, of: &[Option<u32>], values: &Values) -> Values {
    let mut sums = Values::of_nodes(values.metrics(), nodes);
    for (node, target) in (0..).zip(of) {
        if let Some(target) = target {
            sums.add(*target, values.of(node));
        }
    }
    sums
}

/// Folds `tree`; the sum of every metric stays.
pub fn fold(tree: &Tree, code: &Code, options: FoldOptions) -> Folded<Tree> {
    let has_values = |node: u32| tree.exclusive.of(node).iter().any(|v| *v != 0);
    let contexts = (tree.nodes.len() as u32, |id: u32| tree.nodes[id as usize]);
    let Folded { tree: nodes, of } = fold_contexts(contexts, has_values, code, options);
    let exclusive = sums(nodes.len(), &of, &tree.exclusive);
    let tree = Tree { nodes, exclusive };
    Folded { tree, of }
}

/// Folds a number of contexts, whose values need not be known; `has_values` says which of them have any.
pub fn fold_contexts(
    (count, source): (u32, impl Fn(u32) -> TreeNode),
    has_values: impl Fn(u32) -> bool,
    code: &Code,
    options: FoldOptions,
) -> Folded<Vec<TreeNode>> {
    let mut folder = Folder {
        source,
        code,
        options,
        out: Vec::new(),
        index: FastMap::default(),
        targets: Vec::with_capacity(count as usize),
        levels: Vec::with_capacity(count as usize),
        shims: vec![None; code.procedures.len()],
        start_up: vec![None; code.procedures.len()],
    };
    let mut of = Vec::with_capacity(count as usize);
    for index in 0..count {
        let node = (folder.source)(index);
        let target = folder.place(&node);
        folder.targets.push(target);
        let cost = || target.cost.unwrap_or_else(|| folder.child(None, &node));
        of.push(has_values(index).then(cost));
    }
    let placed = folder.out;
    let order = tree::preorder(placed.iter().map(|node| node.parent));
    let mut numbers = vec![0; order.len()];
    for (to, from) in (0..).zip(&order) {
        numbers[*from as usize] = to;
    }
    let number = |id: u32| numbers[id as usize];
    of.iter_mut().for_each(|target| *target = target.map(number));
    let nodes = order.iter().map(|id| {
        let node = placed[*id as usize];
        TreeNode { parent: node.parent.map(number), ..node }
    });
    Folded { tree: nodes.collect(), of }
}

struct Folder<'a, S> {
    /// The contexts that are folded.
    source: S,
    code: &'a Code,
    options: FoldOptions,
    /// The folded ones, in the order in which they are met.
    out: Vec<TreeNode>,
    index: FastMap<Key, u32>,
    /// By source node.
    targets: Vec<Target>,
    /// Activations of the same procedure so far on the path, by source node.
    levels: Vec<u32>,
    /// What is known of procedures' names.
    shims: Vec<Option<bool>>,
    start_up: Vec<Option<bool>>,
}

impl<S: Fn(u32) -> TreeNode> Folder<'_, S> {
    fn origin(&self, node: &TreeNode) -> Origin {
        node.label.origin(self.code)
    }

    fn place(&mut self, node: &TreeNode) -> Target {
        let above = node.parent.map_or(Target::ROOT, |p| self.targets[p as usize]);
        self.levels.push(1);
        let is_root = above.parent.is_none();
        if let Label::Line(location) = node.label {
            return self.place_line(above, node, location);
        }
        if let Some(index) = node.parallel_loop.filter(|_| self.options.folds_runtime()) {
            return self.place_parallel_loop(above, node, index);
        }
        if node.label.is_loop() && !is_root {
            return self.place_loop(above, node);
        }
        if !is_root && self.is_runtime(node, above.after_runtime) {
            return Target { after_runtime: true, ..above.folding(node) };
        }
        let is_own = matches!(node.label, Label::Procedure(_));
        let inlined_system = self.origin(node) == Origin::System && !is_own;
        // Below start-up frames that were folded away there is no context to fold into.
        let below_start_up = self.options.start_up && node.parent.is_some();
        if (!is_root || below_start_up) && inlined_system && !self.options.std_inlined {
            return above.folding(node);
        }
        if self.options.start_up && is_own && self.is_start_up(node) {
            return above.folding(node);
        }
        self.keep(above, node)
    }

    /// A line is a line of the frame that takes its cost: below folded frames it is the line
    /// that calls them.
    fn place_line(&mut self, above: Target, node: &TreeNode, own: SourceLocation) -> Target {
        let location = match above.line {
            LineOf::Sample => Some(own),
            LineOf::Call(location) => location,
        };
        match location {
            Some(location) if self.options.lines && above.cost.is_some() => {
                self.keep(above, &TreeNode { label: Label::Line(location), ..*node })
            }
            _ => above,
        }
    }

    /// A loop folds as the code around it does. Where that is folded into its caller, a loop that
    /// is named by the caller stays, and so does the line that stands for the folded code.
    fn place_loop(&mut self, above: Target, node: &TreeNode) -> Target {
        let of_system = self.origin(node) == Origin::System && !self.options.std_inlined;
        if of_system || self.is_runtime(node, above.after_runtime) {
            return above;
        }
        Target { after_runtime: above.after_runtime, line: above.line, ..self.keep(above, node) }
    }

    /// The frames of a parallel loop go to the loop's node, made where a path enters it.
    fn place_parallel_loop(&mut self, above: Target, node: &TreeNode, index: u32) -> Target {
        let inside = Target { after_runtime: true, ..above.folding(node) };
        if above.within == Some(index) {
            return inside;
        }
        let row = self.code.parallel_loop(index);
        let own = TreeNode {
            call: row.call.map_or(node.call, Call::Unique),
            ..TreeNode::new(node.parent, Label::ParallelLoop(index))
        };
        Target {
            after_runtime: true,
            within: Some(index),
            line: LineOf::Call(row.call),
            ..Target::kept(self.child(above.parent, &own))
        }
    }

    fn is_runtime(&mut self, node: &TreeNode, after_runtime: bool) -> bool {
        let origin = self.origin(node);
        self.options.folds_runtime()
            && (node.label.is_loop() || node.label.procedure().is_some())
            && (node.is_runtime
                || origin == Origin::Runtime
                || (after_runtime && origin == Origin::System && self.is_shim(node)))
    }

    fn is_shim(&mut self, node: &TreeNode) -> bool {
        let Some(procedure) = node.label.procedure() else { return false };
        let name = &self.code.procedure(procedure).name;
        *self.shims[procedure as usize].get_or_insert_with(|| known::is(known::Kind::Shim, name))
    }

    /// Start-up frames fold only where they lead on to the program, not where they are all.
    fn is_start_up(&mut self, node: &TreeNode) -> bool {
        let Some(procedure) = node.label.procedure() else { return false };
        let row = self.code.procedure(procedure);
        *self.start_up[procedure as usize].get_or_insert_with(|| {
            known::is_start_up(&row.name)
                || (row.origin == Origin::System && known::is(known::Kind::Shim, &row.name))
                || (row.name == "main" && row.declared.is_none())
        })
    }

    fn keep(&mut self, above: Target, node: &TreeNode) -> Target {
        let call = match above.line {
            LineOf::Call(line) if self.options.call_lines => line.map_or(Call::Unknown, Call::Unique),
            _ => node.call,
        };
        let node = &TreeNode { call, ..*node };
        let first = match self.options.recursion && self.can_recur(node) {
            true => self.activation(above.parent, node),
            false => None,
        };
        if let Some(first) = first {
            let level = self.level(node) + 1;
            if let Some(slot) = self.levels.last_mut() {
                *slot = level;
            }
            let known = &mut self.out[first as usize];
            known.recursion = known.recursion.max(level);
        }
        Target {
            // User code ends a parallel loop. System code does not, and may lead back to its frames.
            within: above.within.filter(|_| self.origin(node) != Origin::User),
            ..Target::kept(first.unwrap_or_else(|| self.child(above.parent, node)))
        }
    }

    /// Whether an inner activation may be folded into an outer one. A runtime's frames come up
    /// again with every task: folding them would put tasks under the wrong spawner.
    fn can_recur(&self, node: &TreeNode) -> bool {
        !matches!(node.label, Label::Line(_) | Label::Loop(_))
            && !node.is_runtime
            && self.origin(node) != Origin::Runtime
    }

    /// The node above (or at) `from` that is the same procedure. System code that user code calls
    /// again does not recur: folding it would put what it calls under another caller.
    fn activation(&self, from: Option<u32>, node: &TreeNode) -> Option<u32> {
        let is_system = self.origin(node) == Origin::System;
        let label = self.merged(node.label);
        let mut at = from;
        while let Some(id) = at {
            let other = &self.out[id as usize];
            if self.merged(other.label) == label {
                return Some(id);
            }
            let is_loop = matches!(other.label, Label::ParallelLoop(_));
            let is_user = is_loop || self.origin(other) == Origin::User;
            if is_system && is_user {
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
            let other = (self.source)(id);
            if other.label.merged() == node.label.merged() {
                return self.levels[id as usize];
            }
            at = other.parent;
        }
        1
    }

    /// In the logical projection it does not matter whether a compiler inlined a procedure.
    fn merged(&self, label: Label) -> Label {
        match self.options.projection {
            Projection::Logical => label.merged(),
            Projection::Physical => label,
        }
    }

    fn child(&mut self, parent: Option<u32>, node: &TreeNode) -> u32 {
        let call = node.call.location().filter(|_| self.options.call_lines);
        let key = (parent, self.merged(node.label), call);
        if let Some(id) = self.index.get(&key) {
            let known = &mut self.out[*id as usize];
            known.call = known.call.join(node.call);
            if let Label::Procedure(_) = node.label {
                known.label = node.label;
            }
            return *id;
        }
        let id = self.out.len() as u32;
        self.out.push(TreeNode { parent, recursion: 1, ..*node });
        self.index.insert(key, id);
        id
    }
}
