//! Which procedures never return, by name and by code.
//!
//! A procedure returns if its entry reaches a return, or a tail jump to a procedure that returns,
//! without passing a call that never returns. A call that may throw also reaches its handler.
//! [`settle`] computes the greatest fixed point: all procedures return until shown otherwise, so
//! procedures that only call each other count as returning.

use crate::base::parallel;
use crate::code::disasm::procedure_code::{self as unit, Code, Layout};
use crate::known::{self, Kind};

/// Procedures of Go that go on with another stack; who comes back to this one returns from them.
const SWITCHES: [&[u8]; 2] = [b"runtime.mcall", b"runtime.mcall.abi0"];

/// Whether a procedure is known by its name to return, whatever its code says.
pub(crate) fn known_to_return(name: &[u8]) -> bool {
    SWITCHES.contains(&name)
}

/// Whether a procedure is known by its linkage name never to return.
pub(crate) fn never_returns(name: &[u8]) -> bool {
    let name = std::str::from_utf8(name).unwrap_or("");
    let name = name.split('@').next().unwrap_or(name);
    match is_mangled(name) {
        true => panicking(name) || known::is(Kind::RustNoReturn, name),
        false => known::is(Kind::NoReturn, name),
    }
}

/// Whether a name is mangled as Rust's are, or C++'s of nested procedures.
fn is_mangled(name: &str) -> bool {
    name.starts_with("_R") || name.starts_with("_ZN")
}

/// Whether the name of a procedure of this module says that it never returns. A quick test for the
/// few whose code does not show it.
pub(crate) fn known_never_to_return(name: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(name) else {
        return false;
    };
    if is_mangled(text) { panicking(text) } else { never_returns(name) }
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

/// Whether the linkage name says that a procedure does not throw. Called for every call with a handler, so
/// the parts that most names lack are searched first.
pub(crate) fn never_throws(name: &[u8]) -> bool {
    let name = std::str::from_utf8(name).unwrap_or("");
    let has = |part| name.contains(part);
    if is_mangled(name) {
        return (has("panic_") || has("__rust_") || has("process5abort"))
            && known::is(Kind::RustNoThrow, name);
    }
    known::is(Kind::NoThrow, name.split('@').next().unwrap_or(name))
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
    let returns =
        |procedure: u32| others.is_some_and(|never| never.get(procedure as usize).is_none_or(|n| !n));
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
                unit::Kind::Jump => i = at(step.target),
                unit::Kind::Branch | unit::Kind::Landing => scratch.stack.push(at(step.target)),
                unit::Kind::Call if returns(step.target) => {}
                // The largest number: another module, which counts as returning.
                unit::Kind::TailBranch if step.target == u32::MAX => return true,
                unit::Kind::TailBranch | unit::Kind::TailJump if returns(step.target) => {
                    return true;
                }
                unit::Kind::TailBranch | unit::Kind::Padding => {}
                unit::Kind::Table => {
                    let range = code.tables[step.target as usize].clone();
                    let targets = &code.targets[range.start as usize..range.end as usize];
                    scratch.stack.extend(targets.iter().map(|t| at(*t)));
                    break;
                }
                unit::Kind::Indirect | unit::Kind::Return => return true,
                unit::Kind::Call | unit::Kind::TailJump | unit::Kind::Stop | unit::Kind::End => {
                    break;
                }
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
