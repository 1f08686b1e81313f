//! `--critical-path=every:TIME,signal:NAME`: a thread of the library's own, which writes the critical path
//! while the program runs, and starts and stops the tracking when the signal comes. It is neither sampled nor
//! tracked, and takes no signals of the program.

use crate::masks::{Old, Set};
use crate::real::real;
use crate::runtime;
use crate::thread_life::StartRoutine;
use hpcrun_core::config::Tracking;
use hpcrun_core::{image, path, session, system};
use std::ffi::{c_int, c_void};
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{mem, ptr};

/// Threads are asked how far they are, and have so many nanoseconds to answer by their next events.
const PATIENCE_NS: i64 = 100_000_000;

/// A message has started the session before this process's own signal.
static IS_EARLY: Mutex<bool> = Mutex::new(false);
/// Signals that have come.
static SIGNALS: AtomicU32 = AtomicU32::new(0);

/// Async-signal-safe.
extern "C" fn count(_: c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Starts the thread if the run asks for it: in the constructor, and in a forked child.
pub(crate) fn start() {
    let Some(tracking) = tracking().filter(|t| t.every > 0 || t.signal != 0) else {
        return;
    };
    SIGNALS.store(0, Ordering::Relaxed);
    // SAFETY: libc's own functions on locals, with their signatures; handler and routine are of this library,
    // which is never unloaded. The set is restored as it was.
    unsafe {
        if tracking.signal != 0 {
            let sigaction = real!(c"sigaction": fn(
                c_int, *const libc::sigaction, *mut libc::sigaction,
            ) -> c_int);
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = count as *const () as usize;
            action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
            sigaction(tracking.signal, &action, ptr::null_mut());
        }
        let create = real!(c"pthread_create": fn(
            *mut libc::pthread_t, *const libc::pthread_attr_t, StartRoutine, *mut c_void,
        ) -> i32);
        let mask = real!(c"pthread_sigmask": fn(c_int, Set, Old) -> c_int);
        let (mut all, mut before) = (mem::zeroed(), mem::zeroed());
        libc::sigfillset(&mut all);
        mask(libc::SIG_SETMASK, &all, &mut before);
        let mut thread = 0;
        if create(&mut thread, ptr::null(), serve, ptr::null_mut()) == 0 {
            libc::pthread_detach(thread);
        }
        mask(libc::SIG_SETMASK, &before, ptr::null_mut());
    }
}

fn tracking() -> Option<Tracking> {
    image::current()?.config.critical_path
}

unsafe extern "C" fn serve(_: *mut c_void) -> *mut c_void {
    let every = tracking().map_or(0, |t| t.every.saturating_mul(1_000_000_000) as i64);
    let (mut left, mut seen) = (every, 0);
    while session::is_running() {
        system::sleep(PATIENCE_NS);
        if SIGNALS.load(Ordering::Relaxed) != seen {
            seen += 1;
            start_or_stop();
        }
        left -= PATIENCE_NS;
        if every > 0 && left <= 0 {
            left = every;
            write();
        }
    }
    ptr::null_mut()
}

/// Writes how far the threads are that answer.
fn write() {
    if path::is_active() {
        path::tracker().inspect(|tracker| tracker.ask());
        system::sleep(PATIENCE_NS);
        if path::is_active() {
            path::write(false);
        }
    }
}

fn start_or_stop() {
    let mut is_early = IS_EARLY.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::take(&mut *is_early) && path::is_active() {
        return;
    }
    let was_active = path::is_active();
    if was_active {
        session::stop_path();
    }
    runtime::control_path(!was_active);
    say(if was_active { "written, and no longer tracked" } else { "tracked from now on" });
}

/// A message has come from a process in this session, which starts it here as well: it is after the start
/// there, so all that follows must be. What was sent before belongs to no session, whenever it comes.
pub(crate) fn start_with(session: u32) {
    let is_later = || path::tracker().is_some_and(|tracker| tracker.session() < session);
    if path::is_active() || !is_later() {
        return;
    }
    let mut is_early = IS_EARLY.lock().unwrap_or_else(PoisonError::into_inner);
    if is_later() {
        while is_later() {
            runtime::control_path(true);
        }
        *is_early = true;
        say("tracked from now on, as where a message has come from");
    }
}

/// What has become of the path.
fn say(text: &str) {
    let pid = std::process::id();
    // A closed standard error is ignored: a panic would end the program.
    let _ = writeln!(std::io::stderr(), "hpcrun-rs: process {pid}: the critical path is {text}");
}
