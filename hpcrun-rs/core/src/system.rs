//! Direct system calls. The preloaded library interposes the libc functions of these names, which act on the
//! program's behalf.
//!
//! Async-signal-safe.

use crate::arch;
use crate::sandbox::refuses;

/// Makes a system call of up to five arguments, unless the program's sandbox refuses it; the result is
/// negative for an error.
///
/// # Safety
/// As for the system call.
#[inline]
pub unsafe fn call(number: i64, arguments: [usize; 5]) -> isize {
    if refuses(number) {
        return -(libc::EPERM as isize);
    }
    // SAFETY: the caller's promise.
    unsafe { arch::system_call(number, arguments) }
}

/// The process's id; `None` if it cannot be asked for.
pub fn process_id() -> Option<u32> {
    // SAFETY: getpid has no preconditions.
    u32::try_from(unsafe { call(libc::SYS_getpid, [0; 5]) }).ok()
}

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
