//! `scope`: any number of tasks that may borrow from outside the scope.
//!
//! One duty: let no task of a scope outlive it. A scope counts its body and its tasks; the last
//! one to end sets the latch for which the scope's worker waits. The first panic is kept and
//! goes on in the caller when all have ended.

use core::fmt;
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::job::{HeapTask, Keeper};
use crate::latch::Latch;
use crate::parallel_overhead::{sched, sync};
use crate::pool;
use crate::profiler;
use crate::worker::Worker;

type Payload = Box<dyn Any + Send>;

/// A scope in which tasks can be spawned; see [`scope()`].
pub struct Scope<'scope> {
    /// The worker that waits for the scope. It outlives the scope, which lies on its stack.
    owner: *const Worker,
    /// The body, and the tasks that are not over.
    pending: AtomicUsize,
    over: Latch,
    /// The first panic; null while there is none.
    panic: AtomicPtr<Payload>,
    /// Tasks may borrow for exactly `'scope`: invariant.
    marker: PhantomData<fn(&'scope ()) -> &'scope ()>,
}

// SAFETY: all fields that change are atomics; `owner` leads to a `Sync` worker.
unsafe impl Sync for Scope<'_> {}
// SAFETY: as above.
unsafe impl Send for Scope<'_> {}

/// Calls `op` with a scope, and returns when it and all tasks spawned in the scope have ended.
/// Outside of a pool this happens in the global pool.
///
/// # Panics
/// If `op` or a task panics, the first of these panics goes on here when all have ended.
///
/// ```
/// let mut squares = [0; 4];
/// work_stealing_rt::scope(|scope| {
///     for (i, square) in squares.iter_mut().enumerate() {
///         scope.spawn(move |_| *square = i * i);
///     }
/// });
/// assert_eq!(squares, [0, 1, 4, 9]);
/// ```
pub fn scope<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&Scope<'scope>) -> R + Send,
    R: Send,
{
    pool::on_worker(|worker| {
        let scope = Scope {
            owner: worker,
            pending: AtomicUsize::new(1),
            over: Latch::new(),
            panic: AtomicPtr::new(ptr::null_mut()),
            marker: PhantomData,
        };
        let result = catch_unwind(AssertUnwindSafe(|| op(&scope)));
        let result = result.map_err(|payload| scope.keep_panic(payload));
        // SAFETY: the body is counted, and this frame keeps the scope.
        unsafe { Scope::one_over(&raw const scope) };
        sched::wait_in_task(worker, &scope.over);
        let panic = scope.panic.swap(ptr::null_mut(), Ordering::Acquire);
        match result {
            Ok(result) if panic.is_null() => result,
            _ => {
                // SAFETY: not null, for if `result` is an error its panic, or an earlier one, was
                // kept. Boxed by `keep_panic`.
                resume_unwind(*unsafe { Box::from_raw(panic) })
            }
        }
    })
}

impl<'scope> Scope<'scope> {
    /// Spawns a task into the scope. It gets the scope, so as to spawn more.
    ///
    /// The task is put on the heap; where a caller waits for two things only,
    /// [`join`](crate::join) is much cheaper.
    pub fn spawn<BODY>(&self, body: BODY)
    where
        BODY: FnOnce(&Scope<'scope>) + Send + 'scope,
    {
        // Relaxed: the caller is itself counted (the body or a task), or else holds a borrow
        // of the scope that one of these waits for.
        self.pending.fetch_add(1, Ordering::Relaxed);
        let member = Member(ptr::from_ref(self).cast::<Scope<'static>>());
        let this = SharedScope(self);
        let body = move || {
            let SharedScope(scope) = { this };
            // SAFETY: the scope is not left before this task is over.
            body(unsafe { &*scope })
        };
        let task = HeapTask::boxed(body, member, profiler::capture_context());
        // SAFETY: the worker outlives the scope.
        sched::offer(unsafe { &*self.owner }.pool(), task);
    }

    fn keep_panic(&self, payload: Payload) {
        let boxed = Box::into_raw(Box::new(payload));
        let first = self.panic.compare_exchange(
            ptr::null_mut(),
            boxed,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if first.is_err() {
            // SAFETY: boxed above, and not kept.
            drop(unsafe { Box::from_raw(boxed) });
        }
    }

    /// The body or a task is over.
    ///
    /// # Safety
    /// The scope counts the caller; it may be gone afterwards.
    unsafe fn one_over(this: *const Self) {
        // SAFETY: the scope stays until its latch is set, which is the last access here. The
        // owner belongs to a pool that the calling thread keeps, since a scope's tasks run in
        // that pool only.
        unsafe {
            let owner = &*(*this).owner;
            if (*this).pending.fetch_sub(1, Ordering::AcqRel) == 1 {
                sync::announce(owner.pool(), &(*this).over, owner.index);
            }
        }
    }
}

/// The scope's address, to be sent along with a task.
struct SharedScope<'scope>(*const Scope<'scope>);

// SAFETY: a `Scope` is `Sync`, and outlives its tasks.
unsafe impl Send for SharedScope<'_> {}

/// A task's membership in its scope, the lifetime erased.
struct Member(*const Scope<'static>);

// SAFETY: as for `SharedScope`.
unsafe impl Send for Member {}

impl Keeper for Member {
    fn panicked(&self, payload: Payload) {
        // SAFETY: the scope waits for this task, which is not over yet.
        unsafe { &*self.0 }.keep_panic(payload);
    }

    fn over(self) {
        // SAFETY: the scope counts the task until here.
        unsafe { Scope::one_over(self.0) };
    }
}

impl fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("pending", &self.pending.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}
