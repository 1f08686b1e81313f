//! A thread from its first instruction to the last of its destructors: it begins its state before its start
//! routine and retires it at the end.

use crate::{affinity, events, openmp, tbb};
use critical_path::Strand;
use hpc_formats::loss::LossCause;
use hpcrun_core::image;
use hpcrun_core::logical::agents;
use hpcrun_core::session;
use hpcrun_core::threads::{self, NewThread, OwnThread};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) type StartRoutine = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

/// The data that the creator passes to the new thread.
pub(crate) struct Start {
    routine: StartRoutine,
    argument: *mut c_void,
    creation: (u32, u32),
    pub(crate) state: Option<NewThread>,
    /// The creator's strand on the critical path.
    pub(crate) strand: Option<Strand>,
    /// It is created in a call of a message-passing library.
    is_of_call: bool,
    /// It is created by a runtime whose tasks are known, and waits for one.
    is_paused: bool,
    /// The bounds of its stack, if libc does not know them. Such a thread uses its creator's thread-local
    /// storage.
    pub(crate) stack: Option<(u64, u64)>,
}

/// The data in the stack frame of `hpcrun_thread_start`.
#[repr(C)]
struct StartFrame {
    routine: StartRoutine,
    argument: *mut c_void,
}

// The outermost frame of every thread whose creation we observe. It calls the program's start routine from
// one known address, where a path leaves the thread's stack for its creation context. It has no personality
// routine, so cancellation and pthread_exit unwind through it.
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
    pub(crate) fn hpcrun_thread_start(start: *mut c_void) -> *mut c_void;
    static hpcrun_thread_start_return: u8;
}

static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Prepares for threads: creates the key whose destructor ends a thread's profile, and sets the addresses
/// by which the thread-start agent recognises its frames.
pub(crate) fn prepare() {
    let mut key = 0;
    // SAFETY: `key` is a local; the destructor is a function of this library, which is never unloaded.
    if unsafe { libc::pthread_key_create(&mut key, Some(leave)) } == 0 {
        KEY.store(key, Ordering::Release);
    }
    agents::thread_start::set_returns([&raw const hpcrun_thread_start_return as u64, context_return()]);
}

/// What a routine returns to that `makecontext` has put on a stack; 0 if that is not seen.
fn context_return() -> u64 {
    extern "C" fn nothing() {}
    let mut stack = [0_u64; 32];
    // SAFETY: zeros are a valid context. libc writes it and the stack, on which nobody ever runs.
    let top = unsafe {
        let mut context: libc::ucontext_t = std::mem::zeroed();
        context.uc_stack.ss_sp = stack.as_mut_ptr().cast();
        context.uc_stack.ss_size = size_of_val(&stack);
        libc::makecontext(&mut context, nothing, 0);
        context.uc_mcontext.gregs[libc::REG_RSP as usize] as usize
    };
    let place = top.wrapping_sub(stack.as_ptr() as usize) / size_of::<u64>();
    stack.get(place).copied().unwrap_or(0)
}

/// Begins the new thread's state, before its start routine.
unsafe extern "C" fn enter(start: *mut Start, frame: *mut StartFrame) {
    // SAFETY: `Start::new` boxed `start` for this thread alone; `frame` is stack space of
    // `hpcrun_thread_start`. A panic aborts.
    let (start, frame) = unsafe { (Box::from_raw(start), &mut *frame) };
    *frame = StartFrame { routine: start.routine, argument: start.argument };
    if !session::is_running() {
        return;
    }
    let Some(new) = start.state else {
        image::count_loss(LossCause::NoThreadState);
        return;
    };
    let state = match start.stack {
        Some(stack) => threads::begin_unnamed(new, start.creation, stack, false),
        None => {
            let stack = session::pthread_stack().unwrap_or((0, 0));
            let state = threads::begin(new, start.creation, stack, false);
            announce(state);
            state
        }
    };
    affinity::threads_changed();
    if start.is_paused {
        state.begin_pause();
    }
    session::arm(state);
    if start.is_of_call {
        state.path().ignore();
    } else if start.stack.is_none() {
        state.begin_path(start.strand, start.creation, start.routine as usize as u64);
    }
}

/// Makes the key's destructor run at the end of the calling thread, whose state this is.
pub(crate) fn announce(state: OwnThread) {
    let value = state.cookie() as *const c_void;
    // SAFETY: `prepare` created the key.
    unsafe { libc::pthread_setspecific(KEY.load(Ordering::Acquire), value) };
}

/// The number of rounds of key destructors that POSIX guarantees; ours ends the profile in the last.
const DESTRUCTOR_ROUNDS: usize = 4;

/// The key's destructor.
unsafe extern "C" fn leave(value: *mut c_void) {
    let Some(state) = threads::current() else { return };
    if state.count_destructor_round() < DESTRUCTOR_ROUNDS {
        // SAFETY: sets the value again, so that the next round calls this destructor.
        unsafe { libc::pthread_setspecific(KEY.load(Ordering::Acquire), value) };
        return;
    }
    tbb::end_thread();
    openmp::libomp::end_thread();
    state.retire();
    affinity::threads_changed();
}

impl Start {
    pub(crate) fn new(routine: StartRoutine, argument: *mut c_void, creation: (u32, u32)) -> *mut Start {
        Box::into_raw(Box::new(Start {
            routine,
            argument,
            creation,
            state: threads::acquire(),
            strand: None,
            is_of_call: threads::current().is_some_and(|t| t.is_in_call()),
            is_paused: threads::current().is_some_and(|t| t.working().is_paused() && !t.is_in_call())
                || tbb::owns(routine as usize as u64),
            stack: None,
        }))
    }
}

/// Frees the data of a thread that did not start.
///
/// # Safety
/// `start` must come from [`Start::new`], and must not be used again.
pub(crate) unsafe fn take_back(start: *mut Start) {
    // SAFETY: the caller's promise.
    let start = unsafe { Box::from_raw(start) };
    if let Some(strand) = start.strand {
        events::amend(|tracked| tracked.thread.discard(strand));
    }
}
