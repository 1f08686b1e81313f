//! Direct system calls. The preloaded library interposes the libc functions of these names, which act on the
//! program's behalf.
//!
//! Async-signal-safe, except [`read`] and [`read_text`].

use crate::arch::{self, PAGE};
use crate::sandbox::refuses;
use std::ffi::{CStr, CString};
use std::ptr;

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

pub fn close(descriptor: i32) {
    // SAFETY: closing touches no memory.
    unsafe { call(libc::SYS_close, [descriptor as usize, 0, 0, 0, 0]) };
}

/// What a short file of the kernel holds, by as few calls as that takes; empty if it cannot be read. Not
/// async-signal-safe.
pub fn read(path: &str) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let count = CString::new(path).ok().and_then(|path| read_start(&path, &mut bytes).ok());
    bytes.truncate(count.unwrap_or(0));
    bytes
}

/// The same as text. Not async-signal-safe.
pub fn read_text(path: &str) -> String {
    String::from_utf8(read(path)).unwrap_or_default()
}

/// The error of the calling thread's last call of libc.
pub fn last_error() -> i32 {
    // SAFETY: `__errno_location` returns a valid pointer to this thread's errno.
    unsafe { *libc::__errno_location() }
}

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

/// Sets a limit of the process; returns the previous one. Errors are those of the operating system.
pub fn limit(what: libc::__rlimit_resource_t, new: Option<libc::rlimit>) -> Result<libc::rlimit, i32> {
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let new = new.as_ref().map_or(ptr::null(), ptr::from_ref);
    let arguments = [0, what as usize, new as usize, &raw mut old as usize, 0];
    // SAFETY: the kernel reads and writes locals that outlive the call.
    match unsafe { call(libc::SYS_prlimit64, arguments) } {
        0 => Ok(old),
        error => Err(-error as i32),
    }
}

/// What `getrusage` tells, if it can be asked.
pub fn usage(whose: i32) -> Option<libc::rusage> {
    // SAFETY: zeros are a valid `rusage`; the kernel writes it, and it outlives the call.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let arguments = [whose as usize, &raw mut usage as usize, 0, 0, 0];
        (call(libc::SYS_getrusage, arguments) == 0).then_some(usage)
    }
}

pub fn nanoseconds(time: libc::timeval) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000
}

/// Sleeps for less than a second.
pub fn sleep(nanoseconds: i64) {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // SAFETY: the kernel reads a structure that outlives the call.
    unsafe { call(libc::SYS_nanosleep, [&raw const pause as usize, 0, 0, 0, 0]) };
}

/// What `attempt` gets within so many rounds of waiting, of 100 us each.
pub fn within<T>(rounds: u32, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..rounds {
        let result = attempt();
        if result.is_some() {
            return result;
        }
        sleep(100_000);
    }
    attempt()
}

/// The time of a clock, nanoseconds; 0: it cannot be read.
#[inline]
pub fn clock(id: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // Real time needs no system call.
    if !refuses(libc::SYS_clock_gettime) || matches!(id, libc::CLOCK_MONOTONIC | libc::CLOCK_REALTIME) {
        // SAFETY: the kernel writes `t`, a local that outlives the call, or reports an invalid clock.
        unsafe { libc::clock_gettime(id, &mut t) };
    }
    (t.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec as u64)
}

/// Reads a file that the kernel makes, from its start, and returns how many bytes there were. Errors are
/// those of the operating system. Not by `read`, which is interposed.
pub fn read_start(path: &CStr, to: &mut [u8]) -> Result<usize, i32> {
    if [libc::SYS_openat, libc::SYS_pread64, libc::SYS_close].into_iter().any(refuses) {
        return Err(libc::EPERM);
    }
    // SAFETY: the path is terminated, and the kernel writes at most the length of `to`. Neither call blocks.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return Err(last_error());
        }
        let count = libc::pread(file, to.as_mut_ptr().cast(), to.len(), 0);
        let error = last_error();
        close(file);
        usize::try_from(count).map_err(|_| error)
    }
}

/// Copies memory of the process from an address on, and returns how many bytes could be read.
pub fn copy(address: u64, to: &mut [u8]) -> usize {
    if refuses(libc::SYS_process_vm_readv) || refuses(libc::SYS_getpid) {
        return 0;
    }
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    // One part a page: a part is read as a whole or not at all.
    let first = (PAGE - address as usize % PAGE).min(to.len());
    let part = |from: u64, len: usize| libc::iovec { iov_base: from as *mut libc::c_void, iov_len: len };
    let remote = [part(address, first), part(address.wrapping_add(first as u64), to.len() - first)];
    // SAFETY: the kernel checks the remote range. It writes at most `to.len()` bytes into `to`, which we
    // borrow mutably.
    let n = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, remote.as_ptr(), 2, 0) };
    n.max(0) as usize
}

/// A text that is built without allocation. It is none if a part had no room.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Text<N> {
        Text { bytes: [0; N], len: 0 }
    }

    pub fn text(&mut self, text: &[u8]) -> &mut Text<N> {
        match self.bytes.get_mut(self.len..).and_then(|rest| rest.get_mut(..text.len())) {
            Some(to) => {
                to.copy_from_slice(text);
                self.len += text.len();
            }
            None => self.len = N,
        }
        self
    }

    pub fn number(&mut self, mut n: u64) -> &mut Text<N> {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                break self.text(&digits[at..]);
            }
        }
    }

    /// With a zero at the end, if there is room.
    pub fn as_c_str(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(&self.bytes).ok().filter(|_| self.len < N)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_all_its_parts_or_is_none() {
        let mut text = Text::<24>::new();
        text.text(b"a").number(0).text(b"/").number(u64::MAX);
        assert_eq!(text.as_c_str(), Some(c"a0/18446744073709551615"));
        assert_eq!(text.text(b"b").as_c_str(), None);
    }
}
