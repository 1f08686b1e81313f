//! The boundary on other systems: a plain call, and headers that say "no known spawner".

use core::ffi::c_void;
use core::ptr;

#[cfg(all(feature = "context", target_os = "linux"))]
use hpcrun_abi::CountedSite;
use hpcrun_abi::TaskHeader;

use crate::task::{Entry, Task};

/// No frame keeps a header: never read, as there is no return address to match.
#[cfg(all(feature = "context", target_os = "linux"))]
pub(crate) const TASK_SLOT: usize = 0;

/// Enters a task.
///
/// # Safety
/// As for the assembly version: `entry` is the entry of the task at `header`, which nobody else
/// runs and which stays valid until this returns; `worker` is the calling thread's.
#[inline(always)]
pub(crate) unsafe fn enter(header: *const TaskHeader, worker: *const c_void, entry: Entry) {
    // SAFETY: passed on from the caller. Entries catch every panic.
    unsafe { entry(header, worker) }
}

/// No return address is the boundary's.
#[cfg(all(feature = "context", target_os = "linux"))]
pub(crate) fn return_address() -> usize {
    0
}

/// No code range is known.
#[cfg(all(feature = "context", target_os = "linux"))]
pub(crate) fn text_range() -> (usize, usize) {
    (0, 0)
}

/// No sites are recorded.
#[cfg(all(feature = "context", target_os = "linux"))]
pub(crate) fn sites() -> (*const CountedSite, *const CountedSite) {
    (ptr::null(), ptr::null())
}

/// Fills `header` without a context.
///
/// # Safety
/// `header` is valid for a write and is the header of a `T`.
#[inline(always)]
pub(crate) unsafe fn record<T: Task>(header: *mut TaskHeader) {
    // SAFETY: valid by contract; plain stores cannot panic.
    unsafe {
        (&raw mut (*header).site).write(ptr::from_ref(T::SITE).cast());
        // Without the feature nobody reads the other words, and the stores would be measured.
        if cfg!(feature = "context") {
            (&raw mut (*header).sp).write(0);
            (&raw mut (*header).fp).write(0);
        }
    }
}
