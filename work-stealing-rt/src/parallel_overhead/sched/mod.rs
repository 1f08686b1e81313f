//! Overhead of the category `sched`: pushing, popping, stealing, recording and entering tasks.
//!
//! One duty: the cost of a fork beside its synchronisation. The folder's name is the tag: after a run, an
//! instruction whose inlining chain passes through a file under `parallel_overhead/sched/` counts as
//! overhead of the category `sched`. This costs nothing at run time.
//!
//! Fast halves are always inlined into the spawner. Slow halves are out of line in the section `wsrt_text`,
//! which tells a profiler that their frames belong to the runtime.
//!
//! Invariant: no function here calls a user's closure, since a closure inlined into it would be tagged too.
//! Tasks are entered through the boundary, which is never inlined.
//!
//! Each file uses only those above it; `in_task` and `fork` also use the scheduling loop,
//! [`crate::sync::wait_until`], which itself uses `find` and `run`:
//!
//! | file | duty |
//! |---|---|
//! | `state` | the calling worker, and whether it works |
//! | `prefetch`, `kept` | hints and frame slots that keep a fork cheap |
//! | `pace` | how often thieves look at a worker's joins |
//! | `offer` | queues a task for other workers |
//! | `find` | finds a task |
//! | `run` | runs a found task |
//! | `in_task` | runs tasks or waits in the middle of a task |
//! | `fork` | forks a task and takes it back |

pub(crate) mod find;
pub(crate) mod fork;
pub(crate) mod in_task;
pub(crate) mod kept;
pub(crate) mod offer;
mod pace;
pub(crate) mod prefetch;
pub(crate) mod run;
pub(crate) mod state;
