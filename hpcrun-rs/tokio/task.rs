//! Compiled into tokio, below its `util::trace`: a task's polls run under who has spawned it.
//!
//! All that tokio runs for others passes there: spawned futures, those of sets and of local sets, and
//! closures of the blocking pool, of which one is the loop of a worker. A worker is idle but in tasks.

use hpcrun_api::Caller;
use std::any::type_name;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// What tokio runs in the place of a future.
pub(crate) struct Task<F> {
    caller: Caller,
    is_worker: bool,
    future: F,
}

/// A future that is spawned here.
#[inline]
pub(crate) fn task<F>(future: F) -> Task<F> {
    Task { caller: Caller::here(), is_worker: false, future }
}

/// The future of a closure of this type that is to run in the blocking pool.
#[inline]
pub(crate) fn blocking<C, F>(future: F) -> Task<F> {
    let is_worker = type_name::<C>().starts_with("tokio::runtime::scheduler::");
    Task { caller: Caller::here(), is_worker, future }
}

impl<F: Future> Future for Task<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is pinned as its task is: nothing moves it out, and the task has no destructor.
        let task = unsafe { self.get_unchecked_mut() };
        // SAFETY: as above.
        let future = unsafe { Pin::new_unchecked(&mut task.future) };
        match task.is_worker {
            true => hpcrun_api::idle(|| future.poll(context)),
            false => task.caller.run(|| future.poll(context)),
        }
    }
}
