//! x86-64 instructions.
//!
//! Async-signal-safe.

use std::arch::asm;
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch, _rdtsc};

pub const PAGE: usize = 4096;

/// The processor's time-stamp counter.
#[inline]
pub fn counter() -> u64 {
    // SAFETY: every x86-64 processor has this instruction.
    unsafe { _rdtsc() }
}

/// Prefetches the cache line of an address, which may be invalid.
#[inline]
pub fn prefetch(address: *const u8) {
    // SAFETY: a prefetch has no visible effect on memory, and does not fault.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

#[inline(always)]
pub fn stack_pointer() -> usize {
    let sp;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
    sp
}

/// Makes a system call of up to five arguments; the result is negative for an error.
///
/// # Safety
/// As for the system call.
#[inline]
pub unsafe fn system_call(number: i64, arguments: [usize; 5]) -> isize {
    let result;
    // SAFETY: follows the kernel's calling convention, which changes rcx and r11 beside the result; the rest
    // is the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

std::arch::global_asm!(
    ".text",
    ".p2align 4",
    ".globl hpcrun_call_on_stack",
    ".hidden hpcrun_call_on_stack",
    ".type hpcrun_call_on_stack,@function",
    "hpcrun_call_on_stack:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rsp, rdx",
    "call rsi",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size hpcrun_call_on_stack, . - hpcrun_call_on_stack",
);

unsafe extern "C" {
    /// Calls a function with its argument on the stack that ends at `top`, aligned to 16 bytes. The function
    /// returns, and does not panic.
    #[link_name = "hpcrun_call_on_stack"]
    pub fn call_on_stack(
        argument: *mut std::ffi::c_void,
        function: unsafe extern "C" fn(*mut std::ffi::c_void),
        top: usize,
    );
}

/// One pointer per thread.
///
/// One word of initial-exec thread-local storage. Its first use neither allocates nor calls a function, which
/// `thread_local!` in a preloaded library cannot guarantee.
pub mod thread_slot {
    use std::arch::{asm, global_asm};

    global_asm!(
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

    /// The calling thread's pointer; initially null.
    #[inline(always)]
    pub fn get<T>() -> *mut T {
        let pointer: *mut T;
        // SAFETY: reads this thread's word; the offset is resolved when the library is loaded.
        unsafe {
            asm!(
                "mov {0}, qword ptr [rip + hpcrun_thread_slot@GOTTPOFF]",
                "mov {0}, qword ptr fs:[{0}]",
                out(reg) pointer,
                options(nostack, preserves_flags, readonly)
            );
        }
        pointer
    }

    /// Sets the calling thread's pointer.
    pub fn set<T>(pointer: *mut T) {
        // SAFETY: writes this thread's word.
        unsafe {
            asm!(
                "mov {0}, qword ptr [rip + hpcrun_thread_slot@GOTTPOFF]",
                "mov qword ptr fs:[{0}], {1}",
                out(reg) _,
                in(reg) pointer,
                options(nostack, preserves_flags)
            );
        }
    }
}
