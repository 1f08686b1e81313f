//! Task runtimes that do not cooperate: their workers run tasks whose callers nobody recorded.
//! A worker is recognised by the load module and the symbol at the root of its stack.

use crate::model::symbols::{ProcedureIndex, Symbols};
use hpc_formats::profile::Association;

/// A runtime that does not say who spawned a task.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Runtime {
    /// The published rayon-core.
    Rayon,
    /// GCC's OpenMP.
    Gomp,
    /// LLVM's and Intel's OpenMP.
    LlvmOpenMp,
    /// Threading Building Blocks.
    Tbb,
    /// OpenBLAS.
    OpenBlas,
}

impl Runtime {
    /// The name by which users know it.
    pub const fn name(self) -> &'static str {
        match self {
            Runtime::Rayon => "rayon",
            Runtime::Gomp => "libgomp",
            Runtime::LlvmOpenMp => "libomp",
            Runtime::Tbb => "TBB",
            Runtime::OpenBlas => "OpenBLAS",
        }
    }

    /// The runtime whose scheduler the sampler found on a stack: its agent reports it as M<->0.
    pub fn of_scheduler(association: Association) -> Option<Runtime> {
        (association == Association::ManyToZero).then_some(Runtime::Rayon)
    }

    /// The runtime that a procedure belongs to.
    pub fn of(symbols: &Symbols, procedure: ProcedureIndex) -> Option<Runtime> {
        let module = symbols.procedure(procedure).module;
        let module = module.map_or("", |m| symbols.module(m).base_name());
        let name = symbols.name_of(procedure);
        let is_tbb = |name: &str| ["tbb::", "rml::"].iter().any(|p| name.starts_with(p));
        if module.starts_with("libgomp") || name.starts_with("gomp_thread_start") {
            Some(Runtime::Gomp)
        } else if module.starts_with("libomp")
            || module.starts_with("libiomp")
            || name.starts_with("__kmp_")
        {
            Some(Runtime::LlvmOpenMp)
        } else if module.starts_with("libtbb") || (is_tbb(name) && name.contains("rml::")) {
            Some(Runtime::Tbb)
        } else if module.contains("openblas") || name.starts_with("blas_thread_server") {
            Some(Runtime::OpenBlas)
        } else {
            None
        }
    }

    /// Whether what lies in its module is no task. OpenBLAS has the kernels that it runs in its own module.
    pub fn is_told_by_module(self) -> bool {
        self != Runtime::OpenBlas
    }
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
