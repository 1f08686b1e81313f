//! The stack that the signal handler runs on, one per thread, and no stack of the program.

use crate::memory::{self, PAGE};

/// Size of the stack: the handler's frames take a small part of it.
const SIGNAL_STACK: usize = 64 << 10;

/// A thread's handler stack. Its mapping is never freed, like thread states.
#[derive(Debug)]
pub struct SignalStack {
    top: usize,
}

impl SignalStack {
    /// Maps the memory. `None` when it cannot be allocated.
    pub(super) fn map() -> Option<SignalStack> {
        let guard = memory::map_anonymous(SIGNAL_STACK + PAGE)?.as_ptr() as usize;
        // SAFETY: the mapping is fresh and ours; its lowest page becomes a guard.
        unsafe { libc::mprotect(guard as *mut libc::c_void, PAGE, libc::PROT_NONE) };
        Some(SignalStack { top: guard + PAGE + SIGNAL_STACK })
    }

    /// The stack's upper end, which is aligned to a page.
    #[inline]
    pub fn top(&self) -> usize {
        self.top
    }
}
