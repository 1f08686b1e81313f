//! Names of code, by final number: load modules, source files, procedures, parallel loops.

use crate::model::tree::SourceLocation;
use hpc_formats::structure::Origin;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// Path, or `[vdso]`.
    pub path: String,
    /// GNU build id in hexadecimal; empty when there is none.
    pub build_id: String,
    /// Whether its structure is known.
    pub analysed: bool,
}

/// A procedure; or a loop of the machine code or a partial root, under the name that it has in views.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Procedure {
    pub name: String,
    /// Index of its module.
    pub module: Option<u32>,
    pub declared: Option<SourceLocation>,
    pub origin: Origin,
    /// Position of a loop among those of its procedure, sampled or not; else 0.
    pub position: u32,
}

/// What was counted at the places where a loop's tasks are split, over all contexts and threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SplitCounts {
    /// Tasks that were split in two.
    pub splits: i64,
    /// Tasks that were stolen.
    pub steals: i64,
    /// Time in these, nanoseconds.
    pub stolen_ns: i64,
    /// Splits that began the loop in code that ran serially.
    pub executions: i64,
    /// Of these, those outside of a pool.
    pub outside: i64,
    /// Chunks of OpenMP's loops that the runtime has handed out.
    pub chunks: i64,
    /// Iterations in these.
    pub iterations: i64,
}

impl SplitCounts {
    pub fn add(&mut self, other: SplitCounts) {
        let SplitCounts { splits, steals, stolen_ns, executions, outside, chunks, iterations } = self;
        for (own, more) in [
            (splits, other.splits),
            (steals, other.steals),
            (stolen_ns, other.stolen_ns),
            (executions, other.executions),
            (outside, other.outside),
            (chunks, other.chunks),
            (iterations, other.iterations),
        ] {
            *own = own.saturating_add(more);
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParallelLoop {
    pub name: String,
    /// Whether the name is the source's.
    pub quoted: bool,
    /// The procedure by which the program enters the library, by index.
    pub entry: u32,
    pub call: Option<SourceLocation>,
    /// `None` when the task runtime did not count.
    pub counts: Option<SplitCounts>,
    /// How many loops share the counts.
    pub shared_by: u32,
    /// Work and overhead of the loops that share the counts, nanoseconds.
    pub task_ns: i64,
}

impl ParallelLoop {
    /// Work and overhead by the number of splits, each of which adds one task. Nanoseconds.
    pub fn mean_task_ns(&self) -> Option<i64> {
        self.task_ns.checked_div(self.counts?.splits)
    }

    /// Time in a stolen task, without the tasks that were stolen from it in turn. Nanoseconds.
    pub fn mean_stolen_ns(&self) -> Option<i64> {
        let counts = self.counts?;
        counts.stolen_ns.checked_div(counts.steals)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Code {
    pub files: Vec<String>,
    pub modules: Vec<Module>,
    pub procedures: Vec<Procedure>,
    /// Loops and partial roots.
    pub regions: Vec<Procedure>,
    pub loops: Vec<ParallelLoop>,
}

impl Code {
    pub fn file(&self, index: u32) -> &str {
        &self.files[index as usize]
    }

    pub fn module(&self, index: u32) -> &str {
        &self.modules[index as usize].path
    }

    pub fn procedure(&self, index: u32) -> &Procedure {
        &self.procedures[index as usize]
    }

    pub fn module_of(&self, procedure: &Procedure) -> Option<&str> {
        procedure.module.map(|m| self.module(m))
    }

    pub fn parallel_loop(&self, index: u32) -> &ParallelLoop {
        &self.loops[index as usize]
    }
}
