//! `join` and `join_context`: two closures, potentially in parallel.
//!
//! Runs the first closure while the second is open to thieves, then runs the second or waits for its thief.
//! Invariant: whether the closures return or unwind, this frame is not left while another worker may use the
//! task in it.

use core::marker::PhantomData;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::deque::SlotPtr;
use crate::job::{self, InSlot, StackTask};
use crate::pool::global;
use crate::sched::fork::{count_outside, fork, take_back, task};
use crate::sched::kept::Place;
use crate::sched::state::{self, Installed};
use crate::worker::Worker;

/// Runs both closures, potentially in parallel, and returns their results.
///
/// The first one runs at once. The second one is open to idle workers; the caller runs it afterwards if
/// nobody took it. Outside of a pool this happens in the global pool.
///
/// A call costs a few nanoseconds more than calling both closures, so a cut-off to serial code rarely pays.
///
/// # Panics
/// A panic of either closure resumes here after the other one has ended: both always run. If both panic, the
/// first one's panic resumes.
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
    // SAFETY: for this call.
    match unsafe { state::current() } {
        Some(worker) => join_on::<_, _, _, _, false>(worker, false, |_| oper_a(), |_| oper_b()),
        None => {
            count_outside();
            join_outside(|_| oper_a(), |_| oper_b())
        }
    }
}

/// As [`join`], and tells each closure whether it *migrated*: whether it runs on another thread than the one
/// that called `join_context`. Loops that split adaptively continue to split while parts of them migrate.
///
/// # Panics
/// As [`join`].
///
/// ```
/// let pool = work_stealing_rt::ThreadPoolBuilder::new().num_threads(1).build()?;
/// let migrated = pool.install(|| {
///     work_stealing_rt::join_context(|a| a.migrated(), |b| b.migrated())
/// });
/// assert_eq!(migrated, (false, false));
/// # Ok::<(), work_stealing_rt::ThreadPoolBuildError>(())
/// ```
#[inline(always)]
pub fn join_context<A, B, RA, RB>(oper_a: A, oper_b: B) -> (RA, RB)
where
    A: FnOnce(FnContext) -> RA + Send,
    B: FnOnce(FnContext) -> RB + Send,
    RA: Send,
    RB: Send,
{
    let oper_a = |migrated| oper_a(FnContext::new(migrated));
    let oper_b = |migrated| oper_b(FnContext::new(migrated));
    // SAFETY: for this call.
    match unsafe { state::current() } {
        Some(worker) => join_on::<_, _, _, _, true>(worker, false, oper_a, oper_b),
        None => {
            count_outside();
            join_outside(oper_a, oper_b)
        }
    }
}

/// Tells a closure of [`join_context`] where it runs.
#[derive(Debug)]
pub struct FnContext {
    migrated: bool,
    /// Valid on one thread: neither `Send` nor `Sync`.
    marker: PhantomData<*mut ()>,
}

impl FnContext {
    #[inline(always)]
    fn new(migrated: bool) -> Self {
        FnContext { migrated, marker: PhantomData }
    }

    /// Whether the closure runs on another thread than the one that called [`join_context`], or was taken out
    /// of order by that thread itself.
    #[inline]
    pub fn migrated(&self) -> bool {
        self.migrated
    }
}

#[cold]
#[inline(never)]
fn join_outside<A, B, RA, RB>(oper_a: A, oper_b: B) -> (RA, RB)
where
    A: FnOnce(bool) -> RA + Send,
    B: FnOnce(bool) -> RB + Send,
    RA: Send,
    RB: Send,
{
    // Both closures have migrated to the pool, whoever runs them there.
    let oper_b = |_| oper_b(true);
    // A parallel iterator's own code calls this: its place says nothing.
    global::in_global(None, |worker| {
        // SAFETY: the worker is the calling thread's for as long as this closure runs.
        let _task = unsafe { Installed::set(worker, false) };
        join_on::<_, _, _, _, true>(worker, true, oper_a, oper_b)
    })
}

/// `migrated`: the value for closures that run on this worker. `COUNTED`: see [`fork`].
#[inline(always)]
fn join_on<A, B, RA, RB, const COUNTED: bool>(
    worker: &Worker,
    migrated: bool,
    oper_a: A,
    oper_b: B,
) -> (RA, RB)
where
    A: FnOnce(bool) -> RA + Send,
    B: FnOnce(bool) -> RB + Send,
    RA: Send,
    RB: Send,
{
    let task = task(oper_b);
    let (mut slot, mut result_a) = (Place::new(), Place::new());
    let slot = slot.keep(fork::<_, _, COUNTED>(worker, &task));
    let result_a = match catch_unwind(AssertUnwindSafe(|| oper_a(migrated))) {
        Ok(result) => result_a.keep(result),
        Err(payload) => recover_from_panic(&task, slot.get(), payload),
    };
    let slot = slot.get();
    // SAFETY: `worker` is the calling thread's.
    let worker = unsafe { state::same_worker() };
    // SAFETY: forked above. If the closure unwinds, its task is out of the deque already.
    if let Some(oper_b) = unsafe { take_back(worker, slot, &task) } {
        let result_b = oper_b(migrated);
        return (result_a.take(), result_b);
    }
    // SAFETY: the thief has announced the end.
    match unsafe { task.take_outcome() } {
        Ok(result_b) => (result_a.take(), result_b),
        Err(payload) => resume_unwind(payload),
    }
}

/// The first closure has panicked: runs the second one, drops its result, and resumes the panic. It never
/// returns, so the spawner saves no register across the call.
#[cold]
#[inline(never)]
fn recover_from_panic<F, R>(task: &StackTask<F, R, InSlot>, slot: SlotPtr, payload: Box<dyn Any + Send>) -> !
where
    F: FnOnce(bool) -> R + Send,
    R: Send,
{
    // SAFETY: the spawner is a worker, and this runs on its thread.
    let worker = unsafe { state::same_worker() };
    // SAFETY: forked, and not taken back since.
    let outcome = match unsafe { take_back(worker, slot, task) } {
        // `true`: it runs out of order, as if it had been stolen.
        Some(closure) => catch_unwind(AssertUnwindSafe(|| closure(true))),
        // SAFETY: the thief has announced the end.
        None => unsafe { task.take_outcome() },
    };
    // The first closure's panic wins.
    job::discard(outcome);
    resume_unwind(payload)
}
