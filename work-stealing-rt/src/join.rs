//! `join`: two closures, potentially in parallel.
//!
//! One duty: run the first closure while the second is open to thieves, then run the second or
//! wait for its thief. Invariant: whether the closures return or unwind, this frame is not left
//! while another worker may use the task in it.

use core::mem;
use std::panic::resume_unwind;

use crate::deque::SlotPtr;
use crate::job::{InSlot, StackTask};
use crate::parallel_overhead::sched;
use crate::pool;
use crate::worker::Worker;

/// Runs both closures, potentially in parallel, and returns their results.
///
/// The first one runs at once; the second one is open to idle workers, and is run by the caller
/// afterwards if nobody took it. Outside of a pool this happens in the global pool.
///
/// A call costs a few nanoseconds more than calling both closures, so a cut-off to serial code
/// is rarely worth while.
///
/// # Panics
/// A panic of either closure goes on here, after the other one has ended. If the first one
/// panics, the second one may or may not have run; if both do, the first one's panic goes on.
///
/// ```
/// fn fib(n: u64) -> u64 {
///     if n < 2 {
///         return n;
///     }
///     let (a, b) = work_stealing_rt::join(|| fib(n - 1), || fib(n - 2));
///     a + b
/// }
/// assert_eq!(fib(20), 6765);
/// ```
#[inline(always)]
pub fn join<A, B, RA, RB>(oper_a: A, oper_b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    match sched::current() {
        Some(worker) => join_on(worker, oper_a, oper_b),
        None => join_outside(oper_a, oper_b),
    }
}

#[cold]
#[inline(never)]
fn join_outside<A, B, RA, RB>(oper_a: A, oper_b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    pool::in_global(|worker| join_on(worker, oper_a, oper_b))
}

#[inline(always)]
fn join_on<A, B, RA, RB>(worker: &Worker, oper_a: A, oper_b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    let task = sched::task(oper_b);
    let slot = sched::fork(worker, &task);
    let forked = Forked {
        worker,
        task: &task,
        slot,
    };
    let result_a = oper_a();
    mem::forget(forked);
    // SAFETY: forked above. If the closure unwinds, its task is out of the deque already.
    if let Some(oper_b) = unsafe { sched::take_back(worker, slot, &task) } {
        return (result_a, oper_b());
    }
    sched::wait_for_stolen(worker, slot);
    // SAFETY: the thief has announced the end.
    match unsafe { task.take_outcome() } {
        Ok(result_b) => (result_a, result_b),
        Err(payload) => resume_unwind(payload),
    }
}

/// A forked task while the first closure runs; dropped only if that unwinds.
struct Forked<'a, F, R>
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    worker: &'a Worker,
    task: &'a StackTask<F, R, InSlot>,
    slot: SlotPtr,
}

impl<F, R> Drop for Forked<'_, F, R>
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    // Inlined, so that the guard itself need not exist in memory.
    #[inline(always)]
    fn drop(&mut self) {
        abandon(self.worker, self.task, self.slot);
    }
}

/// The first closure unwinds: nobody will want the second one's result.
#[cold]
#[inline(never)]
fn abandon<F, R>(worker: &Worker, task: &StackTask<F, R, InSlot>, slot: SlotPtr)
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    // SAFETY: forked, and not taken back since. The closure is dropped without having run.
    if unsafe { sched::take_back(worker, slot, task) }.is_none() {
        sched::wait_for_stolen(worker, slot);
        // SAFETY: the thief has announced the end. The first closure's panic wins.
        drop(unsafe { task.take_outcome() });
    }
}
