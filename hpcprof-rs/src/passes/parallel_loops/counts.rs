//! Gives the counts of splits and steals at places of the code to the loops that run through them.

use crate::model::code::{ParallelLoop, SplitCounts};
use crate::model::hash::FastMap;
use crate::model::loops::{LoopIndex, LoopKey, ParallelLoops};
use crate::model::metrics::{OVERHEAD, WORK};
use crate::model::symbols::{FrameIndex, Kind, ProcedureIndex, Symbols};
use crate::model::tree::Values;
use crate::passes::merge::number::Numbers;
use crate::passes::parallel_loops::rules::Part;
use std::collections::{BTreeMap, BTreeSet};

/// Events counted at one place of the code.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    pub frame: FrameIndex,
    pub counts: SplitCounts,
}

/// For each loop with counts those that share them, itself included.
pub type Groups = BTreeMap<LoopIndex, BTreeSet<LoopIndex>>;

pub fn attach(sites: &[Site], loops: &mut ParallelLoops, symbols: &Symbols) -> Groups {
    let mut groups = Groups::new();
    for site in sites {
        let found = loops_at(site.frame, loops, symbols);
        for index in &found {
            let known = &mut loops.all[index.0 as usize];
            known.counts.get_or_insert_default().add(site.counts);
            groups.entry(*index).or_default().extend(&found);
        }
    }
    for (index, group) in &groups {
        loops.all[index.0 as usize].sharing = group.len() as u32 - 1;
    }
    groups
}

/// Gives each loop with counts the work and overhead of all that share them. `numbers` has the loops' final
/// numbers, `contexts` are those of the logical projection, with their values.
pub fn add_task_times(
    groups: &Groups,
    numbers: &[u32],
    loops: &mut [ParallelLoop],
    contexts: (&Numbers, &Values),
) {
    if groups.is_empty() {
        return;
    }
    let times = task_times(loops.len(), contexts);
    let number = |index: &LoopIndex| numbers[index.0 as usize] as usize;
    for (index, group) in groups {
        let sum = group.iter().map(|other| times[number(other)]);
        loops[number(index)].task_ns = sum.fold(0, i64::saturating_add);
    }
}

/// The loops whose tasks are split at a place: the loop that its chain of inlined scopes names, else all that
/// were seen in its machine code. That code may be a runtime's own: a loop that begins outside of the pool is
/// first split within a task.
fn loops_at(frame: FrameIndex, loops: &ParallelLoops, symbols: &Symbols) -> BTreeSet<LoopIndex> {
    let of_code = || {
        let function = symbols.function_of(frame);
        let found = function.and_then(|f| loops.by_function.get(&f));
        found.cloned().unwrap_or_default()
    };
    if let Some(directive) = symbols.frame(frame).directive {
        let keys = loops.all.keys().enumerate();
        let found = keys.filter(|(_, key)| key.entry == directive);
        return found.map(|(index, _)| LoopIndex(index as u32)).collect();
    }
    let mut caller: Option<ProcedureIndex> = None;
    let mut in_user_code = false;
    let scopes = symbols.frame(frame).scopes.iter();
    for scope in scopes.filter(|s| s.kind != Kind::Loop) {
        match Part::of(symbols, scope.procedure) {
            Part::Library if caller.is_none() => return of_code(),
            Part::Library if in_user_code => {
                let key = LoopKey::new(scope.procedure, (scope.call, scope.column), caller);
                let found = loops.all.get_index_of(&key);
                return found.map(|i| LoopIndex(i as u32)).into_iter().collect();
            }
            Part::User => in_user_code = true,
            _ => {}
        }
        caller = Some(scope.procedure);
    }
    if in_user_code { BTreeSet::new() } else { of_code() }
}

/// Work and overhead within each loop, callees included, nanoseconds.
fn task_times(loops: usize, (contexts, values): (&Numbers, &Values)) -> Vec<i64> {
    let mut times = vec![0_i64; loops];
    // The nearest frame of a loop at or above each context, and of each such frame the nearest one above of
    // another loop.
    let mut nearest: Vec<Option<u32>> = Vec::with_capacity(contexts.len() as usize);
    let mut outer: FastMap<u32, Option<u32>> = FastMap::default();
    let loop_of = |frame: u32| contexts.node(frame).parallel_loop;
    for (id, node) in (0..).zip(contexts.nodes()) {
        let above = node.parent.and_then(|p| nearest[p as usize]);
        if node.parallel_loop.is_none() {
            nearest.push(above);
        } else {
            let is_same = above.is_some_and(|frame| loop_of(frame) == node.parallel_loop);
            let other = above.filter(|_| !is_same);
            let other = other.or_else(|| above.and_then(|frame| outer.get(&frame).copied().flatten()));
            outer.insert(id, other);
            nearest.push(Some(id));
        }
        let own = values.of(id);
        let busy = own[WORK].saturating_add(own[OVERHEAD]);
        if busy == 0 {
            continue;
        }
        let mut at = nearest[id as usize];
        let mut within = BTreeSet::new();
        while let Some(frame) = at {
            within.extend(loop_of(frame));
            at = outer.get(&frame).copied().flatten();
        }
        for index in within {
            let slot = &mut times[index as usize];
            *slot = slot.saturating_add(busy);
        }
    }
    times
}
