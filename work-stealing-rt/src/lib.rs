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
//! | `deque` | the split deque of join tasks |
//! | `sleep` | who is asleep, who searches, who must be woken (proof in `sleep/README.md`) |
//! | `job` | tasks in memory: header, closure, result |
//! | `boundary` | the one call through which tasks are entered, and the recording of contexts |
//! | `profiler` | registration with a profiler |
//! | `worker` | one worker's state and life |
//! | `pool` | pools, the global pool, installing work from outside |
//! | `parallel_overhead` | all code that is runtime work; its *place* is the overhead tag |
//! | `join`, `scope`, `spawn`, `par_for` | the public operations; they call the user's closures |
//!
//! A rule that the tests of the profiler rely on: a function that calls a user's closure never
//! lives under `parallel_overhead/`, and every out-of-line function that is runtime work does.

#[cfg(not(loom))]
mod boundary;
mod deque;
#[cfg(not(loom))]
mod job;
#[cfg(not(loom))]
mod join;
mod latch;
#[cfg(all(loom, test))]
mod loom_tests;
#[cfg(not(loom))]
mod par_for;
#[cfg(not(loom))]
mod parallel_overhead;
#[cfg(not(loom))]
mod pool;
mod primitives;
#[cfg(not(loom))]
mod profiler;
#[cfg(not(loom))]
mod scope;
mod sleep;
#[cfg(not(loom))]
mod spawn;
#[cfg(not(loom))]
mod worker;

#[cfg(not(loom))]
pub use crate::{
    join::join,
    par_for::{par_for, par_for_grain},
    pool::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder},
    pool::{current_num_threads, current_thread_index},
    scope::{Scope, scope},
    spawn::spawn,
};
