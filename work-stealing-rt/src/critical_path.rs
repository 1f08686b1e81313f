//! The critical path of a program on this runtime, online.
//!
//! From [`start`] to [`stop`] every task is followed, whoever runs it: [`report`] tells the longest chain of
//! activity (the span), which tasks it consists of, and what the program would gain if a procedure that is
//! marked by [`procedure`] took no time. Activity is CPU time, so preemption, waits and stealing are no part
//! of it; the result hardly depends on the number of workers.
//!
//! ```
//! use work_stealing_rt::{ThreadPoolBuilder, critical_path, join};
//!
//! fn count(name: &'static str, to: u64) -> u64 {
//!     critical_path::procedure(name, || (0..to).fold(0, |a, b| std::hint::black_box(a ^ b)))
//! }
//! let pool = ThreadPoolBuilder::new().num_threads(1).build()?;
//! critical_path::start();
//! pool.install(|| join(|| count("short", 100_000), || count("long", 400_000)));
//! let report = critical_path::stop();
//! assert!(report.span < report.work);
//! assert_eq!(report.procedures[0].name, "long");
//! # Ok::<(), work_stealing_rt::ThreadPoolBuildError>(())
//! ```
//!
//! Costs, while it is on: about 0.1 µs a join. The second half of a join then runs through a further
//! function, so stacks are deeper; [`par_for`](crate::par_for()) splits down to its blocks. Off, the code of
//! a join is the same as without this module.
//!
//! Limits: what tasks exchange by locks, channels or atomics is not followed. Only strands that end before
//! [`stop`], or that the calling thread has waited for, are part of the report.

use core::panic::Location;

pub use critical_path::{
    Edge, Near, Place, Prediction, ProcedureTimes, Quality, Report, Segment, Site,
};

use crate::pool;
use crate::track;

/// Starts a new tracking in all pools of the process. The calling thread's path begins here.
#[track_caller]
pub fn start() {
    track::tracker().restart();
    track::set_active(true);
    pool::raise_attention();
    track::begin_here(Location::caller());
}

/// Stops the tracking, and returns its report. The calling thread's path ends here.
#[track_caller]
pub fn stop() -> Report {
    let report = report();
    track::set_active(false);
    report
}

/// The report up to now; of the last tracking, if none is active. While one is, the calling thread's path
/// ends here, for this report. Other threads are asked to tell theirs at their next fork, join or task, for
/// the next report: so a program that never ends can be watched.
#[track_caller]
pub fn report() -> Report {
    if track::is_active() {
        track::publish(Location::caller());
        track::tracker().ask();
    }
    track::tracker().report()
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

/// The place of a site, as far as the program knows it without its debug information: file and line of a
/// spawn, an installation or a report; of a join, its address as a name.
pub fn place(site: Site) -> Place {
    let mut place = Place::default();
    if let Some(location) = track::location(site) {
        location.file().clone_into(&mut place.file);
        place.line = location.line();
    } else if site.0 != 0 {
        place.name = format!("{:#x}", site.0);
    }
    place
}
