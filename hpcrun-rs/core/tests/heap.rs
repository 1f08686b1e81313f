//! The preloaded library's heap, which is this program's: blocks are aligned and disjoint, whoever was
//! interrupted while he had its lock.

#[allow(unreachable_pub)] // public as a symbol of the library
#[path = "../../preload/src/heap.rs"]
mod heap;

use std::alloc::{Layout, alloc, dealloc};
use std::thread;

/// More threads than cores: now and then one loses its core while it has the lock, and the others map.
const THREADS: usize = 8;
const ROUNDS: usize = 500_000;

/// Blocks at once, each of which ends with its number.
const KEPT: usize = 8;

fn take_and_give_back(thread: usize) {
    let mut kept = [(std::ptr::null_mut::<u8>(), Layout::new::<u8>()); KEPT];
    for round in 0..ROUNDS {
        let (old, layout) = kept[round % KEPT];
        if !old.is_null() {
            let number = (thread * ROUNDS + round - KEPT) as u64;
            // SAFETY: the block was taken with this layout, and its last word was written.
            unsafe {
                let end = old.add(layout.size() - 8).cast::<u64>();
                assert_eq!(end.read_unaligned(), number, "{layout:?} has an owner");
                dealloc(old, layout);
            }
        }
        let align = 16 << ((round + thread) % 13);
        let layout = Layout::from_size_align(align, align).expect("a power of two");
        // SAFETY: the layout is not empty; the block has room for a word at its end.
        unsafe {
            let block = alloc(layout);
            assert!(!block.is_null() && block.addr() % align == 0, "{block:?} for {layout:?}");
            block.add(layout.size() - 8).cast::<u64>().write_unaligned((thread * ROUNDS + round) as u64);
            kept[round % KEPT] = (block, layout);
        }
    }
}

#[test]
fn blocks_are_aligned_and_have_one_owner_each() {
    heap::reserve();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || take_and_give_back(thread));
        }
    });
}
