//! Finds the loops in which threads of known runtimes wait for each other: OpenMP's barriers and locks, TBB's
//! back-off, OpenBLAS's thread server.
//!
//! Distributions strip the symbols, so the loops are found in the code. A loop contains a `pause`
//! instruction, or OpenBLAS's row of `nop`s. It extends from the target of the first backward jump after that
//! instruction to the last nearby jump into the loop. A thread waits if its innermost frames lie in the
//! runtime and one of them is in such a loop: it is idle, though it uses CPU time. If a procedure of the
//! program is above the loop, the thread has found a task.
//!
//! Loops around `sched_yield` are not found here: their calls are observed (`threads::working`).

use super::roles::{self, Range, Role};
use crate::logical::walk::{IN_PROGRAM, Walk};
use hpc_formats::address::ModuleId;
use memchr::memmem;

struct Runtime {
    /// Part of its file name.
    name: &'static str,
    /// Instructions that its loops contain.
    marker: &'static [u8],
    /// Whether all its code is runtime support. In a library of kernels, the code outside the loops is work.
    is_support: bool,
}

const fn scheduler(name: &'static str) -> Runtime {
    Runtime { name, marker: &[0xf3, 0x90], is_support: true }
}

const RUNTIMES: [Runtime; 5] = [
    scheduler("libgomp"),
    scheduler("libomp"),
    scheduler("libiomp5"),
    scheduler("libtbb.so"),
    Runtime { name: "openblas", marker: &[0x90; 8], is_support: false },
];

const LOOP: u8 = 0;
const SUPPORT: u8 = 1;

pub(super) fn owns(lookup: u64, _: ModuleId) -> Option<u8> {
    match roles::role_of(lookup)? {
        Role::SpinLoop => Some(LOOP),
        Role::Support => Some(SUPPORT),
        _ => None,
    }
}

pub(super) fn step(walk: &mut Walk<'_>, tag: u8) {
    match tag {
        LOOP if walk.has_not_noticed(IN_PROGRAM) => walk.wait(),
        _ => walk.runtime_frame(),
    }
}

/// Maximal number of bytes from a marker to a jump of its loop, or from one such jump to the next.
const AHEAD: usize = 300;
/// Maximal number of bytes from a marker back to the start of its loop.
const BACK: usize = 4096;

/// The ranges of a module's mapped code; `None` if the module is no known runtime.
pub(super) fn ranges_of(path: &str, code: &[&[u8]]) -> Option<Vec<Range>> {
    let name = path.rsplit('/').next()?;
    let runtime = RUNTIMES.iter().find(|r| name.contains(r.name))?;
    let mut ranges: Vec<Range> = code.iter().flat_map(|c| divide(c, runtime.marker)).collect();
    ranges.retain(|r| runtime.is_support || r.role == Role::SpinLoop);
    Some(ranges)
}

/// Divides the code into loops and the code between them.
fn divide(code: &[u8], marker: &[u8]) -> Vec<Range> {
    let base = code.as_ptr() as u64;
    let mut loops = loops(code, marker);
    loops.sort_unstable();
    let mut ranges = Vec::new();
    let mut at = 0;
    let range =
        |start: usize, end: usize, role| Range { start: base + start as u64, end: base + end as u64, role };
    for (start, end) in loops {
        let start = start.max(at);
        if start >= end {
            continue;
        }
        if start > at {
            ranges.push(range(at, start, Role::Support));
        }
        ranges.push(range(start, end, Role::SpinLoop));
        at = end;
    }
    ranges.push(range(at, code.len(), Role::Support));
    ranges
}

/// Start and end offsets of the loops.
fn loops(code: &[u8], marker: &[u8]) -> Vec<(usize, usize)> {
    memmem::find_iter(code, marker)
        .filter_map(|pause| {
            let is_back = |start| start <= pause && start + BACK >= pause;
            let (start, mut end) = jump_behind(code, pause + marker.len(), is_back)?;
            while let Some((_, next)) = jump_behind(code, end, |to| (start..end).contains(&to)) {
                end = next;
            }
            Some((start, end))
        })
        .collect()
}

/// The next jump at or after an offset whose target is `wanted`: its target and its end.
fn jump_behind(code: &[u8], from: usize, wanted: impl Fn(usize) -> bool) -> Option<(usize, usize)> {
    (from..(from + AHEAD).min(code.len())).find_map(|at| {
        let (distance, end) = jump(code, at)?;
        let target = end.checked_add_signed(distance)?;
        wanted(target).then_some((target, end))
    })
}

/// The jump at an offset, if there is one: the distance from its end to its target, and its end.
fn jump(code: &[u8], at: usize) -> Option<(isize, usize)> {
    let short = |at: usize| Some((*code.get(at)? as i8 as isize, at + 1));
    let near = |at: usize| {
        let bytes = code.get(at..at + 4)?.try_into().ok()?;
        Some((i32::from_le_bytes(bytes) as isize, at + 4))
    };
    match (code.get(at)?, code.get(at + 1)?) {
        (0xeb | 0x70..=0x7f, _) => short(at + 1),
        (0xe9, _) => near(at + 1),
        (0x0f, 0x80..=0x8f) => near(at + 2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: &[u8] = &[0xf3, 0x90];
    /// `mov (%rdi), %rdx; cmp %rdx, %rax; pause; jae` to the `mov`, between two `ret`s.
    const WAITS: &[u8] = &[0xc3, 0x48, 0x8b, 0x17, 0x48, 0x39, 0xd0, 0xf3, 0x90, 0x73, 0xf6, 0xc3];

    #[test]
    fn a_loop_reaches_from_its_beginning_to_the_jump_back() {
        assert_eq!(loops(WAITS, PAUSE), [(1, 11)]);
        let base = WAITS.as_ptr() as u64;
        let ranges = ranges_of("/usr/lib/libgomp.so.1.0.0", &[WAITS]).expect("a runtime");
        let roles: Vec<_> = ranges.iter().map(|r| (r.start - base, r.end - base, r.role)).collect();
        assert_eq!(roles, [(0, 1, Role::Support), (1, 11, Role::SpinLoop), (11, 12, Role::Support)]);
    }

    #[test]
    fn only_the_loops_of_a_kernel_library_have_roles() {
        let mut code = vec![0xc3];
        code.extend([0x90; 8]);
        code.extend([0x76, 0xf6, 0xc3]);
        let ranges = ranges_of("libscipy_openblas64_-32a4b2a6.so", &[&code]).expect("a runtime");
        assert_eq!(ranges.len(), 1);
        assert_eq!(ranges[0].role, Role::SpinLoop);
        assert_eq!(ranges[0].end - ranges[0].start, 10);
    }

    #[test]
    fn a_loop_extends_to_the_last_jump_into_it() {
        let mut code = WAITS[..11].to_vec();
        code.extend([0x90, 0x90, 0x75, 0xf4, 0xc3]);
        assert_eq!(loops(&code, PAUSE), [(1, 15)]);
    }

    #[test]
    fn a_pause_without_a_jump_back_is_no_loop() {
        assert!(loops(&[0xf3, 0x90, 0x73, 0x10, 0xc3], PAUSE).is_empty());
        assert!(loops(&[0xf3, 0x90], PAUSE).is_empty());
        assert!(loops(&[], PAUSE).is_empty());
        assert_eq!(ranges_of("/usr/lib/libm.so.6", &[WAITS]), None);
    }
}
