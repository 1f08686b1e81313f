//! Functions that libc calls in threads of its own, which it creates without a hook: when a timer expires
//! (`timer_create`), a message arrives (`mq_notify`), or a name is found (`getaddrinfo_a`). Each is called by
//! ours, in a thread that is sampled from then on.

use crate::real::interpose;
use crate::thread_life::{Start, StartRoutine, hpcrun_thread_start};
use crate::threads::context;
use hpcrun_core::session;
use hpcrun_core::threads::{self, with_room};
use hpcrun_core::unwind::Registers;
use std::ffi::{c_int, c_void};
use std::ptr;

/// `struct sigevent` in its form for `SIGEV_THREAD`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Event {
    value: *mut c_void,
    signal: i32,
    notify: i32,
    function: StartRoutine,
    attributes: *mut libc::pthread_attr_t,
    rest: [u64; 4],
}

const _: () = assert!(size_of::<Event>() == size_of::<libc::sigevent>());

/// What the program wants to be called.
struct Notify {
    function: StartRoutine,
    value: *mut c_void,
    creation: (u32, u32),
    /// Called once at most; a timer's is called again, and even after the timer is deleted.
    is_once: bool,
}

/// The event with our function instead of the program's, if it is to be called in a thread.
///
/// # Safety
/// `event` must be null or valid.
unsafe fn ours(event: *const Event, is_once: bool) -> Option<Event> {
    // SAFETY: the caller's promise.
    let theirs = unsafe { event.as_ref()? };
    if theirs.notify != libc::SIGEV_THREAD || !session::is_running() {
        return None;
    }
    let registers = Registers::here();
    let notify = with_room(|| {
        let Event { function, value, .. } = *theirs;
        Box::new(Notify { function, value, creation: context(registers), is_once })
    });
    Some(Event { function: notified, value: Box::into_raw(notify).cast(), ..*theirs })
}

/// Calls libc with our event, or the program's. If libc refuses it, ours is kept: it may have been called.
///
/// # Safety
/// `event` must be null or valid.
unsafe fn with_event(event: *const Event, is_once: bool, call: impl FnOnce(*const Event) -> c_int) -> c_int {
    // SAFETY: the caller's promise.
    let ours = unsafe { ours(event, is_once) };
    call(ours.as_ref().map_or(event, ptr::from_ref))
}

/// Runs in a thread that libc has created.
unsafe extern "C" fn notified(value: *mut c_void) -> *mut c_void {
    let notify = value.cast::<Notify>();
    // SAFETY: `ours` has made the value, which lives until here if it is for one call, else for ever.
    let (function, argument, creation) = unsafe {
        let Notify { function, value, creation, is_once } = *notify;
        if is_once {
            drop(Box::from_raw(notify));
        }
        (function, value, creation)
    };
    if threads::current().is_some() || !session::is_running() {
        // SAFETY: as libc would call it.
        return unsafe { function(argument) };
    }
    let start = Start::new(function, argument, creation);
    // SAFETY: `start` is fresh, as at the start of a thread.
    unsafe { hpcrun_thread_start(start.cast()) }
}

interpose! {
    timer_create(clock: libc::clockid_t, event: *const Event, timer: *mut libc::timer_t) -> c_int:
        |_, real| with_event(event, false, |event| real(clock, event, timer));
    mq_notify(queue: libc::mqd_t, event: *const Event) -> c_int: |_, real|
        with_event(event, true, |event| real(queue, event));
    getaddrinfo_a(mode: c_int, list: *mut *mut c_void, count: c_int, event: *const Event) -> c_int:
        |_, real| with_event(event, true, |event| real(mode, list, count, event));
}
