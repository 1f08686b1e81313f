//! Task runtimes that do not cooperate: their workers run tasks whose callers nobody recorded.
//! A worker is recognised by the load module and the symbol at the root of its stack.

use crate::model::symbols::{ProcedureIndex, Symbols};
use hpc_formats::profile::Association;
use hpc_formats::structure::Origin;
use hpcstruct_rs::known::{self, Kind};

/// A runtime that does not say who spawned a task, by the name by which users know it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Runtime(pub &'static str);

impl Runtime {
    /// The runtime whose scheduler the sampler found on a stack: its agent reports it as M<->0.
    pub fn of_scheduler(association: Association) -> Option<Runtime> {
        (association == Association::ManyToZero).then_some(Runtime("rayon"))
    }

    pub fn of(symbols: &Symbols, procedure: ProcedureIndex) -> Option<Runtime> {
        let by_module = || known::find(Kind::Worker, module_name(symbols, procedure));
        let found = by_module().or_else(|| known::find(Kind::Worker, symbols.name_of(procedure)));
        found.map(|(runtime, _)| Runtime(runtime))
    }

    /// Whether a procedure is the runtime's own, and no task: OpenBLAS has the kernels that it runs in its
    /// own module.
    pub fn has(self, symbols: &Symbols, procedure: ProcedureIndex) -> bool {
        let module = module_name(symbols, procedure);
        let is_told_by_module = || known::origin_of_module(module) == Some(Origin::Runtime);
        let by_name = || known::find(Kind::Worker, symbols.name_of(procedure));
        Runtime::of(symbols, procedure) == Some(self)
            && (is_told_by_module() || by_name().is_some_and(|(runtime, _)| runtime == self.0))
    }
}

fn module_name(symbols: &Symbols, procedure: ProcedureIndex) -> &str {
    symbols.procedure(procedure).module.map_or("", |m| symbols.module(m).base_name())
}

/// Where a path stands with regard to the root of its thread.
#[derive(Clone, Copy, PartialEq, Hash, Eq, Debug, Default)]
pub enum ThreadRoot {
    /// Only the system's frames that start a thread so far.
    #[default]
    Above,
    /// The thread's root is no runtime's.
    Plain,
    /// The thread is a worker of this runtime; its root is this procedure.
    Worker(Runtime, ProcedureIndex),
}
