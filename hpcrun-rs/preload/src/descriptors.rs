//! Protects the sampler's descriptors: they stay open when a program closes descriptors that it did not open.
//! To the program they do not exist.
//!
//! A program can still close them by an instruction of its own, or by putting another file in their place.
//! Then the thread has no more samples, and the time from then on is reported as missing.
//!
//! Unsafe functions may be called as libc's function or the system call that they stand for.

use crate::real::{interpose, real};
use hpcrun_core::descriptors::may_be_ours;
use hpcrun_core::{folder, threads};
use std::ffi::{c_int, c_uint};

fn is_ours(descriptor: c_int) -> bool {
    may_be_ours(descriptor)
        && (folder::held().any(|held| held == descriptor)
            || threads::all().any(|t| t.source.uses(descriptor)))
}

fn bad_descriptor() -> c_int {
    // SAFETY: `__errno_location` returns a valid pointer to this thread's errno.
    unsafe { *libc::__errno_location() = libc::EBADF };
    -1
}

interpose! {
    close(descriptor: c_int) -> c_int: |_| close_one(descriptor);
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int: |_| close_all(first, last, flags);
    closefrom(first: c_int): |_| {
        close_all(first.max(0) as c_uint, c_uint::MAX, 0);
    };
}

/// Closes a descriptor if it is not the sampler's.
pub(crate) unsafe fn close_one(descriptor: c_int) -> c_int {
    if is_ours(descriptor) {
        return bad_descriptor();
    }
    // SAFETY: libc's own function, same argument.
    unsafe { real!(c"close": fn(c_int) -> c_int)(descriptor) }
}

/// Closes all descriptors of the range except the sampler's.
pub(crate) unsafe fn close_all(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: libc's signature.
    let real = unsafe { real!(c"close_range": fn(c_uint, c_uint, c_int) -> c_int) };
    let descriptors = threads::all().filter_map(|t| t.source.perf_descriptor());
    let mut ours: Vec<c_uint> = descriptors
        .chain(folder::held())
        .map(|d| d as c_uint)
        .filter(|d| (first..=last).contains(d))
        .collect();
    ours.sort_unstable();
    let mut from = first;
    for descriptor in ours {
        if from < descriptor {
            // SAFETY: libc's own function, on a part of the range.
            let result = unsafe { real(from, descriptor - 1, flags) };
            if result != 0 {
                return result;
            }
        }
        from = descriptor + 1;
    }
    if from > last && from > first {
        return 0;
    }
    // SAFETY: as above.
    unsafe { real(from, last, flags) }
}
