//! What a tracker is told of, and tells: events and moments.

use hpc_formats::critical_path::Edge;

use crate::path::Site;

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
