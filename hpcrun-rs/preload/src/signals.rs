//! Keeps the sampler's signal deliverable and its stack large enough, whatever the program sets. The program
//! sees the values that it set.

use crate::real::real;
use hpcrun_core::sample::signal::PROGRAM_ACTION;
use hpcrun_core::source::signal_of;
use hpcrun_core::threads::SIGNAL_STACK;
use hpcrun_core::{session, threads};
use std::ffi::c_int;
use std::ptr;

/// The signal that the sampler uses, while it runs.
fn occupied() -> Option<c_int> {
    if !session::is_running() {
        return None;
    }
    session::source_kind().map(signal_of)
}

/// Interposed: for the sampler's signal, stores the program's action instead of installing it.
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if occupied() != Some(signal) {
        // SAFETY: libc's own function, same arguments.
        return unsafe {
            real!(c"sigaction": fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int)(
                signal, new, old,
            )
        };
    }
    // SAFETY: `new` and `old` are null or valid, as for libc's function.
    unsafe {
        let (handler, flags) = match new.as_ref() {
            Some(new) => PROGRAM_ACTION.replace(new.sa_sigaction, new.sa_flags),
            None => PROGRAM_ACTION.get(),
        };
        if let Some(old) = old.as_mut() {
            *old = std::mem::zeroed();
            old.sa_sigaction = handler;
            old.sa_flags = flags;
        }
    }
    0
}

/// Interposed like [`sigaction`].
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    if occupied() != Some(signal) {
        // SAFETY: libc's own function, same arguments.
        return unsafe {
            real!(c"signal": fn(c_int, libc::sighandler_t) -> libc::sighandler_t)(signal, handler)
        };
    }
    PROGRAM_ACTION.replace(handler, 0).0
}

/// A copy of `set` without the sampler's signal, for calls that may block signals.
///
/// # Safety
/// `set` must be null or valid.
unsafe fn filtered(how: c_int, set: *const libc::sigset_t) -> Option<libc::sigset_t> {
    let occupied = occupied()?;
    if how == libc::SIG_UNBLOCK {
        return None;
    }
    // SAFETY: `set` is null or valid (the caller's promise); `copy` is a local.
    unsafe {
        let mut copy = *set.as_ref()?;
        libc::sigdelset(&mut copy, occupied);
        Some(copy)
    }
}

macro_rules! interpose_mask {
    ($name:ident, $literal:literal) => {
        /// Interposed: the sampler's signal stays unblocked.
        ///
        /// # Safety
        /// As for libc's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            how: c_int,
            set: *const libc::sigset_t,
            old: *mut libc::sigset_t,
        ) -> c_int {
            // SAFETY: libc's own function; the set is the caller's or our copy of it, which outlives the
            // call.
            unsafe {
                let real =
                    real!($literal: fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int);
                let copy = filtered(how, set);
                real(how, copy.as_ref().map_or(set, |c| ptr::from_ref(c)), old)
            }
        }
    };
}

interpose_mask!(sigprocmask, c"sigprocmask");
interpose_mask!(pthread_sigmask, c"pthread_sigmask");

macro_rules! interpose_sigwait {
    ($($name:ident, $literal:literal, ($($argument:ident: $type:ty),*);)*) => { $(
        /// Interposed: the thread waits, but not for the sampler's signal.
        ///
        /// # Safety
        /// As for libc's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(set: *const libc::sigset_t, $($argument: $type),*) -> c_int {
            crate::events::waiting(|| {
                // SAFETY: libc's own function; the set is the caller's or our copy of it, which outlives the
                // call.
                unsafe {
                    let real = real!($literal: fn(*const libc::sigset_t, $($type),*) -> c_int);
                    let copy = filtered(libc::SIG_BLOCK, set);
                    real(copy.as_ref().map_or(set, |c| ptr::from_ref(c)), $($argument),*)
                }
            })
        }
    )* };
}

interpose_sigwait! {
    sigwait, c"sigwait", (signal: *mut c_int);
    sigwaitinfo, c"sigwaitinfo", (info: *mut libc::siginfo_t);
    sigtimedwait, c"sigtimedwait", (info: *mut libc::siginfo_t, time: *const libc::timespec);
}

/// Interposed: stores a stack that is too small for our handler, and keeps ours installed.
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
    // SAFETY: libc's signature.
    let real =
        unsafe { real!(c"sigaltstack": fn(*const libc::stack_t, *mut libc::stack_t) -> c_int) };
    let state = threads::current().filter(|_| session::is_running());
    let Some(state) = state else {
        // SAFETY: libc's own function, same arguments.
        return unsafe { real(new, old) };
    };
    // SAFETY: `new` and `old` are null or valid, as for libc's function.
    unsafe {
        let kept = state.signal_stack.program.get();
        let too_small = new
            .as_ref()
            .is_some_and(|n| n.ss_flags & libc::SS_DISABLE == 0 && n.ss_size < SIGNAL_STACK / 2);
        let disables_kept =
            kept.is_some() && new.as_ref().is_some_and(|n| n.ss_flags & libc::SS_DISABLE != 0);
        if !too_small && !disables_kept {
            if !new.is_null() {
                state.signal_stack.program.set(None);
            }
            let result = real(new, old);
            if let (Some(kept), Some(old)) = (kept, old.as_mut()) {
                *old = kept;
            }
            return result;
        }
        if let Some(old) = old.as_mut() {
            match kept {
                Some(kept) => *old = kept,
                None => {
                    real(ptr::null(), old);
                }
            }
        }
        state.signal_stack.program.set(new.as_ref().copied().filter(|_| too_small));
    }
    0
}
