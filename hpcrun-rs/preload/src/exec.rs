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

/// The list entries of `execl` and its kin that are passed on the stack.
///
/// Stable Rust cannot declare a variadic function. By the System V ABI a structure this large
/// is passed in memory, exactly where the caller of a variadic function puts the arguments that
/// do not fit in registers; so this names them where they lie, and nothing is read of it beyond
/// the null pointer that ends the list (and the environment after it, for `execle`).
#[repr(C)]
pub struct Stacked([*const c_char; MOST_STACKED]);

const MOST_STACKED: usize = 4096;

/// The arguments of a call, in order.
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

    /// The argument vector with its final null pointer; `None` when it has no end.
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
    // SAFETY: errno of this thread.
    unsafe { *libc::__errno_location() = libc::E2BIG };
    -1
}

macro_rules! interpose_exec_list {
    ($($name:ident, |$path:ident, $vector:ident, $list:ident| $exec:expr;)*) => { $(
        /// Interposed; see [`Stacked`] and the module.
        ///
        /// # Safety
        /// As libc's.
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
                // SAFETY: libc's function over the caller's own strings.
                Some($vector) => unsafe { $exec },
                None => too_long(),
            }
        }
    )* };
}

interpose_exec_list! {
    execl, |path, vector, list| execv(path, vector.as_ptr());
    execlp, |path, vector, list| execvp(path, vector.as_ptr());
    execle, |path, vector, list| match list.get(vector.len()) {
        Some(environment) => execve(path, vector.as_ptr(), environment.cast()),
        None => too_long(),
    };
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
