//! Locks and critical sections of both runtimes: a thread waits for one, whoever ends it is charged with that
//! (`lock-wait`), and the critical path goes from one to the next.

use super::copies::{Entry, Function};
use super::libgomp::{Arguments, Stack, interpose};
use crate::events::{self, Place};
use hpcrun_core::session;
use hpcrun_core::threads;
use std::sync::atomic::{AtomicU32, Ordering};

interpose! { acquire_first:
    omp_set_lock omp_set_nest_lock omp_set_lock_ omp_set_nest_lock_ GOMP_critical_name_start
}
interpose! { release_first:
    omp_unset_lock omp_unset_nest_lock omp_unset_lock_ omp_unset_nest_lock_ GOMP_critical_name_end
}
interpose! { try_first: omp_test_lock omp_test_nest_lock omp_test_lock_ omp_test_nest_lock_ }
interpose! { acquire_third: __kmpc_critical __kmpc_critical_with_hint }
interpose! { release_third: __kmpc_end_critical }
interpose! { acquire_unnamed: GOMP_critical_start }
interpose! { release_unnamed: GOMP_critical_end }
interpose! { acquire_atomic: GOMP_atomic_start GOMP_reduction_start }
interpose! { release_atomic: GOMP_atomic_end GOMP_reduction_end }

/// Names of the locks that have none.
static UNNAMED: u8 = 0;
static ATOMIC: u8 = 1;

type Real = unsafe extern "C-unwind" fn(usize, usize, usize, usize) -> usize;

/// Calls the runtime; none of these functions has more arguments.
#[inline]
unsafe fn call(function: Function, [a, b, c, d, ..]: Arguments) -> usize {
    // SAFETY: the entry point for which the hook stands.
    unsafe { std::mem::transmute::<usize, Real>(function.address)(a, b, c, d) }
}

macro_rules! lock_of {
    ($($acquire:ident $release:ident |$arguments:pat_param| $lock:expr;)*) => { $(
        unsafe fn $acquire(entry: &Entry, from: usize, all: Arguments, _: Stack) -> usize {
            let $arguments = all;
            // SAFETY: the caller's arguments.
            unsafe { acquire(entry, from, all, $lock) }
        }

        unsafe fn $release(entry: &Entry, from: usize, all: Arguments, _: Stack) -> usize {
            let $arguments = all;
            let real = entry.of_call(from);
            // SAFETY: the caller's arguments.
            events::release(Place::of_call(from), $lock, || unsafe { call(real, all) })
        }
    )* };
}

lock_of! {
    acquire_first release_first |[lock, ..]| lock;
    acquire_third release_third |[_, _, lock, ..]| lock;
    acquire_unnamed release_unnamed |_| &raw const UNNAMED as usize;
    acquire_atomic release_atomic |_| &raw const ATOMIC as usize;
}

/// Whether nobody has a lock of libgomp: its first word is 0. That of an initialised one of libomp is not.
fn is_free(lock: usize) -> bool {
    let nameless = [0, &raw const UNNAMED as usize, &raw const ATOMIC as usize];
    // SAFETY: the caller's lock, in which the runtime reads and writes such words.
    !nameless.contains(&lock) && unsafe { AtomicU32::from_ptr(lock as *mut u32) }.load(Ordering::Relaxed) == 0
}

unsafe fn acquire(entry: &Entry, from: usize, arguments: Arguments, lock: usize) -> usize {
    let real = entry.of_call(from);
    let thread = threads::current().filter(|_| session::is_running());
    let wait = || {
        // Most locks are free. Who sleeps or spins for one is found by samples.
        thread.inspect(|thread| thread.expect_pause());
        // SAFETY: the caller's arguments; no result.
        unsafe { call(real, arguments) };
        thread.inspect(|thread| thread.end_expected_pause());
        0
    };
    let place = Place::of_call(from);
    match is_free(lock) {
        true => events::acquired(place, lock, false, wait()),
        false => events::wait_for_lock(place, lock, false, wait),
    };
    0
}

unsafe fn try_first(entry: &Entry, from: usize, arguments: Arguments, _: Stack) -> usize {
    // SAFETY: the caller's arguments.
    let result = unsafe { call(entry.of_call(from), arguments) };
    let fails = i32::from(result as i32 == 0) * libc::EBUSY;
    events::acquired(Place::of_call(from), arguments[0], false, fails);
    result
}
