//! The alternate signal stack that the handler runs on.

use crate::memory::{self, PAGE};
use crate::system;
use std::cell::Cell;
use std::ptr;

/// Size of the alternate signal stack of each thread. It holds the handler's frames, with room for the
/// program's own handlers, which may run there too.
pub const SIGNAL_STACK: usize = 128 << 10;

/// A thread's alternate signal stack. Its mapping is never freed, like thread states.
#[derive(Debug)]
pub struct SignalStack {
    base: usize,
    /// The program's own stack, if it is too small for our handler.
    pub program: Cell<Option<libc::stack_t>>,
}

impl SignalStack {
    /// Maps the memory. `None` when it cannot be allocated.
    pub(super) fn map() -> Option<SignalStack> {
        let guard = memory::map_anonymous(SIGNAL_STACK + PAGE)?.as_ptr() as usize;
        // SAFETY: the mapping is fresh and ours; its lowest page becomes a guard.
        unsafe { libc::mprotect(guard as *mut libc::c_void, PAGE, libc::PROT_NONE) };
        Some(SignalStack { base: guard + PAGE, program: Cell::new(None) })
    }

    /// Installs the stack in the calling thread, unless the program has already installed one that is large
    /// enough.
    pub(super) fn install(&self) {
        self.program.set(None);
        // SAFETY: the stack is our own mapping of SIGNAL_STACK bytes, which is never freed; `old` and `new`
        // are locals that outlive the calls.
        unsafe {
            let mut old: libc::stack_t = std::mem::zeroed();
            sigaltstack(ptr::null(), &mut old);
            if old.ss_flags & libc::SS_DISABLE == 0 && old.ss_size >= SIGNAL_STACK / 2 {
                return;
            }
            let new = libc::stack_t {
                ss_sp: self.base as *mut libc::c_void,
                ss_flags: 0,
                ss_size: SIGNAL_STACK,
            };
            sigaltstack(&new, ptr::null_mut());
        }
    }

    /// Removes the stack from the calling thread, which ends.
    pub(super) fn remove(&self) {
        // SAFETY: disables the calling thread's alternate stack only if it is ours.
        unsafe {
            let mut old: libc::stack_t = std::mem::zeroed();
            sigaltstack(ptr::null(), &mut old);
            if old.ss_sp as usize == self.base {
                old.ss_flags = libc::SS_DISABLE;
                sigaltstack(&old, ptr::null_mut());
            }
        }
    }
}

/// The system call. libc's function is interposed, and uses the state of the thread that owns the
/// thread-local storage.
///
/// # Safety
/// As for `sigaltstack`.
unsafe fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) {
    // SAFETY: the caller's promise.
    unsafe { system::call(libc::SYS_sigaltstack, [new as usize, old as usize, 0, 0, 0]) };
}
