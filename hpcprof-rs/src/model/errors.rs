//! Standard errors of sums over samples, each that of the sum itself.
//!
//! How many samples there are is given by the time that was measured; into which contexts they fall is
//! chance. So a sum S over N samples in all, of which those that count have values with the squares' sum Q,
//! has the variance Q - S^2 / N, at most: time that lies evenly has less. One more sample, which is
//! elsewhere, keeps a context that has all of few samples from being certain.

use crate::model::metrics::{
    CATEGORY_PREFIX, FIXED, IDLENESS, Metric, ON_PATH, OVERHEAD, WORK, first_square,
};
use hpc_formats::profile::SAMPLES;

/// Position of the squares of effort among those of `model::metrics::SQUARES`.
const EFFORT: usize = FIXED.len();
/// Square nanoseconds of a square microsecond.
const SQUARE_NS: f64 = 1e6;

/// What standard errors follow from, beside a context's values.
#[derive(Clone, Copy, Debug)]
pub struct Errors<'a> {
    pub metrics: &'a [Metric],
    /// Samples of all contexts.
    pub samples: i64,
}

/// An amount that rests on samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sampled {
    pub amount: f64,
    pub error: f64,
    /// The product of two such is the covariance, less its sign, of amounts that share a number of samples.
    pub shared: f64,
}

impl Errors<'_> {
    /// The sum of the squares of a metric over the samples of a context with these values, in square base
    /// units; `None` if the metric is measured, not sampled.
    fn squares(self, metric: usize, values: &[i64]) -> Option<f64> {
        let first = first_square(values.len());
        let square = |at: usize| values.get(first + at).map_or(0.0, |v| *v as f64 * SQUARE_NS);
        let value = |at: usize| values.get(at).map_or(0.0, |v| *v as f64);
        // As if all samples of a part weighed the same.
        let part = |squares: f64, whole: f64| if whole > 0.0 { squares / whole } else { 0.0 };
        match self.metrics.get(metric)?.name.as_str() {
            _ if metric < FIXED.len() => Some(square(metric)),
            SAMPLES => Some(value(metric)),
            name if name.starts_with(CATEGORY_PREFIX) => {
                Some(value(metric) * part(square(OVERHEAD), value(OVERHEAD)))
            }
            ON_PATH => {
                let busy = value(WORK) + value(OVERHEAD);
                Some(value(metric) * part(square(WORK) + square(OVERHEAD), busy))
            }
            _ => None,
        }
    }

    /// The sum of a metric, or of effort without one, and of its squares.
    fn sums(self, metric: Option<usize>, values: &[i64]) -> Option<(f64, f64)> {
        let Some(metric) = metric else {
            let square = values.get(first_square(values.len()) + EFFORT);
            let sum = values.iter().take(FIXED.len()).map(|v| *v as f64).sum();
            return Some((sum, square.map_or(0.0, |v| *v as f64 * SQUARE_NS)));
        };
        Some((values[metric] as f64, self.squares(metric, values)?))
    }

    fn sampled(self, (amount, squares): (f64, f64)) -> Sampled {
        let shared = amount / (self.samples as f64 + 1.0).sqrt();
        Sampled { amount, error: (squares - shared * shared).max(0.0).sqrt(), shared }
    }

    /// A metric of a context with these values; `None` if it is measured, not sampled.
    pub fn of(self, metric: usize, values: &[i64]) -> Option<Sampled> {
        self.sums(Some(metric), values).map(|sums| self.sampled(sums))
    }

    pub fn of_effort(self, values: &[i64]) -> Sampled {
        self.sampled(self.sums(None, values).unwrap_or_default())
    }

    /// The standard error of a sum of work, idleness and overhead with these weights. What a sample has of
    /// each belongs together: the squares of effort tell how much.
    pub fn of_weighted(self, weights: [f64; FIXED.len()], values: &[i64]) -> f64 {
        let first = first_square(values.len());
        let square = |at: usize| values.get(first + at).map_or(0.0, |v| *v as f64 * SQUARE_NS);
        let own: [f64; FIXED.len()] = std::array::from_fn(square);
        // A sample is work or overhead; the rest of the squares of effort is twice its product with idleness.
        let products = (square(EFFORT) - own.iter().sum::<f64>()) / 2.0;
        let busy = (own[WORK] + own[OVERHEAD]).max(f64::MIN_POSITIVE);
        let other = (weights[WORK] * own[WORK] + weights[OVERHEAD] * own[OVERHEAD]) / busy;
        let squares: f64 = weights.iter().zip(own).map(|(weight, own)| weight.powi(2) * own).sum();
        let sum: f64 = weights.iter().zip(values).map(|(weight, v)| weight * *v as f64).sum();
        let of_chance = sum.powi(2) / (self.samples as f64 + 1.0);
        (squares + 2.0 * weights[IDLENESS] * other * products - of_chance).max(0.0).sqrt()
    }

    /// The standard error of a part of a time that is known as a whole; of effort without a metric. `None` if
    /// the metric is measured, not sampled.
    pub fn of_part(self, metric: Option<usize>, part: &[i64], whole: &[i64]) -> Option<f64> {
        let (sum, squares) = self.sums(metric, part)?;
        let (all, all_squares) = self.sums(metric, whole)?;
        let share = if all > 0.0 { sum / all } else { 0.0 };
        let others = (all_squares - squares).max(0.0);
        Some((squares * (1.0 - share).powi(2) + others * share.powi(2)).sqrt())
    }
}

impl Sampled {
    /// Whether it errs by so much that the error is worth a word.
    pub fn is_few(self) -> bool {
        self.error * 10.0 > self.amount.abs()
    }

    /// Standard error in percent of the amount.
    pub fn percent(self) -> f64 {
        100.0 * self.error / self.amount.abs()
    }

    /// Whether it is larger than `next` by less than twice the standard error of their difference.
    pub fn may_follow(self, next: Sampled) -> bool {
        let variance = self.error.powi(2) + next.error.powi(2) + 2.0 * self.shared * next.shared;
        self.amount - next.amount < 2.0 * variance.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::metrics;
    use crate::model::tree::add_all;
    use fastrand::Rng;

    /// Contexts with known shares of the time, each with a known share of idleness beside it, and overhead.
    const PARTS: [(f64, f64, f64); 5] =
        [(0.5, 0.0, 0.02), (0.3, 1.0, 0.5), (0.15, 3.0, 0.0), (0.04, 0.25, 1.0), (0.01, 7.0, 0.2)];
    const PERIOD_NS: f64 = 5e6;
    const SAMPLES_TAKEN: usize = 20_000;

    /// The sums of one sampling, by part.
    fn sampling(random: &mut Rng, metrics: usize) -> Vec<Vec<i64>> {
        let mut sums = vec![vec![0_f64; metrics]; PARTS.len()];
        let first = first_square(metrics);
        for _ in 0..SAMPLES_TAKEN {
            let mut at = random.f64();
            let part = PARTS.iter().position(|(share, ..)| {
                at -= share;
                at < 0.0
            });
            let part = part.unwrap_or(PARTS.len() - 1);
            let (_, idle, tagged) = PARTS[part];
            let of = if random.f64() < tagged { OVERHEAD } else { WORK };
            // Half of the time twice the idleness.
            let idle = if random.bool() { 2.0 * idle * PERIOD_NS } else { 0.0 };
            let sums = &mut sums[part];
            for (metric, squares, value) in
                [(of, of, PERIOD_NS), (metrics::IDLENESS, metrics::IDLENESS, idle)]
            {
                sums[metric] += value;
                sums[first + squares] += value * value / SQUARE_NS;
            }
            sums[first + EFFORT] += (PERIOD_NS + idle).powi(2) / SQUARE_NS;
            sums[metrics::OVERHEAD + 1] += 1.0;
        }
        sums.into_iter().map(|of| of.into_iter().map(|v| v.round() as i64).collect()).collect()
    }

    /// Whether the truth lies within one, and within two standard errors.
    fn is_within(sampled: Sampled, truth: f64) -> [bool; 2] {
        let off = (sampled.amount - truth).abs();
        [off <= sampled.error, off <= 1.96 * sampled.error]
    }

    #[test]
    fn the_truth_lies_within_the_errors_as_often_as_it_should() {
        let all = metrics::all(&[], &[]);
        let errors = Errors { metrics: &all, samples: SAMPLES_TAKEN as i64 };
        let mut random = Rng::with_seed(33);
        // By part: work, idleness, overhead and effort; then the difference of two parts, and a quotient.
        let mut within = vec![[0_u32; 2]; PARTS.len() * 4 + 2];
        let mut count = |at: usize, found: [bool; 2]| {
            for (n, is) in within[at].iter_mut().zip(found) {
                *n += u32::from(is);
            }
        };
        const SAMPLINGS: u32 = 1000;
        for _ in 0..SAMPLINGS {
            let sums = sampling(&mut random, all.len());
            for (part, ((share, idle, tagged), values)) in PARTS.iter().zip(&sums).enumerate() {
                let time = share * SAMPLES_TAKEN as f64 * PERIOD_NS;
                let truths = [time * (1.0 - tagged), time * idle, time * tagged];
                for (metric, truth) in truths.into_iter().enumerate() {
                    let sampled = errors.of(metric, values).expect("sampled");
                    count(part * 4 + metric, is_within(sampled, truth));
                }
                count(part * 4 + 3, is_within(errors.of_effort(values), time * (1.0 + idle)));
            }
            let [a, b] = [0, 1].map(|part| errors.of_effort(&sums[part]));
            let variance = a.error.powi(2) + b.error.powi(2) + 2.0 * a.shared * b.shared;
            let difference = Sampled { amount: a.amount - b.amount, error: variance.sqrt(), shared: 0.0 };
            let truth = (0.5 - 0.3 * 2.0) * SAMPLES_TAKEN as f64 * PERIOD_NS;
            count(PARTS.len() * 4, is_within(difference, truth));
            let all = sums.iter().fold(vec![0; all.len()], |mut all, of| {
                add_all(&mut all, of);
                all
            });
            let (idle, effort) = (all[metrics::IDLENESS] as f64, errors.of_effort(&all).amount);
            let slope = -idle / effort.powi(2);
            let error = errors.of_weighted([slope, slope + 1.0 / effort, slope], &all);
            let truth: f64 = PARTS.iter().map(|(share, idle, _)| share * idle).sum();
            let quotient = Sampled { amount: idle / effort, error, shared: 0.0 };
            count(PARTS.len() * 4 + 1, is_within(quotient, truth / (1.0 + truth)));
        }
        let metrics = ["work", "idleness", "overhead", "effort", "difference", "quotient"];
        for (at, [one, two]) in within.into_iter().enumerate() {
            let beyond = at.checked_sub(PARTS.len() * 4);
            let (part, metric) = (at / 4, metrics[beyond.map_or(at % 4, |beyond| 4 + beyond)]);
            let (_, idle, tagged) = PARTS.get(part).copied().unwrap_or((0.0, 1.0, 0.5));
            let is_nothing = match metric {
                "work" => tagged == 1.0,
                "idleness" => idle == 0.0,
                "overhead" => tagged == 0.0,
                _ => false,
            };
            if is_nothing {
                assert_eq!([one, two], [SAMPLINGS; 2], "{metric} of part {part}");
                continue;
            }
            // A thousand samplings show a share of 68 % with a standard error of 1.5 %.
            assert!((630..=735).contains(&one), "{metric} of part {part}: {one} within one");
            assert!((920..=975).contains(&two), "{metric} of part {part}: {two} within two");
        }
    }

    #[test]
    fn a_part_has_its_own_error() {
        let all = metrics::all(&[], &[]);
        let mut values = vec![0; all.len()];
        let (first, period_us) = (first_square(all.len()), 5000_i64);
        // One sample of overhead beside 9999 of work.
        for (metric, samples) in [(WORK, 9999), (OVERHEAD, 1)] {
            values[metric] = samples * 5_000_000;
            values[first + metric] = samples * period_us.pow(2);
        }
        let errors = Errors { metrics: &all, samples: 20_000 };
        let overhead = errors.of(OVERHEAD, &values).expect("sampled");
        assert!((99.0..=101.0).contains(&overhead.percent()), "{overhead:?}");
        let work = errors.of(WORK, &values).expect("sampled");
        assert!((0.69..=0.72).contains(&work.percent()), "{work:?}");
        // All of one sample is not certain.
        values[OVERHEAD] = 0;
        (values[WORK], values[first + WORK]) = (5_000_000, period_us.pow(2));
        let only = Errors { metrics: &all, samples: 1 }.of(WORK, &values).expect("sampled");
        assert!((only.percent() - 100.0 / 2_f64.sqrt()).abs() < 1e-9);
    }
}
