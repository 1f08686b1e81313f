//! Branches that are nearly as long as the path.
//!
//! One duty: remember, along a path, the largest branches that were not taken although hardly shorter. Curing
//! the path beside such a branch gains no more than the branch's slack.

use std::sync::Arc;

use crate::path::Site;
use crate::settings::Settings;

/// Branches that a path remembers.
const MOST: usize = 8;

/// A branch beside the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Near {
    /// Where its last segment begins.
    pub(crate) begin: Site,
    /// Where its last segment ends.
    pub(crate) end: Site,
    /// The thread of its last segment.
    pub(crate) thread: u32,
    /// Its length since it left the path, in nanoseconds: in a fork-join program since the fork, otherwise
    /// that of its last segment.
    pub(crate) time: u64,
    /// By how much it is shorter than the path, in nanoseconds.
    pub(crate) slack: u64,
    /// The path's length where the branch left it.
    pub(crate) since: u64,
}

/// The branches beside a path, the largest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct NearPaths(Option<Arc<[Near]>>);

impl NearPaths {
    pub(crate) fn branches(&self) -> &[Near] {
        self.0.as_deref().unwrap_or(&[])
    }

    /// Whether the branch would be remembered: there is room, or it is longer than another one. A branch that
    /// is met again, a little longer each time, is remembered once it is twice as long.
    pub(crate) fn wants(&self, branch: &Near) -> bool {
        let branches = self.branches();
        match branches.iter().find(|known| known.is_same(branch)) {
            Some(known) => branch.time / 2 >= known.time,
            None => branches.len() < MOST || branches[MOST - 1].time < branch.time,
        }
    }

    /// Adds `branch` and the branches beside it, `beside`, of which only those that left it later than it
    /// left the path are new. A branch's slack is at most `fraction` of its length.
    #[cold]
    pub(crate) fn add(&mut self, branch: Near, beside: &NearPaths, fraction: f64) {
        let later = beside.branches().iter().filter(|b| b.since >= branch.since);
        let later = later.map(|b| Near { slack: b.slack + branch.slack, ..*b });
        let new = core::iter::once(branch).chain(later);
        let new: Vec<Near> = new.filter(|b| is_near(b.slack, b.time, fraction)).collect();
        let known = self.branches().iter().copied();
        let mut all: Vec<Near> = known.filter(|known| !new.iter().any(|new| new.is_same(known))).collect();
        all.extend(new);
        all.sort_by(|a, b| b.time.cmp(&a.time).then(a.slack.cmp(&b.slack)));
        all.truncate(MOST);
        self.0 = Some(all.into());
    }
}

impl Near {
    /// Whether the branch is to be remembered.
    #[inline]
    pub(crate) fn is_near(&self, settings: &Settings) -> bool {
        self.time >= settings.near_least && is_near(self.slack, self.time, settings.near)
    }

    /// Whether both are the same branch, seen at two times.
    fn is_same(&self, other: &Near) -> bool {
        self.begin == other.begin && self.since == other.since
    }
}

/// Whether a branch of this length, with this slack, is nearly critical.
fn is_near(slack: u64, time: u64, fraction: f64) -> bool {
    slack as f64 <= fraction * (time + slack) as f64
}
