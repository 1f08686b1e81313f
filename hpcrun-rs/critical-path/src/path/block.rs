//! A large block of zeros, of which what is not touched is not committed.
//!
//! An allocator gets a block of this size from the system, which commits a page when it is first written. But
//! it clears a block with an unusual alignment by itself, so the block is aligned in here.

use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use core::slice;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

/// A type of which zeros are a value, and that needs no drop.
///
/// # Safety
/// Both are true.
pub(super) unsafe trait Zeros {}

/// See the module.
pub(super) struct Block<T> {
    start: NonNull<u8>,
    layout: Layout,
    items: NonNull<T>,
    count: usize,
    owned: PhantomData<T>,
}

// SAFETY: a block owns its items, as a boxed slice does.
unsafe impl<T: Send> Send for Block<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Block<T> {}

impl<T: Zeros> Block<T> {
    /// A block of `count` items, more than none.
    pub(super) fn new(count: usize) -> Self {
        let alignment = align_of::<T>();
        let size = count.checked_mul(size_of::<T>());
        let size = size.and_then(|size| size.checked_add(alignment));
        let layout = size.and_then(|size| Layout::from_size_align(size, 1).ok());
        let layout = layout.expect("less than the address space");
        // SAFETY: the layout is not empty, since an alignment is at least 1.
        let Some(start) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout);
        };
        let gap = start.addr().get().wrapping_neg() % alignment;
        // SAFETY: less than the alignment, for which there is room before the items.
        let items = unsafe { start.add(gap) }.cast::<T>();
        Block {
            start,
            layout,
            items,
            count,
            owned: PhantomData,
        }
    }
}

impl<T> Deref for Block<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `new` has room for so many aligned items, of which zeros are a value (`Zeros`); the block
        // is not freed before `self`.
        unsafe { slice::from_raw_parts(self.items.as_ptr(), self.count) }
    }
}

impl<T> Drop for Block<T> {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout. The items need no drop (`Zeros`).
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU64, Ordering};

    #[repr(align(64))]
    struct Item(AtomicU64);

    // SAFETY: an atomic number.
    unsafe impl Zeros for Item {}

    #[test]
    fn items_are_aligned_zeros() {
        for count in [1, 2, 1000] {
            let block: Block<Item> = Block::new(count);
            assert_eq!(block.len(), count);
            assert_eq!(block.as_ptr().addr() % 64, 0);
            for item in block.iter() {
                assert_eq!(item.0.swap(1, Ordering::Relaxed), 0);
            }
        }
    }

    /// Pages of this process that are in memory.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn resident() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
        let resident = text.split(' ').nth(1).and_then(|n| n.parse().ok());
        resident.expect("a number")
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn what_is_not_touched_is_not_committed() {
        let before = resident();
        let block: Block<Item> = Block::new(1 << 23);
        assert_eq!(block[12345].0.load(Ordering::Relaxed), 0);
        // 512 MiB are 131,072 pages of 4 KiB.
        let after = resident();
        assert!(after < before + 20_000, "{before} to {after} pages");
    }
}
