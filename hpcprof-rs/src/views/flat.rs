//! The flat view: load module, source file, procedure, loops, and lines where they are kept. It has no
//! calling contexts. A procedure's inclusive value counts its own code only, so that modules, files and
//! procedures add up.

use crate::catalogue::Catalogue;
use crate::error::Result;
use crate::model::code::Code;
use crate::model::hash::FastMap;
use crate::model::symbols::Kind;
use crate::model::tree::{Call, Tree, TreeNode};
use crate::views::view::{Label, View, ViewNode};

/// Name of the view.
pub const NAME: &str = "flat";

/// The view of a folded tree, as a database stores it.
pub fn stored(catalogue: &Catalogue) -> Result<View> {
    let places = catalogue.summary(NAME)?.into_tree();
    Ok(arrange(&places, &catalogue.code).0)
}

/// A smaller tree with the same flat view: procedures without callers, and the loops in each.
pub fn places(tree: &Tree) -> Tree {
    let mut out = Tree::new(tree.exclusive.metrics());
    let mut index: FastMap<(Option<u32>, Kind, u32, Label), u32> = FastMap::default();
    for context in 0..tree.nodes.len() as u32 {
        let values = tree.exclusive.of(context);
        if values.iter().all(|v| *v == 0) {
            continue;
        }
        let mut parent = None;
        for scope in scopes(tree, context).into_iter().rev() {
            let node = &tree.nodes[scope as usize];
            let add = || {
                out.push(TreeNode {
                    parent,
                    call: Call::Unknown,
                    is_runtime: false,
                    recursion: 1,
                    ..*node
                })
            };
            let key = (parent, node.kind, node.procedure, Label::of(node));
            parent = Some(*index.entry(key).or_insert_with(add));
        }
        if let Some(place) = parent {
            out.exclusive.add(place, values);
        }
    }
    out
}

/// A context, or that around a line, and what is around that up to a procedure, from the inside out.
fn scopes(tree: &Tree, context: u32) -> Vec<u32> {
    let inner = &tree.nodes[context as usize];
    let around = inner.parent.filter(|_| inner.kind == Kind::Line);
    let mut next = around.or(Some(context));
    let mut scopes = Vec::new();
    while let Some(scope) = next {
        scopes.push(scope);
        let node = &tree.nodes[scope as usize];
        next = node.parent.filter(|_| node.kind == Kind::Loop);
    }
    scopes
}

/// Arranges a tree of contexts; says of each context with values which node has them.
pub fn arrange(tree: &Tree, code: &Code) -> (View, Vec<Option<u32>>) {
    let mut view = View::new(NAME, tree.exclusive.totals());
    let mut nodes = vec![None; tree.nodes.len()];
    let mut index: FastMap<(Option<u32>, Label), u32> = FastMap::default();
    for context in 0..tree.nodes.len() as u32 {
        let values = tree.exclusive.of(context);
        if values.iter().all(|v| *v == 0) {
            continue;
        }
        let mut at = None;
        for (label, kind) in path(tree, code, context) {
            let add = || view.push(ViewNode::new(at, kind, label));
            let id = *index.entry((at, label)).or_insert_with(add);
            if kind == Kind::Procedure.name() {
                view.nodes[id as usize].kind = kind;
            }
            view.inclusive.add(id, values);
            at = Some(id);
        }
        if let Some(leaf) = at {
            view.exclusive.add(leaf, values);
        }
        nodes[context as usize] = at;
    }
    (view, nodes)
}

/// Module, file, procedure, loops from the outside in, line: labels with kinds.
fn path(tree: &Tree, code: &Code, context: u32) -> Vec<(Label, &'static str)> {
    let leaf = &tree.nodes[context as usize];
    let scopes = scopes(tree, context);
    let outermost = scopes.last().map_or(leaf, |scope| &tree.nodes[*scope as usize]);
    let kind = match outermost.kind {
        Kind::Partial | Kind::Inlined | Kind::ParallelLoop => outermost.kind,
        _ => Kind::Procedure,
    };
    let label = match kind {
        Kind::ParallelLoop => Label::of(outermost),
        _ => Label::Procedure(outermost.procedure),
    };
    let file = label.location(code).map(|location| location.file);
    let module = code.procedure(outermost.procedure).module;
    let mut path =
        vec![(Label::Module(module), "module"), (Label::File(file), "file"), (label, kind.name())];
    let loops = scopes.iter().rev().map(|scope| tree.nodes[*scope as usize]);
    let loops = loops.filter(|node| node.kind == Kind::Loop);
    path.extend(loops.map(|node| (Label::Procedure(node.procedure), Kind::Loop.name())));
    if let (Kind::Line, Some(location)) = (leaf.kind, leaf.location) {
        path.push((Label::Line(location), Kind::Line.name()));
    }
    path
}
