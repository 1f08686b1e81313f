//! Threads that the program creates: each gets the context of its creation.

use crate::events::{self, Place};
use crate::fork;
use crate::real::{interpose, real};
use crate::start;
use crate::thread_life::{Start, StartRoutine, hpcrun_thread_start, take_back};
use hpcrun_core::threads::{self, NewThread, with_room};
use hpcrun_core::unwind::Registers;
use hpcrun_core::{host, session};
use std::ffi::{c_int, c_void};
use std::ptr;

type Attributes = *const libc::pthread_attr_t;

interpose! {
    // Captures the creation context.
    pthread_create(
        thread: *mut libc::pthread_t, attributes: Attributes, routine: StartRoutine, argument: *mut c_void
    ) -> c_int: |_| create(thread, attributes, routine, argument);
    // glibc's function calls its own `pthread_create`, which is not interposed. A C11 routine returns an
    // integer, and `thrd_join` reads only that part of the result.
    thrd_create(
        thread: *mut libc::pthread_t, routine: StartRoutine, argument: *mut c_void
    ) -> c_int: |_| match create(thread, ptr::null(), routine, argument) {
        0 => THRD_SUCCESS,
        libc::ENOMEM | libc::EAGAIN => THRD_NOMEM,
        _ => THRD_ERROR,
    };
    // Creates a thread without libc's thread functions. Variadic: at most three more arguments, which are
    // passed on unread.
    clone(
        routine: CloneRoutine, stack: *mut c_void, flags: c_int, argument: *mut c_void,
        parent_id: *mut c_void, storage: *mut c_void, child_id: *mut c_void
    ) -> c_int: |_, real| begin(routine, stack, flags, argument, |routine, argument| {
        real(routine, stack, flags, argument, parent_id, storage, child_id)
    });
}

/// Creates a thread with its creator's context.
///
/// # Safety
/// As for `pthread_create`.
unsafe fn create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    routine: StartRoutine,
    argument: *mut c_void,
) -> i32 {
    // SAFETY: libc's signature.
    let real = unsafe {
        real!(c"pthread_create": fn(
            *mut libc::pthread_t, *const libc::pthread_attr_t, StartRoutine, *mut c_void,
        ) -> i32)
    };
    // A library that wants to be first, too, may run before ours.
    start::ensure(start::arguments);
    if !session::is_running() {
        // SAFETY: libc's own function, same arguments.
        return unsafe { real(thread, attributes, routine, argument) };
    }
    let registers = Registers::here();
    let start = with_room(|| {
        session::refresh_if_outdated();
        Start::new(routine, argument, context(registers))
    });
    // SAFETY: `enter` takes ownership of `start` in the new thread; if there is none, we take it back here.
    unsafe {
        (*start).strand = events::tell(Place::CONTEXT, |tracked, at| tracked.thread.copy(at));
        let error = real(thread, attributes, hpcrun_thread_start, start.cast());
        if error != 0 {
            take_back(start);
        }
        error
    }
}

/// Captures the calling thread's context for a thread that it creates. A thread that uses the thread-local
/// storage of another must not use its recorder.
pub(crate) fn context(registers: Registers) -> (u32, u32) {
    let own = threads::current().filter(|t| t.is_own());
    let kept = own.and_then(|t| t.capture(registers));
    kept.unwrap_or((0, 0))
}

const THRD_SUCCESS: i32 = 0;
const THRD_ERROR: i32 = 2;
const THRD_NOMEM: i32 = 3;

type CloneRoutine = unsafe extern "C" fn(*mut c_void) -> c_int;

/// What `clone` does. A thread that it creates uses its creator's thread-local storage: it is sampled, and
/// its waits in libc count as its creator's. A thread with its own storage is not sampled, since the handler
/// could not find its state.
///
/// # Safety
/// As for libc's function, which `real` calls with its other arguments.
unsafe fn begin(
    routine: CloneRoutine,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    real: impl FnOnce(CloneRoutine, *mut c_void) -> c_int,
) -> c_int {
    if flags & libc::CLONE_NEWUTS != 0 {
        host::moving();
    }
    if flags & libc::CLONE_VM == 0 && session::is_running() {
        // The child has a copy of our frame.
        let mut fork = (routine, argument);
        return real(forked, ptr::from_mut(&mut fork).cast());
    }
    let kind = flags & (libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_SETTLS);
    if kind != libc::CLONE_VM || stack.is_null() || !session::is_running() {
        return real(routine, argument);
    }
    // SAFETY: both types return a word; libc reads the part that the routine's type has.
    let as_start: StartRoutine = unsafe { std::mem::transmute(routine) };
    let registers = Registers::here();
    let start = with_room(|| Start::new(as_start, argument, context(registers)));
    // SAFETY: `cloned` takes ownership of `start` in the new thread; if there is none, we take it back here.
    unsafe {
        (*start).stack = Some(session::mapping_below(stack as u64));
        threads::current().inspect(|t| t.path().share());
        let child = real(cloned, start.cast());
        if child < 0 {
            take_back(start);
        }
        child
    }
}

/// Runs in a child with memory of its own.
unsafe extern "C" fn forked(fork: *mut c_void) -> c_int {
    // SAFETY: `clone` passes the routine with its argument, in the child's copy of its frame.
    unsafe {
        let (routine, argument) = *fork.cast::<(CloneRoutine, *mut c_void)>();
        fork::in_child();
        let result = routine(argument);
        // libc ends the process by a system call.
        start::stop("_exit");
        result
    }
}

/// Runs in a cloned thread.
unsafe extern "C" fn cloned(start: *mut c_void) -> c_int {
    // SAFETY: `clone` made `start` for this thread alone. We read its state before `hpcrun_thread_start`
    // takes ownership.
    unsafe {
        let cookie = (*start.cast::<Start>()).state.as_ref().map(NewThread::cookie);
        let result = hpcrun_thread_start(start);
        cookie.and_then(threads::by_cookie).inspect(|own| own.retire());
        result as c_int
    }
}
