//! Whether a condition holds: what both sides are, how far their difference errs, and which figures cannot
//! carry an answer.

use crate::advice::quality;
use crate::catalogue::Catalogue;
use crate::checks::condition::{BASELINE, Condition};
use crate::checks::figures::Figures;
use crate::error::{Error, Result};
use crate::metrics::unit::Unit;
use crate::views::diff::{chance_of, diff};

/// How often chance alone makes a condition fail whose sides are equal.
pub const CHANCE: f64 = 0.001;
/// An interval that is wider, as a share of the limit on each side, tells too little.
const PRECISION: f64 = 0.25;
/// The same for shares of a whole.
const SHARE_PRECISION: f64 = 0.05;
/// What both databases have from this percentage of the effort on tells how the machine's speed changed.
const COMPARED_PERCENT: f64 = 1.0;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Outcome {
    /// It holds, or what it misses by may be chance.
    Holds,
    /// The figures cannot carry an answer.
    Withheld,
    /// It does not hold, beyond chance.
    Fails,
}

impl Outcome {
    /// Its name, and the exit status of a check whose worst it is.
    pub fn told(self) -> (&'static str, u8) {
        match self {
            Outcome::Holds => ("holds", 0),
            Outcome::Fails => ("fails", 1),
            Outcome::Withheld => ("withheld", 2),
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    pub condition: String,
    pub outcome: Outcome,
    pub unit: Unit,
    /// The left side; `None` if it is undefined.
    pub value: Option<f64>,
    /// The right side.
    pub limit: Option<f64>,
    /// How far the difference of both may be off: the half of its interval.
    pub interval: f64,
    /// Why it is withheld.
    pub why: Option<String>,
}

/// Answers a condition about a database, beside another one if it names that.
pub fn answer(text: &str, database: &Catalogue, baseline: Option<&Catalogue>) -> Result<Answer> {
    let condition = Condition::parse(text, database)?;
    let baseline = match (condition.has_baseline(), baseline) {
        (false, _) => None,
        (true, Some(baseline)) => Some(baseline),
        (true, None) => {
            let problem = format!("`{text}` needs another database: give --{BASELINE} DATABASE");
            return Err(Error::Usage(problem));
        }
    };
    let mut own = Figures::read(&condition, database, baseline)?;
    let mut other = baseline.map(|of| Figures::read(&condition, of, Some(database))).transpose()?;
    if let Some((baseline, other)) = baseline.zip(other.as_mut()) {
        let known = diff([baseline, database], COMPARED_PERCENT)?.variation;
        (own.variation, other.variation) = (known.unwrap_or(0.0), known.unwrap_or(0.0));
    }
    let stored = condition.left.unit().stored();
    let left = |values: &[f64]| condition.left.value_of(|at| values[at]);
    let right = |values: &[f64], baseline: f64| {
        let is_baseline = |at: usize| condition.quantities[at].name == BASELINE;
        let of = |at: usize| if is_baseline(at) { baseline * stored } else { values[at] };
        condition.right.value_of(of)
    };
    // How far the condition is missed.
    let excess = |own: &[f64], other: Option<&[f64]>| {
        let baseline = other.map_or(Some(0.0), left);
        let (value, limit) = left(own).zip(right(own, baseline?))?;
        Some(if condition.is_upper_limit { value - limit } else { limit - value })
    };
    let others = other.as_ref().map(|of| of.means.as_slice());
    let value = left(&own.means);
    let limit = others.map_or(Some(0.0), left).and_then(|baseline| right(&own.means, baseline));
    let number = |value: Option<f64>| value.unwrap_or(0.0);
    let mut variances = vec![own.variance(|values| number(excess(values, others)))];
    if let Some(other) = &other {
        variances.push(other.variance(|values| number(excess(&own.means, Some(values)))));
    }
    let variance: f64 = variances.iter().map(|of| of.all).sum();
    let by_freedom: f64 = variances.iter().map(|of| of.by_freedom).sum();
    let interval = variance.sqrt() * most_by_chance(variance.powi(2) / by_freedom);
    let precision = limit.map_or(0.0, |limit| match limit.abs() {
        share if share < 1.0 && condition.left.unit() == Unit::RATIO => {
            (share * PRECISION).min(SHARE_PRECISION)
        }
        limit => limit * PRECISION,
    });
    let missed = excess(&own.means, others);
    let doubts = || [Some(database), baseline].into_iter().flatten();
    let lack = doubts().find_map(|of| quality::lack(&of.statistics));
    // Others make a program slower, and threads wait for one that has no core: never the other way.
    let busy = |of: &Catalogue| quality::others_had_cores(&of.statistics);
    let (outcome, why) = match missed {
        _ if lack.is_some() => (Outcome::Withheld, lack),
        None => (Outcome::Withheld, Some("it divides by zero".to_owned())),
        Some(missed) if missed > interval => match doubts().find_map(busy) {
            None => (Outcome::Fails, None),
            doubt => (Outcome::Withheld, doubt),
        },
        Some(_) if baseline.is_some_and(|of| busy(of).is_some()) => {
            (Outcome::Withheld, baseline.and_then(busy))
        }
        Some(missed) if missed + interval > 0.0 && interval > precision => {
            let problem = "too few samples for this limit: measure longer, more runs, or at a higher rate";
            (Outcome::Withheld, Some(problem.to_owned()))
        }
        Some(_) => (Outcome::Holds, None),
    };
    let unit = condition.left.unit();
    Ok(Answer { condition: condition.text, outcome, unit, value, limit, interval, why })
}

/// The number of standard errors that chance exceeds, on one side, as seldom as [`CHANCE`] says.
fn most_by_chance(freedom: f64) -> f64 {
    let (mut least, mut most) = (0.0, 1e4);
    for _ in 0..60 {
        let middle = (least + most) / 2.0;
        match chance_of(middle, freedom) > 2.0 * CHANCE {
            true => least = middle,
            false => most = middle,
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_errors_are_those_of_the_tables() {
        assert!((most_by_chance(f64::INFINITY) - 3.09).abs() < 0.01);
        assert!((most_by_chance(10.0) - 4.14).abs() < 0.1);
    }
}
