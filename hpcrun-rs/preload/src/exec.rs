//! The exec family: sampling stops before the image is replaced (a signal of ours that is
//! pending then would meet the new image's default action), and goes on when exec fails.

use crate::real::real;
use hpcrun_core::{session, threads};
use std::ffi::{c_char, c_int};

type Strings = *const *const c_char;

/// Runs `exec` with this thread's timer off. Other threads' timers end with the image.
fn without_sampling(exec: impl FnOnce() -> c_int) -> c_int {
    // A vfork child runs on its parent's memory: the state is not its own.
    let state = threads::current().filter(|t| t.is_own() && session::is_running());
    if let Some(state) = state {
        state.source.disarm();
        session::note_exec();
    }
    let result = exec();
    if let Some(state) = state {
        // SAFETY: errno of this thread, kept across re-arming.
        let error = unsafe { *libc::__errno_location() };
        session::arm(state);
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = error };
    }
    result
}

macro_rules! interpose_exec {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => { $(
        /// Interposed; see the module.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => panic!(),
            };
            static REAL: crate::real::Real = crate::real::Real::new(NAME);
            // SAFETY: libc's function of this name and signature, same arguments.
            without_sampling(|| unsafe {
                crate::real::function::<unsafe extern "C" fn($($type),*) -> c_int>(&REAL)(
                    $($argument),*
                )
            })
        }
    )* };
}

interpose_exec! {
    execv(path: *const c_char, argv: Strings);
    execve(path: *const c_char, argv: Strings, environment: Strings);
    execvp(file: *const c_char, argv: Strings);
    execvpe(file: *const c_char, argv: Strings, environment: Strings);
    fexecve(fd: c_int, argv: Strings, environment: Strings);
    execveat(fd: c_int, path: *const c_char, argv: Strings, environment: Strings, flags: c_int);
}

// execl, execlp and execle take a variable number of arguments, which stable Rust cannot
// declare: a stub stores the register arguments below the stacked ones' address and calls
// `exec_list(registers, stacked, kind)`.
macro_rules! variadic_stub {
    ($($name:literal, $kind:literal;)*) => { $(
        core::arch::global_asm!(
            ".text",
            ".p2align 4",
            concat!(".globl ", $name),
            concat!(".type ", $name, ",@function"),
            concat!($name, ":"),
            ".cfi_startproc",
            "sub rsp, 56",
            ".cfi_adjust_cfa_offset 56",
            "mov [rsp], rdi",
            "mov [rsp + 8], rsi",
            "mov [rsp + 16], rdx",
            "mov [rsp + 24], rcx",
            "mov [rsp + 32], r8",
            "mov [rsp + 40], r9",
            "mov rdi, rsp",
            "lea rsi, [rsp + 64]",
            concat!("mov edx, ", $kind),
            "call {exec_list}",
            "add rsp, 56",
            ".cfi_adjust_cfa_offset -56",
            "ret",
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
            exec_list = sym exec_list,
        );
    )* };
}

variadic_stub! {
    "execl", "0";
    "execlp", "1";
    "execle", "2";
}

unsafe extern "C" {
    fn execl();
    fn execlp();
    fn execle();
}

/// Keeps the stubs in the library, exported.
#[used]
static STUBS: [unsafe extern "C" fn(); 3] = [execl, execlp, execle];

/// `registers`: path and the first five list entries; `stacked`: the others.
unsafe extern "C" fn exec_list(
    registers: *const *const c_char,
    stacked: *const *const c_char,
    kind: c_int,
) -> c_int {
    // SAFETY: the caller of an execl function ends its list with a null pointer, so reading up
    // to that stays within what it passed.
    unsafe {
        let argument = |i: usize| {
            if i < 6 {
                *registers.add(i)
            } else {
                *stacked.add(i - 6)
            }
        };
        let path = argument(0);
        let mut argv = Vec::new();
        loop {
            let next = argument(1 + argv.len());
            argv.push(next);
            if next.is_null() {
                break;
            }
        }
        match kind {
            0 => execv(path, argv.as_ptr()),
            1 => execvp(path, argv.as_ptr()),
            _ => execve(path, argv.as_ptr(), argument(1 + argv.len()) as Strings),
        }
    }
}

/// Interposed: a shell command replaces no image, but its child is profiled like any other.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    let state = threads::current().filter(|_| session::is_running());
    state.inspect(|t| t.begin_wait());
    // SAFETY: libc's own, same argument.
    let result = unsafe { real!(c"system": fn(*const c_char) -> c_int)(command) };
    state.inspect(|t| t.end_wait());
    result
}
