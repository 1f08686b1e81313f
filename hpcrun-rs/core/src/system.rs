//! Direct system calls. The preloaded library interposes the libc functions of these names, which act on the
//! program's behalf.
//!
//! Async-signal-safe.

pub use crate::arch::system_call as call;

/// Closes one of our descriptors.
pub fn close(descriptor: i32) {
    // SAFETY: closing touches no memory.
    unsafe { call(libc::SYS_close, [descriptor as usize, 0, 0, 0, 0]) };
}

/// The error of the calling thread's last call of libc.
pub fn last_error() -> i32 {
    // SAFETY: `__errno_location` returns a valid pointer to this thread's errno.
    unsafe { *libc::__errno_location() }
}

/// The calling thread's kernel id.
#[inline]
pub fn thread_id() -> u32 {
    // SAFETY: gettid has no preconditions.
    unsafe { call(libc::SYS_gettid, [0; 5]) as u32 }
}

/// Whether a thread of a process no longer exists.
pub fn is_gone(process: u32, thread: u32) -> bool {
    let arguments = [process as usize, thread as usize, 0, 0, 0];
    // SAFETY: signal 0 delivers nothing; it only tests whether the thread exists.
    unsafe { call(libc::SYS_tgkill, arguments) == -(libc::ESRCH as isize) }
}

const MEMBARRIER_PRIVATE_EXPEDITED: usize = 8;
const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED: usize = 16;

/// Prepares [`membarrier`].
pub fn register_membarrier() {
    let arguments = [MEMBARRIER_REGISTER_PRIVATE_EXPEDITED, 0, 0, 0, 0];
    // SAFETY: touches no memory.
    unsafe { call(libc::SYS_membarrier, arguments) };
}

/// A memory barrier on all threads of the process. On an old kernel: waits until they had one, for all that
/// is known.
pub fn membarrier() {
    let arguments = [MEMBARRIER_PRIVATE_EXPEDITED, 0, 0, 0, 0];
    // SAFETY: touches no memory.
    if unsafe { call(libc::SYS_membarrier, arguments) } != 0 {
        sleep(1_000_000);
    }
}

/// Sleeps for less than a second.
pub fn sleep(nanoseconds: i64) {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // SAFETY: the kernel reads a structure that outlives the call.
    unsafe { call(libc::SYS_nanosleep, [&raw const pause as usize, 0, 0, 0, 0]) };
}
