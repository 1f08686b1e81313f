//! What nodes are compared by: effort, a metric, or an expression of them.

use crate::metrics::expression::Expression;
use crate::metrics::unit::Unit;

pub use crate::model::metrics::{FIXED, IDLENESS, OVERHEAD, WORK};

/// Name of work, idleness and overhead together.
pub const EFFORT: &str = "effort";

/// What a metric of a database is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetricInfo {
    /// Unit of its values.
    pub unit: Unit,
    /// One sentence.
    pub description: String,
}

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
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum MetricSelector<'a> {
    /// Work, idleness and overhead together.
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

    /// The expression, if it is one.
    pub fn derived(self) -> Option<&'a Expression> {
        match self {
            MetricSelector::Derived(expression) => Some(expression),
            MetricSelector::Effort | MetricSelector::Metric(_) => None,
        }
    }

    /// Whether the values of contexts add up to that of all of them.
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
