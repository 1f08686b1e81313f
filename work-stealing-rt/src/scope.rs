//! Scopes: any number of tasks that may borrow from outside the scope.
//!
//! No task outlives its scope: a scope counts its body and its tasks, and returns when all have ended. It
//! keeps the first panic and resumes it then in the caller. The forms differ in the order of tasks (`fifo`)
//! and in the thread that runs the body (`in_place`).

use core::fmt;
use core::marker::PhantomData;
use core::panic::Location;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::broadcast::{self, BroadcastContext};
use crate::count_latch::CountLatch;
use crate::fifo::Fifo;
use crate::job::{self, CompletionHook, HeapTask};
use crate::pool::global;
use crate::profiler;
use crate::sched::offer::{offer, offer_in_order, post};
use crate::task::TaskRef;
use crate::track::{Strand, link::Ends};
use crate::worker::Pool;

type Payload = Box<dyn Any + Send>;

/// Tasks may borrow for exactly `'scope`: invariant in it.
type Invariant<'scope> = PhantomData<fn(&'scope ()) -> &'scope ()>;

/// A scope in which tasks can be spawned; see [`scope()`].
pub struct Scope<'scope> {
    base: ScopeBase,
    marker: Invariant<'scope>,
}

/// A scope whose tasks start in the order of their spawns; see [`scope_fifo()`].
pub struct ScopeFifo<'scope> {
    base: ScopeBase,
    /// One for each worker of the pool.
    fifos: Box<[Fifo]>,
    marker: Invariant<'scope>,
}

/// Calls `op` with a scope, and returns when it and all tasks spawned in the scope have ended.
/// Outside of a pool this happens in the global pool.
///
/// A worker that runs tasks it has spawned itself begins with the youngest.
///
/// # Panics
/// If `op` or a task panics, the first of these panics resumes here when all have ended.
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
#[track_caller]
pub fn scope<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&Scope<'scope>) -> R + Send,
    R: Send,
{
    let location = Location::caller();
    global::on_worker(|worker| Scope::new(worker.pool(), location).run(op))
}

/// As [`scope()`], but a worker that runs tasks it has spawned itself begins with the oldest.
#[track_caller]
pub fn scope_fifo<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&ScopeFifo<'scope>) -> R + Send,
    R: Send,
{
    let location = Location::caller();
    global::on_worker(|worker| ScopeFifo::new(worker.pool(), location).run(op))
}

/// As [`scope()`], but `op` runs in the calling thread, whether that is a worker or not; the tasks
/// run in the calling thread's pool, else in the global pool.
#[track_caller]
pub fn in_place_scope<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&Scope<'scope>) -> R,
{
    let location = Location::caller();
    global::with_pool(|pool| Scope::new(pool, location).run(op))
}

/// As [`in_place_scope`], with the order of [`scope_fifo()`].
#[track_caller]
pub fn in_place_scope_fifo<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&ScopeFifo<'scope>) -> R,
{
    let location = Location::caller();
    global::with_pool(|pool| ScopeFifo::new(pool, location).run(op))
}

impl<'scope> Scope<'scope> {
    /// A scope whose tasks run in `pool`, which outlives it.
    pub(crate) fn new(pool: &Pool, location: &'static Location<'static>) -> Self {
        Scope { base: ScopeBase::new(pool, location), marker: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn run<R>(self, op: impl FnOnce(&Self) -> R) -> R {
        self.base.run(|| op(&self))
    }

    /// Spawns a task into the scope. The task gets the scope, so that it can spawn more.
    ///
    /// The task is stored on the heap. For two closures, [`join`](crate::join) is much cheaper.
    #[track_caller]
    pub fn spawn<BODY>(&self, body: BODY)
    where
        BODY: FnOnce(&Scope<'scope>) + Send + 'scope,
    {
        offer(self.base.pool(), task(self, body));
    }

    /// Spawns one task for each worker of the scope's pool. Each gets the scope, and says where it
    /// runs.
    #[track_caller]
    pub fn spawn_broadcast<BODY>(&self, body: BODY)
    where
        BODY: Fn(&Scope<'scope>, BroadcastContext<'_>) + Send + Sync + 'scope,
    {
        broadcast_in(self, body);
    }
}

impl<'scope> ScopeFifo<'scope> {
    /// As [`Scope::new`].
    pub(crate) fn new(pool: &Pool, location: &'static Location<'static>) -> Self {
        ScopeFifo {
            base: ScopeBase::new(pool, location),
            fifos: pool.workers().iter().map(|_| Fifo::new()).collect(),
            marker: PhantomData,
        }
    }

    #[inline(always)]
    pub(crate) fn run<R>(self, op: impl FnOnce(&Self) -> R) -> R {
        self.base.run(|| op(&self))
    }

    /// Spawns a task into the scope. The task gets the scope, so that it can spawn more.
    #[track_caller]
    pub fn spawn_fifo<BODY>(&self, body: BODY)
    where
        BODY: FnOnce(&ScopeFifo<'scope>) + Send + 'scope,
    {
        let task = task(self, body);
        offer_in_order(self.base.pool(), task, |worker| &self.fifos[worker.index]);
    }

    /// As [`Scope::spawn_broadcast`].
    #[track_caller]
    pub fn spawn_broadcast<BODY>(&self, body: BODY)
    where
        BODY: Fn(&ScopeFifo<'scope>, BroadcastContext<'_>) + Send + Sync + 'scope,
    {
        broadcast_in(self, body);
    }
}

/// What the two kinds of scope share.
struct ScopeBase {
    /// Where the tasks run. The scope's caller keeps it.
    pool: *const Pool,
    /// The body and the tasks.
    completion: CountLatch,
    /// The first panic; null while there is none.
    panic: AtomicPtr<Payload>,
    /// The critical path at the tasks' ends, and the place of the scope.
    ends: Ends,
    location: &'static Location<'static>,
}

// SAFETY: what changes is atomic; `pool` leads to a `Sync` pool.
unsafe impl Sync for ScopeBase {}
// SAFETY: as above.
unsafe impl Send for ScopeBase {}

impl ScopeBase {
    fn new(pool: &Pool, location: &'static Location<'static>) -> Self {
        ScopeBase {
            pool,
            completion: CountLatch::new(1),
            panic: AtomicPtr::new(ptr::null_mut()),
            ends: Ends::new(),
            location,
        }
    }

    fn pool(&self) -> &Pool {
        // SAFETY: the scope's caller keeps the pool while it waits for the scope.
        unsafe { &*self.pool }
    }

    /// Calls the scope's body, waits for the tasks, and resumes a panic.
    #[inline(always)]
    fn run<R>(&self, body: impl FnOnce() -> R) -> R {
        let result = catch_unwind(AssertUnwindSafe(body));
        let result = result.map_err(|payload| self.keep_panic(payload));
        // SAFETY: the body is counted, and the calling frame keeps the scope.
        unsafe { CountLatch::decrement(&raw const self.completion) };
        self.completion.wait();
        self.ends.join(self.location);
        let panic = self.panic.swap(ptr::null_mut(), Ordering::Acquire);
        match result {
            Ok(result) if panic.is_null() => result,
            _ => {
                // SAFETY: not null, for if `result` is an error its panic, or an earlier one, was
                // kept. Boxed by `keep_panic`.
                resume_unwind(*unsafe { Box::from_raw(panic) })
            }
        }
    }

    fn keep_panic(&self, payload: Payload) {
        let boxed = Box::into_raw(Box::new(payload));
        let first = self.panic.compare_exchange(ptr::null_mut(), boxed, Ordering::Release, Ordering::Relaxed);
        if first.is_err() {
            // A panic of the destructor must not propagate: the scope still waits for tasks.
            // SAFETY: boxed above, and not kept.
            job::discard(unsafe { Box::from_raw(boxed) });
        }
    }

    fn describe(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name).field("pending", &self.completion.pending()).finish_non_exhaustive()
    }
}

/// Both kinds of scope.
trait AnyScope: Sync {
    fn base(&self) -> &ScopeBase;
}

impl AnyScope for Scope<'_> {
    fn base(&self) -> &ScopeBase {
        &self.base
    }
}

impl AnyScope for ScopeFifo<'_> {
    fn base(&self) -> &ScopeBase {
        &self.base
    }
}

/// A task of the scope, which must be run.
#[inline(always)]
#[track_caller]
fn task<S: AnyScope>(scope: &S, body: impl FnOnce(&S) + Send) -> TaskRef {
    let call = move |member: &Member<S>| body(member.scope());
    let context = profiler::capture_context();
    HeapTask::boxed(call, Member::new(scope), context, Location::caller())
}

/// Gives a task to each worker of the scope's pool.
#[track_caller]
fn broadcast_in<S: AnyScope>(scope: &S, body: impl Fn(&S, BroadcastContext<'_>) + Send + Sync) {
    let body = Arc::new(body);
    let (context, location) = (profiler::capture_context(), Location::caller());
    for worker in scope.base().pool().workers() {
        let body = Arc::clone(&body);
        let call = move |member: &Member<S>| {
            broadcast::call(&|context: BroadcastContext<'_>| body(member.scope(), context));
        };
        let task = HeapTask::boxed(call, Member::new(scope), context, location);
        post(worker, task);
    }
}

/// A task's membership in its scope.
struct Member<S>(*const S);

// SAFETY: as a `&S`, for a scope outlives its tasks.
unsafe impl<S: Sync> Send for Member<S> {}

impl<S: AnyScope> Member<S> {
    /// One more task of the scope.
    #[inline(always)]
    fn new(scope: &S) -> Self {
        // The caller is itself counted (the body or a task), or else holds a borrow of the scope
        // that one of these waits for.
        scope.base().completion.increment();
        Member(scope)
    }

    #[inline(always)]
    fn scope(&self) -> &S {
        // SAFETY: the scope waits for this task, which is not over yet.
        unsafe { &*self.0 }
    }
}

impl<S: AnyScope> CompletionHook for Member<S> {
    fn ended(&self, strand: Strand) {
        self.scope().base().ends.add(strand);
    }

    fn panicked(&self, payload: Payload) {
        self.scope().base().keep_panic(payload);
    }

    fn completed(self) {
        let completion = &raw const self.scope().base().completion;
        // SAFETY: the scope counts the task until here.
        unsafe { CountLatch::decrement(completion) };
    }
}

impl fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.base.describe("Scope", f)
    }
}

impl fmt::Debug for ScopeFifo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.base.describe("ScopeFifo", f)
    }
}
