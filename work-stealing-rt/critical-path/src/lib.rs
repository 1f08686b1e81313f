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
//! ```
//! use critical_path::{Settings, Site, Thread, ThreadClock, Tracker};
//!
//! let tracker = Tracker::new(Settings::default());
//! let mut main = Thread::new(&tracker, ThreadClock::new(), Site(1));
//! let forked = main.fork(Site(2));
//! let ended = std::thread::scope(|scope| {
//!     let task = || {
//!         let mut thread = Thread::spawned(&tracker, ThreadClock::new(), forked, Site(3));
//!         std::hint::black_box((0..1000).sum::<u64>());
//!         thread.end_of_thread(Site(4))
//!     };
//!     scope.spawn(task).join().expect("it does not panic")
//! });
//! main.join(ended, Site(5));
//! main.publish(Site(6));
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
//! | `procedures` | time on the path, and saved by zeroing, for each procedure |
//! | `near` | branches that are nearly as long as the path |
//! | `samples` | samples on their way from a signal handler |
//! | `strand` | a strand's longest path, and the merge of two |
//! | `calibrate` | what edges cost on this machine |
//! | `tracker` | what all threads share: paths' memory, totals, ended strands |
//! | `thread` | the operations of a thread: spawn, begin, end, join, send, receive, acquire, release |
//! | `channel` | channels, also bounded ones |
//! | `report`, `json` | the result, as data and as text |
//!
//! Each event takes constant time. Memory is bounded by [`Settings`]: what does not fit is folded into fewer
//! segments, and counted. Lengths stay exact.

mod calibrate;
mod channel;
mod clock;
mod json;
mod near;
mod path;
mod procedures;
mod report;
mod samples;
mod strand;
mod thread;
mod tracker;

pub use channel::Channel;
pub use clock::{Clock, ThreadClock, Timer};
pub use json::Place;
pub use near::Near;
pub use path::{Edge, Segment, Site};
pub use procedures::Procedure;
pub use report::{Prediction, ProcedureTimes, Quality, Report};
pub use samples::Samples;
pub use thread::{Ended, Forked, Message, Object, Paused, Thread};
pub use tracker::{Lost, Settings, Tracker};
