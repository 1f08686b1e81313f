//! The agents, and the frames that they own (paper, section 4.1: a frame's return address belongs to at most
//! one run-time system).
//!
//! | agent | frames | step |
//! |---|---|---|
//! | native (identity) | all that no other agent owns | a frame of the program |
//! | [`thread_start`] | the first of a thread or coroutine | the root: its creator's context (4.2) |
//! | | the first of a goroutine | the program's root |
//! | [`profiler`] | of the preloaded library | skips it |
//! | `work_stealing`, for each registered runtime | its code | a frame of a runtime |
//! | | its boundary, which enters a stolen task | goes on at the spawner |
//! | `stock_rayon`, which does not cooperate | its scheduler, no task above | waits |
//! | | its scheduler below a task, and the rest of the stack | the spawner is unknown |
//! | `spin_loops` of OpenMP runtimes, TBB, OpenBLAS | a waiting loop, no program frame above | waits |
//! | | other | a frame of a runtime |
//!
//! To add an agent, add a file and a line to the table below. The file has `owns(lookup, module)`, which
//! returns a tag, less than `TAGS`, for a frame of the agent; and `step(walk, tag)`, which calls one of the
//! walk's verbs for that frame. An agent that depends on the code of modules has `ranges_of` and a line in
//! [`scan`].
//!
//! Async-signal-safe, except [`scan`] and [`evict`].

pub mod lock_waits;
pub mod profiler;
mod roles;
mod spawner;
mod spin_loops;
mod stock_rayon;
mod symbols;
pub mod thread_start;
mod work_stealing;

use super::walk::Walk;
use crate::unwind::loadmap::Module;
use hpc_formats::address::ModuleId;
pub use roles::evict;
pub use spawner::forget_sites;

/// The number of tags of an agent.
const TAGS: u8 = 16;

/// Lists the agents with their numbers; the first that owns a frame makes its step.
macro_rules! agent_table {
    ($($number:literal $agent:ident)*) => {
        /// Finds a frame's owner, by look-up address and module: an agent's number and its tag, or 0. See
        /// [`crate::unwind::OwnerOf`].
        pub fn owner_of(lookup: u64, module: ModuleId) -> u8 {
            $(
                if let Some(tag) = $agent::owns(lookup, module) {
                    return const { TAGS * $number } | tag;
                }
            )*
            0
        }

        /// The step of the agent that owns the walk's frame.
        #[inline]
        pub fn step(walk: &mut Walk<'_>, owner: u8) {
            match owner / TAGS {
                $( $number => $agent::step(walk, owner % TAGS), )*
                _ => walk.program_frame(),
            }
        }
    };
}

agent_table! {
    1 thread_start
    2 profiler
    3 work_stealing
    4 stock_rayon
    5 spin_loops
}

/// Scans a module that was mapped, for [`lock_waits`] if these matter. Returns whether it has code with a
/// role. Not async-signal-safe.
pub fn scan(module: &Module, with_locks: bool) -> bool {
    let (path, bias) = (&module.path, module.bias);
    thread_start::scan(path, bias);
    let mut ranges = spin_loops::ranges_of(path, &module.code)
        .or_else(|| stock_rayon::ranges_of(path, bias))
        .unwrap_or_default();
    if with_locks {
        ranges.extend(lock_waits::ranges_of(path, bias).unwrap_or_default());
    }
    !ranges.is_empty() && roles::keep(module.id, ranges)
}
