//! Gives procedures and contexts their final numbers: by name and place, never by the order in
//! which files were read, so that equal measurements make equal databases.

use crate::model::contexts::{Context, ContextIndex, ContextTree};
use crate::model::loops::ParallelLoops;
use crate::model::symbols::{Line, ProcedureIndex, Symbols};
use std::cmp::Ordering;

/// The order of procedures.
#[derive(Debug)]
pub struct ProcedureOrder {
    /// Procedures, first to last.
    pub sorted: Vec<ProcedureIndex>,
    /// The position of each procedure in `sorted`.
    rank: Vec<u32>,
}

impl ProcedureOrder {
    /// The position of a procedure.
    pub fn rank(&self, procedure: ProcedureIndex) -> u32 {
        self.rank[procedure.0 as usize]
    }
}

/// Sorts procedures by name, module, declaration and origin.
pub fn procedures(symbols: &Symbols) -> ProcedureOrder {
    let mut sorted: Vec<u32> = (0..symbols.procedures.len() as u32).collect();
    sorted.sort_by(|a, b| {
        let (a, b) = (
            &symbols.procedures[*a as usize],
            &symbols.procedures[*b as usize],
        );
        let module = |m: Option<_>| m.map(|m| symbols.module(m)).map(|m| (&m.path, &m.build_id));
        let name = symbols.text(a.name).cmp(symbols.text(b.name));
        name.then_with(|| module(a.module).cmp(&module(b.module)))
            .then_with(|| lines(symbols, a.declared, b.declared))
            .then_with(|| a.origin.cmp(&b.origin))
    });
    ProcedureOrder {
        rank: ranks(&sorted),
        sorted: sorted.into_iter().map(ProcedureIndex).collect(),
    }
}

/// The position of each parallel loop when they are sorted by name, place and entry.
pub fn loops(loops: &ParallelLoops, symbols: &Symbols, order: &ProcedureOrder) -> Vec<u32> {
    let mut sorted: Vec<_> = (0_u32..).zip(&loops.all).collect();
    sorted.sort_by(|(_, (a, a_loop)), (_, (b, b_loop))| {
        let caller = |c: Option<_>| c.map(|c| order.rank(c));
        let name = a_loop.name.cmp(&b_loop.name);
        name.then_with(|| lines(symbols, a.call, b.call))
            .then_with(|| a.column.cmp(&b.column))
            .then_with(|| order.rank(a.entry).cmp(&order.rank(b.entry)))
            .then_with(|| caller(a.caller).cmp(&caller(b.caller)))
    });
    ranks(&sorted.iter().map(|(index, _)| *index).collect::<Vec<_>>())
}

/// The position of each index.
fn ranks(sorted: &[u32]) -> Vec<u32> {
    let mut ranks = vec![0; sorted.len()];
    for (position, index) in (0..).zip(sorted) {
        ranks[*index as usize] = position;
    }
    ranks
}

fn lines(symbols: &Symbols, a: Option<Line>, b: Option<Line>) -> Ordering {
    let key = |line: Option<Line>| line.map(|l| (symbols.text(l.file), l.line));
    key(a).cmp(&key(b))
}

/// A context in preorder.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// Which.
    pub context: ContextIndex,
    /// Position of its parent in the order.
    pub parent: Option<u32>,
    /// Position of the last context below it (its own when there is none).
    pub subtree_end: u32,
}

/// All contexts in preorder, siblings by kind, procedure, line and call site.
pub fn preorder(tree: &ContextTree, symbols: &Symbols, order: &ProcedureOrder) -> Vec<Placed> {
    let mut all: Vec<u32> = (0..tree.contexts.len() as u32).collect();
    all.sort_by(|a, b| {
        let (a, b) = (&tree.contexts[*a as usize], &tree.contexts[*b as usize]);
        let first = |c: &Context| (c.parent, c.kind, order.rank(c.procedure));
        let last = |c: &Context| (c.column, c.is_runtime);
        first(a)
            .cmp(&first(b))
            .then_with(|| lines(symbols, a.line, b.line))
            .then_with(|| lines(symbols, a.call, b.call))
            .then_with(|| last(a).cmp(&last(b)))
    });
    // `all` is now grouped by parent; roots (no parent) come first.
    let mut first_child = vec![(0_u32, 0_u32); tree.contexts.len()];
    let mut roots = (0_u32, 0_u32);
    let mut at = 0;
    while at < all.len() {
        let parent = tree.contexts[all[at] as usize].parent;
        let mut end = at;
        while end < all.len() && tree.contexts[all[end] as usize].parent == parent {
            end += 1;
        }
        match parent {
            None => roots = (at as u32, end as u32),
            Some(p) => first_child[p.0 as usize] = (at as u32, end as u32),
        }
        at = end;
    }
    walk(&all, &first_child, roots)
}

fn walk(all: &[u32], children: &[(u32, u32)], roots: (u32, u32)) -> Vec<Placed> {
    let mut placed: Vec<Placed> = Vec::with_capacity(all.len());
    // (next sibling to visit, end of siblings, position of their parent)
    let mut stack = vec![(roots.0, roots.1, None::<u32>)];
    while let Some(top) = stack.last_mut() {
        if top.0 == top.1 {
            let parent = top.2;
            stack.pop();
            if let Some(parent) = parent {
                placed[parent as usize].subtree_end = placed.len() as u32 - 1;
            }
            continue;
        }
        let context = all[top.0 as usize];
        let parent = top.2;
        top.0 += 1;
        let position = placed.len() as u32;
        placed.push(Placed {
            context: ContextIndex(context),
            parent,
            subtree_end: position,
        });
        let range = children[context as usize];
        stack.push((range.0, range.1, Some(position)));
    }
    placed
}
