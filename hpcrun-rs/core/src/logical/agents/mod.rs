//! The agents and which frames they own (paper, section 4.1: a frame's return address stands
//! for at most one run-time system).
//!
//! | agent | frames | bichord |
//! |---|---|---|
//! | native (identity) | that nobody else owns | 1 <-> 1 |
//! | [`profiler`] | of the preloaded library | none: skipped |
//! | [`thread_start`] | the outermost one of a thread whose creation was seen | ends: the path goes on in the creator's context (section 4.2) |
//! | `work_stealing`, for each registered runtime | its code | 1 <-> 0 |
//! | | its boundary, which enters a stolen task | 1 <-> M |
//! | `stock_rayon`, which does not cooperate | its scheduler, no task above | idle |
//! | | its scheduler below a task, and the rest of the stack | M <-> 0: the spawner is not known |
//! | `spin_loops` of OpenMP's runtimes, TBB, OpenBLAS | a loop that waits, no frame of the program's above | idle |
//! | | other | 1 <-> 1 |
//!
//! An agent is a file with `owner_of`, which says whether a frame is its own, and a line in
//! [`find_owner`]. One that goes by the code of modules has `ranges_of` and a line in [`scan`]. A frame that
//! is to be stepped in a way of its own is a further [`Owner`] and an arm in each of the cursor's steps.
//!
//! Async-signal-safe, but for [`scan`] and [`evict`].

pub mod profiler;
mod roles;
mod spin_loops;
mod stock_rayon;
pub mod thread_start;
mod work_stealing;

use crate::unwind::loadmap::Module;
use hpc_formats::address::ModuleId;
pub use roles::evict;

/// Who owns a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The identity agent.
    Native,
    /// The profiler.
    Profiler,
    /// The thread-start agent.
    ThreadStart,
    /// Stock rayon's scheduler: a worker looks for a task.
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

    /// Inverse of packing.
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

/// Looks at a module that was mapped; whether an agent goes by its code. Not async-signal-safe.
pub fn scan(module: &Module) -> bool {
    let ranges = spin_loops::ranges_of(&module.path, module.code)
        .or_else(|| stock_rayon::ranges_of(&module.path, module.bias));
    ranges.is_some_and(|ranges| roles::keep(module.id, ranges))
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
