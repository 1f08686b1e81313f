//! Metrics, and what nodes are compared by: effort, or a metric.

use crate::catalogue::sql::{inconsistent, rows};
use crate::model::metrics::Metric;
use hpc_formats::profile::{Aggregation, Unit};
use rusqlite::{Connection, Result};

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

/// Reads the metrics of a database.
pub(super) fn read(connection: &Connection) -> Result<Vec<Metric>> {
    let sql = "SELECT id, name, unit, aggregation, part_of, description FROM metric ORDER BY id";
    rows(connection, sql, 0, |row| {
        let (unit, aggregation): (String, String) = (row.get(2)?, row.get(3)?);
        let part_of: Option<i64> = row.get(4)?;
        Ok(Metric {
            name: row.get(1)?,
            unit: Unit::from_name(&unit).ok_or_else(|| inconsistent("metric.unit"))?,
            aggregation: Aggregation::from_name(&aggregation)
                .ok_or_else(|| inconsistent("metric.aggregation"))?,
            part_of: part_of.and_then(|p| usize::try_from(p).ok()),
            description: row.get(5)?,
        })
    })
}
