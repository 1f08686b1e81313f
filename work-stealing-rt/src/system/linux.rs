//! Linux: a futex and memory from the kernel.
//!
//! The C library's functions are declared here. So the runtime uses no crate that rayon-core lacks, and
//! `cargo hpcrun` can compile it in rayon-core's place.

use core::ffi::{c_int, c_long};
use core::ptr;
use core::sync::atomic::AtomicU32;
use std::alloc::Layout;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn mmap(
        start: *mut u8,
        size: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: c_long,
    ) -> *mut u8;
    fn munmap(start: *mut u8, size: usize) -> c_int;
}

/// The number of futex(2).
const FUTEX: c_long = if cfg!(target_arch = "x86_64") { 202 } else { 98 };
const WAIT_PRIVATE: c_int = 128;
const WAKE_PRIVATE: c_int = 129;

const READ_WRITE: c_int = 3;
const PRIVATE_ANONYMOUS: c_int = 0x22;
const MAP_FAILED: *mut u8 = ptr::without_provenance_mut(usize::MAX);

/// Sleeps while the word is `value`; may return early.
#[inline(always)]
pub(crate) fn wait(word: &AtomicU32, value: u32) {
    if cfg!(miri) {
        // Miri wants the C library's type for the timeout.
        return std::thread::yield_now();
    }
    let no_timeout = ptr::null::<u8>();
    // SAFETY: the word is valid for the call. A failure is an early return.
    unsafe { syscall(FUTEX, word.as_ptr(), WAIT_PRIVATE, value, no_timeout) };
}

/// Wakes one thread that sleeps on the word; the address may dangle.
#[inline(always)]
pub(crate) fn wake_one(word: *const AtomicU32) {
    if cfg!(miri) {
        return;
    }
    let threads: c_int = 1;
    // SAFETY: the kernel takes the address as a key and reads nothing there.
    unsafe { syscall(FUTEX, word, WAKE_PRIVATE, threads) };
}

/// Zeroed memory at the start of a page; null if there is none.
pub(crate) fn allocate(layout: Layout) -> *mut u8 {
    let size = layout.size();
    // SAFETY: a new private mapping of no file; it replaces no other.
    let start = unsafe { mmap(ptr::null_mut(), size, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0) };
    if start == MAP_FAILED {
        return ptr::null_mut();
    }
    start
}

/// Gives memory back.
///
/// # Safety
/// Made by [`allocate`] with the same layout, and not used any more.
pub(crate) unsafe fn free(start: *mut u8, layout: Layout) {
    // SAFETY: the whole mapping of `allocate`. It cannot fail: no mapping is split.
    unsafe { munmap(start, layout.size()) };
}
