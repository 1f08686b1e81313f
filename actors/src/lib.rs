//! Message-driven actors that know their critical path while they run.
//!
//! After Dooley, Arya and Kalé, *Detecting and Using Critical Paths at Runtime in Message Driven Parallel
//! Programs* (2010): a program consists of actors (the paper: chares), single ones or arrays, with an entry
//! method for each type of message. The workers of a pool of [`work_stealing_rt`] run one message of an actor
//! at a time, the most urgent first. A message carries the longest path that led to it, 16 bytes; each worker
//! keeps a table of what its tasks did between two messages, from which the path is read backwards at the end
//! or at any time before.
//!
//! ```
//! use work_stealing_actors::{Context, Handle, System};
//!
//! struct Worker;
//! struct Piece(u64);
//! impl Handle<Piece> for Worker {
//!     fn handle(&mut self, Piece(n): Piece, _: &mut Context<'_, Self>) {
//!         std::hint::black_box((0..n).sum::<u64>());
//!     }
//! }
//!
//! let system = System::builder().critical_path(true).build()?;
//! let workers = system.array("workers", 8, |_, _| Worker);
//! system.run(|| {
//!     for (n, worker) in workers.iter().enumerate() {
//!         worker.send(Piece(1000 * n as u64));
//!     }
//! })?;
//! let path = system.critical_path();
//! assert!(path.report.segments.iter().map(|s| s.time).sum::<u64>() == path.report.span);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * *Activity* is CPU time of the worker in a handler, with the way of its message through the scheduler.
//!   Forks of work-stealing-rt inside a handler count as far as the handler's own worker runs them.
//! * An actor's tasks also depend on those before them, as it runs one at a time; the paper's paths, which
//!   follow messages only, are [an option](SystemBuilder::actor_order). What waits for room in a mailbox
//!   depends on the task that makes it.
//! * Each message's handler is, for a profiler, called by its sender. The queue of ready actors and the
//!   recording of paths are tagged as overhead by their folder, as in work-stealing-rt.
//!
//! What the paths are for: [automatic priorities](SystemBuilder::automatic_priorities), the
//! [phase](PathReport::phase) that a program repeats, the [tasks that matter](PathReport::tasks) of a trace,
//! branches that are nearly critical and tasks that expose parallelism (both in the
//! [report](PathReport::report)).
//!
//! The map of the crate, from the bottom up:
//!
//! | module | duty |
//! |---|---|
//! | `priority` | how urgent a message is |
//! | `names` | names of actors and entry methods |
//! | `ready` | which actor runs next, and how many workers help |
//! | `table`, `strand` | recording: a worker's table, and what a thread runs now |
//! | `graph` | the graph of a phase: paths, slack, spans without an entry method |
//! | `tuner` | automatic priorities |
//! | `shared` | what all parts of a system share |
//! | `cell` | an actor, its mailbox and its turns |
//! | `reduction` | tasks that depend on several messages |
//! | `script` | actors that wait for messages in an order |
//! | `pattern`, `report` | phases of a path, and the path for readers |
//! | `address`, `system` | what users hold |
#![forbid(unsafe_code)]

mod address;
mod cell;
mod graph;
mod names;
mod pattern;
mod priority;
#[path = "parallel_overhead/sched/ready.rs"]
mod ready;
mod reduction;
mod report;
mod script;
mod shared;
#[path = "parallel_overhead/track/strand.rs"]
mod strand;
mod system;
#[path = "parallel_overhead/track/table.rs"]
mod table;
mod tuner;

pub use crate::address::{Address, Array, Context, Handle, Setup};
pub use crate::pattern::Phase;
pub use crate::priority::Priority;
pub use crate::reduction::{MergePoint, Reduction};
pub use crate::report::{PathReport, Task};
pub use crate::script::{Begin, Inbox, Part, Script};
pub use crate::shared::{Panic, RunError};
pub use crate::system::{System, SystemBuilder};
