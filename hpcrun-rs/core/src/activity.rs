//! Who works: the node-wide counters n_working and n (paper, sections 2.1 and 5.1; ARCHITECTURE.md: terms).
//!
//! A thread works unless it is blocked in a wait; a worker of a cooperating runtime, moreover, only between
//! acquiring a task and returning to its scheduling loop. Runtimes count their workers, and know of no wait: what
//! they count too much is taken off here (`threads::working`).
//!
//! Async-signal-safe.

use hpcrun_abi::{ABI_VERSION, RuntimeTable};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// Most runtimes that may register in one process.
pub const MAX_RUNTIMES: usize = 8;

/// What n_working has beside the runtimes' counts: ordinary threads that work, less workers that a runtime counts and
/// that do not. Below zero where there are more of these.
static BESIDE_RUNTIMES: AtomicI32 = AtomicI32::new(0);
static CORES: AtomicU32 = AtomicU32::new(1);
static PEAK_WORKERS: AtomicU32 = AtomicU32::new(0);
static RUNTIMES: [AtomicPtr<RuntimeTable>; MAX_RUNTIMES] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_RUNTIMES];
static RUNTIME_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Sets n; 0 = as many as workers.
pub fn set_cores(n: u32) {
    CORES.store(n, Ordering::Relaxed);
}

/// Why a runtime cannot be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Its table is of this other version, or shorter than that of ours.
    Version(u32),
    /// There are [`MAX_RUNTIMES`] already.
    TooMany,
}

/// Registers a runtime's table.
pub fn register_runtime(table: &'static RuntimeTable) -> Result<(), Refusal> {
    // The fields after these are read only where the table has them.
    let least = std::mem::offset_of!(RuntimeTable, sites_start);
    if table.version != ABI_VERSION || (table.size as usize) < least {
        return Err(Refusal::Version(table.version));
    }
    let address = ptr::from_ref(table).cast_mut();
    if runtimes().any(|(_, t)| ptr::eq(t, table)) {
        return Ok(());
    }
    for slot in &RUNTIMES {
        let free = slot.compare_exchange(
            ptr::null_mut(),
            address,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if free.is_ok() {
            RUNTIME_COUNT.fetch_add(1, Ordering::AcqRel);
            return Ok(());
        }
    }
    Err(Refusal::TooMany)
}

/// The registered runtimes with their index.
#[inline]
pub fn runtimes() -> impl Iterator<Item = (usize, &'static RuntimeTable)> {
    RUNTIMES.iter().enumerate().filter_map(|(i, slot)| {
        // SAFETY: tables are valid for the life of the process (`RegisterRuntime`'s contract).
        unsafe { slot.load(Ordering::Acquire).as_ref() }.map(|t| (i, t))
    })
}

/// The runtime with this index.
#[inline]
pub fn runtime(index: usize) -> Option<&'static RuntimeTable> {
    // SAFETY: as in `runtimes`.
    unsafe { RUNTIMES.get(index)?.load(Ordering::Acquire).as_ref() }
}

/// A thread works that no runtime counts, or that one goes on counting: it was created, or its wait is over.
#[inline]
pub fn begin_work() {
    BESIDE_RUNTIMES.fetch_add(1, Ordering::Relaxed);
}

/// Such a thread stops working: it waits, ends, or is counted by a runtime from now on.
#[inline]
pub fn end_work() {
    BESIDE_RUNTIMES.fetch_sub(1, Ordering::Relaxed);
}

/// In a forked child only the calling thread is left, though the runtimes go on counting their workers.
pub fn reset_after_fork(working: bool) {
    let (counted, _) = counts_of_runtimes();
    BESIDE_RUNTIMES.store(i32::from(working) - counted as i32, Ordering::Relaxed);
}

/// n_working and all workers, by the runtimes' counts.
#[inline]
fn counts_of_runtimes() -> (u32, u32) {
    let (mut working, mut workers) = (0, 0);
    for (_, table) in runtimes().take(RUNTIME_COUNT.load(Ordering::Relaxed)) {
        // SAFETY: the counters are statics of the runtime (`RegisterRuntime`'s contract).
        let (n, all) = unsafe { (&*table.n_working, &*table.n_workers) };
        working += n.load(Ordering::Relaxed);
        workers += all.load(Ordering::Relaxed);
    }
    (working, workers)
}

/// How busy the cores are at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// n_idle / n_working: what one working thread is charged.
    pub idle_per_working: f64,
    /// Share of the working threads that has no core.
    pub oversubscribed: f64,
}

/// Most workers that were alive at a sample.
pub fn peak_workers() -> u32 {
    PEAK_WORKERS.load(Ordering::Relaxed)
}

/// n as it is now.
pub fn cores() -> u32 {
    match CORES.load(Ordering::Relaxed) {
        0 => peak_workers().max(1),
        n => n,
    }
}

/// The load, seen by a thread that works; `uncounted` = this thread is not counted, as it is flagged as waiting, but was
/// found running.
#[inline]
pub fn load(uncounted: bool) -> Load {
    let (counted, workers) = counts_of_runtimes();
    let beside = i64::from(BESIDE_RUNTIMES.load(Ordering::Relaxed));
    let working = i64::from(counted) + beside + i64::from(uncounted);
    if workers > PEAK_WORKERS.load(Ordering::Relaxed) {
        PEAK_WORKERS.store(workers, Ordering::Relaxed);
    }
    ratio(working, cores())
}

/// n_idle / n_working with n_working capped to 1..=n (ARCHITECTURE.md: terms).
fn ratio(working: i64, cores: u32) -> Load {
    let n = i64::from(cores.max(1));
    let capped = working.clamp(1, n);
    let over = (working - n).max(0);
    Load {
        idle_per_working: (n - capped) as f64 / capped as f64,
        oversubscribed: over as f64 / working.max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idleness_is_shared_by_those_who_work() {
        assert_eq!(ratio(3, 4).idle_per_working, 1.0 / 3.0);
        assert_eq!(ratio(1, 8).idle_per_working, 7.0);
        assert_eq!(ratio(4, 4).idle_per_working, 0.0);
    }

    #[test]
    fn more_threads_than_cores_is_oversubscription_not_idleness() {
        let load = ratio(6, 4);
        assert_eq!(load.idle_per_working, 0.0);
        assert_eq!(load.oversubscribed, 2.0 / 6.0);
    }

    #[test]
    fn a_worker_that_is_seen_before_it_is_counted_counts_as_one() {
        assert_eq!(ratio(0, 2).idle_per_working, 1.0);
        assert_eq!(ratio(-1, 2).idle_per_working, 1.0);
    }
}
