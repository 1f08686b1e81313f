//! Keeps the sampler's signal deliverable, whatever signals the program blocks.
//!
//! Our signal never enters the kernel's masks: where the program's masks pass, its stand-in takes its place
//! (`hpcrun_core::sample::stand_in`), and the program is shown its own signal again. So the kernel itself
//! keeps, restores and inherits what the program wants for our signal.
//!
//! Unsafe functions may be called as libc's function or the system call that they stand for.

use crate::actions::{bits, occupied, set_of};
use crate::events::waiting;
use crate::real::{interpose, real};
use hpcrun_core::sample::stand_in;
use std::ffi::c_int;
use std::ptr;

/// A program's set as the kernel is to have it; `None` if it is null or stays as it is.
///
/// # Safety
/// `set` must be null or valid.
pub(crate) unsafe fn to_kernel(set: *const libc::sigset_t) -> Option<libc::sigset_t> {
    // SAFETY: the caller's promise.
    let (ours, set) = (occupied()?, unsafe { set.as_ref()? });
    Some(set_of(stand_in::to_kernel(bits(set), ours)))
}

/// Shows a set of the kernel as the program's.
///
/// # Safety
/// `set` must be null or valid.
pub(crate) unsafe fn to_program(set: *mut libc::sigset_t) {
    // SAFETY: the caller's promise.
    if let (Some(ours), Some(set)) = (occupied(), unsafe { set.as_mut() }) {
        *set = set_of(stand_in::to_program(bits(set), ours));
    }
}

/// The set to pass on: the caller's, or our copy of it.
fn chosen(set: *const libc::sigset_t, copy: &Option<libc::sigset_t>) -> *const libc::sigset_t {
    copy.as_ref().map_or(set, ptr::from_ref)
}

pub(crate) type Set = *const libc::sigset_t;
pub(crate) type Old = *mut libc::sigset_t;
type ChangeMask = unsafe extern "C" fn(c_int, Set, Old) -> c_int;

/// Changes a mask by a function of libc.
///
/// # Safety
/// As for libc's function, which is `real`.
unsafe fn change_by(real: ChangeMask, how: c_int, set: Set, old: Old) -> c_int {
    // SAFETY: libc's own function; the set is the caller's or our copy of it, which outlives the call.
    unsafe {
        let copy = to_kernel(set);
        shown(real(how, chosen(set, &copy), old), old)
    }
}

/// Shows what a successful call has stored.
///
/// # Safety
/// `set` must be null or valid.
unsafe fn shown(result: c_int, set: Old) -> c_int {
    if result == 0 {
        // SAFETY: the caller's promise.
        unsafe { to_program(set) };
    }
    result
}

/// What `sigprocmask` does: a call of the hook itself would reach libc.
unsafe fn change_mask(how: c_int, set: Set, old: Old) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { change_by(real!(c"sigprocmask": fn(c_int, Set, Old) -> c_int), how, set, old) }
}

/// As [`change_mask`], but it returns the error.
pub(crate) unsafe fn change_thread_mask(how: c_int, set: Set, old: Old) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { change_by(real!(c"pthread_sigmask": fn(c_int, Set, Old) -> c_int), how, set, old) }
}

/// Changes the calling thread's mask by one signal.
fn change(how: c_int, signal: c_int) -> c_int {
    if !(1..=64).contains(&signal) {
        // SAFETY: `__errno_location` returns a valid pointer to this thread's errno.
        unsafe { *libc::__errno_location() = libc::EINVAL };
        return -1;
    }
    // SAFETY: the set outlives the call.
    unsafe { change_mask(how, &set_of(1 << (signal - 1)), ptr::null_mut()) }
}

/// Does what BSD's functions do with their 32 signals. Returns the previous ones.
fn change_32(how: c_int, mask: u32) -> c_int {
    let mut old = set_of(0);
    // SAFETY: both sets outlive the call.
    unsafe { change_mask(how, &set_of(mask.into()), &mut old) };
    bits(&old) as c_int
}

/// Waits with one signal let in.
fn pause_for(signal: c_int) -> c_int {
    let mut mask = set_of(0);
    // SAFETY: the sets outlive the calls.
    unsafe {
        change_mask(libc::SIG_BLOCK, ptr::null(), &mut mask);
        if libc::sigdelset(&mut mask, signal) != 0 {
            return -1;
        }
        suspend(&mask)
    }
}

/// Waits by `wait`, with the mask that it gets. The handler sees the mask that comes back after the wait, and
/// may hold a signal that this one lets in: then the wait begins again.
///
/// # Safety
/// `mask` must be null or valid.
unsafe fn wait_with(mask: *const libc::sigset_t, wait: impl Fn(*const libc::sigset_t) -> c_int) -> c_int {
    waiting(|| {
        // SAFETY: the caller's promise.
        let copy = unsafe { to_kernel(mask) };
        let lets_in = copy.is_some_and(|copy| bits(&copy) & stand_in::BIT == 0);
        loop {
            let result = wait(chosen(mask, &copy));
            if !(result < 0 && lets_in && is_held()) {
                return result;
            }
        }
    })
}

/// What `sigsuspend` does.
unsafe fn suspend(mask: *const libc::sigset_t) -> c_int {
    // SAFETY: libc's own function.
    unsafe { wait_with(mask, |mask| real!(c"sigsuspend": fn(*const libc::sigset_t) -> c_int)(mask)) }
}

type Time = *const libc::timespec;

/// Waits for a signal of a set by `wait`, which returns the signal, or -1 with an error. If our signal is in
/// the set, the thread waits for its stand-in. It comes after the handler has found our signal blocked, which
/// ends the wait early.
///
/// # Safety
/// `set` must be null or valid.
unsafe fn wait_for(
    set: *const libc::sigset_t,
    info: *mut libc::siginfo_t,
    mut wait: impl FnMut(*const libc::sigset_t) -> c_int,
) -> c_int {
    waiting(|| {
        // SAFETY: the caller's promise; libc has filled the information if it returns a signal.
        unsafe {
            let copy = to_kernel(set);
            let ours = occupied().filter(|ours| bits(&*set) & (1 << (ours - 1)) != 0);
            loop {
                let got = wait(chosen(set, &copy));
                match ours {
                    Some(ours) if got == stand_in::STAND_IN => {
                        info.as_mut().inspect(|_| (*info).si_signo = ours);
                        return ours;
                    }
                    Some(_) if got < 0 && is_held() => {}
                    _ => return got,
                }
            }
        }
    })
}

/// Whether a wait was interrupted because the stand-in is pending now.
fn is_held() -> bool {
    let mut pending = set_of(0);
    // SAFETY: `__errno_location` returns a valid pointer to this thread's errno; the set outlives the call.
    unsafe {
        *libc::__errno_location() == libc::EINTR
            && real!(c"sigpending": fn(*mut libc::sigset_t) -> c_int)(&mut pending) == 0
            && bits(&pending) & stand_in::BIT != 0
    }
}

/// What `sigtimedwait` does; without a time limit if that is null.
unsafe fn wait_in_time(set: *const libc::sigset_t, info: *mut libc::siginfo_t, time: Time) -> c_int {
    // SAFETY: libc's own function; the set is the caller's or our copy of it, which outlives the call.
    unsafe {
        let real = real!(c"sigtimedwait": fn(Set, *mut libc::siginfo_t, Time) -> c_int);
        wait_for(set, info, |set| real(set, info, time))
    }
}

/// What `sigwait` does, which goes on after a signal that is not in the set.
unsafe fn wait_on(set: Set, signal: *mut c_int) -> c_int {
    loop {
        // SAFETY: the caller's set, and a place for the result.
        unsafe {
            match wait_in_time(set, ptr::null_mut(), ptr::null()) {
                got if got > 0 => {
                    *signal = got;
                    return 0;
                }
                _ if *libc::__errno_location() == libc::EINTR => {}
                _ => return *libc::__errno_location(),
            }
        }
    }
}

/// The system call `rt_sigprocmask`: libc's function for sets of eight bytes.
pub(crate) unsafe fn system_call(how: c_int, set: *const u64, old: *mut u64) -> c_int {
    let mut before = set_of(0);
    // SAFETY: both are null or valid (the caller's promise); the copies outlive the call.
    unsafe {
        let copy = set.as_ref().map(|set| set_of(*set));
        let result = change_mask(how, chosen(ptr::null(), &copy), &mut before);
        if let (0, Some(old)) = (result, old.as_mut()) {
            *old = bits(&before);
        }
        result
    }
}

/// Takes our signal out of a context that is about to be entered.
unsafe fn prepare(context: *mut libc::ucontext_t) {
    // SAFETY: the caller's context, valid as for libc's function. Its mask is changed only if our signal is
    // in it; only the kernel's word.
    unsafe {
        let Some(ours) = occupied() else { return };
        let mask = (&raw mut (*context).uc_sigmask).cast::<u64>();
        if *mask & (1 << (ours - 1)) != 0 {
            *mask = stand_in::to_kernel(*mask, ours);
        }
    }
}

/// Runs `start`, which starts a program in this process or a child: with the mask that the program has set.
pub(crate) fn with_own_mask<T>(start: impl FnOnce() -> T) -> T {
    let real = |how, set: Set, old: Old| {
        // SAFETY: libc's own function; both sets are null or outlive the call.
        unsafe { real!(c"pthread_sigmask": fn(c_int, Set, Old) -> c_int)(how, set, old) }
    };
    let mut mask = set_of(0);
    real(libc::SIG_BLOCK, ptr::null(), &mut mask);
    match occupied() {
        Some(ours) if bits(&mask) & stand_in::BIT != 0 => {
            // The stand-in stays blocked, since it may be pending.
            let own = set_of(bits(&mask) | 1 << (ours - 1));
            real(libc::SIG_SETMASK, &own, ptr::null_mut());
            let result = start();
            real(libc::SIG_SETMASK, &mask, ptr::null_mut());
            result
        }
        _ => start(),
    }
}

type Files = *mut libc::fd_set;
type Polled = *mut libc::pollfd;
type Events = *mut libc::epoll_event;
type Context = *mut libc::ucontext_t;

macro_rules! interpose_masked_wait {
    ($($name:ident (
        $($before:ident: $type:ty,)* -> $mask:ident $(, $after:ident: $other:ty)*
    );)*) => { interpose! { $(
        $name($($before: $type,)* $mask: Set $(, $after: $other)*) -> c_int: |_, real|
            wait_with($mask, |mask| real($($before,)* mask $(, $after)*));
    )* } };
}

interpose_masked_wait! {
    sigsuspend(-> mask);
    ppoll(fds: Polled, n: libc::nfds_t, timeout: Time, -> mask);
    __ppoll_chk(fds: Polled, n: libc::nfds_t, timeout: Time, -> mask, size: usize);
    pselect(n: c_int, read: Files, write: Files, except: Files, timeout: Time, -> mask);
    epoll_pwait(fd: c_int, events: Events, n: c_int, timeout: c_int, -> mask);
    epoll_pwait2(fd: c_int, events: Events, n: c_int, timeout: Time, -> mask);
}

interpose! {
    sigprocmask(how: c_int, set: Set, old: Old) -> c_int: |_| change_mask(how, set, old);
    pthread_sigmask(how: c_int, set: Set, old: Old) -> c_int: |_| change_thread_mask(how, set, old);
    // The pending stand-in is our signal to the program.
    sigpending(set: Old) -> c_int: |look| shown(look(), set);
    sighold(signal: c_int) -> c_int: |_| change(libc::SIG_BLOCK, signal);
    sigrelse(signal: c_int) -> c_int: |_| change(libc::SIG_UNBLOCK, signal);
    sigblock(mask: c_int) -> c_int: |_| change_32(libc::SIG_BLOCK, mask as u32);
    sigsetmask(mask: c_int) -> c_int: |_| change_32(libc::SIG_SETMASK, mask as u32);
    siggetmask() -> c_int: |_| change_32(libc::SIG_BLOCK, 0);
    sigpause(mask: c_int) -> c_int: |_| suspend(&set_of((mask as u32).into()));
    __xpg_sigpause(signal: c_int) -> c_int: |_| pause_for(signal);
    sigwaitinfo(set: Set, info: *mut libc::siginfo_t) -> c_int: |_| wait_in_time(set, info, ptr::null());
    sigtimedwait(set: Set, info: *mut libc::siginfo_t, time: Time) -> c_int: |_|
        wait_in_time(set, info, time);
    sigwait(set: Set, signal: *mut c_int) -> c_int: |_| wait_on(set, signal);
    // The context to enter may carry a mask with our signal.
    setcontext(context: Context) -> c_int: |enter| {
        prepare(context);
        enter()
    };
    // The context that is left returns through this frame.
    swapcontext(left: Context, context: Context) -> c_int: |enter| {
        prepare(context);
        enter()
    };
}
