//! What a database says of the quantities of a condition, and how far a function of them errs.
//!
//! It errs by sampling, by what runs differ by, and, of a single run, by what diff takes such runs to differ
//! by: all times alike, so quotients do not.

use crate::catalogue::Catalogue;
use crate::catalogue::keyed::Ranges;
use crate::catalogue::metrics::{EFFORT, FIXED, effort};
use crate::checks::condition::{Condition, WHOLE};
use crate::error::{Error, Result};
use crate::views::diff::VARIATION;

/// The contexts that a quantity counts in, and where it is found there.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Part {
    /// Known for the whole run.
    Fixed,
    /// Work, idleness and overhead together.
    Effort(usize),
    /// A metric by position.
    Metric(usize, usize),
}

/// What a database says of quantities.
#[derive(Clone, Debug)]
pub struct Figures<'a> {
    pub catalogue: &'a Catalogue,
    /// Values in a run, in stored units.
    pub means: Vec<f64>,
    /// By how much a single run is taken to differ from the next.
    pub variation: f64,
    parts: Vec<Part>,
    /// All runs' values by set of contexts.
    sums: Vec<Vec<i64>>,
    /// Values of each run, if there are several.
    by_run: Vec<Vec<f64>>,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Variance {
    pub all: f64,
    /// The square of the part that is known from few runs, by the degrees of freedom of that.
    pub by_freedom: f64,
}

impl<'a> Figures<'a> {
    /// Reads what a condition needs. Procedures that the database lacks have no time.
    ///
    /// # Errors
    ///
    /// A procedure is in neither database, or the name may be one of several.
    pub fn read(
        condition: &Condition,
        catalogue: &'a Catalogue,
        other: Option<&Catalogue>,
    ) -> Result<Figures<'a>> {
        let runs = catalogue.statistics.runs.max(1);
        let mut sets: Vec<Ranges> = vec![vec![(1, i64::MAX)]];
        let mut sums = vec![catalogue.totals()?];
        let (mut parts, mut means) = (Vec::new(), Vec::new());
        for (at, quantity) in condition.quantities.iter().enumerate() {
            let metric = catalogue.metrics.iter().position(|m| m.name == quantity.name);
            let mut set = 0;
            if let Some(procedure) = &quantity.procedure {
                let found = match (catalogue.find_contexts(procedure), other) {
                    (Err(_), Some(other)) if other.find_contexts(procedure).is_ok() => Ranges::new(),
                    (found, _) => found?.ranges,
                };
                set = sets.len();
                sums.push(catalogue.inclusive_in(&found)?);
                sets.push(found);
            }
            let (part, value) = match (quantity.name.as_str(), metric) {
                _ if !condition.uses(at) => (Part::Fixed, 0.0),
                (EFFORT, _) => (Part::Effort(set), effort(&sums[set]) as f64),
                (_, Some(metric)) => (Part::Metric(set, metric), sums[set][metric] as f64),
                (name, None) if name == WHOLE[0] => (Part::Fixed, span(catalogue)? * runs as f64),
                (name, None) if name == WHOLE[1] => (Part::Fixed, catalogue.statistics.wall_ns as f64),
                // A category of overhead that does not occur.
                (_, None) => (Part::Fixed, 0.0),
            };
            parts.push(part);
            means.push(value / runs as f64);
        }
        let mut by_run = Vec::new();
        if runs > 1 {
            for run in catalogue.by_run(&sets)? {
                let of = |(part, mean): (&Part, &f64)| match *part {
                    Part::Effort(set) => effort(&run[set]) as f64,
                    Part::Metric(set, metric) if metric < FIXED.len() => run[set][metric] as f64,
                    _ => *mean,
                };
                by_run.push(parts.iter().zip(&means).map(of).collect());
            }
        }
        Ok(Figures { catalogue, means, variation: VARIATION.0, parts, sums, by_run })
    }

    /// The variance of a function of the values, which follows from its slopes.
    pub fn variance(&self, of: impl Fn(&[f64]) -> f64) -> Variance {
        let runs = self.catalogue.statistics.runs.max(1) as f64;
        let slopes: Vec<f64> = (0..self.means.len()).map(|at| self.slope(at, &of)).collect();
        let errors = self.catalogue.errors();
        // Contexts lie in one another: their errors add up, at most.
        let mut error = 0.0;
        for (set, values) in self.sums.iter().enumerate() {
            let mut weights = [0.0; FIXED.len()];
            for (part, slope) in self.parts.iter().zip(&slopes) {
                match *part {
                    Part::Effort(own) if own == set => weights.iter_mut().for_each(|w| *w += slope),
                    Part::Metric(own, metric) if own == set => match weights.get_mut(metric) {
                        Some(weight) => *weight += slope,
                        None => {
                            let known = errors.of(metric, values).map_or(0.0, |of| of.error);
                            error += (slope * known).abs();
                        }
                    },
                    _ => {}
                }
            }
            error += errors.of_weighted(weights, values);
        }
        let mut all = (error / runs).powi(2);
        if let [_, _, ..] = self.by_run[..] {
            let values: Vec<f64> = self.by_run.iter().map(|run| of(run)).collect();
            let mean = values.iter().sum::<f64>() / runs;
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            let by_runs = squares / (runs - 1.0) / runs;
            if by_runs > all {
                return Variance { all: by_runs, by_freedom: by_runs.powi(2) / (runs - 1.0) };
            }
        } else {
            let alike: f64 = slopes.iter().zip(&self.means).map(|(slope, mean)| slope * mean).sum();
            all += (alike * self.variation).powi(2);
        }
        Variance { all, by_freedom: 0.0 }
    }

    /// How fast a function changes with a value.
    fn slope(&self, at: usize, of: &impl Fn(&[f64]) -> f64) -> f64 {
        if self.parts[at] == Part::Fixed && self.means[at] == 0.0 {
            return 0.0;
        }
        let step = (self.means[at].abs() * 1e-4).max(self.catalogue.statistics.period_ns as f64 / 1e3);
        let beside = |by: f64| {
            let mut values = self.means.clone();
            values[at] += by;
            of(&values)
        };
        (beside(step) - beside(-step)) / (2.0 * step)
    }
}

/// The longest critical path of a run.
fn span(catalogue: &Catalogue) -> Result<f64> {
    let longest = catalogue.tracked_processes()?.first().map(|process| process.span as f64);
    longest.ok_or_else(|| {
        let remedy = "measure with `hpcrun-rs --critical-path PROGRAM`";
        Error::input(&catalogue.path, "has no critical path", remedy)
    })
}
