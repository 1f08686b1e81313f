//! Threads: the creator captures the creation context. The new thread begins its state before its start
//! routine, and retires it after the last of its destructors.

use crate::real::real;
use hpcrun_core::logical::agents;
use hpcrun_core::session;
use hpcrun_core::threads::{self, ThreadState};
use hpcrun_core::unwind::Registers;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

type StartRoutine = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

/// The data that the creator passes to the new thread.
struct Start {
    routine: StartRoutine,
    argument: *mut c_void,
    creation: (u32, u32),
    state: Option<&'static ThreadState>,
    /// The bounds of its stack, if libc does not know them. Such a thread uses its creator's thread-local
    /// storage.
    stack: Option<(u64, u64)>,
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
    fn hpcrun_thread_start(start: *mut c_void) -> *mut c_void;
    static hpcrun_thread_start_return: u8;
}

static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Prepares for threads: creates the key whose destructor ends a thread's profile, and sets the address by
/// which the thread-start agent recognises its frames.
pub(crate) fn prepare() {
    let mut key = 0;
    // SAFETY: `key` is a local; the destructor is a function of this library, which is never unloaded.
    if unsafe { libc::pthread_key_create(&mut key, Some(leave)) } == 0 {
        KEY.store(key, Ordering::Release);
    }
    agents::thread_start::set_return(&raw const hpcrun_thread_start_return as u64);
}

/// Begins the new thread's state, before its start routine.
unsafe extern "C" fn enter(start: *mut Start, frame: *mut StartFrame) {
    // SAFETY: `Start::new` boxed `start` for this thread alone; `frame` is stack space of
    // `hpcrun_thread_start`. A panic aborts.
    let (start, frame) = unsafe { (Box::from_raw(start), &mut *frame) };
    *frame = StartFrame {
        routine: start.routine,
        argument: start.argument,
    };
    if !session::is_running() {
        start.state.inspect(|state| threads::release(state));
        return;
    }
    let Some(state) = start.state else {
        threads::WITHOUT_STATE.fetch_add(1, Ordering::Relaxed);
        return;
    };
    match start.stack {
        Some(stack) => threads::begin_unnamed(state, start.creation, stack, false),
        None => {
            let stack = session::pthread_stack().unwrap_or((0, 0));
            threads::begin(state, start.creation, stack, false);
            announce(state);
        }
    }
    session::arm(state);
}

/// Makes the key's destructor run at the end of the calling thread, whose state this is.
pub(crate) fn announce(state: &'static ThreadState) {
    // SAFETY: `prepare` created the key; the value is a thread state, which is never freed.
    unsafe {
        let value = ptr::from_ref(state).cast();
        libc::pthread_setspecific(KEY.load(Ordering::Acquire), value);
    }
}

/// The number of rounds of key destructors that POSIX guarantees; ours ends the profile in the last.
const DESTRUCTOR_ROUNDS: usize = 4;

/// The key's destructor.
unsafe extern "C" fn leave(value: *mut c_void) {
    // SAFETY: `announce` set the value to a thread state, which is never freed.
    let state: &'static ThreadState = unsafe { &*value.cast() };
    if state.count_destructor_round() < DESTRUCTOR_ROUNDS {
        // SAFETY: sets the value again, so that the next round calls this destructor.
        unsafe { libc::pthread_setspecific(KEY.load(Ordering::Acquire), value) };
        return;
    }
    state.retire();
}

/// The registers at this point of the calling function, into which this function is inlined.
#[inline(always)]
pub(crate) fn capture_registers() -> Registers {
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
/// As for libc's function.
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
    // Another library's constructor may run before ours.
    crate::start::ensure();
    if !session::is_running() {
        // SAFETY: libc's own function, same arguments.
        return unsafe { real(thread, attributes, routine, argument) };
    }
    session::refresh_if_outdated();
    let start = Start::new(routine, argument, context(capture_registers()));
    // SAFETY: `enter` takes ownership of `start` in the new thread; if there is none, we take it back here.
    unsafe {
        let error = real(thread, attributes, hpcrun_thread_start, start.cast());
        if error != 0 {
            take_back(start);
        }
        error
    }
}

impl Start {
    fn new(routine: StartRoutine, argument: *mut c_void, creation: (u32, u32)) -> *mut Start {
        Box::into_raw(Box::new(Start {
            routine,
            argument,
            creation,
            state: threads::acquire(),
            stack: None,
        }))
    }
}

/// Frees the data of a thread that did not start.
///
/// # Safety
/// `start` must come from [`Start::new`], and must not be used again.
unsafe fn take_back(start: *mut Start) {
    // SAFETY: the caller's promise.
    let start = unsafe { Box::from_raw(start) };
    start.state.inspect(|state| threads::release(state));
}

/// Captures the calling thread's context for a thread that it creates.
fn context(registers: Registers) -> (u32, u32) {
    let kept = threads::current().and_then(|t| t.capture(registers));
    kept.unwrap_or((0, 0))
}

/// Interposed: glibc's function calls its own `pthread_create`, which is not interposed.
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(
    thread: *mut libc::pthread_t,
    routine: StartRoutine,
    argument: *mut c_void,
) -> i32 {
    // A C11 routine returns an integer, and `thrd_join` reads only that part of the result. SAFETY: the
    // caller's own arguments.
    match unsafe { pthread_create(thread, ptr::null(), routine, argument) } {
        0 => THRD_SUCCESS,
        libc::ENOMEM | libc::EAGAIN => THRD_NOMEM,
        _ => THRD_ERROR,
    }
}

const THRD_SUCCESS: i32 = 0;
const THRD_ERROR: i32 = 2;
const THRD_NOMEM: i32 = 3;

/// The data of a timer that notifies by threads; leaked, since glibc may use it after the timer is deleted.
struct Notify {
    function: StartRoutine,
    value: *mut c_void,
    creation: (u32, u32),
}

/// `struct sigevent` in its form for `SIGEV_THREAD`.
#[repr(C)]
struct ThreadEvent {
    value: *mut c_void,
    signal: i32,
    notify: i32,
    function: StartRoutine,
    attributes: *mut libc::pthread_attr_t,
    rest: [u64; 4],
}

const _: () = assert!(size_of::<ThreadEvent>() == size_of::<libc::sigevent>());

/// Interposed: glibc creates the threads that run a timer's function without a hook.
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timer_create(
    clock: libc::clockid_t,
    event: *mut libc::sigevent,
    timer: *mut libc::timer_t,
) -> i32 {
    // SAFETY: libc's signature; the event is null or valid. Our copy outlives the call, and its value points
    // to leaked memory.
    unsafe {
        let real = real!(c"timer_create": fn(
            libc::clockid_t, *mut libc::sigevent, *mut libc::timer_t,
        ) -> i32);
        let is_thread = !event.is_null() && (*event).sigev_notify == libc::SIGEV_THREAD;
        if !is_thread || !session::is_running() {
            return real(clock, event, timer);
        }
        let mut ours = ptr::read(event.cast::<ThreadEvent>());
        let notify = Box::leak(Box::new(Notify {
            function: ours.function,
            value: ours.value,
            creation: context(capture_registers()),
        }));
        ours.value = ptr::from_mut(notify).cast();
        ours.function = notified;
        real(clock, ptr::from_mut(&mut ours).cast(), timer)
    }
}

/// Runs in a thread that glibc created for one expiry of a timer.
unsafe extern "C" fn notified(value: *mut c_void) -> *mut c_void {
    // SAFETY: `timer_create` leaked the value, so it lives forever.
    let notify = unsafe { &*value.cast::<Notify>() };
    if threads::current().is_some() || !session::is_running() {
        // SAFETY: the program's own function and value.
        return unsafe { (notify.function)(notify.value) };
    }
    let start = Start::new(notify.function, notify.value, notify.creation);
    // SAFETY: `start` is fresh, as at the start of a thread.
    unsafe { hpcrun_thread_start(start.cast()) }
}

type CloneRoutine = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Interposed: creates a thread without libc's thread functions, which uses its creator's thread-local
/// storage. It is sampled; its waits in libc count as its creator's. A thread with its own storage is not
/// sampled, since the handler could not find its state.
///
/// # Safety
/// As for libc's function, which is variadic: at most three more arguments, which are passed on unread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    routine: CloneRoutine,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_id: *mut c_void,
    storage: *mut c_void,
    child_id: *mut c_void,
) -> c_int {
    // SAFETY: libc's signature.
    let real = unsafe {
        real!(c"clone": fn(
            CloneRoutine, *mut c_void, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_void,
        ) -> c_int)
    };
    let kind = flags & (libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_SETTLS);
    if kind != libc::CLONE_VM || stack.is_null() || !session::is_running() {
        // SAFETY: libc's own function, same arguments.
        return unsafe {
            real(
                routine, stack, flags, argument, parent_id, storage, child_id,
            )
        };
    }
    // SAFETY: both types return a word; libc reads the part that the routine's type has.
    let as_start: StartRoutine = unsafe { std::mem::transmute(routine) };
    let start = Start::new(as_start, argument, context(capture_registers()));
    // SAFETY: `cloned` takes ownership of `start` in the new thread; if there is none, we take it back here.
    unsafe {
        (*start).stack = Some(session::mapping_below(stack as u64));
        let child = real(
            cloned,
            stack,
            flags,
            start.cast(),
            parent_id,
            storage,
            child_id,
        );
        if child < 0 {
            take_back(start);
        }
        child
    }
}

/// Runs in a cloned thread.
unsafe extern "C" fn cloned(start: *mut c_void) -> c_int {
    // SAFETY: `clone` made `start` for this thread alone. We read its state before `hpcrun_thread_start`
    // takes ownership.
    unsafe {
        let state = (*start.cast::<Start>()).state;
        let result = hpcrun_thread_start(start);
        state.inspect(|state| state.retire());
        result as c_int
    }
}
