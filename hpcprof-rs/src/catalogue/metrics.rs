//! Metrics, and what nodes are compared by: effort, a metric, or an expression of them.

use crate::catalogue::sql::{inconsistent, rows};
use crate::error::Error;
use crate::metrics::expression::Expression;
use crate::model::errors::{Errors, Sampled};
use crate::model::metrics::Metric;
use hpc_formats::profile::{Aggregation, Unit};
use rusqlite::{Connection, Result};

pub use crate::model::metrics::{FIXED, IDLENESS, OVERHEAD, WORK};
pub use crate::model::statistics::sum;

pub const EFFORT: &str = "effort";

/// Work, idleness and overhead together.
pub fn effort(values: &[i64]) -> i64 {
    sum(values.iter().take(FIXED.len()).copied())
}

/// Work and overhead: the time that threads worked.
pub fn busy(values: &[i64]) -> i64 {
    values[WORK].saturating_add(values[OVERHEAD])
}

/// What nodes are compared by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum MetricSelector<'a> {
    Effort,
    /// One metric, by position.
    Metric(usize),
    /// An expression whose variables are effort and then all metrics.
    Derived(&'a Expression),
}

impl<'a> From<&'a Expression> for MetricSelector<'a> {
    fn from(expression: &'a Expression) -> Self {
        match expression.variable() {
            Some(0) => MetricSelector::Effort,
            Some(variable) => MetricSelector::Metric(variable - 1),
            None => MetricSelector::Derived(expression),
        }
    }
}

impl<'a> MetricSelector<'a> {
    /// Itself; effort where nothing was recorded for the metric or where it does not add up, so that no share
    /// of it can be told.
    pub fn or_effort(self, totals: &[i64]) -> MetricSelector<'a> {
        match self.value(totals) {
            Some(total) if total != 0.0 && self.adds_up() => self,
            _ => MetricSelector::Effort,
        }
    }

    pub fn derived(self) -> Option<&'a Expression> {
        match self {
            MetricSelector::Derived(expression) => Some(expression),
            MetricSelector::Effort | MetricSelector::Metric(_) => None,
        }
    }

    /// Whether it is an amount that is kept: it adds up, and no part of it is negative.
    pub fn is_amount(self) -> bool {
        self.derived().is_none_or(|expression| expression.variable().is_some())
    }

    pub fn adds_up(self) -> bool {
        self.derived().is_none_or(Expression::adds_up)
    }

    /// Its value for the values of a node: a stored amount, or in an expression's unit. `None` where it is
    /// undefined.
    pub fn value(self, values: &[i64]) -> Option<f64> {
        match self {
            MetricSelector::Derived(expression) => expression.value(|variable| match variable {
                0 => effort(values),
                metric => values.get(metric - 1).copied().unwrap_or(0),
            }),
            MetricSelector::Effort | MetricSelector::Metric(_) => Some(self.of(values) as f64),
        }
    }

    /// Its value for the values of a node, with the standard error; `None` if it is measured or does not add
    /// up.
    pub fn sampled(self, errors: Errors<'_>, values: &[i64]) -> Option<Sampled> {
        match self {
            MetricSelector::Effort => Some(errors.of_effort(values)),
            MetricSelector::Metric(metric) => errors.of(metric, values),
            MetricSelector::Derived(expression) if expression.adds_up() => {
                let amount = self.value(values)?;
                let mut sum = Sampled { amount, error: 0.0, shared: 0.0 };
                // The errors of the parts add up, at most.
                for metric in 0..values.len() {
                    let mut one = vec![0; values.len()];
                    one[metric] = 1_000_000_000;
                    let factor = self.value(&one)? / 1e9;
                    if let Some(part) = errors.of(metric, values).filter(|_| factor != 0.0) {
                        sum.error += factor.abs() * part.error;
                        sum.shared += factor * part.shared;
                    }
                }
                Some(sum).filter(|sum| sum.error > 0.0)
            }
            MetricSelector::Derived(_) => None,
        }
    }

    /// Refuses what stacks cannot show: their parts are not negative and add up to the whole. `own` has the
    /// values of all contexts without those that they call.
    pub fn check_stackable<'v>(self, own: impl IntoIterator<Item = &'v [i64]>) -> crate::error::Result<()> {
        let Some(expression) = self.derived() else {
            return Ok(());
        };
        let is_negative = |values| self.value(values).is_some_and(|value| value < 0.0);
        let problem = if !self.adds_up() {
            "does not add up"
        } else if own.into_iter().any(is_negative) {
            "is negative in some contexts"
        } else {
            return Ok(());
        };
        Err(Error::Usage(format!(
            "`{}` {problem}, so stacks cannot show it: give another --metric or --format",
            expression.text()
        )))
    }

    /// The whole amount, as amounts are stored; 0 where it is undefined.
    pub fn of(self, values: &[i64]) -> i64 {
        match self {
            MetricSelector::Effort => effort(values),
            MetricSelector::Metric(index) => values.get(index).copied().unwrap_or(0),
            MetricSelector::Derived(expression) => {
                let value = self.value(values).unwrap_or(0.0);
                (value * expression.unit().stored()).round() as i64
            }
        }
    }
}

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
