//! AArch64 instructions.

use std::arch::asm;

/// The generic timer's counter.
#[inline]
pub fn counter() -> u64 {
    let count;
    // SAFETY: reads a register that Linux lets programs read.
    unsafe { asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack, preserves_flags)) };
    count
}

/// Prefetches the cache line of an address, which may be invalid.
#[inline]
pub fn prefetch(address: *const u8) {
    // SAFETY: a prefetch has no visible effect on memory, and does not fault.
    unsafe {
        asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly))
    };
}

/// The calling function's stack pointer.
#[inline(always)]
pub fn stack_pointer() -> usize {
    let sp;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, sp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
    sp
}

/// Makes a system call of up to five arguments; the result is negative for an error.
///
/// # Safety
/// As for the system call.
#[inline]
pub unsafe fn system_call(number: i64, arguments: [usize; 5]) -> isize {
    let result;
    // SAFETY: follows the kernel's calling convention, which changes only the result register; the rest is
    // the caller's promise.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") arguments[0] => result,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            in("x4") arguments[4],
            options(nostack),
        );
    }
    result
}

/// One pointer per thread; see the x86-64 version.
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
                "adrp {0}, :gottprel:hpcrun_thread_slot",
                "ldr {0}, [{0}, #:gottprel_lo12:hpcrun_thread_slot]",
                "mrs {1}, tpidr_el0",
                "ldr {0}, [{1}, {0}]",
                out(reg) pointer,
                out(reg) _,
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
                "adrp {0}, :gottprel:hpcrun_thread_slot",
                "ldr {0}, [{0}, #:gottprel_lo12:hpcrun_thread_slot]",
                "mrs {1}, tpidr_el0",
                "str {2}, [{1}, {0}]",
                out(reg) _,
                out(reg) _,
                in(reg) pointer,
                options(nostack, preserves_flags)
            );
        }
    }
}
