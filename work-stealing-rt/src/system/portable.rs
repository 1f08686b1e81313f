//! Any system: the crate atomic-wait, and memory from the allocator.

use std::alloc::{Layout, alloc_zeroed, dealloc};

pub(crate) use atomic_wait::{wait, wake_one};

/// Zeroed memory; null if there is none.
pub(crate) fn allocate(layout: Layout) -> *mut u8 {
    // SAFETY: the layout is not empty (`block_memory::allocate`).
    unsafe { alloc_zeroed(layout) }
}

/// Gives memory back.
///
/// # Safety
/// Made by [`allocate`] with the same layout, and not used any more.
pub(crate) unsafe fn free(start: *mut u8, layout: Layout) {
    // SAFETY: allocated by `allocate` with this layout.
    unsafe { dealloc(start, layout) };
}
