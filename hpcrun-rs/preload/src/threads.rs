//! Threads: the creation context is captured in the creator, the state is made in the new
//! thread before its start routine, and retired after the last of its destructors.

use crate::real::real;
use hpcrun_core::logical::agents;
use hpcrun_core::session;
use hpcrun_core::threads::{self, ThreadState};
use hpcrun_core::unwind::Registers;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

type StartRoutine = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

/// What the creator passes to the new thread.
struct Start {
    routine: StartRoutine,
    argument: *mut c_void,
    creation: (u32, u32),
    state: Option<&'static ThreadState>,
}

/// What the thread-start frame keeps on its stack.
#[repr(C)]
struct StartFrame {
    routine: StartRoutine,
    argument: *mut c_void,
}

// The outermost frame of every thread that we saw created. It calls the program's start routine
// from one known place: there a path leaves the thread's stack for its creation context. It has no
// personality, so cancellation and pthread_exit unwind through it.
core::arch::global_asm!(
    ".text",
    ".p2align 4",
    ".globl hpcrun_thread_start",
    ".hidden hpcrun_thread_start",
    ".type hpcrun_thread_start,@function",
    "hpcrun_thread_start:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "sub rsp, 16",
    "mov rsi, rsp",
    "call {enter}",
    "mov rdi, qword ptr [rsp + 8]",
    "call qword ptr [rsp]",
    ".globl hpcrun_thread_start_return",
    ".hidden hpcrun_thread_start_return",
    "hpcrun_thread_start_return:",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size hpcrun_thread_start, . - hpcrun_thread_start",
    enter = sym enter,
);

unsafe extern "C" {
    fn hpcrun_thread_start(start: *mut c_void) -> *mut c_void;
    static hpcrun_thread_start_return: u8;
}

static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Before the first thread: the key whose destructor ends a thread's profile, and the address
/// by which the thread-start agent knows its frames.
pub(crate) fn prepare() {
    let mut key = 0;
    // SAFETY: `key` is ours; the destructor is a function of this library.
    if unsafe { libc::pthread_key_create(&mut key, Some(leave)) } == 0 {
        KEY.store(key, Ordering::Release);
    }
    agents::set_thread_start_return(&raw const hpcrun_thread_start_return as u64);
}

/// In the new thread, before its start routine.
unsafe extern "C" fn enter(start: *mut Start, frame: *mut StartFrame) {
    // SAFETY: `start` was boxed by `pthread_create` below for this thread alone; `frame` is the
    // caller's stack space. A panic aborts.
    let (start, frame) = unsafe { (Box::from_raw(start), &mut *frame) };
    *frame = StartFrame {
        routine: start.routine,
        argument: start.argument,
    };
    if !session::is_running() {
        start.state.inspect(|state| threads::release(state));
        return;
    }
    let stack = session::pthread_stack().unwrap_or((0, 0));
    let Some(state) = start.state else {
        threads::WITHOUT_STATE.fetch_add(1, Ordering::Relaxed);
        return;
    };
    threads::begin(state, start.creation, stack, false);
    // SAFETY: a valid key; the value is our state.
    unsafe {
        let value = ptr::from_ref(state).cast();
        libc::pthread_setspecific(KEY.load(Ordering::Acquire), value);
    }
    session::arm(state);
}

/// Rounds of key destructors that POSIX guarantees; ours ends the profile in the last one.
const DESTRUCTOR_ROUNDS: usize = 4;

/// The key's destructor.
unsafe extern "C" fn leave(value: *mut c_void) {
    // SAFETY: the value is a thread state, which lives for ever.
    let state: &'static ThreadState = unsafe { &*value.cast() };
    if state.count_destructor_round() < DESTRUCTOR_ROUNDS {
        // SAFETY: puts the value back, so that the next round comes here again.
        unsafe { libc::pthread_setspecific(KEY.load(Ordering::Acquire), value) };
        return;
    }
    state.retire();
}

/// The registers of the caller of this function's caller are found by unwinding from here.
#[inline(always)]
pub(crate) fn here() -> Registers {
    let (ip, sp, fp): (u64, u64, u64);
    // SAFETY: reads three registers.
    unsafe {
        core::arch::asm!(
            "lea {0}, [rip]",
            "mov {1}, rsp",
            "mov {2}, rbp",
            out(reg) ip,
            out(reg) sp,
            out(reg) fp,
            options(nomem, nostack, preserves_flags)
        );
    }
    Registers::new(ip, sp, fp)
}

/// Interposed: captures the creation context.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
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
    if !session::is_running() {
        // SAFETY: libc's own, same arguments.
        return unsafe { real(thread, attributes, routine, argument) };
    }
    session::refresh_if_stale();
    let creation = threads::current()
        .and_then(|t| t.capture(here()))
        .unwrap_or((0, 0));
    let start = Box::into_raw(Box::new(Start {
        routine,
        argument,
        creation,
        state: threads::acquire(),
    }));
    // SAFETY: `start` is taken over by `enter` in the new thread, or taken back here.
    unsafe {
        let error = real(thread, attributes, hpcrun_thread_start, start.cast());
        if error != 0 {
            let start = Box::from_raw(start);
            start.state.inspect(|state| threads::release(state));
        }
        error
    }
}
