//! Tracking critical paths costs a join nothing while it is off: what a join leaves in a function neither
//! contains nor calls the tracking.
//!
//! The test decodes its own code: the calls of two functions with joins lead to the runtime's slow halves and
//! to nothing that belongs to the tracking, and none of their instructions comes from a file of the tracking.
#![cfg(all(target_os = "linux", target_arch = "x86_64", feature = "context"))]

use std::collections::BTreeSet;

use addr2line::Loader;
use hpcrun_api as critical_path;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, OpKind, Register};
use object::{Object as _, ObjectSymbol as _, Symbol};
use work_stealing_rt::{ThreadPoolBuilder, join, join_context};

#[path = "support/profiler.rs"]
mod profiler;

mod bounds {
    //! The limits of the section of the functions below, defined by the linker.
    unsafe extern "C" {
        #[link_name = "__start_joins_text"]
        pub(super) static START: u8;
        #[link_name = "__stop_joins_text"]
        pub(super) static STOP: u8;
    }
}

#[inline(never)]
#[unsafe(link_section = "joins_text")]
fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

#[inline(never)]
#[unsafe(link_section = "joins_text")]
fn fib_context(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = join_context(|_| fib_context(n - 1), |_| fib_context(n - 2));
    a + b
}

/// The machine code of the section.
fn code() -> &'static [u8] {
    let (start, stop) = (&raw const bounds::START, &raw const bounds::STOP);
    // SAFETY: the linker's limits of a section that stays mapped and is not written.
    unsafe { std::slice::from_raw_parts(start, stop.addr() - start.addr()) }
}

/// Where this program is loaded.
fn load_base() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    let program = std::env::current_exe().expect("a path");
    let program = program.to_str().expect("UTF-8");
    let mut lines = maps.lines().filter(|line| line.ends_with(program));
    let line = lines.next().expect("the program is mapped");
    u64::from_str_radix(line.split('-').next().expect("an address"), 16).expect("hexadecimal")
}

/// The code to which an instruction leads, or may: the target of a call or a jump, or an address that it
/// loads from the program's table of addresses to call it.
fn target(instruction: &Instruction) -> Option<u64> {
    if instruction.op0_kind() == OpKind::NearBranch64 {
        return Some(instruction.near_branch_target());
    }
    let through_table = instruction.is_call_near_indirect()
        || instruction.is_jmp_near_indirect()
        || instruction.code() == Code::Mov_r64_rm64;
    (through_table && instruction.memory_base() == Register::RIP).then(|| {
        let slot = instruction.memory_displacement64() as usize as *const u64;
        // SAFETY: the program's own instruction reads the slot.
        unsafe { slot.read() }
    })
}

#[test]
fn joins_neither_contain_nor_call_the_tracking() {
    let pool = ThreadPoolBuilder::new().num_threads(1);
    let pool = pool.build().expect("threads");
    let code_before = code().to_vec();
    critical_path::start();
    assert_eq!(pool.install(|| (fib(10), fib_context(10))), (55, 55));
    assert!(critical_path::stop().is_some());
    let report = profiler::tracker().report();
    // 88 joins of each, of which some are in grains: the second halves came through the tracking
    // nevertheless.
    assert!(report.quality.exact_edges >= 2 * 88, "{report:?}");
    assert_eq!(code(), code_before);

    let program = std::env::current_exe().expect("a path");
    let loader = Loader::new(&program).expect("debug information");
    let bytes = std::fs::read(program).expect("it is there");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let symbol = |address: u64| {
        let has_it = |s: &Symbol<'_, '_>| (s.address()..s.address() + s.size()).contains(&address);
        file.symbols().find(has_it).and_then(|s| s.name().ok())
    };
    let base = load_base();
    let start = code().as_ptr().addr() as u64;
    let mut called = BTreeSet::new();
    for instruction in &mut Decoder::with_ip(64, code(), start, DecoderOptions::NONE) {
        let mut frames = loader.find_frames(instruction.ip() - base).expect("readable tables");
        while let Some(frame) = frames.next().expect("readable tables") {
            let file = frame.location.and_then(|l| l.file).unwrap_or("");
            let is_tracking = file.contains("/track/") || file.contains("/critical-path/src/");
            assert!(!is_tracking, "{:#x} is of {file}", instruction.ip());
        }
        if let Some(target) = target(&instruction) {
            if let Some(name) = symbol(target.wrapping_sub(base)) {
                called.insert(format!("{:#}", rustc_demangle::demangle(name)));
            }
        }
    }
    for slow_half in ["finish_fork", "take_back_shared"] {
        let is_called = called.iter().any(|name| name.contains(slow_half));
        assert!(is_called, "{slow_half} is not among {called:?}");
    }
    for name in &called {
        let is_tracking = name.contains("::track::") || name.contains("hpcrun_api::");
        assert!(!is_tracking, "a join calls {name}");
    }
}
