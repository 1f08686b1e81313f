//! The profiler's tables, looked up once.

use core::ffi::c_void;
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};

use hpcrun_abi::{
    ABI_VERSION, CRITICAL_PATH_SYMBOL, CriticalPath, PathTable, ProfilerTable, REGISTER_SYMBOL,
    RegisterRuntime, RuntimeTable, host,
};

/// Not yet looked up.
static UNKNOWN: AtomicU8 = AtomicU8::new(1);
/// There is no table.
static INACTIVE: AtomicU8 = AtomicU8::new(0);

/// The table's own byte, or one of the above.
static ACTIVE: AtomicPtr<AtomicU8> = AtomicPtr::new((&raw const UNKNOWN).cast_mut());
/// Null: no table, or not yet looked up.
static TABLE: AtomicPtr<PathTable> = AtomicPtr::new(ptr::null_mut());

/// Whether the path is tracked now.
#[inline(always)]
pub fn is_active() -> bool {
    active().is_some()
}

/// The table, while the path is tracked.
#[inline(always)]
pub(crate) fn active() -> Option<&'static PathTable> {
    // SAFETY: a static of this file, or a byte that stays as the table does.
    let is_active = unsafe { &*ACTIVE.load(Ordering::Relaxed) };
    if is_active.load(Ordering::Relaxed) == 0 {
        return None;
    }
    // SAFETY: null, or a table that the profiler keeps until the process ends.
    match unsafe { TABLE.load(Ordering::Acquire).as_ref() } {
        None => look().filter(|_| tracks()),
        found => found,
    }
}

/// The table, whether the path is tracked or not.
pub(crate) fn table() -> Option<&'static PathTable> {
    if ptr::eq(ACTIVE.load(Ordering::Relaxed), &raw const UNKNOWN) {
        return look();
    }
    // SAFETY: as in `active`.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

/// Whether a table that was found just now tracks.
fn tracks() -> bool {
    // SAFETY: as in `active`.
    unsafe { &*ACTIVE.load(Ordering::Relaxed) }.load(Ordering::Relaxed) != 0
}

/// Looks the table up. Threads that do it at the same time find the same one.
#[cold]
#[inline(never)]
fn look() -> Option<&'static PathTable> {
    let symbol = host::symbol(CRITICAL_PATH_SYMBOL);
    let found = (!symbol.is_null()).then(|| {
        // SAFETY: whoever exports this name promises this type (hpcrun-abi), and that the result is null or
        // stays.
        unsafe { host::known(transmute::<*mut c_void, CriticalPath>(symbol)()) }
    });
    let Some(found) = found.flatten() else {
        ACTIVE.store((&raw const INACTIVE).cast_mut(), Ordering::Relaxed);
        return None;
    };
    TABLE.store(ptr::from_ref(found).cast_mut(), Ordering::Release);
    ACTIVE.store(found.active.cast_mut(), Ordering::Release);
    Some(found)
}

/// Whether [`PROFILER`] is known.
static IS_KNOWN: AtomicBool = AtomicBool::new(false);
/// Null: no profiler, or not yet looked up.
static PROFILER: AtomicPtr<ProfilerTable> = AtomicPtr::new(ptr::null_mut());

/// What the profiler offers a runtime whose threads tell of their tasks and waits.
#[inline]
pub(crate) fn profiler() -> Option<&'static ProfilerTable> {
    if !IS_KNOWN.load(Ordering::Acquire) {
        register();
    }
    // SAFETY: null, or a table that the profiler keeps until the process ends.
    unsafe { PROFILER.load(Ordering::Relaxed).as_ref() }
}

/// Registers. Threads that do it at the same time find the same table.
#[cold]
#[inline(never)]
fn register() {
    // A profiler that does not know of such runtimes reads them.
    static NONE: AtomicU32 = AtomicU32::new(0);
    static RUNTIME: RuntimeTable = RuntimeTable {
        size: size_of::<RuntimeTable>() as u32,
        version: ABI_VERSION,
        name: c"hpcrun-api".as_ptr(),
        n_working: &NONE,
        n_workers: &NONE,
        text_start: 0,
        text_end: 0,
        boundary_return: 0,
        task_slot: 0,
        sites_start: ptr::null(),
        sites_end: ptr::null(),
        tracking_changed: None,
        tells: 1,
    };
    let symbol = host::symbol(REGISTER_SYMBOL);
    if !symbol.is_null() {
        // SAFETY: whoever exports this name promises this type (hpcrun-abi), and that the result is null or
        // stays.
        let table = unsafe { host::known(transmute::<*mut c_void, RegisterRuntime>(symbol)(&RUNTIME)) };
        PROFILER.store(table.map_or(ptr::null(), ptr::from_ref).cast_mut(), Ordering::Relaxed);
    }
    IS_KNOWN.store(true, Ordering::Release);
}
