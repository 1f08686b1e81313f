//! The task runtimes that cooperate: their tables, and how many of their workers work.
//!
//! Async-signal-safe, but for [`register_runtime`].

use super::node::{self, HOT, Slot, State};
use hpcrun_abi::{ABI_VERSION, RuntimeTable};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// Most runtimes that may register in one process.
pub const MAX_RUNTIMES: usize = 8;

static PEAK_WORKERS: AtomicU32 = AtomicU32::new(0);
static RUNTIMES: [AtomicPtr<RuntimeTable>; MAX_RUNTIMES] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_RUNTIMES];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Where they do if the node's table is full.
static UNLISTED: Slot = Slot::new();
/// Workers that the runtimes count and that do not exist: a parent's, in a forked child, and those that ended
/// untold.
static MISSING: AtomicI32 = AtomicI32::new(0);

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
            if COUNT.fetch_add(1, Ordering::AcqRel) == 0 {
                take_slot();
            }
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

fn take_slot() {
    let slot = node::acquire(0, 0).unwrap_or(&UNLISTED);
    slot.move_to(State::Runtimes, 0);
    HOT.runtimes
        .store(ptr::from_ref(slot).cast_mut(), Ordering::Release);
}

/// Workers that work here, as far as the table does not have them: a process that is alone does without.
#[inline]
pub(super) fn unpublished() -> i64 {
    match node::is_alone() {
        true => i64::from(count()),
        false => 0,
    }
}

/// Lets all processes see how many workers work here by now. Called at samples, and by workers before they
/// sleep.
#[inline]
pub(super) fn publish(now: u64) {
    if node::is_alone() {
        return;
    }
    // SAFETY: null, or a slot, which lives for ever.
    if let Some(slot) = unsafe { HOT.runtimes.load(Ordering::Acquire).as_ref() } {
        slot.last.store(now, Ordering::Relaxed);
        slot.publish(count());
    }
}

/// As `publish`, of a worker that falls asleep.
#[inline]
pub fn publish_count() {
    if node::is_alone() {
        return;
    }
    // SAFETY: as in `publish`.
    if let Some(slot) = unsafe { HOT.runtimes.load(Ordering::Acquire).as_ref() } {
        slot.publish(count());
    }
}

/// In a forked child, where the runtimes go on counting workers that do not exist. So many runtimes count the
/// one thread that does.
pub(super) fn enter_child(counted: i32) {
    MISSING.store(0, Ordering::Relaxed);
    MISSING.store(count() - counted, Ordering::Relaxed);
    if COUNT.load(Ordering::Acquire) > 0 {
        take_slot();
    }
}

/// So many workers are counted that do not exist any more.
pub fn discount(workers: i32) {
    if workers > 0 {
        MISSING.fetch_add(workers, Ordering::Relaxed);
        publish_count();
    }
}

/// The process ends: its workers count no more.
pub(super) fn end() {
    // SAFETY: as in `publish`.
    if let Some(slot) = unsafe {
        HOT.runtimes
            .swap(ptr::null_mut(), Ordering::AcqRel)
            .as_ref()
    } {
        slot.release();
    }
}

/// Workers that work, by the runtimes' counts.
#[inline]
fn count() -> i32 {
    let (mut working, mut workers) = (0, 0);
    for (_, table) in runtimes().take(COUNT.load(Ordering::Relaxed)) {
        // SAFETY: the counters are statics of the runtime (`RegisterRuntime`'s contract).
        let (n, all) = unsafe { (&*table.n_working, &*table.n_workers) };
        working += n.load(Ordering::Relaxed);
        workers += all.load(Ordering::Relaxed);
    }
    if workers > PEAK_WORKERS.load(Ordering::Relaxed) {
        PEAK_WORKERS.store(workers, Ordering::Relaxed);
    }
    working as i32 - MISSING.load(Ordering::Relaxed)
}

/// Most workers that were alive at a sample.
pub fn peak_workers() -> u32 {
    PEAK_WORKERS.load(Ordering::Relaxed)
}
