//! Every operation of the crate, in a given pool.

use core::panic::Location;

use super::thread_pool::ThreadPool;
use crate::broadcast::{self, BroadcastContext};
use crate::scope::{Scope, ScopeFifo};
use crate::yielding::{self, Yield};

impl ThreadPool {
    /// [`broadcast`](crate::broadcast()) in this pool.
    #[track_caller]
    pub fn broadcast<OP, R>(&self, op: OP) -> Vec<R>
    where
        OP: Fn(BroadcastContext<'_>) -> R + Sync,
        R: Send,
    {
        broadcast::broadcast_in(self.pool(), op, Location::caller())
    }

    /// [`join`](crate::join) in this pool.
    #[track_caller]
    pub fn join<A, B, RA, RB>(&self, oper_a: A, oper_b: B) -> (RA, RB)
    where
        A: FnOnce() -> RA + Send,
        B: FnOnce() -> RB + Send,
        RA: Send,
        RB: Send,
    {
        self.install(|| crate::join(oper_a, oper_b))
    }

    /// [`scope`](crate::scope()) in this pool.
    #[track_caller]
    pub fn scope<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&Scope<'scope>) -> R + Send,
        R: Send,
    {
        self.install(|| crate::scope(op))
    }

    /// [`scope_fifo`](crate::scope_fifo()) in this pool.
    #[track_caller]
    pub fn scope_fifo<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&ScopeFifo<'scope>) -> R + Send,
        R: Send,
    {
        self.install(|| crate::scope_fifo(op))
    }

    /// A scope whose body runs in the calling thread, and whose tasks run in this pool.
    #[track_caller]
    pub fn in_place_scope<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&Scope<'scope>) -> R,
    {
        Scope::new(self.pool(), Location::caller()).run(op)
    }

    /// As [`in_place_scope`](Self::in_place_scope), with the order of
    /// [`scope_fifo`](crate::scope_fifo()).
    #[track_caller]
    pub fn in_place_scope_fifo<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&ScopeFifo<'scope>) -> R,
    {
        ScopeFifo::new(self.pool(), Location::caller()).run(op)
    }

    /// [`spawn`](crate::spawn()) in this pool.
    #[track_caller]
    pub fn spawn<OP>(&self, op: OP)
    where
        OP: FnOnce() + Send + 'static,
    {
        crate::spawn::spawn_in(self.pool(), op, Location::caller());
    }

    /// [`spawn_fifo`](crate::spawn_fifo()) in this pool.
    #[track_caller]
    pub fn spawn_fifo<OP>(&self, op: OP)
    where
        OP: FnOnce() + Send + 'static,
    {
        crate::spawn::spawn_fifo_in(self.pool(), op, Location::caller());
    }

    /// [`spawn_broadcast`](crate::spawn_broadcast()) in this pool.
    #[track_caller]
    pub fn spawn_broadcast<OP>(&self, op: OP)
    where
        OP: Fn(BroadcastContext<'_>) + Send + Sync + 'static,
    {
        broadcast::spawn_broadcast_in(self.pool(), op, Location::caller());
    }

    /// [`yield_now`](crate::yield_now()); `None` also on a worker of another pool.
    pub fn yield_now(&self) -> Option<Yield> {
        self.current().map(yielding::yield_now_on)
    }

    /// [`yield_local`](crate::yield_local()); `None` also on a worker of another pool.
    pub fn yield_local(&self) -> Option<Yield> {
        self.current().map(yielding::yield_local_on)
    }
}
