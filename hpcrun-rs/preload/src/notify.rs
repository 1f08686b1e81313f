//! Functions that libc calls in threads of its own, which it creates without a hook: when a timer expires
//! (`timer_create`), an asynchronous operation ends (`aio_read` and kin), a message arrives (`mq_notify`), or
//! a name is found (`getaddrinfo_a`). Each is called by ours, in a thread that is sampled from then on.

use crate::real::interpose;
use crate::thread_life::{Start, StartRoutine, hpcrun_thread_start};
use crate::threads::context;
use hpcrun_core::threads::{self, with_room};
use hpcrun_core::unwind::Registers;
use hpcrun_core::{session, system};
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
    /// The program's own structure, which has our function until libc has read it.
    place: *mut Event,
    /// Called once at most; a timer's is called again, and even after the timer is deleted.
    is_once: bool,
}

impl Event {
    /// The event with our function instead of the program's, if it is to be called in a thread.
    ///
    /// # Safety
    /// `event` must be null or valid.
    unsafe fn ours(event: *const Event, place: *mut Event, is_once: bool) -> Option<Event> {
        // SAFETY: the caller's promise.
        let theirs = unsafe { event.as_ref()? };
        if theirs.notify != libc::SIGEV_THREAD || !session::is_running() {
            return None;
        }
        let registers = Registers::here();
        let notify = with_room(|| {
            Box::new(Notify {
                function: theirs.function,
                value: theirs.value,
                creation: context(registers),
                place,
                is_once,
            })
        });
        Some(Event { function: notified, value: Box::into_raw(notify).cast(), ..*theirs })
    }
}

/// Calls libc with our event, or the program's. If libc refuses it, ours is kept: it may have been called.
///
/// # Safety
/// `event` must be null or valid.
unsafe fn with_event(event: *const Event, is_once: bool, call: impl FnOnce(*const Event) -> c_int) -> c_int {
    // SAFETY: the caller's promise.
    let ours = unsafe { Event::ours(event, ptr::null_mut(), is_once) };
    call(ours.as_ref().map_or(event, ptr::from_ref))
}

/// Runs in a thread that libc has created.
unsafe extern "C" fn notified(value: *mut c_void) -> *mut c_void {
    let notify = value.cast::<Notify>();
    // SAFETY: `Event::ours` has made the value, which lives until here if it is for one call, else for ever.
    let (function, argument, creation) = unsafe {
        let Notify { function, value, creation, place, is_once } = *notify;
        if !place.is_null() {
            give_back(place, notify);
        }
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

/// Puts the program's function back into its structure, unless that has gone, or changed: then it is not
/// touched.
///
/// # Safety
/// `notify` must be valid.
unsafe fn give_back(place: *mut Event, notify: *const Notify) {
    let move_words = |is_read: bool, words: &mut [usize; 2], offset: usize| {
        let part = |base: *mut c_void| libc::iovec { iov_base: base, iov_len: size_of::<usize>() };
        let local = words.each_mut().map(|word| part(ptr::from_mut(word).cast()));
        let remote = [0, offset].map(|at| part(place.cast::<u8>().wrapping_add(at).cast()));
        let process = system::process_id().unwrap_or(0) as libc::pid_t;
        let call = if is_read { libc::process_vm_readv } else { libc::process_vm_writev };
        // SAFETY: the kernel checks the remote addresses; the local words outlive the call.
        unsafe { call(process, local.as_ptr(), 2, remote.as_ptr(), 2, 0) }
    };
    let at_function = std::mem::offset_of!(Event, function);
    let mut found = [0; 2];
    let read = move_words(true, &mut found, at_function);
    if read == 16 && found == [notify as usize, notified as *const () as usize] {
        // SAFETY: the caller's promise.
        let mut theirs = unsafe { [(*notify).value as usize, (*notify).function as usize] };
        move_words(false, &mut theirs, at_function);
    }
}

/// Puts our function into the program's structure of an operation, from which libc reads it at the end.
///
/// # Safety
/// `operation` must be null or valid, and not under way.
unsafe fn lend(operation: Operation) {
    // SAFETY: the caller's promise; the program leaves the structure alone from now on.
    unsafe {
        if !operation.is_null() {
            let place = (&raw mut (*operation).aio_sigevent).cast::<Event>();
            if let Some(ours) = Event::ours(place, place, true) {
                *place = ours;
            }
        }
    }
}

/// Takes it out again, since the operation has not begun.
///
/// # Safety
/// As for [`lend`].
unsafe fn take_back(operation: Operation) {
    // SAFETY: the caller's promise; our function's value is one of ours.
    unsafe {
        if let Some(operation) = operation.as_mut() {
            let place = (&raw mut operation.aio_sigevent).cast::<Event>();
            if (*place).notify == libc::SIGEV_THREAD
                && ptr::fn_addr_eq((*place).function, notified as StartRoutine)
            {
                let notify = Box::from_raw((*place).value.cast::<Notify>());
                ((*place).function, (*place).value) = (notify.function, notify.value);
            }
        }
    }
}

/// Makes a call that begins an operation.
///
/// # Safety
/// As for [`lend`].
unsafe fn operate(operation: Operation, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        lend(operation);
        let result = call();
        if result != 0 {
            take_back(operation);
        }
        result
    }
}

/// Begins the operations of a list. Those that do not begin keep our function, which calls theirs.
///
/// # Safety
/// The list must have so many operations, each as for [`lend`].
unsafe fn operate_all(list: *const Operation, count: c_int) {
    let is_one = |operation: &Operation| {
        // SAFETY: the caller's promise.
        unsafe { operation.as_ref() }.is_some_and(|o| o.aio_lio_opcode != libc::LIO_NOP)
    };
    // SAFETY: the caller's promise.
    let operations = (0..count.max(0) as usize).map(|i| unsafe { *list.add(i) });
    // SAFETY: the same.
    operations.filter(is_one).for_each(|operation| unsafe { lend(operation) });
}

type Operation = *mut libc::aiocb;

macro_rules! interpose_operation {
    ($($name:ident ($($before:ident: $type:ty,)*);)*) => { interpose! { $(
        $name($($before: $type,)* operation: Operation) -> c_int: |call| operate(operation, call);
    )* } };
}

interpose_operation! {
    aio_read();
    aio_read64();
    aio_write();
    aio_write64();
    aio_fsync(how: c_int,);
    aio_fsync64(how: c_int,);
}

macro_rules! interpose_list {
    ($($name:ident)*) => { interpose! { $(
        $name(mode: c_int, list: *const Operation, count: c_int, event: *const Event) -> c_int: |_, real| {
            operate_all(list, count);
            with_event(event, true, |event| real(mode, list, count, event))
        };
    )* } };
}

interpose_list! { lio_listio lio_listio64 }

interpose! {
    timer_create(clock: libc::clockid_t, event: *const Event, timer: *mut libc::timer_t) -> c_int:
        |_, real| with_event(event, false, |event| real(clock, event, timer));
    mq_notify(queue: libc::mqd_t, event: *const Event) -> c_int: |_, real|
        with_event(event, true, |event| real(queue, event));
    getaddrinfo_a(mode: c_int, list: *mut *mut c_void, count: c_int, event: *const Event) -> c_int:
        |_, real| with_event(event, true, |event| real(mode, list, count, event));
}
