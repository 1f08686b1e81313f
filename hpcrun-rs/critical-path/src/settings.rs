//! How a program is tracked.
//!
//! One duty: the settings of a tracker, what they are if nothing else is said, and the points of time that a
//! tracker is told and tells.

use hpc_formats::critical_path::{DIVIDED, Edge, MESSAGE, SHORT, SPAWNS};

use crate::path::Site;

/// How a program is tracked.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Settings {
    /// Segments of all paths together, 64 bytes each; memory is taken as needed.
    pub nodes: usize,
    /// Segments that a path keeps at most; the oldest half is folded beyond. At least 16.
    pub segments: u32,
    /// Cost of a spawn (the paper's sigma) in nanoseconds; part of the burdened span.
    pub spawn_cost: u64,
    /// Cost of any other edge (the paper's kappa) in nanoseconds; part of the burdened span.
    pub message_cost: u64,
    /// The edges' costs are a part of every chain, so of the span, and take part in the choice of the path.
    pub edges: bool,
    /// What an operation takes, in nanoseconds, that is no activity of the program.
    pub operation_cost: u64,
    /// A fork of less activity than this, in nanoseconds, is followed without the forks inside of its halves,
    /// which count as serial. 0: every fork is followed.
    pub grain: u64,
    /// Parts of the ideal execution that are shorter than so many nanoseconds count as one; a predicted time
    /// follows from how much work there is in each of them.
    pub level: u64,
    /// Nanoseconds of activity between a thread's samples.
    pub sample_period: u64,
    /// Activity between two events that is longer than so many nanoseconds is divided among functions, by
    /// samples, on its own; shorter activity together with more, since dividing takes a microsecond.
    pub share: u64,
    /// A branch is nearly critical if its slack is at most this fraction of the path beside it.
    pub near: f64,
    /// Branches shorter than this many nanoseconds are not remembered, and activity that is as short starts
    /// nothing by itself.
    pub near_least: u64,
    /// The span is also known if any one procedure takes less time: what is saved of it, in ten thousandths.
    /// 0: it is not asked for.
    pub faster: u32,
    /// Who is told when strands go on after others.
    pub trace: Option<Trace>,
}

/// A point of a thread's time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moment {
    /// Nanoseconds, by any clock that all threads have.
    pub time: u64,
    /// The thread, by any number but 0; 0: none.
    pub thread: u32,
}

/// What happens to a thread: when, by its clock, and where. Made of a place alone, it happens when it is
/// told.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// Activity is counted up to then.
    pub(crate) time: Option<u64>,
    /// Where.
    pub place: Site,
}

impl From<Site> for Event {
    fn from(place: Site) -> Event {
        Event { time: None, place }
    }
}

/// Keeps, for the calling thread, when strands go on after others.
#[derive(Debug, Clone, Copy)]
pub struct Trace {
    /// The moment.
    pub now: fn() -> Moment,
    /// The strand has waited for that moment of another one; and it goes on after it, if the other is longer.
    pub follow: fn(Moment, Edge, bool),
    /// The same of another process's strand: its rank, and the number of its export.
    pub receive: fn(u32, u32, bool),
    /// The strand goes to other processes, as the export of this number.
    pub send: fn(u32),
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            nodes: 1 << 19,
            segments: 1 << 13,
            spawn_cost: SPAWNS * MESSAGE,
            message_cost: MESSAGE,
            edges: false,
            operation_cost: 0,
            grain: 0,
            level: 4096,
            sample_period: 0,
            share: DIVIDED,
            near: 0.05,
            near_least: SHORT,
            faster: 0,
            trace: None,
        }
    }
}
