//! Zeroed memory that is not committed before it is touched.
//!
//! One duty: memory for a deque, of which most is never used. It comes from the kernel where that
//! is known, since an allocator clears every byte of a block that it hands out for the second time,
//! and so each worker of each short-lived pool would pay for the whole of it.

use std::alloc::Layout;

/// Zeroed memory; null if there is none. It is to be freed by [`free`].
pub(crate) fn allocate(layout: Layout) -> *mut u8 {
    debug_assert!(layout.size() > 0 && layout.align() <= 4096);
    system::allocate(layout)
}

/// Gives memory back.
///
/// # Safety
/// Made by [`allocate`] with the same layout, and not used any more.
pub(crate) unsafe fn free(start: *mut u8, layout: Layout) {
    // SAFETY: the caller's promise.
    unsafe { system::free(start, layout) }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use core::ptr;
    use std::alloc::Layout;

    pub(super) fn allocate(layout: Layout) -> *mut u8 {
        // SAFETY: a new private mapping of no file; it replaces no other.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                layout.size(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return ptr::null_mut();
        }
        start.cast()
    }

    /// # Safety
    /// As above.
    pub(super) unsafe fn free(start: *mut u8, layout: Layout) {
        // SAFETY: the whole mapping of `allocate`. It cannot fail: no mapping is split.
        unsafe { libc::munmap(start.cast(), layout.size()) };
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    use std::alloc::Layout;

    pub(super) fn allocate(layout: Layout) -> *mut u8 {
        // SAFETY: the layout is not empty.
        unsafe { std::alloc::alloc_zeroed(layout) }
    }

    /// # Safety
    /// As above.
    pub(super) unsafe fn free(start: *mut u8, layout: Layout) {
        // SAFETY: allocated by `allocate` with this layout.
        unsafe { std::alloc::dealloc(start, layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kilobytes of this process that are in memory.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn resident(start: *mut u8, size: usize) -> usize {
        let mut pages = vec![0u8; size.div_ceil(4096)];
        // SAFETY: a mapping of that size, and a vector with a byte for each of its pages.
        let result = unsafe { libc::mincore(start.cast(), size, pages.as_mut_ptr()) };
        assert_eq!(result, 0, "it is mapped");
        pages.iter().filter(|p| **p & 1 == 1).count()
    }

    #[test]
    fn memory_is_zero_again_and_again() {
        let layout = Layout::from_size_align(1 << 16, 128).expect("a power of two");
        for _ in 0..100 {
            let start = allocate(layout);
            assert!(!start.is_null());
            for at in [0, 1 << 15, (1 << 16) - 1] {
                // SAFETY: within the memory, which is this test's alone.
                unsafe {
                    assert_eq!(start.add(at).read(), 0);
                    start.add(at).write(1);
                }
            }
            // SAFETY: as allocated, and used no more.
            unsafe { free(start, layout) };
        }
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn what_was_not_touched_is_not_committed() {
        let layout = Layout::from_size_align(1 << 19, 128).expect("a power of two");
        for _ in 0..3 {
            let start = allocate(layout);
            // SAFETY: within the memory, which is this test's alone.
            unsafe { start.write(1) };
            assert!(resident(start, layout.size()) < 64, "of 128 pages");
            // SAFETY: as allocated, and used no more.
            unsafe { free(start, layout) };
        }
    }
}
