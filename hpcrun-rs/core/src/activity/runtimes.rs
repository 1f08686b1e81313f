//! The cooperating task runtimes: their tables, and the number of their working workers.
//!
//! Async-signal-safe, except [`register_runtime`].

use super::node::{self, HOT, Slot, State};
use hpcrun_abi::{ABI_VERSION, RuntimeTable};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// Maximal number of runtimes in one process.
pub const MAX_RUNTIMES: usize = 8;

static PEAK_WORKERS: AtomicU32 = AtomicU32::new(0);
static RUNTIMES: [AtomicPtr<RuntimeTable>; MAX_RUNTIMES] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_RUNTIMES];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Workers that the runtimes count although they do not exist: those of the parent, in a forked child, and
/// those that ended without the runtime's knowledge.
static MISSING: AtomicI32 = AtomicI32::new(0);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Its table has this other version, or is shorter than today's.
    Version(u32),
    /// [`MAX_RUNTIMES`] are registered already.
    TooMany,
}

pub fn register_runtime(table: &'static RuntimeTable) -> Result<(), Refusal> {
    if table.version != ABI_VERSION || (table.size as usize) < size_of::<RuntimeTable>() {
        return Err(Refusal::Version(table.version));
    }
    if table.tells == 1 {
        return Ok(());
    }
    let address = ptr::from_ref(table).cast_mut();
    if runtimes().any(|(_, t)| ptr::eq(t, table)) {
        return Ok(());
    }
    for slot in &RUNTIMES {
        let free = slot.compare_exchange(ptr::null_mut(), address, Ordering::AcqRel, Ordering::Relaxed);
        if free.is_ok() {
            if COUNT.fetch_add(1, Ordering::AcqRel) == 0 {
                take_slot();
            }
            return Ok(());
        }
    }
    Err(Refusal::TooMany)
}

/// The registered runtimes, each with its index.
#[inline]
pub fn runtimes() -> impl Iterator<Item = (usize, &'static RuntimeTable)> {
    RUNTIMES.iter().enumerate().filter_map(|(i, slot)| {
        // SAFETY: tables are valid for the life of the process (`RegisterRuntime`'s contract).
        unsafe { slot.load(Ordering::Acquire).as_ref() }.map(|t| (i, t))
    })
}

#[inline]
pub fn runtime(index: usize) -> Option<&'static RuntimeTable> {
    // SAFETY: as in `runtimes`.
    unsafe { RUNTIMES.get(index)?.load(Ordering::Acquire).as_ref() }
}

fn take_slot() {
    let slot = node::acquire(0, 0);
    slot.inspect(|slot| slot.move_to(State::Runtimes, 0));
    HOT.runtimes.store(slot.map_or(ptr::null_mut(), |s| ptr::from_ref(s).cast_mut()), Ordering::Release);
}

/// Working workers that the node's table does not include: a process that is alone does not publish its
/// count.
#[inline]
pub(super) fn unpublished() -> i64 {
    if node::is_alone() { i64::from(count()) } else { 0 }
}

/// The slot of the runtimes, if other processes look at it.
#[inline]
fn shown() -> Option<&'static Slot> {
    // SAFETY: null, or a slot of the node's table, which is never unmapped.
    let slot = unsafe { HOT.runtimes.load(Ordering::Acquire).as_ref() };
    slot.filter(|_| !node::is_alone())
}

/// Publishes the number of working workers to the other processes. Called at samples.
#[inline]
pub(super) fn publish(now: u64) {
    shown().inspect(|slot| slot.last.store(now, Ordering::Relaxed));
    publish_count();
}

/// Like `publish`, for a worker that is about to sleep.
#[inline]
pub fn publish_count() {
    shown().inspect(|slot| slot.publish(count()));
}

/// Corrects the count in a forked child, where the runtimes still count workers that do not exist. `counted`
/// runtimes count its only thread as working.
pub(super) fn enter_child(counted: i32) {
    MISSING.store(0, Ordering::Relaxed);
    MISSING.store(count() - counted, Ordering::Relaxed);
    if COUNT.load(Ordering::Acquire) > 0 {
        take_slot();
    }
}

/// Corrects the count by workers that no longer exist.
pub fn discount(workers: i32) {
    if workers > 0 {
        MISSING.fetch_add(workers, Ordering::Relaxed);
        publish_count();
    }
}

/// Frees the slot, because the process ends.
pub(super) fn end() {
    // SAFETY: as in `shown`.
    unsafe { HOT.runtimes.swap(ptr::null_mut(), Ordering::AcqRel).as_ref() }.inspect(|s| s.release());
}

/// The number of working workers, by the runtimes' counters.
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

/// The largest number of workers that existed at a sample.
pub fn peak_workers() -> u32 {
    PEAK_WORKERS.load(Ordering::Relaxed)
}
