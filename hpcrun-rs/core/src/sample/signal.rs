//! The signal handler, the only one of the profiler.
//!
//! Invariants: it allocates nothing, takes no lock, and does not panic (arithmetic is wrapping or saturating,
//! indices are checked). It preserves errno. It is not re-entered in a thread: all signals are blocked while
//! it runs, and hooks mark the thread busy. A signal that is not a sample goes to the program's own handler.
//! Samples that it cannot record are counted.

use super::latency;
use crate::config::SourceKind;
use crate::image;
use crate::source::{self, Claim};
use crate::threads;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The program's own action for the signal that we use.
#[derive(Debug)]
pub struct ProgramAction {
    handler: AtomicUsize,
    flags: AtomicU64,
}

/// The action of this process.
pub static PROGRAM_ACTION: ProgramAction =
    ProgramAction { handler: AtomicUsize::new(libc::SIG_DFL), flags: AtomicU64::new(0) };

impl ProgramAction {
    /// Stores a new action, and returns the previous one: (handler, flags).
    pub fn replace(&self, handler: usize, flags: i32) -> (usize, i32) {
        let old = self.get();
        self.handler.store(handler, Ordering::Release);
        self.flags.store(flags as u64, Ordering::Release);
        old
    }

    /// The action: (handler, flags).
    pub fn get(&self) -> (usize, i32) {
        let handler = self.handler.load(Ordering::Acquire);
        (handler, self.flags.load(Ordering::Acquire) as i32)
    }
}

type Sigaction = unsafe extern "C" fn(i32, *const libc::sigaction, *mut libc::sigaction) -> i32;

/// libc's own `sigaction`: a call of the symbol would reach the interposed function.
static SIGACTION: AtomicUsize = AtomicUsize::new(0);

/// Installs the handler for a kind of source.
///
/// # Safety
/// `sigaction` must be libc's own, not an interposed one.
pub unsafe fn install(kind: SourceKind, sigaction: Sigaction) -> Result<(), i32> {
    SIGACTION.store(sigaction as usize, Ordering::Release);
    // SAFETY: `action` is fully initialised, and `handle` obeys the contract of a signal handler (above).
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigfillset(&mut action.sa_mask);
        let mut old: libc::sigaction = std::mem::zeroed();
        if sigaction(source::signal_of(kind), &action, &mut old) != 0 {
            return Err(*libc::__errno_location());
        }
        PROGRAM_ACTION.replace(old.sa_sigaction, old.sa_flags);
    }
    Ok(())
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

unsafe extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let _errno = Errno::keep();
    // SAFETY: the kernel passes valid pointers to a handler with SA_SIGINFO.
    let (siginfo, ucontext) = unsafe { (&*info, &*context.cast::<libc::ucontext_t>()) };
    if image::has_empty_handler() {
        return;
    }
    let start = if latency::enabled() { latency::now() } else { 0 };
    match threads::claim(siginfo, ucontext) {
        // SAFETY: called in the handler, with its own arguments.
        (Claim::Foreign, _) => unsafe { forward(signal, info, context) },
        (Claim::Nothing, _) => {}
        (Claim::Sample(sample), Some(thread)) => {
            if image::is_running() {
                thread.take(&sample);
                if start != 0 {
                    latency::keep(latency::now().wrapping_sub(start));
                }
            }
        }
        (Claim::Lost, _) | (Claim::Sample(_), None) => {
            threads::WITHOUT_STATE.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Forwards a signal that is not ours to the program.
///
/// # Safety
/// Must be called from a handler with its own arguments.
#[cold]
unsafe fn forward(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let (handler, flags) = PROGRAM_ACTION.get();
    match handler {
        libc::SIG_IGN => {}
        libc::SIG_DFL if signal == libc::SIGURG => {}
        libc::SIG_DFL => {
            let sigaction = SIGACTION.load(Ordering::Acquire);
            // SAFETY: `install` stored libc's function. This restores the default action and raises the
            // signal again, which is delivered when this handler returns.
            unsafe {
                let sigaction: Sigaction = std::mem::transmute(sigaction);
                let default: libc::sigaction = std::mem::zeroed();
                sigaction(signal, &default, std::ptr::null_mut());
                libc::raise(signal);
            }
        }
        // SAFETY: the program installed this function as its handler with these flags.
        _ if flags & libc::SA_SIGINFO != 0 => unsafe {
            let f: unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(handler);
            f(signal, info, context);
        },
        // SAFETY: as above.
        _ => unsafe {
            let f: unsafe extern "C" fn(i32) = std::mem::transmute(handler);
            f(signal);
        },
    }
}
