//! Descriptors: the sampler's own stay open, whatever a program closes that it did not open. For the program
//! they are not there.
//!
//! A program that goes past libc, or puts another file in their place, still closes them: then the thread's
//! timer is started again (`hpcrun_core::timer`), and the time until then is said to be missing.

use crate::real::real;
use hpcrun_core::threads;
use hpcrun_core::timer::{MOVED_FROM, is_moved};
use std::ffi::{c_int, c_uint};

/// Whether a descriptor is the sampler's.
fn is_ours(descriptor: c_int) -> bool {
    descriptor >= MOVED_FROM && is_moved() && threads::all().any(|t| t.source.uses(descriptor))
}

fn bad_descriptor() -> c_int {
    // SAFETY: errno of this thread.
    unsafe { *libc::__errno_location() = libc::EBADF };
    -1
}

/// Interposed.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    if is_ours(descriptor) {
        return bad_descriptor();
    }
    // SAFETY: libc's own, same argument.
    unsafe { real!(c"close": fn(c_int) -> c_int)(descriptor) }
}

/// Interposed: closes what lies between the sampler's.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: libc's signature.
    let real = unsafe { real!(c"close_range": fn(c_uint, c_uint, c_int) -> c_int) };
    let descriptors = threads::all().filter_map(|t| t.source.perf_descriptor());
    let mut ours: Vec<c_uint> = descriptors
        .map(|d| d as c_uint)
        .filter(|d| (first..=last).contains(d))
        .collect();
    ours.sort_unstable();
    let mut from = first;
    for descriptor in ours {
        if from < descriptor {
            // SAFETY: libc's own, over a part of the range.
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

/// Interposed, as [`close_range`].
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: as libc's; it has no result.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}
