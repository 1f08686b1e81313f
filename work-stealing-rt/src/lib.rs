//! A work-stealing fork-join runtime with rayon's interface, built to be profiled.
//!
//! One duty: run fork-join programs at a few nanoseconds a fork, and keep the spawn context of every task
//! that its spawner does not run itself. A profiler that exports [`hpcrun_abi::REGISTER_SYMBOL`] reads
//! that context from its signal handler. Without a profiler the cost is a few plain stores.
//!
//! The map of the crate, from the bottom up (`tests/tests/architecture.rs` in the repository has the order of
//! all files):
//!
//! | module | duty |
//! |---|---|
//! | `system` | what the operating system provides: a futex, memory |
//! | `primitives` | atomics and futexes, or loom's models of them |
//! | `latch` | one-shot events that a worker or a foreign thread waits for |
//! | `queue` | the queues of spawned tasks: crossbeam's, or a model for loom and Miri |
//! | `block_memory` | large blocks, mostly untouched |
//! | `deque` | the split deque of join tasks |
//! | `sleep` | who is asleep, who searches, who must be woken (proof in `sleep/README.md`) |
//! | `task` | what a task is to those who queue it, find it and enter it |
//! | `fifo` | first-in-first-out order on top of a stack |
//! | `boundary` | the one call through which tasks are entered, and the recording of contexts |
//! | `profiler` | registration with a profiler |
//! | `worker` | a worker's state, and what a pool's workers share |
//! | `track` | the critical path at forks, joins and waits, while it is asked for |
//! | `sched`, `sync` | all runtime work; the name of their folder, `parallel_overhead`, is the overhead tag |
//! | `job` | tasks in memory: header, closure, result |
//! | `count_latch` | waiting for a number of tasks |
//! | `main_loop` | the life of a worker's thread |
//! | `pool` | pools, the global pool, installing work from outside |
//! | `join`, `scope`, `spawn`, `broadcast`, `yielding`, `par_for`, `par_for_adaptive` | public operations |
//! | `spawn_context` | contexts for runtimes on top of this one |
//!
//! An invariant that the profiler's tests rely on: no function that calls a user's closure lies under
//! `parallel_overhead/`, and every out-of-line function that is runtime work does.

#[cfg(not(loom))]
mod block_memory;
mod boundary;
mod broadcast;
mod count_latch;
mod deque;
mod fifo;
mod job;
mod join;
mod latch;
#[cfg(all(loom, test))]
mod loom_tests;
mod main_loop;
mod par_for;
mod par_for_adaptive;
mod pool;
mod primitives;
mod profiler;
mod queue;
#[path = "parallel_overhead/sched/mod.rs"]
mod sched;
mod scope;
mod sleep;
mod spawn;
mod spawn_context;
#[path = "parallel_overhead/sync/mod.rs"]
mod sync;
#[cfg(all(not(loom), target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "system/linux.rs"]
mod system;
#[cfg(all(not(loom), not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))))]
#[path = "system/portable.rs"]
mod system;
mod task;
#[path = "parallel_overhead/track/mod.rs"]
mod track;
mod worker;
mod yielding;

#[allow(deprecated)]
pub use crate::pool::{Configuration, initialize};
pub use crate::{
    broadcast::{BroadcastContext, broadcast, spawn_broadcast},
    join::{FnContext, join, join_context},
    par_for::{par_for, par_for_grain},
    par_for_adaptive::par_for_adaptive,
    pool::{
        CustomSpawn, DefaultSpawn, ThreadBuilder, ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder,
        ThreadSpawn,
    },
    pool::{current_num_threads, current_thread_has_pending_tasks, current_thread_index, max_num_threads},
    scope::{Scope, ScopeFifo, in_place_scope, in_place_scope_fifo, scope, scope_fifo},
    spawn::{spawn, spawn_fifo},
    spawn_context::SpawnContext,
    yielding::{Yield, idle, is_nested, yield_local, yield_now},
};
