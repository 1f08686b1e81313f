//! Unwinding out of assembly without unwind information, from the registers that a signal would
//! find: right at its entry, and with saved registers below a frame pointer. A function that hides its
//! caller is not seen through.
#![cfg(target_arch = "x86_64")]

use hpcrun_core::unwind::{Cursor, End, Registers, Unwind, loadmap};
use hpcrun_core::{logical::agents, session, unwind::StackBounds};
use std::hint::black_box;

/// What the assembly writes down: instruction, stack and frame pointer.
type Seen = [u64; 3];
type Callback = extern "C" fn(*mut Seen);

// Each writes its registers to its first argument and calls the second with the first. None has call
// frame information. `framed` is laid out as blake3's AVX-512 kernels are; `hidden` moves its stack
// pointer without a frame pointer.
std::arch::global_asm!(
    ".text",
    ".p2align 4",
    "bare_entry:",
    "lea rax, [rip]",
    "mov [rdi], rax",
    "mov [rdi + 8], rsp",
    "mov [rdi + 16], rbp",
    "push rbx",
    "call rsi",
    "pop rbx",
    "ret",
    ".p2align 4",
    "bare_framed:",
    "push r15",
    "push r14",
    "push r13",
    "push r12",
    "push rbx",
    "push rbp",
    "mov rbp, rsp",
    "sub rsp, 144",
    "and rsp, 0xffffffffffffffc0",
    "lea rax, [rip]",
    "mov [rdi], rax",
    "mov [rdi + 8], rsp",
    "mov [rdi + 16], rbp",
    "call rsi",
    "mov rsp, rbp",
    "pop rbp",
    "pop rbx",
    "pop r12",
    "pop r13",
    "pop r14",
    "pop r15",
    "ret",
    ".p2align 4",
    "bare_hidden:",
    "sub rsp, 136",
    "lea rax, [rip]",
    "mov [rdi], rax",
    "mov [rdi + 8], rsp",
    "mov [rdi + 16], rbp",
    "call rsi",
    "add rsp, 136",
    "ret",
);

unsafe extern "C" {
    fn bare_entry(seen: *mut Seen, callback: Callback);
    fn bare_framed(seen: *mut Seen, callback: Callback);
    fn bare_hidden(seen: *mut Seen, callback: Callback);
}

/// One walk: the registers come first, for the assembly.
#[repr(C)]
struct Walk {
    seen: Seen,
    /// Look-up addresses of the frames, innermost first.
    frames: Vec<u64>,
    end: Option<End>,
}

extern "C" fn walk(seen: *mut Seen) {
    // SAFETY: the first field of the test's own `Walk`, which waits for the assembly.
    let walk = unsafe { &mut *seen.cast::<Walk>() };
    let (low, high) = session::pthread_stack().expect("the stack has bounds");
    let mut unwind = Unwind::new(agents::owner_of).expect("memory");
    let snapshot = loadmap::current().expect("a snapshot was taken");
    let [ip, sp, fp] = walk.seen;
    let bounds = StackBounds { low, high };
    let mut cursor = Cursor::new(&mut unwind, snapshot, Registers::new(ip, sp, fp), bounds);
    cursor.start().expect("the assembly is in a module");
    walk.end = loop {
        walk.frames.push(cursor.frame().lookup);
        if let Err(end) = cursor.advance() {
            break Some(end);
        }
    };
}

type Call = fn(*mut Walk);
type Assembly = unsafe extern "C" fn(*mut Seen, Callback);

/// Calls the assembly directly, as the linker binds calls of known functions.
macro_rules! call {
    ($name:ident, $assembly:ident) => {
        #[inline(never)]
        fn $name(to: *mut Walk) {
            // SAFETY: the assembly keeps to the C ABI and calls `walk` with its first argument.
            unsafe { $assembly(to.cast(), walk) };
            black_box(());
        }
    };
}

call!(call_entry, bare_entry);
call!(call_framed, bare_framed);
call!(call_hidden, bare_hidden);

fn run(call: Call) -> Walk {
    loadmap::refresh(|| true);
    let mut walk = Walk {
        seen: [0; 3],
        frames: Vec::new(),
        end: None,
    };
    black_box(call)(&raw mut walk);
    walk
}

#[test]
fn the_caller_is_found_where_its_call_proves_it() {
    let entry: (Call, Assembly) = (call_entry, bare_entry);
    for (call, assembly) in [entry, (call_framed, bare_framed)] {
        let walk = run(call);
        assert_eq!(walk.end, Some(End::Root), "{:x?}", walk.frames);
        let (first, caller) = (walk.frames[0], walk.frames[1]);
        let start = assembly as usize as u64;
        assert!((start..start + 64).contains(&first));
        let from = call as usize as u64;
        assert!((from..from + 64).contains(&caller), "{:x?}", walk.frames);
        // The test's own thread has more frames than these.
        assert!(walk.frames.len() > 5);
    }
}

#[test]
fn a_caller_without_proof_is_not_guessed() {
    use hpc_formats::loss::LossCause;
    let walk = run(call_hidden);
    assert_eq!(walk.end, Some(End::Broken(LossCause::NoUnwindInfo)));
    assert_eq!(walk.frames.len(), 1);
}
