//! Gives the counts of splits and steals at places of the code to the loops that run through them.

use crate::model::contexts::{ContextIndex, ContextTree, MetricKey};
use crate::model::loops::{LoopIndex, LoopKey, ParallelLoops, SplitCounts};
use crate::model::symbols::{FrameIndex, Kind, ProcedureIndex, Symbols};
use crate::passes::parallel_loops::rules::Part;
use std::collections::{BTreeMap, BTreeSet};

/// Events counted at one place of the code.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// What the place means.
    pub frame: FrameIndex,
    /// What happened there.
    pub counts: SplitCounts,
}

/// Gives the counts of all sites to loops.
pub fn attach(sites: &[Site], loops: &mut ParallelLoops, symbols: &Symbols, tree: &ContextTree) {
    let mut groups: BTreeMap<LoopIndex, BTreeSet<LoopIndex>> = BTreeMap::new();
    for site in sites {
        let found = loops_at(site.frame, loops, symbols);
        for index in &found {
            let known = &mut loops.all[index.0 as usize];
            known.counts.get_or_insert_default().add(site.counts);
            groups.entry(*index).or_default().extend(&found);
        }
    }
    if groups.is_empty() {
        return;
    }
    let times = task_times(loops, tree);
    for (index, group) in groups {
        let known = &mut loops.all[index.0 as usize];
        known.sharing = group.len() as u32 - 1;
        let sum = group.iter().map(|other| times[other.0 as usize]);
        known.task_ns = sum.fold(0, i64::saturating_add);
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
    match in_user_code {
        true => BTreeSet::new(),
        false => of_code(),
    }
}

/// Work and overhead within each loop, callees included, nanoseconds.
fn task_times(loops: &ParallelLoops, tree: &ContextTree) -> Vec<i64> {
    let mut times = vec![0_i64; loops.all.len()];
    for ((context, metric), value) in &tree.exclusive_values {
        if *metric == MetricKey::Idleness {
            continue;
        }
        let parent = |at: &ContextIndex| tree.contexts[at.0 as usize].parent;
        let path = std::iter::successors(Some(*context), parent);
        let within: BTreeSet<_> = path.filter_map(|at| loops.frames.get(&at)).collect();
        for index in within {
            let slot = &mut times[index.0 as usize];
            *slot = slot.saturating_add(*value);
        }
    }
    times
}
