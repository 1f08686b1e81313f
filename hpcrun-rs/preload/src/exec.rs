//! The exec family and `posix_spawn`. A program that our library would break is started without it
//! ([`children`](crate::children)). Sampling stops before an exec, because the new image's default action
//! would handle a pending signal of ours; it resumes if the exec fails.

use crate::children::{Environment, Program, Strings, own_environment};
use crate::masks::with_own_mask;
use crate::real::{Real, function, real};
use hpcrun_core::session;
use hpcrun_core::threads::{self, with_room};
use std::ffi::{CStr, c_char, c_int, c_long, c_void};

/// Runs `exec` with this thread's timer stopped. The timers of other threads end with the image.
///
/// # Safety
/// `environment` must be valid for the exec function.
unsafe fn exec(
    program: Program<'_>,
    environment: Strings,
    exec: impl FnOnce(Strings) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let environment = with_room(|| unsafe { Environment::of(program, environment) });
    // A vfork child runs on its parent's memory, so the state is not its own.
    let state = threads::current().filter(|t| t.is_own() && session::is_running());
    if let Some(state) = state {
        state.source.disarm();
        with_room(session::note_exec);
    }
    let result = with_own_mask(|| exec(environment.as_ptr()));
    if let Some(state) = state {
        // SAFETY: this thread's errno, preserved across re-arming.
        let error = unsafe { *libc::__errno_location() };
        session::arm(state);
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = error };
    }
    result
}

/// A string of the program. Null becomes empty here; libc itself refuses it.
///
/// # Safety
/// `string` must be null or a string that outlives the result.
unsafe fn text<'a>(string: *const c_char) -> &'a CStr {
    if string.is_null() {
        return c"";
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(string) }
}

macro_rules! interpose_exec {
    ($($name:ident($($argument:ident: $type:ty),*) with $environment:ident runs $program:expr;)*) => { $(
        /// Interposed; see the module.
        ///
        /// # Safety
        /// As for libc's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { $name::call($($argument),*) }
        }

        /// The hook itself: what our own calls of the exported name reach is libc's function.
        mod $name {
            use super::*;

            /// # Safety
            /// As for libc's function.
            pub(super) unsafe fn call($($argument: $type),*) -> c_int {
                const NAME: &[u8] = concat!(stringify!($name), "\0").as_bytes();
                static REAL: Real = Real::new(match CStr::from_bytes_with_nul(NAME) {
                    Ok(name) => name,
                    Err(_) => panic!(),
                });
                // SAFETY: the caller's own strings; libc's function of this name and signature, same
                // arguments.
                unsafe {
                    exec($program, $environment, |$environment| {
                        function::<unsafe extern "C" fn($($type),*) -> c_int>(&REAL)($($argument),*)
                    })
                }
            }
        }
    )* };
}

interpose_exec! {
    execve(path: *const c_char, argv: Strings, environment: Strings)
        with environment runs Program::Path(text(path));
    execvpe(file: *const c_char, argv: Strings, environment: Strings)
        with environment runs Program::Name(text(file));
    fexecve(fd: c_int, argv: Strings, environment: Strings)
        with environment runs Program::At(fd, c"");
    execveat(fd: c_int, path: *const c_char, argv: Strings, environment: Strings, flags: c_int)
        with environment runs Program::At(fd, text(path));
}

/// The system call `execve`, by libc's function.
///
/// # Safety
/// As for libc's function.
pub(crate) unsafe fn by_system_call(
    path: *const c_char,
    argv: Strings,
    environment: Strings,
) -> c_long {
    // SAFETY: the caller's promise.
    unsafe { execve::call(path, argv, environment).into() }
}

/// Interposed like [`execve`].
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, argv: Strings) -> c_int {
    // SAFETY: equivalent to libc's function, with the caller's arguments.
    unsafe { execve::call(path, argv, own_environment()) }
}

/// Interposed like [`execvpe`].
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, argv: Strings) -> c_int {
    // SAFETY: equivalent to libc's function, with the caller's arguments.
    unsafe { execvpe::call(file, argv, own_environment()) }
}

type Spawn = unsafe extern "C" fn(
    *mut libc::pid_t,
    *const c_char,
    *const c_void,
    *const c_void,
    Strings,
    Strings,
) -> c_int;

macro_rules! interpose_spawn {
    ($($name:ident($symbol:literal) runs $program:path;)*) => { $(
        /// Interposed; see the module.
        ///
        /// # Safety
        /// As for libc's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            pid: *mut libc::pid_t,
            file: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            argv: Strings,
            environment: Strings,
        ) -> c_int {
            static REAL: Real = Real::versioned($symbol, c"GLIBC_2.15");
            // SAFETY: the caller's own strings; libc's function of this name and signature, with its
            // arguments.
            unsafe {
                let program = $program(text(file));
                let environment = with_room(|| Environment::of(program, environment));
                let list = environment.as_ptr();
                with_own_mask(|| {
                    function::<Spawn>(&REAL)(pid, file, actions, attributes, argv, list)
                })
            }
        }
    )* };
}

interpose_spawn! {
    posix_spawn(c"posix_spawn") runs Program::Path;
    posix_spawnp(c"posix_spawnp") runs Program::Name;
}

/// The arguments of `execl` and its variants that are passed on the stack.
///
/// Stable Rust cannot define a variadic function. By the System V ABI, a structure of this size is passed in
/// memory, exactly where the caller of a variadic function puts the arguments that do not fit in registers.
/// So this type names those arguments in place. Nothing is read beyond the null pointer that ends the list
/// (and the environment after it, for `execle`).
#[repr(C)]
pub struct Stacked([*const c_char; MOST_STACKED]);

const MOST_STACKED: usize = 4096;

/// The arguments of one call, in order.
struct List<'a> {
    registers: [*const c_char; 5],
    stacked: &'a Stacked,
}

impl List<'_> {
    fn get(&self, i: usize) -> Option<*const c_char> {
        match self.registers.get(i) {
            Some(argument) => Some(*argument),
            None => self.stacked.0.get(i - self.registers.len()).copied(),
        }
    }

    /// The argument vector including its null pointer; `None` if it does not end within the limit.
    fn vector(&self) -> Option<Vec<*const c_char>> {
        let mut all = Vec::new();
        loop {
            let next = self.get(all.len())?;
            all.push(next);
            if next.is_null() {
                return Some(all);
            }
        }
    }
}

fn too_long() -> c_int {
    // SAFETY: `__errno_location` returns a valid pointer to this thread's errno.
    unsafe { *libc::__errno_location() = libc::E2BIG };
    -1
}

macro_rules! interpose_exec_list {
    ($($name:ident, |$path:ident, $vector:ident, $list:ident| $exec:expr;)*) => { $(
        /// Interposed; see [`Stacked`] and the module.
        ///
        /// # Safety
        /// As for libc's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $path: *const c_char,
            a: *const c_char,
            b: *const c_char,
            c: *const c_char,
            d: *const c_char,
            e: *const c_char,
            stacked: Stacked,
        ) -> c_int {
            let $list = List {
                registers: [a, b, c, d, e],
                stacked: &stacked,
            };
            match $list.vector() {
                // SAFETY: libc's function on the caller's own strings, and a vector that outlives the call.
                Some($vector) => unsafe { $exec },
                None => too_long(),
            }
        }
    )* };
}

interpose_exec_list! {
    execl, |path, vector, list| execve::call(path, vector.as_ptr(), own_environment());
    execlp, |path, vector, list| execvpe::call(path, vector.as_ptr(), own_environment());
    execle, |path, vector, list| match list.get(vector.len()) {
        Some(environment) => execve::call(path, vector.as_ptr(), environment.cast()),
        None => too_long(),
    };
}

/// Interposed: the thread waits for a shell command, whose process is profiled like any other.
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    let state = threads::current().filter(|_| session::is_running());
    state.inspect(|t| t.begin_wait());
    // SAFETY: libc's own function, same argument.
    let result = unsafe { real!(c"system": fn(*const c_char) -> c_int)(command) };
    state.inspect(|t| t.end_wait());
    result
}
