//! Branches that are nearly as long as the path.
//!
//! One duty: remember, along a path, the largest branches that were not taken although hardly shorter. Curing
//! the path beside such a branch gains no more than the branch's slack.

use std::cmp::Reverse;
use std::sync::Arc;

use hpc_formats::critical_path::Near;

use crate::path::Site;
use crate::settings::Settings;

/// Branches that a path remembers.
const MOST: usize = 8;

/// A branch beside the path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Branch {
    pub(crate) near: Near<Site>,
    /// The path's length where the branch left it.
    pub(crate) since: u64,
}

/// The branches beside a path, the largest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct NearPaths(Option<Arc<[Branch]>>);

impl NearPaths {
    pub(crate) fn branches(&self) -> &[Branch] {
        self.0.as_deref().unwrap_or(&[])
    }

    /// Whether the branch would be remembered: there is room, or it is longer than another one. A branch that
    /// is met again, a little longer each time, is remembered once it is twice as long.
    pub(crate) fn wants(&self, branch: &Branch) -> bool {
        let branches = self.branches();
        match branches.iter().find(|known| known.is_same(branch)) {
            Some(known) => branch.near.time / 2 >= known.near.time,
            None => branches.len() < MOST || branches[MOST - 1].near.time < branch.near.time,
        }
    }

    /// Adds `branch` and the branches beside it, `beside`, of which only those that left it later than it
    /// left the path are new. A branch's slack is at most `fraction` of its length.
    #[cold]
    pub(crate) fn add(&mut self, branch: Branch, beside: &NearPaths, fraction: f64) {
        let later = beside.branches().iter().filter(|b| b.since >= branch.since);
        let slack = branch.near.slack;
        let later = later.map(|b| Branch { near: Near { slack: b.near.slack + slack, ..b.near }, ..*b });
        let new = core::iter::once(branch).chain(later);
        let new: Vec<Branch> = new.filter(|b| is_near(&b.near, fraction)).collect();
        let known = self.branches().iter().copied();
        let mut all: Vec<Branch> = known.filter(|known| !new.iter().any(|new| new.is_same(known))).collect();
        all.extend(new);
        all.sort_by_key(|b| (Reverse(b.near.time), b.near.slack));
        all.truncate(MOST);
        self.0 = Some(all.into());
    }
}

impl Branch {
    /// Whether the branch is to be remembered.
    #[inline]
    pub(crate) fn is_near(&self, settings: &Settings) -> bool {
        self.near.time >= settings.near_least && is_near(&self.near, settings.near)
    }

    /// Whether both are the same branch, seen at two times.
    fn is_same(&self, other: &Branch) -> bool {
        self.near.begin == other.near.begin && self.since == other.since
    }
}

/// Whether a branch of this length, with this slack, is nearly critical.
fn is_near(branch: &Near<Site>, fraction: f64) -> bool {
    branch.slack as f64 <= fraction * (branch.time + branch.slack) as f64
}
