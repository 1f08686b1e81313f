//! The agents and which frames they own (paper, section 4.1: a frame's return address stands
//! for at most one run-time system).
//!
//! * *native* (identity): 1 <-> 1; every frame that nobody else owns.
//! * *profiler*: frames of the preloaded library itself; not part of the program, skipped.
//! * *thread start*: the outermost frame of a thread whose creation was seen; the path goes on
//!   in the creator's context (paper, section 4.2).
//! * *work stealing*, one per registered runtime: its code is 1 <-> 0, its boundary (the frame
//!   that enters a stolen task) is 1 <-> M.
//! * *stock rayon*, which does not cooperate: a thread in its scheduler without a task above is
//!   idle; below a task, the scheduler and all that lies under it is M <-> 0, for it belongs to
//!   whatever the worker was waiting in, and who spawned the task is not known.
//! * *spin loops* of OpenMP's runtimes and TBB: a thread in one, without a frame of the program's above, is
//!   idle; else these frames are native, 1 <-> 1.
//!
//! A further agent is a further [`Owner`] and an arm in each of the cursor's steps.
//! Async-signal-safe.

use super::roles::{self, Role};
use crate::activity;
use hpc_formats::address::ModuleId;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

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

static PROFILER_MODULE: AtomicU16 = AtomicU16::new(0);
static THREAD_START_RETURN: AtomicU64 = AtomicU64::new(0);

/// Declares the module whose frames are the profiler's.
pub fn set_profiler_module(id: ModuleId) {
    PROFILER_MODULE.store(id.0, Ordering::Release);
}

/// Declares the return address of the call that enters a thread's start routine.
pub fn set_thread_start_return(address: u64) {
    THREAD_START_RETURN.store(address, Ordering::Release);
}

/// Finds a frame's owner, by look-up address and module. See [`crate::unwind::OwnerOf`].
pub fn owner_of(lookup: u64, module: ModuleId) -> u8 {
    find_owner(lookup, module).number()
}

fn find_owner(lookup: u64, module: ModuleId) -> Owner {
    let after_call = lookup + 1;
    if after_call == THREAD_START_RETURN.load(Ordering::Acquire) {
        return Owner::ThreadStart;
    }
    if module.0 == PROFILER_MODULE.load(Ordering::Acquire) {
        return Owner::Profiler;
    }
    for (i, table) in activity::runtimes() {
        if after_call == table.boundary_return as u64 {
            return Owner::Boundary(i as u8);
        }
        if lookup >= table.text_start as u64 && lookup < table.text_end as u64 {
            return Owner::Runtime(i as u8);
        }
    }
    match roles::find(lookup) {
        Some(Role::Scheduler) => Owner::Scheduler,
        Some(Role::Task) => Owner::Task,
        Some(Role::SpinLoop) => Owner::SpinLoop,
        Some(Role::Support) => Owner::Support,
        None => Owner::Native,
    }
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
