//! The doors by which a program sets what a signal does. For our signal they store the program's action,
//! which gets the signals that are no samples (`hpcrun_core::sample::program`); the program sees what it has
//! set.
//!
//! Unsafe functions may be called as libc's function or the system call that they stand for.

use crate::masks;
use crate::real::interpose;
use hpcrun_core::image;
use hpcrun_core::sample::program::{Action, PROGRAM_ACTION};
use hpcrun_core::sample::signal;
use hpcrun_core::source::signal_of;
use std::ffi::{c_int, c_long};
use std::mem;

/// The signal that the sampler uses, from its start to the end of the process.
pub(crate) fn occupied() -> Option<c_int> {
    image::current().map(|image| signal_of(image.kind))
}

/// Whether the sampler uses this signal.
pub(crate) fn is_ours(signal: c_int) -> bool {
    occupied() == Some(signal)
}

/// The kernel's 64 signals of a set of libc.
pub(crate) fn bits(set: &libc::sigset_t) -> u64 {
    // SAFETY: the kernel's set is the first word of libc's.
    unsafe { (&raw const *set).cast::<u64>().read() }
}

/// The set of libc with these signals.
pub(crate) fn set_of(bits: u64) -> libc::sigset_t {
    // SAFETY: zeros are a set without signals, and the kernel's is its first word.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        (&raw mut set).cast::<u64>().write(bits);
        set
    }
}

/// What `sigaction` does for a signal that is not ours.
///
/// # Safety
/// As for libc's function, which is `real`.
unsafe fn set_others(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
    real: unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int,
) -> c_int {
    // SAFETY: libc's own function; the action is the caller's or our copy of it, which outlives the call;
    // `old` is null or valid.
    unsafe {
        let mut copy = new.as_ref().copied();
        if let Some(copy) = &mut copy {
            copy.sa_mask = masks::to_kernel(&copy.sa_mask).unwrap_or(copy.sa_mask);
        }
        let result = real(signal, copy.as_ref().map_or(new, |copy| copy), old);
        if let (0, Some(old)) = (result, old.as_mut()) {
            masks::to_program(&mut old.sa_mask);
        }
        result
    }
}

/// What `sigaction` does for our signal.
unsafe fn set_ours(new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // SAFETY: `new` and `old` are null or valid (the caller's promise); zeros are a valid action.
    unsafe {
        let before = exchange(new.as_ref().map(|new| Action {
            handler: new.sa_sigaction,
            flags: new.sa_flags,
            mask: bits(&new.sa_mask),
        }));
        if let Some(old) = old.as_mut() {
            *old = mem::zeroed();
            old.sa_sigaction = before.handler;
            old.sa_flags = before.flags;
            old.sa_mask = set_of(before.mask);
        }
    }
    0
}

/// Sets the program's action for our signal, if there is a new one. Returns the previous one.
fn exchange(new: Option<Action>) -> Action {
    match new {
        Some(new) => PROGRAM_ACTION.replace(new),
        None => PROGRAM_ACTION.get(),
    }
}

/// The kernel's structure of an action.
#[repr(C)]
pub(crate) struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// The system call `rt_sigaction` for our signal.
pub(crate) unsafe fn system_call(new: *const KernelAction, old: *mut KernelAction) -> c_long {
    // SAFETY: both are null or valid (the caller's promise).
    unsafe {
        let before = exchange(new.as_ref().map(|new| Action {
            handler: new.handler,
            flags: new.flags as i32,
            mask: new.mask,
        }));
        if let Some(old) = old.as_mut() {
            let (handler, flags) = (before.handler, before.flags as u32);
            *old = KernelAction { handler, flags: flags.into(), restorer: 0, mask: before.mask };
        }
    }
    0
}

/// What System V's `signal` sets: a handler for one signal, which may interrupt itself.
const SYSTEM_V: c_int = libc::SA_RESETHAND | libc::SA_NODEFER;

/// Sets the handler of our signal, as libc's function with these flags does.
fn set_handler(signal: c_int, handler: Handler, flags: c_int) -> Handler {
    let mask = if flags == SYSTEM_V { 0 } else { 1 << (signal - 1) };
    exchange(Some(Action { handler, flags, mask })).handler
}

/// What `sigset` takes and returns for a signal that is blocked.
const SIG_HOLD: usize = 2;

/// Sets a handler of our signal and unblocks the signal, or blocks it.
fn set_or_hold(signal: c_int, handler: Handler) -> Handler {
    let how = if handler == SIG_HOLD { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    let (new, mut old) = (set_of(1 << (signal - 1)), set_of(0));
    // SAFETY: both sets outlive the call.
    unsafe { masks::change_thread_mask(how, &new, &mut old) };
    let action = Action { handler, flags: 0, mask: 0 };
    let before = exchange((handler != SIG_HOLD).then_some(action));
    if bits(&old) & bits(&new) != 0 { SIG_HOLD } else { before.handler }
}

/// Decides whether our signal restarts system calls.
fn set_restart(restarts: bool) -> c_int {
    let mut action = exchange(None);
    action.flags &= !libc::SA_RESTART;
    action.flags |= if restarts { libc::SA_RESTART } else { 0 };
    exchange(Some(action));
    0
}

type Handler = libc::sighandler_t;

macro_rules! interpose_signal {
    ($($name:ident as $symbol:literal sets $flags:expr;)*) => { interpose! { $(
        $name as $symbol (signal: c_int, handler: Handler) -> Handler: |call| match is_ours(signal) {
            true => set_handler(signal, handler, $flags),
            false => call(),
        };
    )* } };
}

interpose_signal! {
    signal as c"signal" sets libc::SA_RESTART;
    bsd_signal as c"signal" sets libc::SA_RESTART;
    ssignal as c"signal" sets libc::SA_RESTART;
    sysv_signal as c"__sysv_signal" sets SYSTEM_V;
    __sysv_signal as c"__sysv_signal" sets SYSTEM_V;
}

interpose! {
    sigaction(
        signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction
    ) -> c_int: |_, real| match is_ours(signal) {
        true => set_ours(new, old),
        false => set_others(signal, new, old, real),
    };
    sigset(signal: c_int, handler: Handler) -> Handler: |call| match is_ours(signal) {
        true => set_or_hold(signal, handler),
        false => call(),
    };
    sigignore(signal: c_int) -> c_int: |call| {
        if !is_ours(signal) {
            return call();
        }
        exchange(Some(Action { handler: libc::SIG_IGN, ..Action::DEFAULT }));
        0
    };
    siginterrupt(signal: c_int, interrupts: c_int) -> c_int: |call| match is_ours(signal) {
        true => set_restart(interrupts == 0),
        false => call(),
    };
    // A stack that the program registers is never used for samples. Go's runtime, whose stacks are small,
    // registers its own by a system call.
    sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int: |call| {
        let registers = new.as_ref().is_some_and(|new| new.ss_flags & libc::SS_DISABLE == 0);
        if let Some(image) = image::current().filter(|_| registers) {
            signal::avoid_alternate_stacks(image.kind);
        }
        call()
    };
}
