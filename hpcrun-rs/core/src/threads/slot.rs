//! The thread-local word through which the handler finds its thread's state.
//!
//! Async-signal-safe.

use super::ThreadState;

// One word of initial-exec thread-local storage: no allocation and no call at first use, which
// `thread_local!` in a preloaded library cannot promise.
core::arch::global_asm!(
    ".pushsection .tbss.hpcrun_thread,\"awT\",@nobits",
    ".p2align 3",
    ".globl hpcrun_thread_slot",
    ".hidden hpcrun_thread_slot",
    ".type hpcrun_thread_slot,@object",
    ".size hpcrun_thread_slot, 8",
    "hpcrun_thread_slot:",
    ".zero 8",
    ".popsection",
);

#[inline(always)]
pub(super) fn get() -> *mut ThreadState {
    let p: *mut ThreadState;
    // SAFETY: reads this thread's word; the offset is resolved when the library is loaded.
    unsafe {
        core::arch::asm!(
            "mov {0}, qword ptr [rip + hpcrun_thread_slot@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) p,
            options(nostack, preserves_flags, readonly)
        );
    }
    p
}

pub(super) fn set(p: *mut ThreadState) {
    // SAFETY: writes this thread's word.
    unsafe {
        core::arch::asm!(
            "mov {0}, qword ptr [rip + hpcrun_thread_slot@GOTTPOFF]",
            "mov qword ptr fs:[{0}], {1}",
            out(reg) _,
            in(reg) p,
            options(nostack, preserves_flags)
        );
    }
}
