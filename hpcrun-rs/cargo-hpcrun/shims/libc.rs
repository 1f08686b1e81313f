//! What work-stealing-rt uses of the crate libc, so that a program's own dependencies stay as they
//! are locked: the stand-in for rayon-core needs no crate that rayon-core does not need.
//!
//! Linux only, as the profiler is.

#![no_std]

pub use core::ffi::{c_char, c_int, c_long, c_void};

/// Every object of the process is searched.
pub const RTLD_DEFAULT: *mut c_void = core::ptr::null_mut();

unsafe extern "C" {
    /// dlsym(3).
    pub fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
}
