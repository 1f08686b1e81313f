//! Which procedures never return, by name and by code.
//!
//! A procedure returns if its entry reaches a return, or a tail jump to a procedure that returns,
//! without passing a call that never returns. A call that may throw also reaches its handler.
//! [`settle`] computes the greatest fixed point: all procedures return until shown otherwise, so
//! procedures that only call each other count as returning.

use crate::base::parallel;
use crate::code::disasm::procedure_code::{Code, Kind, Layout};

/// C and C++ procedures that never return.
const NAMES: [&str; 40] = [
    "abort",
    "exit",
    "_exit",
    "_Exit",
    "quick_exit",
    "longjmp",
    "_longjmp",
    "siglongjmp",
    "__longjmp_chk",
    "pthread_exit",
    "thrd_exit",
    "err",
    "errx",
    "verr",
    "verrx",
    "__assert_fail",
    "__assert_perror_fail",
    "__assert",
    "__stack_chk_fail",
    "__stack_chk_fail_local",
    "__fortify_fail",
    "__chk_fail",
    "__libc_fatal",
    "__libc_start_main",
    "_Unwind_Resume",
    "__cxa_throw",
    "__cxa_rethrow",
    "__cxa_bad_cast",
    "__cxa_bad_typeid",
    "__cxa_pure_virtual",
    "__cxa_deleted_virtual",
    "__cxa_throw_bad_array_new_length",
    "__cxa_throw_bad_array_length",
    "__cxa_call_unexpected",
    "__cxa_call_terminate",
    "__clang_call_terminate",
    "__ubsan_handle_builtin_unreachable",
    "_ZSt9terminatev",
    "_ZSt10unexpectedv",
    "_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE",
];

/// Procedures of Go that go on with another stack; who comes back to this one returns from them.
const SWITCHES: [&[u8]; 2] = [b"runtime.mcall", b"runtime.mcall.abi0"];

/// Whether a procedure is known by its name to return, whatever its code says.
pub(crate) fn known_to_return(name: &[u8]) -> bool {
    SWITCHES.contains(&name)
}

/// Parts of mangled names of Rust procedures that never return, in both manglings.
const RUST: [&str; 28] = [
    "4core9panicking5panic",
    "4core9panicking9panic_",
    "13unwrap_failed",
    "13expect_failed",
    "16slice_error_fail",
    "16slice_index_fail",
    "panic_on_ord_violation",
    "panic_already_",
    "panic_for_",
    "19slice_error_fail_rt",
    "22slice_index_order_fail",
    "24slice_end_index_len_fail",
    "26slice_start_index_len_fail",
    "29slice_end_index_overflow_fail",
    "31slice_start_index_overflow_fail",
    "17len_mismatch_fail",
    "13assert_failed",
    "19assert_failed_inner",
    "16capacity_overflow",
    "7raw_vec12handle_error",
    "18handle_alloc_error",
    "17rust_begin_unwind",
    "10rust_panic",
    "20rust_panic_with_hook",
    "3std9panicking11begin_panic",
    "3std5panic13resume_unwind",
    "3std7process5abort",
    "3std7process4exit",
];

/// Whether a procedure is known by its linkage name never to return.
pub(crate) fn never_returns(name: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else {
        return false;
    };
    let name = name.split('@').next().unwrap_or(name);
    if name == "rust_begin_unwind" || NAMES.contains(&name) {
        return true;
    }
    if let Some(rest) = name.strip_prefix("_ZSt") {
        return rest.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with("__throw_");
    }
    if !name.starts_with("_ZN") && !name.starts_with("_R") {
        return false;
    }
    panicking(name) || RUST.iter().any(|part| name.contains(part))
}

/// Whether the name of a procedure of this module says that it never returns. A quick test for the
/// few whose code does not show it.
pub(crate) fn known_never_to_return(name: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(name) else {
        return false;
    };
    if text.starts_with("_R") || text.starts_with("_ZN") {
        return panicking(text);
    }
    never_returns(name)
}

/// `core::panicking::panic…`, whatever the length of the last part.
fn panicking(name: &str) -> bool {
    const PATH: &str = "4core9panicking";
    // Most names lack it, and this search is several times as fast as `split_once`.
    name.contains(PATH)
        && name.split_once(PATH).is_some_and(|(_, rest)| {
            rest.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with("panic")
        })
}

/// C and C++ procedures that throw no exceptions, among those that cleanups and handlers call.
const NO_THROW: [&str; 24] = [
    "__clang_call_terminate",
    "__cxa_allocate_exception",
    "__cxa_begin_catch",
    "__cxa_call_terminate",
    "__cxa_free_exception",
    "__cxa_get_exception_ptr",
    "__cxa_guard_abort",
    "__cxa_guard_release",
    "__stack_chk_fail",
    "_ZSt9terminatev",
    "_ZdaPv",
    "_ZdaPvm",
    "_ZdlPv",
    "_ZdlPvm",
    "abort",
    "bcmp",
    "calloc",
    "free",
    "malloc",
    "memcmp",
    "memcpy",
    "memmove",
    "memset",
    "strlen",
];

/// Parts of mangled names of Rust procedures that do not unwind.
const NO_UNWIND: [&str; 8] = [
    "panic_cannot_unwind",
    "panic_in_cleanup",
    "panic_nounwind",
    "__rust_alloc",
    "__rust_dealloc",
    "__rust_realloc",
    "__rust_no_alloc_shim",
    "3std7process5abort",
];

/// Whether the linkage name says that a procedure does not throw. Called for every call with a
/// handler, so the parts that most names lack are searched first.
pub(crate) fn never_throws(name: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else {
        return false;
    };
    if !name.starts_with("_R") && !name.starts_with("_ZN") {
        let name = name.split('@').next().unwrap_or(name);
        return NO_THROW.contains(&name) || name.starts_with("__rust_");
    }
    let has = |part| name.contains(part);
    (has("panic_") || has("__rust_") || has("process5abort"))
        && NO_UNWIND.iter().any(|part| name.contains(part))
}

#[derive(Debug, Default)]
pub(crate) struct Scratch {
    seen: Vec<u64>,
    stack: Vec<u32>,
}

/// Whether a procedure may return, given which others never do.
///
/// Without `others` every call and tail jump to a procedure counts as one that does not return:
/// what returns even so, returns whatever the others do.
pub(crate) fn may_return(
    layout: &Layout,
    code: Code<'_>,
    others: Option<&[bool]>,
    scratch: &mut Scratch,
) -> bool {
    let steps = code.steps;
    let at = |offset: u32| steps.partition_point(|s| s.end <= offset) as u32;
    let returns = |procedure: u32| {
        others.is_some_and(|never| never.get(procedure as usize).is_none_or(|n| !n))
    };
    scratch.seen.clear();
    scratch.seen.resize(steps.len().div_ceil(64), 0);
    scratch.stack.clear();
    scratch.stack.push(at(layout.entry_offset()));
    while let Some(mut i) = scratch.stack.pop() {
        while let Some(step) = steps.get(i as usize) {
            let (word, bit) = (i as usize / 64, 1u64 << (i % 64));
            if scratch.seen[word] & bit != 0 {
                break;
            }
            scratch.seen[word] |= bit;
            i += 1;
            match step.kind {
                Kind::Jump => i = at(step.target),
                Kind::Branch | Kind::Landing => scratch.stack.push(at(step.target)),
                Kind::Call if returns(step.target) => {}
                // The largest number: another module, which counts as returning.
                Kind::TailBranch if step.target == u32::MAX => return true,
                Kind::TailBranch | Kind::TailJump if returns(step.target) => return true,
                Kind::TailBranch | Kind::Padding => {}
                Kind::Table => {
                    let range = code.tables[step.target as usize].clone();
                    let targets = &code.targets[range.start as usize..range.end as usize];
                    scratch.stack.extend(targets.iter().map(|t| at(*t)));
                    break;
                }
                Kind::Indirect | Kind::Return => return true,
                Kind::Call | Kind::TailJump | Kind::Stop | Kind::End => break,
            }
        }
    }
    false
}

/// A procedure for [`settle`]: its layout and code, where it was decoded.
pub(crate) type Decoded<'a> = Option<(&'a Layout, Code<'a>)>;

/// Procedures that one job asks about.
const CHUNK: usize = 256;

/// Transfers of control of a procedure that is short.
const SHORT: usize = 8;

/// Which procedures never return, given those that are known by name.
pub(crate) fn settle<'a>(
    count: usize,
    procedure: impl Fn(usize) -> Decoded<'a> + Sync,
    mut never: Vec<bool>,
    threads: usize,
) -> Vec<bool> {
    let numbers = |c: usize| c * CHUNK..((c + 1) * CHUNK).min(count);
    // Those that the last round found.
    let mut fresh = Vec::new();
    for round in 0.. {
        // Most procedures that never return are short and depend on no other; most others call one of
        // them, and need only one test once these are known. Then callers of new ones are tested again.
        let is_asked = |code: Code<'_>| match round {
            0 => code.steps.len() <= SHORT,
            1 => true,
            _ => code.callees().any(|c| fresh.get(c as usize) == Some(&true)),
        };
        let chunks = count.div_ceil(CHUNK);
        let gone = parallel::run_with(chunks, threads, Scratch::default, |scratch, c| {
            let gone = numbers(c).filter(|p| {
                let open = procedure(*p).filter(|(_, code)| !never[*p] && is_asked(*code));
                open.is_some_and(|(layout, code)| !may_return(layout, code, Some(&never), scratch))
            });
            gone.collect::<Vec<usize>>()
        });
        let gone = gone.concat();
        if gone.is_empty() && round > 0 {
            break;
        }
        fresh = vec![false; count];
        for p in gone {
            never[p] = true;
            fresh[p] = true;
        }
    }
    never
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_throw_is_known_by_its_name() {
        for name in [
            "free",
            "memcpy@GLIBC_2.14",
            "_ZdlPvm",
            "__rust_dealloc",
            "_RNvCslNYArtu3iFV_7___rustc14___rust_dealloc",
            "_RNvNtCsgEmfK2I1SDS_4core9panicking19panic_cannot_unwind",
            "_ZN4core9panicking16panic_in_cleanup17h0123456789abcdefE",
        ] {
            assert!(never_throws(name.as_bytes()), "{name}");
        }
        for name in ["freely", "_ZN4core9panicking9panic_fmt17h0E", "main", "_Znwm"] {
            assert!(!never_throws(name.as_bytes()), "{name}");
        }
    }
}
