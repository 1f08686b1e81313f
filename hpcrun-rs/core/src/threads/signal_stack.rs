//! The alternate signal stack that the handler runs on.

use crate::memory::{self, PAGE};
use crate::system;
use std::cell::Cell;
use std::ptr;

/// Size of the alternate signal stack that every thread gets: the handler's frames, with room
/// for the program's own handlers, which may run there too.
pub const SIGNAL_STACK: usize = 128 << 10;

/// A thread's alternate signal stack; its mapping lives for ever, as thread states do.
#[derive(Debug)]
pub struct SignalStack {
    base: usize,
    /// The program's own, when it is too small to run our handler on.
    pub program: Cell<Option<libc::stack_t>>,
}

impl SignalStack {
    /// Maps the memory. `None` when it cannot be had.
    pub(super) fn map() -> Option<SignalStack> {
        let guard = memory::map_anonymous(SIGNAL_STACK + PAGE)?.as_ptr() as usize;
        // SAFETY: the lowest page of our own fresh mapping becomes a guard.
        unsafe { libc::mprotect(guard as *mut libc::c_void, PAGE, libc::PROT_NONE) };
        Some(SignalStack {
            base: guard + PAGE,
            program: Cell::new(None),
        })
    }

    /// Makes it the calling thread's. A program that has installed one before keeps it if it is large
    /// enough.
    pub(super) fn install(&self) {
        self.program.set(None);
        // SAFETY: the stack is our own mapping of SIGNAL_STACK bytes, never freed.
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

    /// The calling thread ends.
    pub(super) fn remove(&self) {
        // SAFETY: disables this thread's alternate stack if it is ours.
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

/// The system call: the libc function is interposed, and acts for whoever owns the thread-local storage.
///
/// # Safety
/// As `sigaltstack`.
unsafe fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) {
    // SAFETY: the caller's promise.
    unsafe { system::call(libc::SYS_sigaltstack, [new as usize, old as usize, 0, 0, 0]) };
}
