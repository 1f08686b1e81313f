//! The library's own heap, separate from the program's. The program's allocator may be replaced, may be
//! locked at a fork, and must not be disturbed.
//!
//! Blocks have power-of-two sizes and come from mapped chunks; each size has a free list. A lock protects the
//! lists, and no thread blocks on it: if another thread (or a fork in between) holds the lock, an allocation
//! is mapped afresh, and freed memory is not reused. The signal handler never allocates;
//! [`HPCRUN_ALLOCATIONS_IN_HANDLER`] proves it in tests.

use hpcrun_core::{memory, threads};
use std::alloc::{GlobalAlloc, Layout};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

const CHUNK: usize = 1 << 20;
const SMALLEST_BITS: u32 = 4;
const CLASSES: usize = 13; // 16 bytes to 64 KiB

/// Number of allocations that a thread made in the signal handler. Exported, so that a test can read it in a
/// profiled program.
#[unsafe(no_mangle)]
pub static HPCRUN_ALLOCATIONS_IN_HANDLER: AtomicU64 = AtomicU64::new(0);

struct Heap {
    locked: AtomicBool,
    free: [AtomicUsize; CLASSES],
    /// Address of the next fresh byte in the current chunk.
    chunk: AtomicUsize,
    end: AtomicUsize,
}

#[global_allocator]
static HEAP: Heap = Heap {
    locked: AtomicBool::new(false),
    free: [const { AtomicUsize::new(0) }; CLASSES],
    chunk: AtomicUsize::new(0),
    end: AtomicUsize::new(0),
};

fn class_of(layout: &Layout) -> usize {
    let size = layout.size().max(layout.align()).max(1 << SMALLEST_BITS);
    (size.next_power_of_two().trailing_zeros() - SMALLEST_BITS) as usize
}

impl Heap {
    fn try_lock(&self) -> bool {
        for _ in 0..100 {
            if !self.locked.swap(true, Ordering::Acquire) {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    fn unlock(&self) {
        self.locked.store(false, Ordering::Release);
    }

    fn map(size: usize) -> *mut u8 {
        memory::map_anonymous(size).map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    fn take(&self, class: usize) -> *mut u8 {
        let size = 1usize << (class as u32 + SMALLEST_BITS);
        if !self.try_lock() {
            // The block will be reused for any layout of its class, so it is aligned like the others.
            let room = if size > memory::PAGE { 2 * size } else { memory::PAGE };
            return Self::map(room).map_addr(|base| base.next_multiple_of(size));
        }
        let head = self.free[class].load(Ordering::Relaxed);
        let block = if head != 0 {
            // SAFETY: the first word of a free block links to the next; we hold the lock, so nobody else uses
            // the list.
            let next = unsafe { *(head as *const usize) };
            self.free[class].store(next, Ordering::Relaxed);
            head as *mut u8
        } else {
            self.carve(size)
        };
        self.unlock();
        block
    }

    /// Takes a fresh block from the chunk. When the chunk is too small, maps a new one; the rest is lost.
    fn carve(&self, size: usize) -> *mut u8 {
        let at = self.chunk.load(Ordering::Relaxed).next_multiple_of(size);
        let end = self.end.load(Ordering::Relaxed);
        if at != 0 && at + size <= end {
            self.chunk.store(at + size, Ordering::Relaxed);
            return at as *mut u8;
        }
        let base = Self::map(CHUNK);
        if base.is_null() {
            return base;
        }
        let at = (base as usize).next_multiple_of(size);
        self.chunk.store(at + size, Ordering::Relaxed);
        self.end.store(base as usize + CHUNK, Ordering::Relaxed);
        at as *mut u8
    }
}

/// Makes sure that there is memory for small blocks when none can be mapped any more.
pub(crate) fn reserve() {
    if HEAP.try_lock() {
        let left = HEAP.end.load(Ordering::Relaxed) - HEAP.chunk.load(Ordering::Relaxed);
        if left < CHUNK / 2 {
            let base = Heap::map(CHUNK);
            if !base.is_null() {
                HEAP.chunk.store(base as usize, Ordering::Relaxed);
                HEAP.end.store(base as usize + CHUNK, Ordering::Relaxed);
            }
        }
        HEAP.unlock();
    }
}

// SAFETY: blocks are disjoint and valid until deallocated. They are aligned to their power-of-two size (at
// most 64 KiB, within a chunk), or are a mapping of whole pages. Nothing here panics.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if threads::current().is_some_and(|t| t.is_in_handler()) {
            HPCRUN_ALLOCATIONS_IN_HANDLER.fetch_add(1, Ordering::Relaxed);
        }
        let class = class_of(&layout);
        if class < CLASSES {
            self.take(class)
        } else if layout.align() <= memory::PAGE {
            Self::map(layout.size())
        } else {
            ptr::null_mut()
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let block = unsafe { self.alloc(layout) };
        // A mapping of its own is zero already, and takes memory only where it is used.
        if !block.is_null() && class_of(&layout) < CLASSES {
            // SAFETY: a block of at least this size, which nobody uses yet.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let class = class_of(&layout);
        if class >= CLASSES {
            if let Some(block) = NonNull::new(block) {
                // SAFETY: `alloc` mapped a block of this size separately, and the caller gives it up.
                unsafe { memory::unmap(block, layout.size()) };
            }
            return;
        }
        if self.try_lock() {
            // SAFETY: the caller gives up the block, which has at least 16 bytes.
            unsafe { *block.cast::<usize>() = self.free[class].load(Ordering::Relaxed) };
            self.free[class].store(block as usize, Ordering::Relaxed);
            self.unlock();
        }
    }
}
