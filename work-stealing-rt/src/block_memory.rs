//! Memory for the deques of workers.
//!
//! One duty: large blocks, mostly untouched, cheap even for pools that live for a moment. New blocks come
//! from the kernel where possible, since an allocator clears every byte of a block that it reuses. Freed
//! blocks are kept for later workers: unmapping one interrupts every core that runs the program.

use std::alloc::Layout;
use std::sync::Mutex;

use crate::system;

/// Blocks that nobody uses, most recently used last. Their untouched pages take no memory.
static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

/// The most blocks that are kept.
const MOST: usize = 32;

struct Kept {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: a block belongs to whoever has its address; a kept block belongs to the list.
unsafe impl Send for Kept {}

/// Memory for [`free`]: zeroed, or as an earlier user of a block of that layout left it; null if there is
/// none.
pub(crate) fn allocate(layout: Layout) -> *mut u8 {
    debug_assert!(layout.size() > 0 && layout.align() <= 4096);
    // Not waited for: in a child of `fork` the list may stay locked for ever.
    if let Ok(mut kept) = KEPT.try_lock() {
        if let Some(found) = kept.iter().rposition(|k| k.layout == layout) {
            return kept.remove(found).start;
        }
    }
    system::allocate(layout)
}

/// Takes memory back.
///
/// # Safety
/// Made by [`allocate`] with the same layout, and not used any more.
pub(crate) unsafe fn free(start: *mut u8, layout: Layout) {
    if let Ok(mut kept) = KEPT.try_lock() {
        if kept.len() < MOST {
            kept.push(Kept { start, layout });
            return;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { system::free(start, layout) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of a mapping that are in memory.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn resident(start: *mut u8, size: usize) -> usize {
        let mut pages = vec![0u8; size.div_ceil(4096)];
        // SAFETY: a mapping of that size, and a vector with a byte for each of its pages.
        let result = unsafe { libc::mincore(start.cast(), size, pages.as_mut_ptr()) };
        assert_eq!(result, 0, "it is mapped");
        pages.iter().filter(|p| **p & 1 == 1).count()
    }

    /// A layout that no other test has.
    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 128).expect("a power of two")
    }

    #[test]
    fn new_memory_is_zeroed_and_used_memory_comes_again() {
        let layout = layout((1 << 16) + 128);
        let blocks: Vec<*mut u8> = (0..MOST + 8).map(|_| allocate(layout)).collect();
        for block in &blocks {
            assert!(!block.is_null());
            for at in [0, 1 << 15, layout.size() - 1] {
                // SAFETY: within the memory, which is this test's alone.
                unsafe {
                    assert_eq!(block.add(at).read(), 0);
                    block.add(at).write(1);
                }
            }
        }
        for block in &blocks {
            // SAFETY: as allocated, and used no more.
            unsafe { free(*block, layout) };
        }
        // Another test may hold the list for a moment.
        let again = (0..1000).map(|_| allocate(layout)).find(|b| blocks.contains(b));
        assert!(again.is_some(), "none of them was kept");
        assert!(KEPT.lock().expect("no test panics with it").len() <= MOST);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn what_was_not_touched_is_not_committed() {
        let layout = layout((1 << 19) + 256);
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
