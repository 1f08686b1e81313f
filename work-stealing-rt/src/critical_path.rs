//! The critical path of a program on this runtime, online, under a profiler that tracks it
//! (`hpcrun-rs --critical-path`).
//!
//! The profiler then follows every task, whoever runs it, and tells the longest chain of activity (the span),
//! which tasks it consists of, and what the program would gain if a procedure that is marked by [`procedure`]
//! took no time. Activity is CPU time, so preemption, waits and stealing are no part of it; the result hardly
//! depends on the number of workers. Without such a profiler the functions here do nothing.
//!
//! ```
//! use work_stealing_rt::{critical_path, join};
//!
//! fn count(name: &'static str, to: u64) -> u64 {
//!     critical_path::procedure(name, || (0..to).fold(0, |a, b| std::hint::black_box(a ^ b)))
//! }
//! critical_path::start();
//! join(|| count("short", 100_000), || count("long", 400_000));
//! if let Some(json) = critical_path::stop() {
//!     println!("{json}");
//! }
//! ```
//!
//! Costs, while it is on: about 0.1 µs a join. The second half of a join then runs through a further
//! function, so stacks are deeper; [`par_for`](crate::par_for()) splits down to its blocks. Off, the code of
//! a join is the same as without this module.
//!
//! Limits: only strands that end before [`stop`], or that the calling thread has waited for, are part of its
//! report.

use core::panic::Location;

use crate::pool::life::tracking_changed;
use crate::profiler;
use crate::track::{self, path};

/// Forgets what was tracked, and tracks from now on, in the whole process. The calling thread's path begins
/// here.
#[track_caller]
pub fn start() {
    profiler::attach(tracking_changed);
    path::start(Location::caller());
}

/// Stops the tracking, and returns its report. The calling thread's path ends here.
#[track_caller]
pub fn stop() -> Option<String> {
    let report = report();
    path::stop();
    report
}

/// The report up to now, as the JSON of `hpcprof-rs critical-path`; of the last tracking, if none is active.
/// `None` without a profiler that tracks. While the tracking is active, the calling thread's path ends here,
/// for this report. Other threads are asked to tell theirs at their next event, for the next report: so a
/// program that never ends can be watched.
#[track_caller]
pub fn report() -> Option<String> {
    if track::is_active() {
        path::publish(track::at(Location::caller()));
    }
    path::report()
}

/// Calls the closure as the procedure of that name: the report has its time, its share of the path, and the
/// span without it. Tasks that the closure forks or spawns belong to the procedure too; a procedure inside
/// of another one counts for itself alone.
///
/// A panic of the closure passes through.
#[inline]
pub fn procedure<R>(name: &'static str, closure: impl FnOnce() -> R) -> R {
    let _left_at_the_end = track::procedure::enter(name);
    closure()
}
