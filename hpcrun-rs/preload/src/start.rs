//! Starts the sampler before `main`, and ends it at exit.

use crate::real::real;
use crate::{bindings, fork, thread_life, writer};
use hpc_formats::process::text_of;
use hpcrun_core::config::Config;
use hpcrun_core::logical::agents;
use hpcrun_core::session::{self, Libc};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

/// The dynamic linker calls this before the program's own constructors.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn construct() {
        ensure();
    }
    construct
};

/// Starts the sampler, unless it was started before. Called by our constructor, and earlier if another
/// library's constructor creates a thread.
pub(crate) fn ensure() {
    static STARTED: AtomicBool = AtomicBool::new(false);
    if STARTED.load(Ordering::Relaxed) || STARTED.swap(true, Ordering::Relaxed) {
        return;
    }
    bindings::rebind();
    if let Some(config) = Config::from_environment() {
        if let Err(message) = config.and_then(|c| begin(c, arguments())) {
            eprintln!("hpcrun-rs: warning: not profiled: {message}");
        }
    }
}

/// The program's arguments, starting with its name.
fn arguments() -> Vec<String> {
    let text = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let text = text.strip_suffix(b"\0").unwrap_or(&text);
    text.split(|b| *b == 0).map(text_of).collect()
}

fn begin(config: Config, arguments: Vec<String>) -> Result<(), String> {
    // SAFETY: libc's signature.
    let sigaction = unsafe {
        real!(c"sigaction": fn(i32, *const libc::sigaction, *mut libc::sigaction) -> i32)
    };
    thread_life::prepare();
    session::start(config, arguments, Libc { sigaction })?;
    if let Some(module) = session::module_of(begin as *const () as u64) {
        agents::profiler::add_module(module);
    }
    fork::prepare();
    // Registered first, so it runs after the program's own exit functions. SAFETY: the function lives as long
    // as the process: the library is never unloaded.
    unsafe { libc::atexit(at_exit) };
    // Armed last, and while the thread counts as yielding: our start is not part of the program. The kernel
    // takes a while to start the timer, and a sample that arrives meanwhile counts as idle.
    if let Some(state) = hpcrun_core::threads::current() {
        state.begin_yield();
        session::arm(state);
        state.end_yield();
        thread_life::announce(state);
        state.begin_main_path();
    }
    writer::start();
    Ok(())
}

extern "C" fn at_exit() {
    session::stop("exit");
}

/// Interposed: ends the process without exit functions.
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    session::stop("_exit");
    // SAFETY: libc's own function, same argument.
    unsafe { real!(c"_exit": fn(c_int) -> !)(status) }
}

/// Interposed like [`_exit`].
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    session::stop("_exit");
    // SAFETY: libc's own function, same argument.
    unsafe { real!(c"_Exit": fn(c_int) -> !)(status) }
}

/// Interposed: stops the session, then runs the quick-exit functions.
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quick_exit(status: c_int) -> ! {
    session::stop("_exit");
    // SAFETY: libc's own function, same argument.
    unsafe { real!(c"quick_exit": fn(c_int) -> !)(status) }
}
