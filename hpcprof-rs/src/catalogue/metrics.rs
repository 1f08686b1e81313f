//! What nodes are compared by: effort, or a metric.

pub use crate::model::metrics::{FIXED, IDLENESS, OVERHEAD, WORK};

/// Work, idleness and overhead together.
pub fn effort(values: &[i64]) -> i64 {
    sum(values.iter().take(FIXED.len()).copied())
}

/// Work and overhead: the time that threads worked.
pub fn busy(values: &[i64]) -> i64 {
    values[WORK].saturating_add(values[OVERHEAD])
}

/// A sum that a forged database cannot make overflow.
pub fn sum(values: impl Iterator<Item = i64>) -> i64 {
    values.fold(0, i64::saturating_add)
}

/// What nodes are compared by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricSelector {
    /// Work, idleness and overhead together.
    Effort,
    /// One metric, by position.
    Metric(usize),
}

impl MetricSelector {
    /// Itself; effort where nothing was recorded for the metric, so that it orders nothing.
    pub fn or_effort(self, totals: &[i64]) -> MetricSelector {
        match self.of(totals) {
            0 => MetricSelector::Effort,
            _ => self,
        }
    }

    /// Its part of a node's values.
    pub fn of(self, values: &[i64]) -> i64 {
        match self {
            MetricSelector::Effort => effort(values),
            MetricSelector::Metric(index) => values.get(index).copied().unwrap_or(0),
        }
    }
}
