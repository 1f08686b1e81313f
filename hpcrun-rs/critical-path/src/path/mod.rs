//! Paths: lists of segments that share their common beginnings.
//!
//! `arena` keeps the nodes and counts references to them, `list` extends and folds lists. A node does not
//! change while more than one reference leads to it, so nothing is locked and no reader is disturbed.

mod arena;
mod list;

pub use hpc_formats::critical_path::Edge;
use hpcrun_abi as abi;

pub(crate) use arena::{Arena, Local};
pub(crate) use list::{List, Tree};

/// A place in the program: an address, or whatever number the caller resolves to a name after the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Site(pub u64);

/// A part of a path.
pub type Segment = hpc_formats::critical_path::Segment<Site>;

/// What stands for the chain, of this length, up to an export of another process.
pub(crate) fn remote((begin, time): (Site, u64)) -> Segment {
    Segment { begin, end: Site(0), edge: Edge::Message, rank: None, thread: None, time, count: 1 }
}

// The numbers of edges are those that programs report.
const _: () = assert!(
    Edge::Join as u32 == abi::EDGE_JOIN
        && Edge::Channel as u32 == abi::EDGE_CHANNEL
        && Edge::Lock as u32 == abi::EDGE_LOCK
        && Edge::Condition as u32 == abi::EDGE_CONDITION
        && Edge::Barrier as u32 == abi::EDGE_BARRIER
        && Edge::Wake as u32 == abi::EDGE_WAKE
        && Edge::Message as u32 == abi::EDGE_MESSAGE
);
