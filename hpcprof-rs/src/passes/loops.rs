//! Recognises parallel loops on the way along a logical path, and counts their splits and steals.
//!
//! A parallel loop begins where a path enters the crate `rayon`, and goes on through the frames of
//! task runtimes, of rayon itself and of the system until user code is called: its closures are its
//! callees. User code that enters rayon again is another loop, nested in the first one. So the
//! recursion by which a loop is split is one loop however deep it is and wherever its tasks run.
//!
//! Invariant: what is decided for a context depends on the context and those above it alone.

use crate::model::contexts::{Amount, Context, ContextIndex, ContextTree};
use crate::model::loops::{LoopIndex, LoopKey, ParallelLoop, ParallelLoops, SplitCounts};
use crate::model::symbols::{
    Frame, FrameIndex, Kind, Line, ModuleIndex, ProcedureIndex, Segment, Symbols,
};
use hpc_formats::structure::Origin;
use hpcstruct_rs::columns::is_of_parallel_iterators;
use std::collections::{BTreeMap, BTreeSet};

/// Where a path is with regard to parallel loops.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoopState {
    /// The loop whose machinery the innermost frame that is not the system's belongs to.
    pub inside: Option<LoopIndex>,
    /// Whether the frame just above is machinery.
    adjacent: bool,
}

/// How a procedure bears on parallel loops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// The library of parallel iterators.
    Library,
    /// A program's own implementation of the library's traits: machinery within a loop.
    Extension,
    /// A task runtime.
    Runtime,
    /// The standard library's iterators and glue, which stand between a loop and its closures.
    Adaptor,
    /// Other system code.
    System,
    /// User code.
    User,
}

fn part_of(symbols: &Symbols, procedure: ProcedureIndex) -> Part {
    let row = &symbols.procedures[procedure.0 as usize];
    let name = symbols.text(row.name);
    match row.origin {
        Origin::Runtime if is_of_parallel_iterators(name) => Part::Library,
        Origin::Runtime => Part::Runtime,
        Origin::System if is_adaptor(name) => Part::Adaptor,
        Origin::System => Part::System,
        Origin::User if name.contains(" as rayon::iter::") => Part::Extension,
        Origin::User => Part::User,
    }
}

fn is_adaptor(name: &str) -> bool {
    // Without optimisation all of these are out of line.
    const PARTS: [&str; 8] = [
        "core::iter::",
        "::call_once",
        "::call_mut",
        "::ops::function::",
        "::catch_unwind",
        "::panicking::try",
        "::panic::unwind_safe::",
        "__rust_try",
    ];
    PARTS.iter().any(|part| name.contains(part))
}

/// Finds the loops of an experiment while its paths are followed.
#[derive(Debug, Default)]
pub struct LoopFinder {
    /// What was found so far.
    pub loops: ParallelLoops,
    parts: Vec<Option<Part>>,
}

impl LoopFinder {
    fn part(&mut self, symbols: &Symbols, procedure: ProcedureIndex) -> Part {
        let index = procedure.0 as usize;
        if self.parts.len() <= index {
            self.parts
                .resize(symbols.procedures.len().max(index + 1), None);
        }
        *self.parts[index].get_or_insert_with(|| part_of(symbols, procedure))
    }

    /// The state in the context `at`, given the one in the context that it lies in.
    pub fn enter(
        &mut self,
        outer: LoopState,
        symbols: &Symbols,
        tree: &ContextTree,
        at: ContextIndex,
    ) -> LoopState {
        let context = &tree.contexts[at.0 as usize];
        if context.kind == Kind::Loop {
            // A loop of the machine code is part of whatever it lies in.
            if let (Some(inside), true) = (outer.inside, outer.adjacent) {
                self.loops.machinery.insert(at, inside);
            }
            return outer;
        }
        let part = self.part(symbols, context.procedure);
        let machinery = |inside: LoopIndex| LoopState {
            inside: Some(inside),
            adjacent: true,
        };
        let next = match (part, outer.inside) {
            (Part::User, _) => LoopState::default(),
            (Part::Extension, None) | (Part::Runtime, None) => LoopState::default(),
            (Part::Library, None) if context.support => LoopState::default(),
            (Part::Library, None) => machinery(self.find_or_add(key_of(tree, context))),
            (Part::Library | Part::Extension | Part::Runtime, Some(inside)) => machinery(inside),
            (Part::Adaptor | Part::System, inside) => {
                let folds = context.kind != Kind::Procedure || part == Part::Adaptor;
                LoopState {
                    inside,
                    adjacent: outer.adjacent && folds,
                }
            }
        };
        if let (Some(inside), true) = (next.inside, next.adjacent) {
            self.loops.machinery.insert(at, inside);
        }
        next
    }

    fn find_or_add(&mut self, key: LoopKey) -> LoopIndex {
        let loops = &mut self.loops;
        let next = LoopIndex(loops.all.len() as u32);
        let found = *loops.index.entry(key).or_insert(next);
        if found == next {
            loops.all.push(ParallelLoop {
                key,
                name: String::new(),
                quoted: false,
                counts: None,
                shared_by: 1,
                task_ns: 0,
            });
        }
        found
    }

    /// Notes which machine code a loop runs through.
    pub fn note_function(&mut self, symbols: &Symbols, frame: FrameIndex, outermost: ContextIndex) {
        let frame = &symbols.frames[frame.0 as usize];
        let Some(known) = self.loops.machinery.get(&outermost) else {
            return;
        };
        if let Some(function) = function_of(symbols, frame) {
            let seen = self.loops.by_function.entry(function).or_default();
            seen.insert(*known);
        }
    }
}

fn key_of(tree: &ContextTree, context: &Context) -> LoopKey {
    let caller = context
        .parent
        .map(|p| tree.contexts[p.0 as usize].procedure);
    LoopKey {
        entry: context.procedure,
        call: context.call,
        column: context.column,
        caller: caller.filter(|_| context.call.is_none()),
    }
}

fn function_of(symbols: &Symbols, frame: &Frame) -> Option<(ModuleIndex, u32)> {
    let outermost = frame.segments.first()?;
    let module = symbols.procedures[outermost.procedure.0 as usize].module?;
    Some((module, frame.function?))
}

/// Events counted at one place of the code.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// What the place means.
    pub frame: FrameIndex,
    /// What happened there.
    pub counts: SplitCounts,
}

/// Gives the counts of all sites to the loops that run through them.
pub fn attach(sites: &[Site], loops: &mut ParallelLoops, symbols: &Symbols, tree: &ContextTree) {
    let mut groups: BTreeMap<LoopIndex, BTreeSet<LoopIndex>> = BTreeMap::new();
    for site in sites {
        let frame = &symbols.frames[site.frame.0 as usize];
        let found = loops_of(frame, loops, symbols);
        for index in &found {
            let known = &mut loops.all[index.0 as usize];
            known.counts.get_or_insert_default().add(site.counts);
            groups.entry(*index).or_default().extend(&found);
        }
    }
    let times = task_times(loops, tree);
    for (index, group) in groups {
        let known = &mut loops.all[index.0 as usize];
        known.shared_by = group.len() as u32;
        let sum = group.iter().map(|other| times[other.0 as usize]);
        known.task_ns = sum.fold(0, i64::saturating_add);
    }
}

/// The loops whose tasks are split at a place: the one that its chain of inlined scopes names,
/// or all those that were seen in its machine code, which may be a runtime's own: a loop that begins
/// outside of the pool is first split within a task.
fn loops_of(frame: &Frame, loops: &ParallelLoops, symbols: &Symbols) -> BTreeSet<LoopIndex> {
    let of_code = || {
        let function = function_of(symbols, frame);
        let found = function.and_then(|f| loops.by_function.get(&f));
        found.cloned().unwrap_or_default()
    };
    let mut caller: Option<ProcedureIndex> = None;
    let mut user = false;
    let scopes = frame.segments.iter().filter(|s| s.kind != Kind::Loop);
    for segment in scopes {
        match part_of(symbols, segment.procedure) {
            Part::Library if caller.is_none() => return of_code(),
            Part::Library if user => {
                let key = inlined_key(segment, caller);
                return loops.index.get(&key).copied().into_iter().collect();
            }
            Part::User => user = true,
            _ => {}
        }
        caller = Some(segment.procedure);
    }
    if user { BTreeSet::new() } else { of_code() }
}

fn inlined_key(segment: &Segment, caller: Option<ProcedureIndex>) -> LoopKey {
    let call: Option<Line> = segment.site;
    LoopKey {
        entry: segment.procedure,
        call,
        column: segment.column,
        caller: caller.filter(|_| call.is_none()),
    }
}

/// Work and overhead within each loop, callees included, nanoseconds.
fn task_times(loops: &ParallelLoops, tree: &ContextTree) -> Vec<i64> {
    let mut own: BTreeMap<ContextIndex, i64> = BTreeMap::new();
    for ((context, amount), value) in &tree.values {
        if *amount != Amount::Idleness {
            let slot = own.entry(*context).or_insert(0);
            *slot = slot.saturating_add(*value);
        }
    }
    let mut times = vec![0_i64; loops.all.len()];
    for (context, value) in own {
        let mut within: BTreeSet<LoopIndex> = BTreeSet::new();
        let mut next = Some(context);
        while let Some(at) = next {
            within.extend(loops.machinery.get(&at));
            next = tree.contexts[at.0 as usize].parent;
        }
        for index in within {
            let slot = &mut times[index.0 as usize];
            *slot = slot.saturating_add(value);
        }
    }
    times
}
