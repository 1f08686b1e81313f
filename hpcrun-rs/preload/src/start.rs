//! Start before `main`, end at exit.

use crate::real::real;
use crate::{fork, threads};
use hpcrun_core::config::Config;
use hpcrun_core::logical::agents;
use hpcrun_core::session::{self, Libc};
use std::ffi::{CStr, c_char, c_int};

/// Called by the dynamic linker before the program's own constructors.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = {
    unsafe extern "C" fn construct(
        argc: c_int,
        argv: *const *const c_char,
        _environment: *const *const c_char,
    ) {
        if let Some(config) = Config::from_environment() {
            // SAFETY: glibc passes `main`'s arguments to constructors.
            let arguments = unsafe { arguments(argc, argv) };
            if let Err(message) = config.and_then(|c| begin(c, arguments)) {
                eprintln!("hpcrun-rs: warning: not profiled: {message}");
            }
        }
    }
    construct
};

/// # Safety
/// `argv` must have `argc` NUL-terminated strings.
unsafe fn arguments(argc: c_int, argv: *const *const c_char) -> Vec<String> {
    (0..usize::try_from(argc).unwrap_or(0))
        .map(|i| {
            // SAFETY: the caller's promise.
            let text = unsafe { CStr::from_ptr(*argv.add(i)) };
            text.to_string_lossy().into_owned()
        })
        .collect()
}

fn begin(config: Config, arguments: Vec<String>) -> Result<(), String> {
    // SAFETY: libc's signature.
    let sigaction = unsafe {
        real!(c"sigaction": fn(i32, *const libc::sigaction, *mut libc::sigaction) -> i32)
    };
    threads::prepare();
    session::start(config, arguments, Libc { sigaction })?;
    if let Some(module) = session::module_of(begin as *const () as u64) {
        agents::set_profiler_module(module);
    }
    fork::prepare();
    // Registered first of all, so it runs after the program's own exit functions.
    // SAFETY: the function lives as long as the process: the library is never unloaded.
    unsafe { libc::atexit(at_exit) };
    // Last of all, and as a thread that has nothing to do: what is done here is no part of the program. A sample that comes while the
    // timer is being started, which takes the kernel a while, is one of idleness.
    if let Some(state) = hpcrun_core::threads::current() {
        state.begin_yield();
        session::arm(state);
        state.end_yield();
    }
    Ok(())
}

extern "C" fn at_exit() {
    session::stop("exit");
}

/// Interposed: ends without exit functions.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    end_without_exit_functions();
    // SAFETY: libc's own, same arguments.
    unsafe { real!(c"_exit": fn(c_int) -> !)(status) }
}

/// Interposed, as [`_exit`].
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    end_without_exit_functions();
    // SAFETY: libc's own, same arguments.
    unsafe { real!(c"_Exit": fn(c_int) -> !)(status) }
}

/// Interposed: runs the quick-exit functions, then ends.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quick_exit(status: c_int) -> ! {
    end_without_exit_functions();
    // SAFETY: libc's own, same arguments.
    unsafe { real!(c"quick_exit": fn(c_int) -> !)(status) }
}

/// A `vfork` child shares our memory and calls `_exit`: it must not end its parent's session.
fn end_without_exit_functions() {
    if hpcrun_core::threads::current().is_none_or(|t| t.is_own()) {
        session::stop("_exit");
    }
}
