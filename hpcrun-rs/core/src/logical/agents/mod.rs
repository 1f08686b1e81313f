//! The agents, and the frames that they own (paper, section 4.1: a frame's return address belongs to at most
//! one run-time system).
//!
//! | agent | frames | bichord |
//! |---|---|---|
//! | native (identity) | all that no other agent owns | 1 <-> 1 |
//! | [`profiler`] | of the preloaded library | none: skipped |
//! | [`thread_start`] | the outermost one | none: continues in the creator's context (section 4.2) |
//! | `work_stealing`, for each registered runtime | its code | 1 <-> 0 |
//! | | its boundary, which enters a stolen task | 1 <-> M |
//! | `stock_rayon`, which does not cooperate | its scheduler, no task above | idle |
//! | | its scheduler below a task, and the rest of the stack | M <-> 0: the spawner is unknown |
//! | `spin_loops` of OpenMP runtimes, TBB, OpenBLAS | a waiting loop, no program frame above | idle |
//! | | other | 1 <-> 1 |
//!
//! To add an agent, add a file with `owner_of`, which tells whether it owns a frame, and a line in
//! `find_owner`. An agent that depends on the code of modules has `ranges_of` and a line in [`scan`].
//! Frames that need their own steps need a further [`Owner`], and an arm in each step of the cursor.
//!
//! Async-signal-safe, except [`scan`] and [`evict`].

pub mod lock_waits;
pub mod profiler;
mod roles;
mod spin_loops;
mod stock_rayon;
mod symbols;
pub mod thread_start;
mod work_stealing;

use crate::unwind::loadmap::Module;
use hpc_formats::address::ModuleId;
pub use roles::evict;

/// The owner of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The identity agent.
    Native,
    /// The profiler.
    Profiler,
    /// The thread-start agent.
    ThreadStart,
    /// Stock rayon's scheduler: the worker searches for a task.
    Scheduler,
    /// The entry of a task that stock rayon's scheduler runs.
    Task,
    /// A loop in which a thread of a known runtime waits.
    SpinLoop,
    /// Other code of such a runtime.
    Support,
    /// Runtime code of the runtime with this index.
    Runtime(u8),
    /// The boundary of the runtime with this index.
    Boundary(u8),
}

impl Owner {
    /// Packs into the byte that the unwinder caches.
    fn number(self) -> u8 {
        match self {
            Owner::Native => 0,
            Owner::Profiler => 1,
            Owner::ThreadStart => 2,
            Owner::Scheduler => 3,
            Owner::Task => 4,
            Owner::SpinLoop => 5,
            Owner::Support => 6,
            Owner::Runtime(i) => 16 + 2 * i,
            Owner::Boundary(i) => 17 + 2 * i,
        }
    }

    /// Unpacks the byte.
    #[inline]
    pub fn from_number(n: u8) -> Owner {
        match n {
            0 => Owner::Native,
            1 => Owner::Profiler,
            2 => Owner::ThreadStart,
            3 => Owner::Scheduler,
            4 => Owner::Task,
            5 => Owner::SpinLoop,
            6 => Owner::Support,
            n if n % 2 == 0 => Owner::Runtime((n - 16) / 2),
            n => Owner::Boundary((n - 17) / 2),
        }
    }
}

/// Finds a frame's owner, by look-up address and module. See [`crate::unwind::OwnerOf`].
pub fn owner_of(lookup: u64, module: ModuleId) -> u8 {
    find_owner(lookup, module).number()
}

fn find_owner(lookup: u64, module: ModuleId) -> Owner {
    thread_start::owner_of(lookup)
        .or_else(|| profiler::owner_of(module))
        .or_else(|| work_stealing::owner_of(lookup))
        .or_else(|| roles::owner_of(lookup))
        .unwrap_or(Owner::Native)
}

/// Scans a module that was mapped, for [`lock_waits`] if these matter. Returns whether it has code with a
/// role. Not async-signal-safe.
pub fn scan(module: &Module, with_locks: bool) -> bool {
    let (path, bias) = (&module.path, module.bias);
    let mut ranges = spin_loops::ranges_of(path, &module.code)
        .or_else(|| stock_rayon::ranges_of(path, bias))
        .unwrap_or_default();
    if with_locks {
        ranges.extend(lock_waits::ranges_of(path, bias).unwrap_or_default());
    }
    !ranges.is_empty() && roles::keep(module.id, ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_survive_packing() {
        let all = [
            Owner::Native,
            Owner::Profiler,
            Owner::ThreadStart,
            Owner::Scheduler,
            Owner::Task,
            Owner::SpinLoop,
            Owner::Support,
            Owner::Runtime(0),
            Owner::Boundary(0),
            Owner::Runtime(7),
            Owner::Boundary(7),
        ];
        for owner in all {
            assert_eq!(Owner::from_number(owner.number()), owner);
        }
    }
}
