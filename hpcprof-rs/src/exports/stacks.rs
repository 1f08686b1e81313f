//! What all exports read: the contexts of a projection, as stacks of frames with names, source places and
//! amounts. Of the catalogue nothing else is used.
//!
//! Invariants: contexts are in preorder; amounts are not negative, and a metric's sum fits an `i64`.

use crate::catalogue::{Catalogue, REBUILD};
use crate::error::{Error, Result, one_line};
use crate::model::metrics::first_square;
use crate::model::statistics::Statistics;
use crate::model::tree::{self, Label, SourceLocation, Tree, Values};
use crate::render::names;
use crate::views::fold::{FoldOptions, fold};
use hpc_formats::profile::Unit;
use hpc_formats::structure::Origin;
use std::path::Path;

/// A metric, by its position in a context's amounts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metric {
    pub name: String,
    /// Unit of its amounts, which are nanoseconds if it is a time.
    pub unit: Unit,
}

/// A procedure, loop or parallel loop together with a file that has code of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Function {
    pub label: Label,
    /// Its file, by index: that of the line in it, else that of its declaration.
    pub file: Option<u32>,
}

/// A frame: a function, and the line that it is at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Frame {
    pub function: Function,
    /// Line in the function's file; 0 when unknown.
    pub line: u32,
}

/// The contexts of one projection.
#[derive(Debug)]
pub struct Stacks<'a> {
    catalogue: &'a Catalogue,
    tree: Tree,
    inclusive: Values,
    /// By context, the first one behind all that it calls.
    ends: Vec<u32>,
    /// The metrics. All of a database add up.
    pub metrics: Vec<Metric>,
    /// Sums of all contexts' own amounts, by metric.
    pub totals: Vec<i64>,
}

impl<'a> Stacks<'a> {
    pub fn read(catalogue: &'a Catalogue, options: FoldOptions) -> Result<Stacks<'a>> {
        let tree = catalogue.contexts(options.projection)?;
        let tree = fold(&tree, &catalogue.code, options).tree;
        check(&tree, &catalogue.path)?;
        let metrics = catalogue
            .metrics
            .iter()
            .filter(|metric| !metric.is_square())
            .map(|metric| Metric { name: clean(&metric.name), unit: metric.unit });
        Ok(Stacks {
            catalogue,
            inclusive: tree.inclusive(),
            ends: tree::ends(tree.nodes.iter().map(|node| node.parent)),
            metrics: metrics.collect(),
            totals: tree.exclusive.totals()[..first_square(catalogue.metrics.len())].to_vec(),
            tree,
        })
    }

    /// All contexts, callers first.
    pub fn contexts(&self) -> std::ops::Range<u32> {
        0..self.tree.nodes.len() as u32
    }

    /// The first context behind all that one calls.
    pub fn end(&self, context: u32) -> u32 {
        self.ends[context as usize]
    }

    pub fn caller(&self, context: u32) -> Option<u32> {
        self.tree.nodes[context as usize].parent
    }

    /// The outermost contexts, or those that a context calls.
    pub fn callees(&self, context: Option<u32>) -> impl Iterator<Item = u32> {
        let all = self.contexts();
        let (first, end) = context.map_or((0, all.end), |c| (c + 1, self.ends[c as usize]));
        let within = move |context: &u32| *context < end;
        let next = move |context: &u32| Some(self.ends[*context as usize]).filter(within);
        std::iter::successors(Some(first).filter(within), next)
    }

    /// A context's own amounts, by metric.
    pub fn own(&self, context: u32) -> &[i64] {
        &self.tree.exclusive.of(context)[..self.metrics.len()]
    }

    pub fn has_own(&self, context: u32) -> bool {
        self.own(context).iter().any(|amount| *amount != 0)
    }

    pub fn inclusive(&self, context: u32) -> &[i64] {
        &self.inclusive.of(context)[..self.metrics.len()]
    }

    pub fn label(&self, context: u32) -> Label {
        self.tree.nodes[context as usize].label.merged()
    }

    /// The kind of a context, as in the JSON views.
    pub fn kind(&self, context: u32) -> &'static str {
        self.tree.nodes[context as usize].label.kind().name()
    }

    /// Whether a context is a line of the one above it.
    pub fn is_line(&self, context: u32) -> bool {
        let node = &self.tree.nodes[context as usize];
        matches!(node.label, Label::Line(_)) && node.parent.is_some()
    }

    pub fn frame(&self, context: u32) -> Frame {
        self.frame_at(self.label(context), self.header(context))
    }

    /// The frame of the caller of a context, at the line of the call.
    pub fn caller_frame(&self, context: u32) -> Option<Frame> {
        let label = self.label(self.caller(context)?);
        let node = &self.tree.nodes[context as usize];
        let line = match node.label {
            Label::Line(location) => Some(location),
            _ => node.call.location().or_else(|| self.header(context)),
        };
        Some(self.frame_at(label, line))
    }

    /// The frames of a context, innermost first.
    pub fn frames(&self, context: u32) -> impl Iterator<Item = Frame> {
        let innermost = (!self.is_line(context)).then(|| self.frame(context));
        let contexts = std::iter::successors(Some(context), |c| self.caller(*c));
        innermost.into_iter().chain(contexts.filter_map(|c| self.caller_frame(c)))
    }

    /// Where a loop begins.
    fn header(&self, context: u32) -> Option<SourceLocation> {
        let is_loop = self.label(context).is_loop();
        let declared = || self.label(context).location(&self.catalogue.code);
        is_loop.then(declared).flatten()
    }

    fn frame_at(&self, label: Label, line: Option<SourceLocation>) -> Frame {
        let declared = label.location(&self.catalogue.code);
        Frame {
            function: Function { label, file: line.or(declared).map(|at| at.file) },
            line: line.map_or(0, |at| at.line),
        }
    }

    /// The line of a function's declaration in its file; 0 when unknown, or in another file.
    pub fn declared_line(&self, function: Function) -> u32 {
        let declared = function.label.location(&self.catalogue.code);
        declared.filter(|at| Some(at.file) == function.file).map_or(0, |at| at.line)
    }

    /// The file and line that a context has in the source.
    pub fn declared(&self, label: Label) -> Option<SourceLocation> {
        label.location(&self.catalogue.code)
    }

    /// A name on one line, without what steers a terminal and without spaces around it; never empty.
    pub fn name(&self, label: Label) -> String {
        match clean(&names::label(&self.catalogue.code, label)).trim() {
            "" => "[no name]".to_owned(),
            name => name.to_owned(),
        }
    }

    pub fn file(&self, index: u32) -> String {
        clean(self.catalogue.code.file(index))
    }

    pub fn module(&self, label: Label) -> Option<String> {
        label.module(&self.catalogue.code).map(clean)
    }

    pub fn origin(&self, label: Label) -> Origin {
        match label {
            Label::ParallelLoop(_) => Origin::Runtime,
            label => label.origin(&self.catalogue.code),
        }
    }

    pub fn program(&self) -> String {
        clean(&self.catalogue.statistics.program)
    }

    pub fn statistics(&self) -> &Statistics {
        &self.catalogue.statistics
    }
}

/// Refuses amounts that no measurement has: formats add them up, and some have no sign.
fn check(tree: &Tree, path: &Path) -> Result<()> {
    let mut totals = vec![0_i128; tree.exclusive.metrics()];
    let mut is_possible = true;
    for context in 0..tree.nodes.len() as u32 {
        for (total, amount) in totals.iter_mut().zip(tree.exclusive.of(context)) {
            is_possible &= *amount >= 0;
            *total += i128::from(*amount);
        }
    }
    // Effort adds metrics up.
    if is_possible && totals.iter().sum::<i128>() <= i128::from(i64::MAX) {
        return Ok(());
    }
    let problem = "has amounts that are negative or do not fit 64 bits";
    Err(Error::input(path, problem, REBUILD))
}

/// On one line, without what steers a terminal and what no text file may hold.
pub(super) fn clean(text: &str) -> String {
    one_line(text).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tree::TreeNode;

    fn tree(amounts: &[[i64; 2]]) -> Tree {
        let mut tree = Tree::new(2);
        for amounts in amounts {
            let node = tree.push(TreeNode::new(None, Label::Procedure(0)));
            tree.exclusive.add(node, amounts);
        }
        tree
    }

    #[test]
    fn impossible_amounts_are_refused() {
        let path = Path::new("db");
        for good in [&[][..], &[[0, 0]], &[[i64::MAX - 1, 1]]] {
            assert!(check(&tree(good), path).is_ok(), "{good:?}");
        }
        for bad in [&[[0, -1]][..], &[[i64::MAX, 1]], &[[i64::MAX, 0], [1, 0]]] {
            let error = check(&tree(bad), path).expect_err("refused").to_string();
            assert!(error.contains("build it again"), "{error}");
        }
    }
}
