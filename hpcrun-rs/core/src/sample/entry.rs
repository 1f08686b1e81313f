//! Where the kernel enters the profiler: our signal's handler, in assembly.
//!
//! The kernel puts its frame where the thread is, be it a coroutine's stack of 8 KiB. From there the entry
//! moves to the thread's own handler stack, calls the handler, and comes back: either to the kernel's frame,
//! or into the program's own handler, whose frame is as the kernel would have made it
//! ([`super::program::forward`]). So the profiler needs some hundred bytes of the program's stack.
//!
//! Invariants: all signals are blocked from the entry to the return or jump, so a handler stack is never used
//! twice at a time. Another process on the same memory (`vfork`) does not use its parent's.
//!
//! Async-signal-safe.

use super::signal::handle;
use crate::threads;
use std::arch::global_asm;

/// How the program's handler begins: the registers of its first instruction, and its mask.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Begin {
    pub handler: usize,
    /// Its stack pointer, at the address that it returns to.
    pub stack: usize,
    /// The signals that are blocked while it runs.
    pub mask: u64,
    /// Its first argument, the number of the signal.
    pub signal: usize,
    /// Its second argument, the information on the signal.
    pub info: usize,
    /// Its third argument, the interrupted context.
    pub context: usize,
    /// 0 if the program's sandbox refuses the call that sets the mask.
    pub sets_mask: usize,
}

// The two calls keep the interrupted frame pointer in [rbp]. `Begin` is at the handler stack's top,
// which stay valid after the move back, since all signals are blocked. The mask is set with the program's
// stack in place: a signal that it lets in comes as if between two instructions of the program. The
// floating-point control word gets the value that the kernel gives it for a handler.
global_asm!(
    ".text",
    ".p2align 4",
    ".globl hpcrun_signal_entry",
    ".hidden hpcrun_signal_entry",
    ".type hpcrun_signal_entry,@function",
    "hpcrun_signal_entry:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rdi",
    "push rsi",
    "push rdx",
    "sub rsp, 8",
    "mov rdi, rsi",
    "call {handler_stack}",
    "mov rdi, qword ptr [rbp - 8]",
    "mov rsi, qword ptr [rbp - 16]",
    "mov rdx, qword ptr [rbp - 24]",
    "test rax, rax",
    "cmovz rax, rsp",
    "lea rsp, [rax - 64]",
    "mov rcx, rsp",
    "call {handle}",
    "test al, al",
    "jnz 2f",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_remember_state",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_restore_state",
    "2:",
    "mov r8, qword ptr [rsp]",
    "mov r9, qword ptr [rsp + 8]",
    "mov rax, qword ptr [rsp + 16]",
    "mov r12, qword ptr [rsp + 24]",
    "mov r13, qword ptr [rsp + 32]",
    "mov r14, qword ptr [rsp + 40]",
    "mov r15, qword ptr [rsp + 48]",
    "mov rsp, r9",
    "mov rbp, qword ptr [rbp]",
    ".cfi_def_cfa rsp, 8",
    ".cfi_restore rbp",
    "mov dword ptr [rsp - 16], 0x1f80",
    "ldmxcsr dword ptr [rsp - 16]",
    "test r15, r15",
    "jz 3f",
    "mov qword ptr [rsp - 8], rax",
    "lea rsi, [rsp - 8]",
    "mov edi, {set_mask}",
    "xor edx, edx",
    "mov r10d, 8",
    "mov eax, {sigprocmask}",
    "syscall",
    "3:",
    "mov rdi, r12",
    "mov rsi, r13",
    "mov rdx, r14",
    "xor eax, eax",
    "jmp r8",
    ".cfi_endproc",
    ".size hpcrun_signal_entry, . - hpcrun_signal_entry",
    handler_stack = sym handler_stack,
    handle = sym handle,
    set_mask = const libc::SIG_SETMASK,
    sigprocmask = const libc::SYS_rt_sigprocmask,
);

unsafe extern "C" {
    /// The handler that the kernel calls.
    pub(super) fn hpcrun_signal_entry(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void);
}

/// The upper end of the handler stack of the thread that has got this signal; 0 if it has none.
unsafe extern "C" fn handler_stack(info: *const libc::siginfo_t) -> usize {
    // SAFETY: the kernel passes a valid pointer.
    let thread = threads::signalled(unsafe { &*info });
    thread.map_or(0, |thread| thread.signal_stack.top())
}
