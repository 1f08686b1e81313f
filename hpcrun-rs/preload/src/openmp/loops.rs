//! Chunks and iterations of loops whose runtime hands them out: `dynamic`, `guided`, `runtime`, `ordered`.
//! Of a static schedule a compiler makes no call that tells of it.
//!
//! A thread counts for itself until a loop has no more chunks for it, then at its region's directive.

use super::copies::Entry;
use super::libgomp::{self, Arguments, Stack, call, interpose};
use super::libomp;
use hpc_formats::process::DirectiveKind;
use hpcrun_core::directives;
use hpcrun_core::threads;
use std::cell::Cell;

/// What a thread has got of a loop so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Loop {
    /// Of libgomp: from one iteration to the next.
    step: usize,
    chunks: u64,
    iterations: u64,
}

thread_local! {
    static LOOP: Cell<Loop> = const { Cell::new(Loop { step: 0, chunks: 0, iterations: 0 }) };
}

/// The thread begins its part of a region, which may begin with a loop of such a step. Returns the loop
/// around it.
pub(super) fn enter(step: usize) -> Loop {
    LOOP.replace(Loop { step, ..Loop::default() })
}

/// The thread's part of the region has ended.
pub(super) fn leave(around: Loop) {
    LOOP.set(around);
}

/// The thread has got a chunk of so many iterations.
fn got(iterations: u64) {
    let Loop { step, chunks, iterations: before } = LOOP.get();
    LOOP.set(Loop { step, chunks: chunks + 1, iterations: before.wrapping_add(iterations) });
}

/// The thread gets no more of its loop, in the region that `region` tells.
fn finish(region: impl FnOnce() -> Option<usize>, kind: DirectiveKind) {
    let Loop { step, chunks, iterations } = LOOP.get();
    LOOP.set(Loop { step, ..Loop::default() });
    if chunks > 0 {
        if let (Some(thread), Some(from)) = (threads::current(), region()) {
            directives::count_chunks(thread, from, kind, [chunks, iterations]);
        }
    }
}

/// A call of libgomp has returned whether there is a chunk, and its bounds.
unsafe fn told(result: usize, [from, to]: [usize; 2]) {
    if result as u8 == 0 {
        return finish(libgomp::innermost_region, DirectiveKind::GompRegion);
    }
    // SAFETY: the caller's variables, which the runtime has written.
    let length = unsafe { (*(to as *const usize)).wrapping_sub(*(from as *const usize)) } as i64;
    let step = LOOP.get().step as i64;
    // A loop may count down.
    got(length.checked_div(step).map_or(0, |whole| whole + i64::from(length % step != 0)) as u64);
}

interpose! { start:
    GOMP_loop_dynamic_start GOMP_loop_guided_start GOMP_loop_nonmonotonic_dynamic_start
    GOMP_loop_nonmonotonic_guided_start GOMP_loop_ordered_static_start GOMP_loop_ordered_dynamic_start
    GOMP_loop_ordered_guided_start
}
interpose! { start_runtime:
    GOMP_loop_runtime_start GOMP_loop_nonmonotonic_runtime_start
    GOMP_loop_maybe_nonmonotonic_runtime_start GOMP_loop_ordered_runtime_start
}
interpose! { start_ull:
    GOMP_loop_ull_dynamic_start GOMP_loop_ull_guided_start GOMP_loop_ull_nonmonotonic_dynamic_start
    GOMP_loop_ull_nonmonotonic_guided_start GOMP_loop_ull_ordered_static_start
    GOMP_loop_ull_ordered_dynamic_start GOMP_loop_ull_ordered_guided_start
}
interpose! { start_ull_runtime:
    GOMP_loop_ull_runtime_start GOMP_loop_ull_nonmonotonic_runtime_start
    GOMP_loop_ull_maybe_nonmonotonic_runtime_start GOMP_loop_ull_ordered_runtime_start
}
interpose! { next:
    GOMP_loop_dynamic_next GOMP_loop_guided_next GOMP_loop_runtime_next
    GOMP_loop_nonmonotonic_dynamic_next GOMP_loop_nonmonotonic_guided_next
    GOMP_loop_nonmonotonic_runtime_next GOMP_loop_maybe_nonmonotonic_runtime_next
    GOMP_loop_ull_dynamic_next GOMP_loop_ull_guided_next GOMP_loop_ull_runtime_next
    GOMP_loop_ull_nonmonotonic_dynamic_next GOMP_loop_ull_nonmonotonic_guided_next
    GOMP_loop_ull_nonmonotonic_runtime_next GOMP_loop_ull_maybe_nonmonotonic_runtime_next
}
interpose! { next_ordered:
    GOMP_loop_ordered_static_next GOMP_loop_ordered_dynamic_next
    GOMP_loop_ordered_guided_next GOMP_loop_ordered_runtime_next
    GOMP_loop_ull_ordered_static_next GOMP_loop_ull_ordered_dynamic_next
    GOMP_loop_ull_ordered_guided_next GOMP_loop_ull_ordered_runtime_next
}
interpose! { next_of_four: __kmpc_dispatch_next_4 }
interpose! { next_of_eight: __kmpc_dispatch_next_8 }
interpose! { next_unsigned_of_four: __kmpc_dispatch_next_4u }
interpose! { next_unsigned_of_eight: __kmpc_dispatch_next_8u }

/// Calls of libgomp: what calls the runtime, the loop's step if the call begins one, and where its bounds go.
macro_rules! told_by {
    ($($act:ident $by:path, |$arguments:pat_param, $stack:pat_param| $step:expr, $bounds:expr;)*) => { $(
        unsafe fn $act(entry: &Entry, from: usize, all: Arguments, stack: Stack) -> usize {
            let ($arguments, $stack) = (all, &stack.0);
            let step: Option<usize> = $step;
            if let Some(step) = step {
                enter(step);
            }
            let bounds = $bounds;
            // SAFETY: the caller's arguments.
            unsafe {
                let result = $by(entry, from, all, stack);
                told(result, bounds);
                result
            }
        }
    )* };
}

told_by! {
    start run, |[_, _, step, _, first, end], _| Some(step), [first, end];
    start_runtime run, |[_, _, step, first, end, _], _| Some(step), [first, end];
    start_ull run, |[_, _, _, step, _, first], [end, ..]| Some(step), [first, *end];
    start_ull_runtime run, |[_, _, _, step, first, end], _| Some(step), [first, end];
    next run, |[first, end, ..], _| None, [first, end];
    next_ordered libgomp::wait, |[first, end, ..], _| None, [first, end];
}

unsafe fn run(entry: &Entry, from: usize, arguments: Arguments, stack: Stack) -> usize {
    // SAFETY: the caller's arguments.
    unsafe { call(entry.of_call(from), arguments, stack) }
}

/// Calls of LLVM's runtime, by the types of the loop's variable and of its step.
macro_rules! dispatched {
    ($($act:ident $kind:ty, $step:ty;)*) => { $(
        unsafe fn $act(entry: &Entry, from: usize, arguments: Arguments, stack: Stack) -> usize {
            let [_, _, _, first, last, step] = arguments;
            // SAFETY: the caller's arguments, and its variables, which the runtime has written.
            unsafe {
                let result = run(entry, from, arguments, stack);
                if result as u32 == 0 {
                    finish(libomp::innermost_region, DirectiveKind::OmpRegion);
                } else {
                    let at = |variable| i128::from(*(variable as *const $kind));
                    let step = i128::from(*(step as *const $step));
                    let whole = (at(last) - at(first)).checked_div(step);
                    got(whole.map_or(1, |whole| whole + 1) as u64);
                }
                result
            }
        }
    )* };
}

dispatched! {
    next_of_four i32, i32;
    next_of_eight i64, i64;
    next_unsigned_of_four u32, i32;
    next_unsigned_of_eight u64, i64;
}
