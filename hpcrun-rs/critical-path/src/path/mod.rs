//! Paths: lists of segments that share their common beginnings.
//!
//! `arena` keeps the nodes and counts references to them, `list` extends and folds lists. A node does not
//! change while more than one reference leads to it, so nothing is locked and no reader is disturbed.

mod arena;
mod list;

use hpcrun_abi as abi;

pub(crate) use arena::{Arena, Local};
pub(crate) use list::{List, Tree};

/// A place in the program: an address, or whatever number the caller resolves to a name after the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Site(pub u64);

/// How a segment begins. The numbers are those of `hpcrun-abi`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Edge {
    /// The program's start, or a thread's whose creation was not seen.
    Start = 0,
    /// The creation of the thread or task.
    Spawn = 1,
    /// The end of a thread or task for which the segment's strand waited.
    Join = abi::EDGE_JOIN,
    /// A value from a channel, or room in one.
    Channel = abi::EDGE_CHANNEL,
    /// The release of a lock.
    Lock = abi::EDGE_LOCK,
    /// A signalled condition.
    Condition = abi::EDGE_CONDITION,
    /// The last arrival at a barrier.
    Barrier = abi::EDGE_BARRIER,
    /// A wake-up, where the operation that caused it was not seen.
    Wake = abi::EDGE_WAKE,
    /// A message from another process, or to an event handler.
    Message = abi::EDGE_MESSAGE,
    /// Not an edge: stands for segments that were folded to bound the memory.
    Folded = 9,
}

impl Edge {
    /// By number.
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

    /// `Edge::… as u32`; `None` for another number.
    pub(crate) fn from_number(number: u32) -> Option<Edge> {
        Edge::ALL.get(number as usize).copied()
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
