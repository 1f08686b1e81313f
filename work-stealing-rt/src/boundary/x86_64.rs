//! The boundary on x86-64 Linux.
//!
//! One duty: the trampoline `wsrt_enter_task` and the recording assembly. Invariants: at the
//! address `wsrt_enter_task_return` the task's header is at `[rsp + 8]`; the trampoline's call
//! frame information is complete at every instruction; [`record`] stores a code address together
//! with the stack and frame pointers *at that address*, so that the frame's unwinding rule there
//! applies to the recorded registers.
//!
//! A program may contain this crate several times: in two versions, or once of its own and once in
//! rayon-core's place. The copies of one module (program or shared library) then share every named item here:
//! the trampoline, which has no data of a copy, and the sections of the runtime's code and of the sites,
//! which the linker joins. So an item whose meaning changes gets a new name.

use core::arch::{asm, global_asm};
use core::ffi::c_void;
use core::hint::black_box;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hpcrun_abi::{CountedSite, TaskHeader};

use crate::task::{Entry, Task};

/// Where the boundary's frame keeps the header's address, from the stack pointer.
pub(crate) const TASK_SLOT: usize = 8;

// wsrt_enter_task(header, worker, entry): after the prologue the stack holds, from rsp up:
// worker, header, the caller's rbp, the return address. 16-byte aligned at the call.
//
// The linker keeps one group of a module's copies. With fat link-time optimisation the copies are assembled
// as one file, which may define a name only once.
global_asm!(
    ".ifndef wsrt_enter_task",
    ".pushsection wsrt_text,\"axG\",@progbits,wsrt_enter_task,comdat",
    ".p2align 4",
    ".weak wsrt_enter_task",
    ".hidden wsrt_enter_task",
    ".type wsrt_enter_task,@function",
    "wsrt_enter_task:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rdi",
    "push rsi",
    "call rdx",
    ".weak wsrt_enter_task_return",
    ".hidden wsrt_enter_task_return",
    "wsrt_enter_task_return:",
    "leave",
    ".cfi_def_cfa rsp, 8",
    ".cfi_restore rbp",
    "ret",
    ".cfi_endproc",
    ".size wsrt_enter_task, . - wsrt_enter_task",
    ".popsection",
    ".pushsection .bss.wsrt_sites_told,\"awG\",@nobits,wsrt_enter_task,comdat",
    ".weak wsrt_sites_told",
    ".hidden wsrt_sites_told",
    ".type wsrt_sites_told,@object",
    "wsrt_sites_told:",
    ".zero 1",
    ".size wsrt_sites_told, 1",
    ".popsection",
    ".endif",
);

unsafe extern "C" {
    fn wsrt_enter_task(header: *const TaskHeader, worker: *const c_void, entry: *const c_void);
    static wsrt_enter_task_return: u8;
    static wsrt_sites_told: AtomicBool;
    #[link_name = "__start_wsrt_text"]
    static TEXT_START: u8;
    #[link_name = "__stop_wsrt_text"]
    static TEXT_STOP: u8;
    #[link_name = "__start_wsrt_sites"]
    static SITES_START: CountedSite;
    #[link_name = "__stop_wsrt_sites"]
    static SITES_STOP: CountedSite;
}

/// A record without code, so that every program has the section and the linker's two symbols.
#[unsafe(link_section = "wsrt_sites")]
static NO_SITE: CountedSite = CountedSite {
    ip: 0,
    entry: 0,
    finish: 0,
    forks: AtomicU64::new(0),
    steals: AtomicU64::new(0),
    stolen_ns: AtomicU64::new(0),
    executions: AtomicU64::new(0),
};

/// Enters a task through the boundary.
///
/// # Safety
/// `entry` is the entry of the task at `header`, which nobody else runs and which stays valid
/// until this returns; `worker` is the calling thread's. Entries catch every panic.
#[inline(always)]
pub(crate) unsafe fn enter(header: *const TaskHeader, worker: *const c_void, entry: Entry) {
    // SAFETY: the trampoline only passes on its arguments; the rest is this function's contract.
    unsafe { wsrt_enter_task(header, worker, entry as *const c_void) }
}

/// The boundary's return address.
pub(crate) fn return_address() -> usize {
    (&raw const wsrt_enter_task_return).addr()
}

/// The range of the runtime's own out-of-line code, of all copies in this module.
pub(crate) fn text_range() -> (usize, usize) {
    ((&raw const TEXT_START).addr(), (&raw const TEXT_STOP).addr())
}

/// The records of all sites that [`record`] has emitted, in all copies of this module. Only the first copy
/// that asks gets them, so that a profiler counts none twice; the others get an empty range.
pub(crate) fn sites() -> (*const CountedSite, *const CountedSite) {
    // Linkers drop a section that nothing refers to.
    black_box(&raw const NO_SITE);
    // SAFETY: a byte of zero at first, reached as this type alone, by whatever copy; nothing can
    // panic.
    if unsafe { wsrt_sites_told.swap(true, Ordering::Relaxed) } {
        return (ptr::null(), ptr::null());
    }
    (&raw const SITES_START, &raw const SITES_STOP)
}

/// Fills `header` with the current place as the spawner's context, and the task's entry points.
///
/// Always inlined, so that the place is in the spawner's own frame.
///
/// # Safety
/// `header` is valid for a write and is the header of a `T`.
#[inline(always)]
pub(crate) unsafe fn record<T: Task>(header: *mut TaskHeader) {
    // SAFETY: writes the three words of the header; the static it emits (a `CountedSite`, of which a
    // `task::Site` is the beginning) lives as long as the code. Neither the stack nor the flags change, and
    // nothing can panic.
    unsafe {
        asm!(
            "lea {site}, [rip + 771f]",
            "mov [{header}], {site}",
            "772:",
            "mov [{header} + 8], rsp",
            "mov [{header} + 16], rbp",
            ".pushsection wsrt_sites,\"aw\",@progbits",
            ".p2align 3",
            "771:",
            ".quad 772b, {entry}, {finish}, 0, 0, 0, 0",
            ".popsection",
            site = out(reg) _,
            header = in(reg) header,
            entry = sym <T as Task>::entry,
            finish = sym <T as Task>::finish,
            options(nostack, preserves_flags),
        );
    }
}
