//! Parallel loops: what the frames of a parallel iterator's machinery stand for.

use crate::model::contexts::ContextIndex;
use crate::model::hash::FastMap;
use crate::model::symbols::{Line, ModuleIndex, ProcedureIndex};
use std::collections::{BTreeMap, BTreeSet};

/// Index into [`ParallelLoops::all`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LoopIndex(pub u32);

/// What tells one parallel loop from another: the call of its outermost procedure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LoopKey {
    /// The procedure by which the program enters the library (`ParallelIterator::sum`).
    pub entry: ProcedureIndex,
    /// Where it is called.
    pub call: Option<Line>,
    /// At which column, where several loops begin on that line by the same procedure; else 0.
    pub column: u32,
    /// Who calls it, where the line is not known.
    pub caller: Option<ProcedureIndex>,
}

/// Events at the places where a loop's tasks are split, over all contexts and threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SplitCounts {
    /// Tasks that were split in two.
    pub splits: u64,
    /// Tasks that another than their spawner's own call ran.
    pub steals: u64,
    /// Time in those, nanoseconds.
    pub stolen_ns: u64,
}

impl SplitCounts {
    /// Adds other events.
    pub fn add(&mut self, other: SplitCounts) {
        self.splits = self.splits.saturating_add(other.splits);
        self.steals = self.steals.saturating_add(other.steals);
        self.stolen_ns = self.stolen_ns.saturating_add(other.stolen_ns);
    }
}

/// A parallel loop of the program's source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParallelLoop {
    /// Its identity.
    pub key: LoopKey,
    /// What it is called: quoted from the source, or made of the adaptors' names.
    pub name: String,
    /// Whether the name is quoted from the source.
    pub quoted: bool,
    /// Events; `None` when the task runtime did not count.
    pub counts: Option<SplitCounts>,
    /// How many loops share the code, and so the counts; 1 when they are this loop's own.
    pub shared_by: u32,
    /// Work and overhead of the loop and of those that share its counts, nanoseconds.
    pub task_ns: i64,
}

/// The parallel loops of an experiment, in the order in which they were first met.
#[derive(Debug, Default)]
pub struct ParallelLoops {
    /// All of them.
    pub all: Vec<ParallelLoop>,
    /// By identity.
    pub index: FastMap<LoopKey, LoopIndex>,
    /// The contexts of the logical projection that are a loop's machinery.
    pub machinery: FastMap<ContextIndex, LoopIndex>,
    /// The loops that a procedure of its own machine code was seen at work for, by module and
    /// number in the module's structure.
    pub by_function: BTreeMap<(ModuleIndex, u32), BTreeSet<LoopIndex>>,
}
