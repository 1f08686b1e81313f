//! OpenMP: its regions and tasks get logical callers, and its waits are known.
//!
//! | file | duty |
//! |---|---|
//! | `libgomp` | GCC's runtime, by its entry points, which are interposed |
//! | `libomp` | LLVM's and Intel's, by their tools interface (OMPT) |
//! | `locks` | locks and critical sections of both |
//! | `loops` | chunks and iterations of loops of both |
//! | `edges` | the critical path's edges |
//! | `copies` | which copy of a runtime a call is for |
//! | `rate` | how many tasks get a captured context |
//! | `spare` | a record that a thread keeps for the next time |
//!
//! Both make records of tasks (`hpcrun_core::tasks`). A region's record names the place of its caller, which
//! waits for the region's end. The record of an explicit task names the captured context of its creator.

pub(crate) mod copies;
mod edges;
pub(crate) mod libgomp;
pub(crate) mod libomp;
mod locks;
mod loops;
mod rate;
pub(crate) mod spare;

pub(crate) use copies::forget;

use hpcrun_core::tasks::Context;
use hpcrun_core::threads::OwnThread;
use hpcrun_core::unwind::Registers;
use hpcrun_core::unwind::registers::number;

/// The context of a task that the calling thread creates here, and whether it is its own. Where tasks are too
/// many to capture each, it is that of the task that creates it, which is the region's.
#[inline(always)] // the registers are those of the caller
pub(crate) fn creation(thread: OwnThread) -> (Context, bool) {
    match rate::allows() {
        true => (captured(thread, Registers::here()), true),
        // SAFETY: null, or the record of a task that this thread is in.
        false => match unsafe { thread.task().as_ref() } {
            Some(task) => (task.context(), false),
            None => (Context::Unknown, false),
        },
    }
}

/// The calling thread's context at these registers.
pub(crate) fn captured(thread: OwnThread, registers: Registers) -> Context {
    match crate::events::keeping_errno(|| thread.capture(registers)) {
        Some((thread, node)) => Context::Captured { thread, node },
        None => Context::Unknown,
    }
}

/// The place with these registers, in the calling thread's tasks.
fn site(thread: OwnThread, registers: Registers) -> Context {
    let fp = registers.get(number::RBP).unwrap_or(0);
    let tasks = thread.task();
    Context::Site { registers: [registers.ip(), registers.sp(), fp], tasks }
}
