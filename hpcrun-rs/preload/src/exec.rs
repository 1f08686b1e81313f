//! The exec family and `posix_spawn`. A program that our library would break is started without it
//! ([`children`](crate::children)). Sampling stops before an exec, because the new image's default action
//! would handle a pending signal of ours; it resumes if the exec fails.

use crate::children::{Environment, Program, Strings, own_environment};
use crate::events::waiting;
use crate::masks::with_own_mask;
use crate::real::{interpose, real};
use hpcrun_core::session;
use hpcrun_core::threads::{self, with_room};
use std::ffi::{CStr, c_char, c_int, c_void};

/// Runs `exec` with this thread's timer stopped. The timers of other threads end with the image.
///
/// # Safety
/// `environment` must be valid for the exec function.
unsafe fn exec(program: Program<'_>, environment: Strings, exec: impl FnOnce(Strings) -> c_int) -> c_int {
    if program.is_missing() {
        return exec(environment);
    }
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

type Text = *const c_char;

/// Executes a file by its path; also for the system call of this name.
///
/// # Safety
/// As for libc's `execve`.
pub(crate) unsafe fn by_path(path: Text, argv: Strings, environment: Strings) -> c_int {
    // SAFETY: libc's own function, on the caller's strings.
    unsafe {
        let real = real!(c"execve": fn(Text, Strings, Strings) -> c_int);
        exec(Program::Path(text(path)), environment, |environment| real(path, argv, environment))
    }
}

/// Executes a file by its name.
///
/// # Safety
/// As for libc's `execvpe`.
unsafe fn by_name(file: Text, argv: Strings, environment: Strings) -> c_int {
    // SAFETY: libc's own function, on the caller's strings.
    unsafe {
        let real = real!(c"execvpe": fn(Text, Strings, Strings) -> c_int);
        exec(Program::Name(text(file)), environment, |environment| real(file, argv, environment))
    }
}

/// Starts a program in a child.
///
/// # Safety
/// `environment` must be valid for the call, which gets it, or another.
unsafe fn spawn(program: Program<'_>, environment: Strings, call: impl FnOnce(Strings) -> c_int) -> c_int {
    // SAFETY: the caller's promise.
    let environment = with_room(|| unsafe { Environment::of(program, environment) });
    with_own_mask(|| call(environment.as_ptr()))
}

/// The first parameter of `posix_spawn`.
type Child = *mut libc::pid_t;
/// The parameters of `posix_spawn` that say what the child does before.
type Before = *const c_void;

interpose! {
    execve(path: Text, argv: Strings, environment: Strings) -> c_int: |_| by_path(path, argv, environment);
    execvpe(file: Text, argv: Strings, environment: Strings) -> c_int: |_| by_name(file, argv, environment);
    execv(path: Text, argv: Strings) -> c_int: |_| by_path(path, argv, own_environment());
    execvp(file: Text, argv: Strings) -> c_int: |_| by_name(file, argv, own_environment());
    fexecve(fd: c_int, argv: Strings, environment: Strings) -> c_int: |_, real|
        exec(Program::At(fd, c""), environment, |environment| real(fd, argv, environment));
    execveat(fd: c_int, path: Text, argv: Strings, environment: Strings, flags: c_int) -> c_int: |_, real|
        exec(Program::At(fd, text(path)), environment, |environment| {
            real(fd, path, argv, environment, flags)
        });
    posix_spawn at c"GLIBC_2.15" (
        child: Child, path: Text, actions: Before, attributes: Before, argv: Strings, environment: Strings
    ) -> c_int: |_, real| spawn(Program::Path(text(path)), environment, |environment| {
        real(child, path, actions, attributes, argv, environment)
    });
    posix_spawnp at c"GLIBC_2.15" (
        child: Child, file: Text, actions: Before, attributes: Before, argv: Strings, environment: Strings
    ) -> c_int: |_, real| spawn(Program::Name(text(file)), environment, |environment| {
        real(child, file, actions, attributes, argv, environment)
    });
    // The thread waits for a shell command, whose process is profiled like any other.
    system(command: Text) -> c_int: |call| match session::is_running() {
        true => waiting(call),
        false => call(),
    };
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
        self.registers.get(i).or_else(|| self.stacked.0.get(i - self.registers.len())).copied()
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
        /// Interposed; see [`Stacked`].
        ///
        /// # Safety
        /// As for libc's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $path: Text, a: Text, b: Text, c: Text, d: Text, e: Text, stacked: Stacked,
        ) -> c_int {
            let $list = List { registers: [a, b, c, d, e], stacked: &stacked };
            match $list.vector() {
                // SAFETY: the caller's own strings, and a vector that outlives the call.
                Some($vector) => unsafe { $exec },
                None => too_long(),
            }
        }
    )* };
}

interpose_exec_list! {
    execl, |path, vector, list| by_path(path, vector.as_ptr(), own_environment());
    execlp, |path, vector, list| by_name(path, vector.as_ptr(), own_environment());
    execle, |path, vector, list| match list.get(vector.len()) {
        Some(environment) => by_path(path, vector.as_ptr(), environment.cast()),
        None => too_long(),
    };
}
