//! Compiled into tokio, below its `util::trace`: a task's polls run under who has spawned it, and on the
//! critical path they follow the wake-ups.
//!
//! All that tokio runs for others passes there: spawned futures, those of sets and of local sets, and
//! closures of the blocking pool, of which one is the loop of a worker. A worker is idle but in tasks.

use hpcrun_api::{Caller, Edge, Strand};
use std::any::type_name;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// What tokio runs in the place of a future.
pub(crate) struct Task<F> {
    caller: Caller,
    kind: Kind,
    path: OnPath,
    future: F,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Task,
    /// A closure of the blocking pool.
    Blocking,
    /// The loop of a worker.
    Worker,
}

/// A future that is spawned here.
#[inline]
pub(crate) fn task<F>(future: F) -> Task<F> {
    Task { caller: Caller::here(), kind: Kind::Task, path: OnPath::spawned(), future }
}

/// The future of a closure of this type that is to run in the blocking pool.
#[inline]
pub(crate) fn blocking<C, F>(future: F) -> Task<F> {
    let kind = match type_name::<C>().starts_with("tokio::runtime::scheduler::") {
        true => Kind::Worker,
        false => Kind::Blocking,
    };
    Task { caller: Caller::here(), kind, path: OnPath::spawned(), future }
}

impl<F: Future> Future for Task<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is pinned as its task is: nothing moves it out, and the task has no destructor.
        let task = unsafe { self.get_unchecked_mut() };
        // SAFETY: as above.
        let future = unsafe { Pin::new_unchecked(&mut task.future) };
        match task.kind {
            Kind::Worker => {
                IS_WORKER.set(true);
                hpcrun_api::idle(|| future.poll(context))
            }
            kind => {
                let poll = || match hpcrun_api::is_active() {
                    true => task.path.poll(kind, future, context),
                    false => future.poll(context),
                };
                match kind {
                    Kind::Task => task.caller.poll(poll),
                    _ => task.caller.run(poll),
                }
            }
        }
    }
}

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
    /// How many polls the thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// The strand that the thread has left for a task which has ended: until the next one begins, the thread
    /// wakes who waited for that task.
    static LEFT: Cell<Option<Strand>> = const { Cell::new(None) };
}

/// A task on the critical path.
struct OnPath {
    /// Where it was spawned, or its last poll has ended.
    reached: Option<Strand>,
    wakes: Option<Arc<Wakes>>,
}

impl OnPath {
    #[inline]
    fn spawned() -> OnPath {
        OnPath { reached: Strand::copy(), wakes: None }
    }

    #[cold]
    #[inline(never)]
    fn poll<F: Future>(
        &mut self,
        kind: Kind,
        future: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Poll<F::Output> {
        /// Ends the strand, also when the future panics.
        struct Running(Option<Strand>);
        impl Drop for Running {
            fn drop(&mut self) {
                DEPTH.set(DEPTH.get() - 1);
                self.0.take().and_then(Strand::end).map(Strand::finish);
            }
        }
        let is_outermost = DEPTH.get() == 0;
        if let Some(left) = LEFT.take() {
            left.end().map(Strand::finish);
        }
        let known = self.wakes.take().filter(|wakes| wakes.task.will_wake(context.waker()));
        let wakes = self.wakes.insert(known.unwrap_or_else(|| Wakes::of(context.waker())));
        DEPTH.set(DEPTH.get() + 1);
        let mut running = Running(Strand::begin(self.reached.take()));
        if let Some(woken) = wakes.strand().take() {
            Strand::merge(Some(woken), Edge::Channel);
        }
        let waker = Waker::from(Arc::clone(wakes));
        let result = future.poll(&mut Context::from_waker(&waker));
        let left = running.0.take();
        match (result.is_ready(), kind) {
            (false, _) => self.reached = left.and_then(Strand::end),
            (true, Kind::Blocking) => LEFT.set(left),
            (true, _) if is_outermost && IS_WORKER.get() => LEFT.set(left),
            // What has polled it goes on with its result.
            (true, _) => drop(left.map(Strand::end_and_merge)),
        }
        result
    }
}

/// The wake-ups of a task since its last poll.
struct Wakes {
    task: Waker,
    /// The longest strand that has woken it.
    strand: Mutex<Option<Strand>>,
}

impl Wakes {
    fn of(task: &Waker) -> Arc<Wakes> {
        Arc::new(Wakes { task: task.clone(), strand: Mutex::new(None) })
    }

    fn strand(&self) -> std::sync::MutexGuard<'_, Option<Strand>> {
        self.strand.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let own = Strand::copy();
        let mut strand = self.strand();
        *strand = match (strand.take(), own) {
            (Some(one), Some(other)) => one.both(other),
            (one, other) => one.or(other),
        };
        drop(strand);
        self.task.wake_by_ref();
    }
}
