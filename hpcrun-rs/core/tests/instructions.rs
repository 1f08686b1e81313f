//! Unwinding out of assembly without unwind information, from the registers that a signal handler would get,
//! whatever the assembly does with its stack. If the analysis cannot follow a function to its return, the
//! unwind ends.
#![cfg(target_arch = "x86_64")]

use hpcrun_core::unwind::{Cursor, End, Registers, Unwind, loadmap};
use hpcrun_core::{logical::agents, session, unwind::StackBounds};
use std::hint::black_box;

/// The registers that the assembly stores: instruction, stack and frame pointer.
type Seen = [u64; 3];
type Callback = extern "C" fn(*mut Seen);

// Each function stores its registers in its first argument, and passes it to the second argument (`note`).
// None has call frame information.
std::arch::global_asm!(
    ".macro note",
    "lea rax, [rip]",
    "mov [rdi], rax",
    "mov [rdi + 8], rsp",
    "mov [rdi + 16], rbp",
    "call rsi",
    ".endm",
    ".text",
    // At the entry, before anything is pushed.
    ".p2align 4",
    "asm_entry:",
    "lea rax, [rip]",
    "mov [rdi], rax",
    "mov [rdi + 8], rsp",
    "mov [rdi + 16], rbp",
    "push rbx",
    "call rsi",
    "pop rbx",
    "ret",
    // Like blake3's AVX-512 kernels.
    ".p2align 4",
    "asm_framed:",
    "push r15",
    "push r14",
    "push r13",
    "push r12",
    "push rbx",
    "push rbp",
    "mov rbp, rsp",
    "sub rsp, 144",
    "and rsp, 0xffffffffffffffc0",
    "note",
    "mov rsp, rbp",
    "pop rbp",
    "pop rbx",
    "pop r12",
    "pop r13",
    "pop r14",
    "pop r15",
    "ret",
    // Without a frame pointer.
    ".p2align 4",
    "asm_moved:",
    "sub rsp, 136",
    "note",
    "add rsp, 136",
    "ret",
    // Like the kernels of rav1e and dav1d: the stack is realigned, the old stack pointer is in memory, and
    // the frame pointer has another use.
    ".p2align 4",
    "asm_realigned:",
    "push rbp",
    "push rbx",
    "mov rax, rsp",
    "sub rsp, 216",
    "and rsp, -64",
    "mov [rsp + 128], rax",
    "mov ebp, 5",
    "note",
    "pxor xmm0, xmm0",
    "mov rsp, [rsp + 128]",
    "pop rbx",
    "pop rbp",
    "ret",
    // The return follows a loop and several jumps, one of them never taken.
    ".p2align 4",
    "asm_jumps:",
    "push rbp",
    "push r12",
    "sub rsp, 24",
    "mov ebp, 2",
    "mov r12, rsi",
    "jmp 3f",
    "2:",
    "mov rsi, r12",
    "mov [rsp], rdi",
    "note",
    "mov rdi, [rsp]",
    "dec ebp",
    "3:",
    "test ebp, ebp",
    "jz 4f",
    "jmp 2b",
    "ud2",
    "4:",
    "add rsp, 24",
    "cmp ebp, 100",
    "jbe 5f",
    "call asm_never",
    ".p2align 4",
    "5:",
    "pop r12",
    "pop rbp",
    "ret",
    ".p2align 4",
    "asm_never:",
    "ud2",
    // Tail-calls a function with unwind information.
    ".p2align 4",
    "asm_tail:",
    "push rbx",
    "note",
    "pop rbx",
    "jmp {tail}",
    // One calls another.
    ".p2align 4",
    "asm_outer:",
    "push rbp",
    "sub rsp, 32",
    "mov ebp, 9",
    "call asm_moved",
    "add rsp, 32",
    "pop rbp",
    "ret",
    // Jumps to its second half through a register with a known address.
    ".p2align 4",
    "asm_halves:",
    "push rbx",
    "lea rbx, [rip + 8f]",
    "jmp rbx",
    "8:",
    "note",
    "lea rcx, [rip + 9f]",
    "jmp rcx",
    "ud2",
    "9:",
    "pop rbx",
    "ret",
    // The return is reached only through a jump table.
    ".p2align 4",
    "asm_table:",
    "push rbx",
    "mov ebx, 1",
    "note",
    "lea rdx, [rip + 6f]",
    "movsxd rax, dword ptr [rdx + rbx * 4]",
    "add rax, rdx",
    "jmp rax",
    "ud2",
    "66:",
    "pop rbx",
    "ret",
    ".p2align 2",
    "6:",
    ".long 66b - 6b, 66b - 6b, 66b - 6b, 66b - 6b",
    // The return is reached only through a computed address.
    ".p2align 4",
    "asm_computed:",
    "push rbx",
    "note",
    "xor eax, eax",
    "lea rcx, [rip + 10f]",
    "add rax, rcx",
    "jmp rax",
    "10:",
    "pop rbx",
    "ret",
    // Returns to an address that no call instruction precedes.
    ".p2align 4",
    "asm_uncalled:",
    "sub rsp, 8",
    "lea rax, [rip + 7f]",
    "push rax",
    "jmp asm_moved",
    "7:",
    "add rsp, 8",
    "ret",
    tail = sym tail,
);

extern "C" fn tail() {
    black_box(());
}

unsafe extern "C" {
    fn asm_entry(seen: *mut Seen, callback: Callback);
    fn asm_framed(seen: *mut Seen, callback: Callback);
    fn asm_moved(seen: *mut Seen, callback: Callback);
    fn asm_realigned(seen: *mut Seen, callback: Callback);
    fn asm_jumps(seen: *mut Seen, callback: Callback);
    fn asm_tail(seen: *mut Seen, callback: Callback);
    fn asm_outer(seen: *mut Seen, callback: Callback);
    fn asm_halves(seen: *mut Seen, callback: Callback);
    fn asm_computed(seen: *mut Seen, callback: Callback);
    fn asm_table(seen: *mut Seen, callback: Callback);
    fn asm_uncalled(seen: *mut Seen, callback: Callback);
}

/// One unwind. The registers come first, for the assembly.
#[repr(C)]
struct Walk {
    seen: Seen,
    /// Look-up addresses of the frames, innermost first.
    frames: Vec<u64>,
    end: Option<End>,
}

extern "C" fn walk(seen: *mut Seen) {
    // SAFETY: `seen` is the first field of the `Walk` in `run`, which waits for the assembly.
    let walk = unsafe { &mut *seen.cast::<Walk>() };
    let (low, high) = session::pthread_stack().expect("the stack has bounds");
    let mut unwind = Unwind::new(agents::owner_of).expect("memory");
    // SAFETY: nobody refreshes the load map now.
    let pinned = unsafe { loadmap::Pinned::new() };
    let snapshot = pinned.snapshot().expect("a snapshot was taken");
    let [ip, sp, fp] = walk.seen;
    let bounds = StackBounds { low, high };
    let mut cursor = Cursor::new(&mut unwind, snapshot, &Registers::new(ip, sp, fp), bounds);
    cursor.start().expect("the assembly is in a module");
    walk.end = loop {
        walk.frames.push(cursor.frame().lookup);
        if let Err(end) = cursor.advance() {
            break Some(end);
        }
    };
}

type Assembly = unsafe extern "C" fn(*mut Seen, Callback);

/// Calls the assembly through a pointer, like programs that choose a function by the processor's features.
#[inline(never)]
fn call(assembly: Assembly, to: *mut Walk) {
    // SAFETY: the assembly obeys the C ABI, and calls `walk` with its first argument.
    unsafe { black_box(assembly)(to.cast(), walk) };
    black_box(());
}

/// Calls one function directly.
#[inline(never)]
fn call_directly(_: Assembly, to: *mut Walk) {
    // SAFETY: as in `call`.
    unsafe { asm_framed(to.cast(), walk) };
    black_box(());
}

fn run(assembly: Assembly, call: fn(Assembly, *mut Walk)) -> Walk {
    loadmap::refresh(|| true);
    let mut walk = Walk { seen: [0; 3], frames: Vec::new(), end: None };
    black_box(call)(assembly, &raw mut walk);
    walk
}

/// Asserts that the unwind finds `without_info` frames of the assembly, then `call`, up to the thread's
/// start.
fn assert_seen_through(assembly: Assembly, call: fn(Assembly, *mut Walk), without_info: usize) {
    let walk = run(assembly, call);
    assert_eq!(walk.end, Some(End::Root), "{:x?}", walk.frames);
    let caller = walk.frames[without_info];
    let from = call as usize as u64;
    assert!((from..from + 64).contains(&caller), "{:x?}", walk.frames);
    // The test's own thread has more frames than these.
    assert!(walk.frames.len() > without_info + 4);
}

#[test]
fn instruction_analysis_finds_the_caller() {
    for assembly in [asm_entry, asm_framed, asm_moved, asm_realigned, asm_jumps, asm_tail, asm_halves] {
        assert_seen_through(assembly, call, 1);
    }
    assert_seen_through(asm_framed, call_directly, 1);
    assert_seen_through(asm_outer, call, 2);
}

#[test]
fn a_caller_that_no_path_reaches_is_not_guessed() {
    use hpc_formats::loss::LossCause;
    for assembly in [asm_computed, asm_table, asm_uncalled] {
        let walk = run(assembly, call);
        assert_eq!(walk.end, Some(End::Broken(LossCause::NoUnwindInfo)));
        assert_eq!(walk.frames.len(), 1);
    }
}
