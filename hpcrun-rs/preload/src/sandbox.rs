//! Sandboxes that the program enters: our own calls are arranged for what will be refused.

use crate::heap;
use crate::real::interpose;
use crate::start;
use hpcrun_core::sandbox::{self, Instruction, Refused};
use hpcrun_core::session;
use hpcrun_core::system;
use hpcrun_core::threads::with_room;
use std::ffi::{c_int, c_long, c_ulong};
use std::slice;

const SECCOMP_SET_MODE_STRICT: c_ulong = 0;
const SECCOMP_SET_MODE_FILTER: c_ulong = 1;
/// A filter has no more instructions.
const MOST_INSTRUCTIONS: usize = 4096;

#[repr(C)]
struct Filter {
    length: u16,
    instructions: *const Instruction,
}

/// Arranges for a sandbox. Returns what is to be put back if the program does not get it.
///
/// # Safety
/// `filter` must be null or a filter, for its mode.
unsafe fn enter(mode: c_ulong, filter: *const Filter) -> Option<Refused> {
    if !session::has_begun() {
        return None;
    }
    heap::reserve();
    match mode {
        SECCOMP_SET_MODE_STRICT => {
            // Strict mode has no time-stamp counter, which every reading of a clock needs.
            start::stop("sandbox that refuses samples");
            Some(sandbox::enter(&[]))
        }
        SECCOMP_SET_MODE_FILTER => {
            // SAFETY: the caller's promise; the kernel reads the same structures.
            let filter = unsafe { filter.as_ref()? };
            let length = usize::from(filter.length);
            if filter.instructions.is_null() || length > MOST_INSTRUCTIONS {
                return None;
            }
            // SAFETY: as above.
            let list = unsafe { slice::from_raw_parts(filter.instructions, length) };
            Some(with_room(|| session::enter_sandbox(list)))
        }
        _ => None,
    }
}

/// Makes the call by which the program enters a sandbox.
///
/// # Safety
/// `filter` must be null or a filter, for its mode.
pub(crate) unsafe fn entering(mode: c_long, filter: c_long, call: impl FnOnce() -> c_long) -> c_long {
    // SAFETY: the caller's promise.
    let before = unsafe { enter(mode as c_ulong, filter as *const Filter) };
    let result = call();
    if let Some(before) = before.filter(|_| result != 0) {
        sandbox::leave(&before);
    }
    result
}

/// Makes a call by which the process gets this limit. With fewer descriptors or smaller files it may make no
/// more files, so those that samples need are made before.
fn limiting(what: c_int, new: Limit, call: impl FnOnce() -> c_int) -> c_int {
    let is_of_files = [libc::RLIMIT_NOFILE, libc::RLIMIT_FSIZE].contains(&(what as _));
    // SAFETY: null, or the program's own limit, which the kernel reads, too.
    let new = unsafe { new.as_ref() }.filter(|_| is_of_files && session::has_begun());
    let is_less = |new: &libc::rlimit| {
        let old = system::limit(what as _, None);
        old.is_ok_and(|old| new.rlim_cur < old.rlim_cur || new.rlim_max < old.rlim_max)
    };
    if new.is_some_and(is_less) {
        with_room(session::prepare_for_refusals);
    }
    call()
}

/// Makes a call after which the program may not reach the measurement directory any more.
pub(crate) fn leaving_files(call: impl FnOnce() -> c_long) -> c_long {
    with_room(session::prepare_for_refusals);
    call()
}

type Limit = *const libc::rlimit;
type Old = *mut libc::rlimit;

interpose! {
    // Variadic: at most four more arguments, all of them words.
    prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int: |call| match option {
        // The modes count from 1 here.
        libc::PR_SET_SECCOMP => entering(a as c_long - 1, b as c_long, || call().into()) as c_int,
        _ => call(),
    };
    setrlimit(what: c_int, new: Limit) -> c_int: |call| limiting(what, new, call);
    setrlimit64(what: c_int, new: Limit) -> c_int: |call| limiting(what, new, call);
    prlimit(pid: c_int, what: c_int, new: Limit, old: Old) -> c_int: |call| limiting(what, new, call);
    prlimit64(pid: c_int, what: c_int, new: Limit, old: Old) -> c_int: |call| limiting(what, new, call);
}
