//! The flat view: load module, source file, procedure, loops, and lines where they are kept. It has no
//! calling contexts. A procedure's inclusive value counts its own code only, so that modules, files and
//! procedures add up.

use crate::catalogue::Catalogue;
use crate::error::Result;
use crate::model::code::Code;
use crate::model::hash::FastMap;
use crate::model::tree::{Label, Tree, TreeNode};
use crate::views::view::{View, ViewKind};

/// The view of a folded tree, as a database stores it.
pub fn stored(catalogue: &Catalogue) -> Result<View> {
    Ok(arrange(&catalogue.summary(ViewKind::Flat.name())?, &catalogue.code).0)
}

/// A smaller tree with the same flat view: procedures without callers, and the loops in each.
pub fn places(tree: &Tree) -> Tree {
    let mut out = Tree::new(tree.exclusive.metrics());
    let mut index: FastMap<(Option<u32>, Label), u32> = FastMap::default();
    for context in 0..tree.nodes.len() as u32 {
        let values = tree.exclusive.of(context);
        if values.iter().all(|v| *v == 0) {
            continue;
        }
        let mut parent = None;
        for scope in scopes(tree, context).into_iter().rev() {
            let node = &tree.nodes[scope as usize];
            let add = || out.push(TreeNode::new(parent, node.label));
            parent = Some(*index.entry((parent, node.label)).or_insert_with(add));
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
    let around = inner.parent.filter(|_| matches!(inner.label, Label::Line(_)));
    let mut next = around.or(Some(context));
    let mut scopes = Vec::new();
    while let Some(scope) = next {
        scopes.push(scope);
        let node = &tree.nodes[scope as usize];
        next = node.parent.filter(|_| node.label.is_loop());
    }
    scopes
}

/// Arranges a tree of contexts; says of each context with values which node has them.
pub fn arrange(tree: &Tree, code: &Code) -> (View, Vec<Option<u32>>) {
    let mut out = Tree::new(tree.exclusive.metrics());
    let mut nodes = vec![None; tree.nodes.len()];
    let mut index: FastMap<(Option<u32>, Label), u32> = FastMap::default();
    for context in 0..tree.nodes.len() as u32 {
        let values = tree.exclusive.of(context);
        if values.iter().all(|v| *v == 0) {
            continue;
        }
        let mut at = None;
        for label in path(tree, code, context) {
            let add = || out.push(TreeNode::new(at, label));
            let id = *index.entry((at, label.merged())).or_insert_with(add);
            if let Label::Procedure(_) = label {
                out.nodes[id as usize].label = label;
            }
            at = Some(id);
        }
        if let Some(leaf) = at {
            out.exclusive.add(leaf, values);
        }
        nodes[context as usize] = at;
    }
    (View::of(ViewKind::Flat, &out), nodes)
}

/// Module, file, procedure, loops from the outside in, line.
fn path(tree: &Tree, code: &Code, context: u32) -> Vec<Label> {
    let leaf = tree.nodes[context as usize].label;
    let scopes = scopes(tree, context).into_iter().rev().map(|s| tree.nodes[s as usize].label);
    let scopes: Vec<Label> = scopes.collect();
    let outermost = scopes.first().copied().unwrap_or(leaf);
    let file = outermost.location(code).map(|location| location.file);
    let module = outermost.code(code).and_then(|own| own.module);
    let mut path = vec![Label::Module(module), Label::File(file)];
    path.extend(scopes);
    path.extend(Some(leaf).filter(|leaf| matches!(leaf, Label::Line(_))));
    path
}
