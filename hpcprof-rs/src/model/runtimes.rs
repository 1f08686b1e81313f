//! Task runtimes that do not cooperate: their worker threads run tasks whose callers nobody recorded.
//! Recognised by the load module and the symbol at the root of a worker's stack.

use crate::model::symbols::{ProcedureIndex, Symbols};

/// A runtime that does not say who spawned a task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
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

    /// The runtime that a procedure belongs to. OpenBLAS has the kernels that it runs in its own module.
    pub fn of(symbols: &Symbols, procedure: ProcedureIndex) -> Option<Runtime> {
        let row = &symbols.procedures[procedure.0 as usize];
        let module = row.module.map(|m| &symbols.modules[m.0 as usize]);
        let base = module.map_or("", |m| m.base_name());
        let name = symbols.text(row.name);
        let starts = |prefixes: &[&str], text: &str| prefixes.iter().any(|p| text.starts_with(p));
        let is_tbb = |name: &str| starts(&["tbb::", "rml::"], name) && name.contains("rml::");
        if starts(&["libgomp"], base) || starts(&["gomp_thread_start"], name) {
            Some(Runtime::Gomp)
        } else if starts(&["libomp", "libiomp"], base) || starts(&["__kmp_"], name) {
            Some(Runtime::LlvmOpenMp)
        } else if starts(&["libtbb"], base) || is_tbb(name) {
            Some(Runtime::Tbb)
        } else if base.contains("openblas") || starts(&["blas_thread_server"], name) {
            Some(Runtime::OpenBlas)
        } else {
            None
        }
    }
}

/// Where a path stands with regard to the root of its thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ThreadRoot {
    /// So far it has nothing but the system's frames that start a thread.
    #[default]
    Above,
    /// The thread is no worker of a runtime, as far as its root tells.
    Plain,
    /// The thread is a worker: of this runtime, by this procedure.
    Worker(Runtime, ProcedureIndex),
}
