//! The runtime's inlined work is recognisable as overhead by debug information alone.
//!
//! The test reads its own line tables: in a function with a join, some instructions come from
//! files under `parallel_overhead/`, and none of those comes from the user's closures inlined
//! into it.
#![cfg(target_os = "linux")]

use std::hint::black_box;
use std::ops::Range;

use addr2line::Loader;
use work_stealing_rt::{ThreadPoolBuilder, join};

mod bounds {
    //! The limits of the section of [`super::sum`], defined by the linker.
    unsafe extern "C" {
        #[link_name = "__start_tagged_text"]
        pub(super) static START: u8;
        #[link_name = "__stop_tagged_text"]
        pub(super) static STOP: u8;
    }
}

/// A function with a join; the user's code in it is multiplication and remainder.
#[inline(never)]
#[unsafe(link_section = "tagged_text")]
fn sum(range: Range<u64>) -> u64 {
    let length = range.end - range.start;
    if length == 1 {
        return range.start * range.start % 1_000;
    }
    let middle = range.start + length / 2;
    let (a, b) = join(
        || sum(range.start..middle) * black_box(3) % 1_000_003,
        || sum(middle..range.end) * black_box(5) % 1_000_003,
    );
    a + b
}

/// Where this program is loaded.
fn load_base() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    let program = std::env::current_exe().expect("a path");
    let program = program.to_str().expect("UTF-8");
    let line = maps.lines().find(|line| line.ends_with(program)).expect("the program is mapped");
    u64::from_str_radix(line.split('-').next().expect("an address"), 16).expect("hexadecimal")
}

#[test]
fn inlined_runtime_work_is_tagged_and_user_code_is_not() {
    let pool = ThreadPoolBuilder::new().num_threads(2).build().expect("threads");
    let parallel = pool.install(|| sum(0..1_000));
    assert_eq!(parallel, sum(0..1_000));

    let loader = Loader::new(std::env::current_exe().expect("a path")).expect("debug information");
    let base = load_base();
    let (start, stop) = ((&raw const bounds::START).addr(), (&raw const bounds::STOP).addr());
    assert!(stop > start);
    let (mut tagged, mut user) = (0, 0);
    for address in start..stop {
        let mut frames = loader.find_frames(address as u64 - base).expect("readable tables");
        let mut inside_user_code = false;
        let mut is_tagged = false;
        while let Some(frame) = frames.next().expect("readable tables") {
            let file = frame.location.and_then(|location| location.file).unwrap_or("");
            if file.contains("/parallel_overhead/") {
                assert!(file.contains("/sched/") || file.contains("/sync/"), "{file}");
                assert!(!inside_user_code, "user code at {address:#x} is inlined into {file}");
                is_tagged = true;
            }
            inside_user_code |= file.ends_with("tests/tags.rs");
        }
        tagged += usize::from(is_tagged);
        user += usize::from(!is_tagged);
    }
    assert!(tagged >= 20, "only {tagged} bytes of code are tagged");
    assert!(user >= 20, "only {user} bytes of code are the user's");
}
