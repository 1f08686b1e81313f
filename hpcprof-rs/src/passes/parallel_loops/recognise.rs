//! Follows logical paths: where a parallel loop begins, and which contexts are its frames.
//!
//! Invariant: what is decided for a context depends on the context and those above it alone.

use crate::model::contexts::{ContextIndex, ContextTree};
use crate::model::loops::{LoopIndex, LoopKey, ParallelLoops};
use crate::model::symbols::{FrameIndex, Kind, ProcedureIndex, Symbols};
use crate::passes::parallel_loops::rules::Part;

/// Where a path is with regard to parallel loops.
#[derive(Clone, Copy, PartialEq, Hash, Eq, Debug, Default)]
pub struct LoopState {
    /// The loop around the innermost frame.
    inside: Option<LoopIndex>,
    /// Whether the innermost frame is one of the loop's, so that a shim below it is one, too.
    is_frame: bool,
    /// Whether the loop is a directive whose body may come, a frame of the loop.
    awaits_body: bool,
}

impl LoopState {
    /// Within what was made here, and does not return here: what the loop itself has made belongs to it, user
    /// code does not.
    pub fn of_task(self) -> LoopState {
        if self.awaits_body || self.is_frame { self } else { LoopState::default() }
    }
}

/// Finds the loops of an experiment while its paths are followed.
#[derive(Debug, Default)]
pub struct LoopFinder {
    pub loops: ParallelLoops,
    parts: Vec<Option<Part>>,
}

impl LoopFinder {
    /// Follows the contexts of one frame, from just below `above` to `innermost`.
    pub fn enter_frame(
        &mut self,
        outer: LoopState,
        frame: FrameIndex,
        (above, innermost): (Option<ContextIndex>, Option<ContextIndex>),
        symbols: &Symbols,
        tree: &ContextTree,
    ) -> LoopState {
        let parent = |at: &ContextIndex| tree.parent(*at);
        let contexts = std::iter::successors(innermost, parent);
        let mut contexts: Vec<_> = contexts.take_while(|at| Some(*at) != above).collect();
        contexts.reverse();
        let mut state = outer;
        for at in &contexts {
            state = self.enter(state, symbols, tree, *at);
        }
        // Which machine code the loop runs through.
        let of_loop = contexts.first().and_then(|at| self.loops.frames.get(at));
        if let (Some(found), Some(function)) = (of_loop, symbols.function_of(frame)) {
            let seen = self.loops.by_function.entry(function).or_default();
            seen.insert(*found);
        }
        state
    }

    /// The state in the context of a region or task of OpenMP.
    pub fn enter_directive(&mut self, at: ContextIndex, tree: &ContextTree) -> LoopState {
        let inside = self.begin(at, tree);
        self.loops.frames.insert(at, inside);
        LoopState { inside: Some(inside), is_frame: true, awaits_body: true }
    }

    /// The state in the context `at`, given the state in the context above it.
    fn enter(
        &mut self,
        outer: LoopState,
        symbols: &Symbols,
        tree: &ContextTree,
        at: ContextIndex,
    ) -> LoopState {
        let context = tree.scope(at);
        let awaits_body = outer.awaits_body;
        let frame_of = |inside| LoopState { inside: Some(inside), is_frame: true, awaits_body };
        let state = match (self.part(symbols, context.procedure), outer.inside) {
            // A loop of the machine code is part of what it lies in.
            _ if context.kind == Kind::Loop => outer,
            (Part::User, _) | (Part::Extension | Part::Runtime, None) => LoopState::default(),
            (Part::Directive, Some(inside)) if awaits_body || context.kind != Kind::Procedure => {
                LoopState { awaits_body: false, ..frame_of(inside) }
            }
            (Part::Library, None) if context.is_runtime => LoopState::default(),
            (Part::Library, None) | (Part::Directive, _) => frame_of(self.begin(at, tree)),
            (Part::Library | Part::Extension | Part::Runtime, Some(inside)) => frame_of(inside),
            (part @ (Part::Shim | Part::System), _) => {
                let folds = context.kind != Kind::Procedure || part == Part::Shim;
                LoopState { is_frame: outer.is_frame && folds, ..outer }
            }
        };
        if let (Some(inside), true) = (state.inside, state.is_frame) {
            self.loops.frames.insert(at, inside);
        }
        state
    }

    fn part(&mut self, symbols: &Symbols, procedure: ProcedureIndex) -> Part {
        let index = procedure.0 as usize;
        if self.parts.len() <= index {
            self.parts.resize(symbols.procedures.len(), None);
        }
        *self.parts[index].get_or_insert_with(|| Part::of(symbols, procedure))
    }

    fn begin(&mut self, at: ContextIndex, tree: &ContextTree) -> LoopIndex {
        let scope = tree.scope(at);
        let caller = tree.parent(at).map(|p| tree.scope(p).procedure);
        let key = LoopKey::new(scope.procedure, (scope.call, scope.column), caller);
        let entry = self.loops.all.entry(key);
        let index = LoopIndex(entry.index() as u32);
        entry.or_default();
        index
    }
}
