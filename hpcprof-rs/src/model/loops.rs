//! Parallel loops: what the frames of a library of parallel iterators stand for.

use crate::model::code::SplitCounts;
use crate::model::contexts::ContextIndex;
use crate::model::hash::{FastMap, NumberedMap};
use crate::model::symbols::{Line, ModuleIndex, ProcedureIndex};
use hpc_formats::process::DirectiveKind;
use std::collections::{BTreeMap, BTreeSet};

/// What a procedure stands for that is a directive of OpenMP.
pub fn directive_of(name: &str) -> Option<DirectiveKind> {
    DirectiveKind::from_name(name.split_once(" at ").map_or(name, |(kind, _)| kind))
}

/// Index into [`ParallelLoops::all`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LoopIndex(pub u32);

/// What tells one parallel loop from another: the call of its outermost procedure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LoopKey {
    /// The procedure by which the program enters the library (`ParallelIterator::sum`).
    pub entry: ProcedureIndex,
    pub call: Option<Line>,
    /// Column of the call, where several loops begin on that line by the same procedure; else 0.
    pub column: u32,
    /// Who calls it, where the line is not known.
    pub caller: Option<ProcedureIndex>,
}

impl LoopKey {
    /// The loop that begins with the call of `entry` at a line and a column.
    pub fn new(
        entry: ProcedureIndex,
        (call, column): (Option<Line>, u32),
        caller: Option<ProcedureIndex>,
    ) -> LoopKey {
        LoopKey { entry, call, column, caller: caller.filter(|_| call.is_none()) }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ParallelLoop {
    /// What it is called: the expression in the source, else made of the adaptors' names.
    pub name: String,
    pub name_from_source: bool,
    /// Its line in the source, where that is not the call's.
    pub line: Option<u32>,
    /// Events; `None` when the task runtime did not count.
    pub counts: Option<SplitCounts>,
    /// How many further loops share the code, and so the counts.
    pub sharing: u32,
}

#[derive(Debug, Default)]
pub struct ParallelLoops {
    /// All of them, in the order in which they were first met.
    pub all: NumberedMap<LoopKey, ParallelLoop>,
    /// The contexts of the logical projection that are frames of a loop.
    pub frames: FastMap<ContextIndex, LoopIndex>,
    /// The loops that were seen in a procedure's own machine code, by module and number in the module's
    /// structure.
    pub by_function: BTreeMap<(ModuleIndex, u32), BTreeSet<LoopIndex>>,
}
