//! What work-stealing-rt uses of the crate atomic-wait: the futex of Linux, private to the process.

#![no_std]

use core::ffi::{c_int, c_long};
use core::ptr;
use core::sync::atomic::AtomicU32;

/// The number of futex(2).
#[cfg(target_arch = "x86_64")]
const FUTEX: c_long = 202;
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
const FUTEX: c_long = 98;

const WAIT_PRIVATE: c_int = 128;
const WAKE_PRIVATE: c_int = 129;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

/// Sleeps while the word is `value`; may return early.
#[inline]
pub fn wait(word: &AtomicU32, value: u32) {
    // SAFETY: the word is valid for the call, and there is no time-out. Any failure is an early
    // return. Nothing unwinds.
    unsafe {
        syscall(
            FUTEX,
            word.as_ptr(),
            WAIT_PRIVATE,
            value,
            ptr::null::<u8>(),
        );
    }
}

/// Wakes one thread that sleeps on the word; the address may dangle.
#[inline]
pub fn wake_one(word: *const AtomicU32) {
    wake(word, 1);
}

/// Wakes all threads that sleep on the word; the address may dangle.
#[inline]
pub fn wake_all(word: *const AtomicU32) {
    wake(word, c_int::MAX);
}

#[inline]
fn wake(word: *const AtomicU32, most: c_int) {
    // SAFETY: the kernel takes the address as a key and reads nothing there. Nothing unwinds.
    unsafe {
        syscall(FUTEX, word, WAKE_PRIVATE, most);
    }
}
