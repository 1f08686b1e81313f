//! Gives procedures and contexts their final numbers: by name and place, never by the order in
//! which files were read, so that equal measurements make equal databases.

use crate::model::contexts::{ContextIndex, ContextTree};
use crate::model::loops::{ParallelLoop, ParallelLoops};
use crate::model::symbols::{Line, ProcedureIndex, Symbols};
use std::cmp::Ordering;

/// The order of procedures.
#[derive(Debug)]
pub struct ProcedureOrder {
    /// Procedures, first to last.
    pub sorted: Vec<ProcedureIndex>,
    /// The position of each procedure in `sorted`.
    pub rank: Vec<u32>,
}

/// Sorts procedures by name, module, declaration and origin.
pub fn procedures(symbols: &Symbols) -> ProcedureOrder {
    let mut sorted: Vec<ProcedureIndex> = (0..symbols.procedures.len() as u32)
        .map(ProcedureIndex)
        .collect();
    sorted.sort_by(|a, b| {
        let (a, b) = (
            &symbols.procedures[a.0 as usize],
            &symbols.procedures[b.0 as usize],
        );
        let module = |p: &crate::model::symbols::Procedure| {
            p.module.map(|m| {
                let module = &symbols.modules[m.0 as usize];
                (&module.path, &module.build_id)
            })
        };
        symbols
            .text(a.name)
            .cmp(symbols.text(b.name))
            .then_with(|| module(a).cmp(&module(b)))
            .then_with(|| lines(symbols, a.declared, b.declared))
            .then_with(|| (a.origin as u8).cmp(&(b.origin as u8)))
    });
    let mut rank = vec![0; sorted.len()];
    for (position, procedure) in sorted.iter().enumerate() {
        rank[procedure.0 as usize] = position as u32;
    }
    ProcedureOrder { sorted, rank }
}

/// The position of each parallel loop when they are sorted by name, place and entry.
pub fn loops(loops: &ParallelLoops, symbols: &Symbols, order: &ProcedureOrder) -> Vec<u32> {
    let mut sorted: Vec<usize> = (0..loops.all.len()).collect();
    let caller = |l: &ParallelLoop| l.key.caller.map(|c| order.rank[c.0 as usize]);
    sorted.sort_by(|a, b| {
        let (a, b) = (&loops.all[*a], &loops.all[*b]);
        let entry = |l: &ParallelLoop| order.rank[l.key.entry.0 as usize];
        a.name
            .cmp(&b.name)
            .then_with(|| lines(symbols, a.key.call, b.key.call))
            .then_with(|| a.key.column.cmp(&b.key.column))
            .then_with(|| (entry(a), caller(a)).cmp(&(entry(b), caller(b))))
    });
    let mut rank = vec![0; sorted.len()];
    for (position, index) in sorted.into_iter().enumerate() {
        rank[index] = position as u32;
    }
    rank
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
    pub last: u32,
}

/// All contexts in preorder, siblings by kind, procedure, line and call site.
pub fn preorder(tree: &ContextTree, symbols: &Symbols, order: &ProcedureOrder) -> Vec<Placed> {
    let mut all: Vec<u32> = (0..tree.contexts.len() as u32).collect();
    let compare = |a: &u32, b: &u32| {
        let (a, b) = (&tree.contexts[*a as usize], &tree.contexts[*b as usize]);
        a.parent
            .cmp(&b.parent)
            .then_with(|| a.kind.cmp(&b.kind))
            .then_with(|| {
                order.rank[a.procedure.0 as usize].cmp(&order.rank[b.procedure.0 as usize])
            })
            .then_with(|| lines(symbols, a.line, b.line))
            .then_with(|| lines(symbols, a.call, b.call))
            .then_with(|| a.column.cmp(&b.column))
            .then_with(|| a.support.cmp(&b.support))
    };
    all.sort_by(compare);
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
                placed[parent as usize].last = placed.len() as u32 - 1;
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
            last: position,
        });
        let range = children[context as usize];
        stack.push((range.0, range.1, Some(position)));
    }
    placed
}
