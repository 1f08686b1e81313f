//! `--critical-path=every:TIME`: a thread of the library's own, which writes the critical path while the
//! program runs. It is neither sampled nor tracked, and takes no signals of the program.

use crate::real::real;
use crate::thread_life::StartRoutine;
use hpcrun_core::{image, path, session, system};
use std::ffi::c_void;
use std::{mem, ptr};

/// Threads are asked how far they are, and have so many nanoseconds to answer by their next events.
const PATIENCE_NS: i64 = 100_000_000;

/// Starts the thread if the run asks for it: in the constructor, and in a forked child.
pub(crate) fn start() {
    if interval().is_none() {
        return;
    }
    // SAFETY: libc's own functions on locals, with their signatures; the routine is one of this library,
    // which is never unloaded. The set is restored as it was.
    unsafe {
        let create = real!(c"pthread_create": fn(
            *mut libc::pthread_t, *const libc::pthread_attr_t, StartRoutine, *mut c_void,
        ) -> i32);
        let mask = real!(c"pthread_sigmask": fn(
            i32, *const libc::sigset_t, *mut libc::sigset_t,
        ) -> i32);
        let (mut all, mut before) = (mem::zeroed(), mem::zeroed());
        libc::sigfillset(&mut all);
        mask(libc::SIG_SETMASK, &all, &mut before);
        let mut thread = 0;
        if create(&mut thread, ptr::null(), write_repeatedly, ptr::null_mut()) == 0 {
            libc::pthread_detach(thread);
        }
        mask(libc::SIG_SETMASK, &before, ptr::null_mut());
    }
}

/// Seconds between two files.
fn interval() -> Option<u64> {
    let every = image::current()?.config.critical_path?.every;
    (every > 0).then_some(every)
}

unsafe extern "C" fn write_repeatedly(_: *mut c_void) -> *mut c_void {
    let pause_ns = interval().unwrap_or(1).saturating_mul(1_000_000_000) as i64;
    let mut left = pause_ns;
    while session::is_running() {
        system::sleep(left.min(PATIENCE_NS));
        left -= PATIENCE_NS;
        if left <= 0 {
            left = pause_ns;
            path::ask();
            system::sleep(PATIENCE_NS);
            if session::is_running() {
                path::write(false);
            }
        }
    }
    ptr::null_mut()
}
