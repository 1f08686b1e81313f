//! POSIX per-thread timers. They need no permission. Those of CPU time cost next to nothing, since they fire
//! in a tick that occurs anyway, but not more often.
//!
//! Async-signal-safe.

use super::jitter::Pace;
use super::{Order, word_at};
use crate::config::Event;
use crate::sandbox::refuses;
use crate::system;

/// `si_code` of a timer's signal.
pub(super) const SI_TIMER: i32 = -2;

pub(super) fn clock_of(event: Event) -> libc::clockid_t {
    match event {
        Event::CpuTime => libc::CLOCK_THREAD_CPUTIME_ID,
        Event::WallTime => libc::CLOCK_MONOTONIC,
    }
}

/// Samples are whole ticks apart, if the event's clock is looked at in ticks only.
pub(super) fn pace(period: u64, event: Event) -> Pace {
    Pace { period, tick: tick(event), samples_a_draw: 1 }
}

/// Nanoseconds of the tick in which the kernel looks at the event's timers; 0 if they fire at any time.
pub(super) fn tick(event: Event) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // The coarse clock advances once a tick. SAFETY: the kernel writes `t`, a local that outlives the call.
    let is_known =
        event == Event::CpuTime && unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut t) } == 0;
    if is_known { t.tv_nsec as u64 } else { 0 }
}

/// Creates a timer whose signals go to the ordered thread. Uses system calls, because the library's function
/// is interposed and may allocate. Errors are those of the operating system.
pub(super) fn create(order: &Order, signal: i32) -> Result<i32, i32> {
    let clock = clock_of(order.event) as usize;
    // SAFETY: zeros are a valid `sigevent`. The kernel reads it and writes `timer`; both outlive the call.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_notify_thread_id = order.tid as i32;
        event.sigev_value.sival_ptr = order.cookie as *mut libc::c_void;
        let mut timer = -1_i32;
        let (event, id) = (&raw const event as usize, &raw mut timer as usize);
        match system::call(libc::SYS_timer_create, [clock, event, id, 0, 0]) {
            0 => Ok(timer),
            error => Err(-error as i32),
        }
    }
}

/// Makes a timer fire after `distance` nanoseconds, and then every `period` until it is set again. Errors
/// are those of the operating system.
#[inline]
pub(super) fn set(timer: i32, distance: u64, period: u64) -> Result<(), i32> {
    let time = |ns: u64| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    };
    let spec = libc::itimerspec { it_interval: time(period), it_value: time(distance) };
    let arguments = [timer as usize, 0, &raw const spec as usize, 0, 0];
    // SAFETY: `spec` outlives the call; the kernel refuses a timer that no longer exists.
    match unsafe { system::call(libc::SYS_timer_settime, arguments) } {
        0 => Ok(()),
        error => Err(-error as i32),
    }
}

/// How often the thread's timer has expired for this signal, if it is the timer's.
#[inline]
pub(super) fn claims(info: &libc::siginfo_t, cookie: u64) -> Option<u64> {
    let is_own = info.si_code == SI_TIMER && word_at(info, 24) == cookie;
    is_own.then(|| 1 + (word_at(info, 16) >> 32))
}

/// Deletes a timer. False if the program has deleted it.
pub(super) fn end(timer: i32) -> bool {
    // SAFETY: deleting touches no memory; the kernel refuses a timer that no longer exists.
    let gone = unsafe { system::call(libc::SYS_timer_delete, [timer as usize, 0, 0, 0, 0]) != 0 };
    !gone || refuses(libc::SYS_timer_delete)
}
