//! Paths: lists of segments that share their common beginnings.
//!
//! `block` has their memory, `arena` keeps the nodes and counts references to them, `list` extends and folds
//! lists. A node does not change while more than one reference leads to it, so nothing is locked and no
//! reader is disturbed.

mod arena;
mod block;
mod list;

pub(crate) use arena::{Arena, Local};
pub(crate) use list::List;

/// A place in the program: an address, or whatever number the caller resolves to a name after the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Site(pub u64);

/// How a segment begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Edge {
    /// The program's start, or a thread's whose creation was not seen.
    Start,
    /// The creation of the thread or task.
    Spawn,
    /// The end of a thread or task for which the segment's strand waited.
    Join,
    /// A value from a channel, or room in one.
    Channel,
    /// The release of a lock.
    Lock,
    /// A signalled condition.
    Condition,
    /// The last arrival at a barrier.
    Barrier,
    /// A wake-up, where the operation that caused it was not seen.
    Wake,
    /// A message from another process, or to an event handler.
    Message,
    /// Not an edge: stands for segments that were folded to bound the memory.
    Folded,
}

impl Edge {
    const ALL: [Edge; 10] = [
        Edge::Start,
        Edge::Spawn,
        Edge::Join,
        Edge::Channel,
        Edge::Lock,
        Edge::Condition,
        Edge::Barrier,
        Edge::Wake,
        Edge::Message,
        Edge::Folded,
    ];

    fn from_number(number: u32) -> Edge {
        Edge::ALL[number as usize]
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Edge::Start => "start",
            Edge::Spawn => "spawn",
            Edge::Join => "join",
            Edge::Channel => "channel",
            Edge::Lock => "lock",
            Edge::Condition => "condition",
            Edge::Barrier => "barrier",
            Edge::Wake => "wake",
            Edge::Message => "message",
            Edge::Folded => "folded",
        }
    }
}

/// A part of a path: activity of one strand between two events. Equal consecutive parts are one, with a
/// count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins.
    pub begin: Site,
    /// Where it ends.
    pub end: Site,
    /// The edge by which it begins.
    pub edge: Edge,
    /// The thread that ran it; `None` if several did.
    pub thread: Option<u32>,
    /// Its activity, in nanoseconds, of all `count` times together.
    pub time: u64,
    /// How often it occurs.
    pub count: u64,
}
