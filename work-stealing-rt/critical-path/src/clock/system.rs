//! The system's clocks.

use super::Timer;

#[cfg(all(any(target_os = "linux", target_os = "macos"), not(miri)))]
pub(super) use thread_clock::{TIMER, thread_time};

#[cfg(not(all(any(target_os = "linux", target_os = "macos"), not(miri))))]
pub(super) use wall_clock::{TIMER, thread_time};

#[cfg(all(any(target_os = "linux", target_os = "macos"), not(miri)))]
mod thread_clock {
    use super::Timer;
    use core::ffi::{c_int, c_long};

    pub(crate) const TIMER: Timer = Timer::System;

    const THREAD_CPU_TIME: c_int = if cfg!(target_os = "macos") { 16 } else { 3 };

    /// `time_t` is as long as `long` on both systems, 32-bit musl aside, which has no old symbol left.
    #[repr(C)]
    struct Time {
        seconds: c_long,
        nanoseconds: c_long,
    }

    unsafe extern "C" {
        fn clock_gettime(clock: c_int, time: *mut Time) -> c_int;
    }

    /// CPU time of the calling thread in nanoseconds. Async-signal-safe.
    pub(crate) fn thread_time() -> u64 {
        let mut time = Time {
            seconds: 0,
            nanoseconds: 0,
        };
        // SAFETY: a valid place for the result, which the call fills. It cannot fail for this clock, and if
        // it did the time would be 0, which advances no clock.
        unsafe { clock_gettime(THREAD_CPU_TIME, &raw mut time) };
        time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
    }
}

#[cfg(not(all(any(target_os = "linux", target_os = "macos"), not(miri))))]
mod wall_clock {
    use super::Timer;
    use std::sync::OnceLock;
    use std::time::Instant;

    pub(crate) const TIMER: Timer = Timer::Wall;

    /// Time since the first call in nanoseconds.
    pub(crate) fn thread_time() -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}
