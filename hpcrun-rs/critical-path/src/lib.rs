//! Online critical paths of parallel programs.
//!
//! One duty: while a program runs, follow its longest chain of activity over threads and tasks, after Oyama,
//! Taura and Yonezawa, *Online Computation of Critical Paths for Multithreaded Languages* (1999), and the
//! share and the zeroing of procedures on it, after Hollingsworth, *An Online Computation of Critical Path
//! Profiling* (1996). Whoever sees the program's synchronisation (a task runtime, interposed library calls)
//! calls the operations of [`Thread`].
//!
//! * *Activity* is time by a [`Clock`]: usually [`ThreadClock`], the CPU time of the calling thread, which
//!   neither preemption nor blocking advances. Units: nanoseconds.
//! * A *strand* is a sequence of activity without concurrency: a thread, or a task. Its *length* is the
//!   longest chain of activity that ends where it is now.
//! * The *span* is the greatest length of all strands' ends, the *work* the sum of all activity.
//! * The *zeroed span* of a procedure is the span if that procedure took no time. It is exact, for all
//!   procedures at once.
//!
//! A [`Strand`] is also what travels along an edge:
//!
//! | the program | the tracker |
//! |---|---|
//! | spawns; the new thread or task begins, ends; is waited for | [`Thread::copy`]; `begin`, `end`; `merge` |
//! | sends; receives | `copy`; `merge` |
//! | releases a lock; acquires it | `copy`, in place of the last one; `share` of that, and `merge` |
//! | arrives at a barrier; leaves it | `both` of all copies; `share` and `merge` |
//!
//! If a channel is bounded, a send also waits for the receive that made room for it: send `i` of a channel of
//! capacity `c` merges a copy of receive `i - c`. Oyama's paper omits these back-edges; without them the path
//! of a fast producer beside a slow consumer is too short.
//!
//! ```
//! use critical_path::{Settings, Site, Thread, ThreadClock, Tracker};
//!
//! let tracker = Tracker::new(Settings::default());
//! let mut thread = Thread::new(&tracker, ThreadClock::new(), Site(1));
//! // A task that is spawned, and that the same thread runs, while its own strand waits.
//! let spawned = thread.copy(Site(2));
//! let left = thread.begin(Some(spawned), Site(3));
//! thread.end_and_merge(left, Site(4));
//! thread.publish(Site(5));
//! let report = tracker.report();
//! assert!(report.span <= report.work);
//! ```
//!
//! The map of the crate, from the bottom up:
//!
//! | module | duty |
//! |---|---|
//! | `clock` | the CPU time of the calling thread, in about 20 ns |
//! | `path` | shared, bounded lists of segments |
//! | `savings` | time on the path, and saved by zeroing, for each procedure |
//! | `near` | branches that are nearly as long as the path |
//! | `levels` | what a thread does at each moment of the program's ideal execution |
//! | `sampled` | contexts on the path, and savings of functions, by samples |
//! | `samples` | samples on their way from a signal handler |
//! | `shares` | activity divided among contexts and functions, by samples |
//! | `starts` | where activity begins that may run beside the path |
//! | `strand` | a strand's longest path, and the merge of two |
//! | `event` | events and moments: time and place of what happens to a thread |
//! | `calibrate` | what operations cost on this machine |
//! | `tracker` | what all threads share: paths' memory, totals, ended strands |
//! | `thread` | the operations of a thread: copy, merge, begin, end |
//! | `remote` | strands on their way to and from other processes |
//! | `report` | the result, in the model of `hpc-formats` |
//! | [`table`] | all of it as functions for runtimes and programs |
//!
//! Each event takes constant time. Memory is bounded by [`Settings`]: what does not fit is folded into fewer
//! segments, and counted. Lengths stay exact.

mod calibrate;
mod clock;
mod event;
mod grain;
mod levels;
mod near;
mod path;
mod remote;
mod report;
mod sampled;
mod samples;
mod savings;
mod settings;
mod shares;
mod starts;
mod strand;
pub mod table;
mod thread;
mod tracker;

use std::sync::{Mutex, MutexGuard};

pub use clock::{Clock, ThreadClock};
pub use event::{Event, Moment, Trace};
pub use hpc_formats::critical_path::{Levels, Place, ProcedureName, Quality};
pub use path::{Edge, Segment, Site};
pub use remote::key_of;
pub use report::{ProcedureTimes, Report, to_json};
pub use sampled::{Context, Function, Sampler};
pub use samples::Samples;
pub use savings::Procedure;
pub use settings::Settings;
pub use strand::Strand;
pub use thread::Thread;
pub use tracker::{Lost, Tracker};

/// What panicked with the lock held was a test's assertion: our own code with these locks does not panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|error| error.into_inner())
}
