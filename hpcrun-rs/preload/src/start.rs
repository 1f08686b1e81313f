//! Starts the sampler before `main`, and ends it at exit.

use crate::children::{self, Strings, environ};
use crate::real::{interpose, real};
use crate::{bindings, fork, thread_life, tracers, writer};
use hpc_formats::process::{THREAD_OF, text_of};
use hpcrun_core::config::Config;
use hpcrun_core::logical::agents;
use hpcrun_core::path;
use hpcrun_core::sandbox;
use hpcrun_core::session;
use hpcrun_core::threads::{self, with_room};
use std::ffi::{CStr, c_int, c_void};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// The dynamic linker calls this before all other constructors, even libc's own (`build.rs`).
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: unsafe extern "C" fn(c_int, Strings, Strings) = construct;

unsafe extern "C" fn construct(count: c_int, arguments: Strings, environment: Strings) {
    // SAFETY: the dynamic linker passes the program's arguments, `count` strings that live as long as the
    // process. No other thread exists that could use libc's variable, which libc has not set yet.
    unsafe {
        if environ.is_null() {
            environ = environment;
        }
        ensure(|| {
            let argument = |i| CStr::from_ptr(*arguments.add(i)).to_bytes();
            (0..count as usize).map(|i| text_of(argument(i))).collect()
        });
    }
}

/// Starts the sampler, unless it was started before. Called by our constructor, and earlier if another
/// library wants to be first and creates a thread.
pub(crate) fn ensure(arguments: impl FnOnce() -> Vec<String>) {
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

/// The program's arguments, starting with its name, where the dynamic linker has not passed them.
pub(crate) fn arguments() -> Vec<String> {
    let text = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let text = text.strip_suffix(b"\0").unwrap_or(&text);
    text.split(|b| *b == 0).map(text_of).collect()
}

fn begin(config: Config, arguments: Vec<String>) -> Result<(), String> {
    // SAFETY: libc's signature.
    let sigaction =
        unsafe { real!(c"sigaction": fn(i32, *const libc::sigaction, *mut libc::sigaction) -> i32) };
    thread_life::prepare();
    session::start(config, arguments, sigaction)?;
    // SAFETY: the environment is the kernel's, before the code of the program and its libraries.
    unsafe { children::take_out() };
    if let Some(module) = session::module_of(begin as *const () as u64) {
        agents::profiler::add_module(module);
    }
    fork::prepare();
    // Registered first, so it runs last: after the exit functions and the destructors of the program and of
    // all its libraries. It belongs to no module, so that it does not run with this library's destructors.
    // SAFETY: the function lives as long as the process: the library is never unloaded.
    unsafe {
        __cxa_atexit(at_exit, ptr::null_mut(), ptr::null_mut());
        __cxa_at_quick_exit(at_exit, ptr::null_mut());
    }
    if tracers::end_if_traced() {
        return Ok(());
    }
    // Armed last, and while the thread counts as yielding: our start is not part of the program. The kernel
    // takes a while to start the timer, and a sample that arrives meanwhile counts as idle.
    if let Some(state) = threads::current() {
        state.working().begin_yield();
        session::arm(state);
        state.working().end_yield();
        thread_life::announce(state);
        state.begin_main_path();
    }
    writer::start();
    Ok(())
}

interpose! {
    // `_start` calls this when the constructors of all libraries have run, and the critical path begins. The
    // last call is a jump if the compiler optimises: then no frame of ours stays.
    __libc_start_main(
        main: usize, count: usize, arguments: usize, init: usize, fini: usize, end: usize, stack: usize
    ) -> c_int: |call| {
        path::begin();
        threads::current().inspect(|thread| thread.begin_main_path());
        call()
    };
    // Ends the process without exit functions.
    _exit(status: c_int) -> !: |exit| {
        stop("_exit");
        exit()
    };
    _Exit(status: c_int) -> !: |exit| {
        stop("_exit");
        exit()
    };
}

unsafe extern "C" {
    fn __cxa_atexit(
        function: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
        module: *mut c_void,
    ) -> c_int;
    fn __cxa_at_quick_exit(function: unsafe extern "C" fn(*mut c_void), module: *mut c_void) -> c_int;
}

pub(crate) fn stop(reason: &str) {
    with_room(|| {
        note_unseen();
        session::stop(reason);
    });
}

/// Says which threads there are that the profiler has not seen begin.
fn note_unseen() {
    let needed = [libc::SYS_openat, libc::SYS_statx, libc::SYS_getdents64, libc::SYS_close];
    if !session::is_running() || needed.into_iter().any(sandbox::refuses) {
        return;
    }
    // Two links lead to a folder itself, and one to each in it.
    let all = fs::metadata("/proc/self/task").map_or(0, |tasks| tasks.nlink().saturating_sub(2));
    if all <= threads::live().count() as u64 {
        return;
    }
    let is_known = |id: &str| threads::live().any(|thread| thread.tid().to_string() == id);
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        if !task.file_name().to_str().is_some_and(is_known) {
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            let whose = match name.starts_with("iou-") {
                true => "the kernel, for io_uring",
                false => "the C library, or made by a system call",
            };
            session::note_unprofiled(Path::new(name.trim_end()), &format!("{THREAD_OF}{whose}"));
        }
    }
}

unsafe extern "C" fn at_exit(_: *mut c_void) {
    stop("exit");
}
