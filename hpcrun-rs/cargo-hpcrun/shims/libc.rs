//! What work-stealing-rt uses of the crate libc, so that a program's own dependencies stay as they
//! are locked: the stand-in for rayon-core needs no crate that rayon-core does not need.
//!
//! Linux only, as the profiler is.

#![no_std]

pub use core::ffi::{c_char, c_int, c_long, c_void};

/// Every object of the process is searched.
pub const RTLD_DEFAULT: *mut c_void = core::ptr::null_mut();

/// Pages may be read.
pub const PROT_READ: c_int = 1;
/// Pages may be written.
pub const PROT_WRITE: c_int = 2;
/// Changes are this process's own.
pub const MAP_PRIVATE: c_int = 2;
/// Memory of no file.
pub const MAP_ANONYMOUS: c_int = 0x20;
/// What [`mmap`] returns when it fails.
pub const MAP_FAILED: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);

unsafe extern "C" {
    /// mmap(2); `off_t` is a `long` where there is only one of them.
    pub fn mmap(
        start: *mut c_void,
        size: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: c_long,
    ) -> *mut c_void;
    /// munmap(2).
    pub fn munmap(start: *mut c_void, size: usize) -> c_int;
    /// dlsym(3).
    pub fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
}
