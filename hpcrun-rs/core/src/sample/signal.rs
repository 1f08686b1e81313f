//! The signal handler, the only one of the profiler.
//!
//! Invariants: it allocates nothing, takes no lock, and does not panic (arithmetic is wrapping or saturating,
//! indices are checked). It preserves errno. It is not re-entered in a thread: all signals are blocked while
//! it runs, and hooks mark the thread busy. A signal that is not a sample goes to the program's own handler.
//! Samples that it cannot record are counted.

use super::entry::{Begin, hpcrun_signal_entry};
use super::latency;
use super::program::{Action, PROGRAM_ACTION, forward};
use super::stand_in;
use crate::config::SourceKind;
use crate::image;
use crate::source::{self, Claim};
use crate::threads;
use hpc_formats::loss::LossCause;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// libc's function of this name.
pub type Sigaction = unsafe extern "C" fn(i32, *const libc::sigaction, *mut libc::sigaction) -> i32;

/// libc's own `sigaction`: a call of the symbol would reach the interposed function.
static SIGACTION: AtomicUsize = AtomicUsize::new(0);

/// Whether our signal may go to an alternate stack. A stack that a program registers by libc's function is
/// never used by us; one that it registers by a system call, as Go does, is what its small stacks need.
static ON_STACK: AtomicBool = AtomicBool::new(true);

/// Installs the handler for a kind of source.
///
/// # Safety
/// `sigaction` must be libc's own, not an interposed one.
pub unsafe fn install(kind: SourceKind, sigaction: Sigaction) -> Result<(), i32> {
    SIGACTION.store(sigaction as usize, Ordering::Release);
    let old = set_action(source::signal_of(kind), hpcrun_signal_entry as *const () as usize)?;
    // SAFETY: the kernel's mask is the first word of libc's.
    let mask = unsafe { (&raw const old.sa_mask).cast::<u64>().read() };
    PROGRAM_ACTION.replace(Action { handler: old.sa_sigaction, flags: old.sa_flags, mask });
    Ok(())
}

/// Keeps our signal from alternate stacks, from now on.
pub fn avoid_alternate_stacks(kind: SourceKind) {
    if ON_STACK.load(Ordering::Relaxed) && ON_STACK.swap(false, Ordering::Relaxed) {
        let entry = hpcrun_signal_entry as *const () as usize;
        let _ = set_action(source::signal_of(kind), entry);
    }
}

/// Sets the default action. Async-signal-safe.
pub(super) fn install_default(signal: i32) {
    let _ = set_action(signal, libc::SIG_DFL);
}

/// Makes the stand-in come to our entry. Async-signal-safe.
pub(super) fn install_stand_in() {
    let _ = set_action(stand_in::STAND_IN, hpcrun_signal_entry as *const () as usize);
}

/// Sets a signal's action in the kernel. Returns the previous one, or libc's error. The test of signal safety
/// knows the call through a pointer by this function's name.
#[inline(never)]
fn set_action(signal: i32, handler: usize) -> Result<libc::sigaction, i32> {
    // SAFETY: both actions are initialised and outlive the call. `install` stored libc's function. The
    // handler is none, or our entry, which obeys the contract of a signal handler (above).
    unsafe {
        let sigaction: Sigaction = std::mem::transmute(SIGACTION.load(Ordering::Acquire));
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        if handler != libc::SIG_DFL {
            let on_stack = if ON_STACK.load(Ordering::Relaxed) { libc::SA_ONSTACK } else { 0 };
            action.sa_sigaction = handler;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | on_stack;
            (&raw mut action.sa_mask).cast::<u64>().write(!0);
        }
        match sigaction(signal, &action, &mut old) {
            0 => Ok(old),
            _ => Err(*libc::__errno_location()),
        }
    }
}

/// Saves errno, and restores it when dropped.
struct Errno(i32);

impl Errno {
    #[inline]
    fn keep() -> Errno {
        // SAFETY: `__errno_location` returns a valid pointer to this thread's errno.
        Errno(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// Handles a signal on the thread's handler stack. True if the program's handler is to be entered: as `begin`
/// says.
pub(super) unsafe extern "C" fn handle(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    begin: *mut Begin,
) -> bool {
    let _errno = Errno::keep();
    // SAFETY: the kernel passes valid pointers to a handler with SA_SIGINFO.
    let (siginfo, ucontext) = unsafe { (&*info, &*context.cast::<libc::ucontext_t>()) };
    if image::has_empty_handler() {
        return false;
    }
    if signal == stand_in::STAND_IN {
        // SAFETY: called in the handler, with its own arguments.
        return unsafe { forward_held(info, context, begin) };
    }
    let start = latency::now();
    match threads::claim(siginfo, ucontext) {
        // SAFETY: called in the handler, with its own arguments.
        (Claim::Foreign, _) => return unsafe { forward(signal, info, context, begin) },
        (Claim::Nothing, _) => {}
        (Claim::Sample(sample), Some(thread)) => {
            if image::is_running() {
                thread.take(&sample);
                let cycles = latency::now().wrapping_sub(start);
                // A processor makes two or three cycles a nanosecond, some less.
                if cycles > sample.period * 2 / source::SHARE {
                    thread.put_off();
                } else {
                    thread.source.was_quick();
                }
                latency::keep(cycles);
            }
        }
        (Claim::Lost, _) | (Claim::Sample(_), None) => {
            image::count_loss(LossCause::NoThreadState);
        }
    }
    false
}

/// Forwards a signal that was held back, since the program lets it in now.
///
/// # Safety
/// Must be called from the handler, with its own arguments.
#[cold]
unsafe fn forward_held(info: *mut libc::siginfo_t, context: *mut libc::c_void, begin: *mut Begin) -> bool {
    let Some(image) = image::current() else { return false };
    // SAFETY: the caller's promise.
    unsafe { forward(source::signal_of(image.kind), info, context, begin) }
}
