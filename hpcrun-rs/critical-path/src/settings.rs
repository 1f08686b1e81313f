//! How a program is tracked.
//!
//! One duty: the settings of a tracker, and what they are if nothing else is said.

use hpc_formats::critical_path::{DIVIDED, MESSAGE, SHORT, SPAWNS};

use crate::event::Trace;

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
