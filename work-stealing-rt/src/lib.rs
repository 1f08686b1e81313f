//! A work-stealing fork-join runtime with rayon's interface, built to be profiled.
//!
//! One duty: run fork-join programs at a few nanoseconds a fork, while keeping, for every task
//! that is not run by its spawner itself, the context from which it was spawned. A profiler that
//! exports [`hpcrun_abi::REGISTER_SYMBOL`] reads that context from its signal handler; without a
//! profiler nothing but a few plain stores is spent.
//!
//! The map of the crate, from the bottom up:
//!
//! | module | duty |
//! |---|---|
//! | `primitives` | atomics and futexes, or loom's models of them |
//! | `latch` | one-shot events that a worker or a foreign thread waits for |
//! | `queue` | the queues of spawned tasks: crossbeam's, or a stand-in for loom and Miri |
//! | `block_memory` | large blocks of which most is never touched |
//! | `deque` | the split deque of join tasks |
//! | `sleep` | who is asleep, who searches, who must be woken (proof in `sleep/README.md`) |
//! | `job` | tasks in memory: header, closure, result |
//! | `boundary` | the one call through which tasks are entered, and the recording of contexts |
//! | `profiler` | registration with a profiler |
//! | `worker` | one worker's state and life |
//! | `completion` | waiting for a number of tasks |
//! | `fifo` | first-in-first-out order on top of a stack |
//! | `pool` | pools, the global pool, installing work from outside |
//! | `parallel_overhead` | all code that is runtime work; its *place* is the overhead tag |
//! | `join`, `scope`, `spawn`, `broadcast`, `yielding`, `par_for` | the public operations; they call the user's closures |
//!
//! A rule that the tests of the profiler rely on: a function that calls a user's closure never
//! lives under `parallel_overhead/`, and every out-of-line function that is runtime work does.

#[cfg(not(loom))]
mod block_memory;
mod boundary;
mod broadcast;
mod completion;
mod deque;
mod fifo;
mod job;
mod join;
mod latch;
#[cfg(all(loom, test))]
mod loom_tests;
mod par_for;
mod parallel_overhead;
mod pool;
mod primitives;
mod profiler;
mod queue;
mod scope;
mod sleep;
mod spawn;
mod worker;
mod yielding;

#[allow(deprecated)]
pub use crate::pool::{Configuration, initialize};
pub use crate::{
    broadcast::{BroadcastContext, broadcast, spawn_broadcast},
    join::{FnContext, join, join_context},
    par_for::{par_for, par_for_grain},
    pool::{
        CustomSpawn, DefaultSpawn, ThreadBuilder, ThreadPool, ThreadPoolBuildError,
        ThreadPoolBuilder, ThreadSpawn,
    },
    pool::{
        current_num_threads, current_thread_has_pending_tasks, current_thread_index,
        max_num_threads,
    },
    scope::{Scope, ScopeFifo, in_place_scope, in_place_scope_fifo, scope, scope_fifo},
    spawn::{spawn, spawn_fifo},
    yielding::{Yield, yield_local, yield_now},
};
