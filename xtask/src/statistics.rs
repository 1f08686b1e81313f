//! Runs in rounds, and medians with confidence intervals.
//!
//! One duty: say of a handful of noisy times what is known of their median. Nothing is assumed of
//! their distribution.

/// Runs each of `count` candidates once in each round, and returns what each of them gave. The order changes,
/// so that none always follows the same other one.
pub(crate) fn in_rounds<T: Clone>(
    what: &str,
    rounds: usize,
    count: usize,
    mut once: impl FnMut(usize) -> Result<T, String>,
) -> Result<Vec<Vec<T>>, String> {
    let mut given = vec![Vec::new(); count];
    let mut order: Vec<usize> = (0..count).collect();
    for round in 1..=rounds {
        fastrand::shuffle(&mut order);
        for &index in &order {
            given[index].push(once(index)?);
        }
        eprintln!("{what}: round {round} of {rounds}");
    }
    Ok(given)
}

/// Resamples for an interval.
const RESAMPLES: usize = 2000;

/// A median with the 95 % interval of the percentile bootstrap, in the unit of the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// The estimate from `values`; `None` without any.
pub(crate) fn estimate(values: &[f64]) -> Option<Estimate> {
    let median = median(values.to_vec())?;
    // From a fixed seed: the same values give the same interval.
    let mut random = fastrand::Rng::with_seed(1);
    let mut pick = || values[random.usize(..values.len())];
    let mut medians: Vec<f64> =
        (0..RESAMPLES).filter_map(|_| self::median((0..values.len()).map(|_| pick()).collect())).collect();
    medians.sort_by(f64::total_cmp);
    let at = |share: f64| medians[((RESAMPLES - 1) as f64 * share).round() as usize];
    Some(Estimate { median, low: at(0.025), high: at(0.975) })
}

/// Times as multiples of those of `base` in the same rounds: what the machine's speed, which both
/// had, does not move. Nothing where a time of `base` is zero.
pub(crate) fn paired(times: &[f64], base: &[f64]) -> Option<Estimate> {
    let ratio = |(&time, &base): (&f64, &f64)| (base > 0.0).then_some(time / base);
    let ratios: Option<Vec<f64>> = times.iter().zip(base).map(ratio).collect();
    estimate(&ratios?)
}

/// The middle value, or the mean of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some((values[low] + values[high]) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn ratios_are_those_of_one_round() {
        // The machine takes twice the time in every second round.
        let base = [1.0, 2.0, 1.0, 2.0, 1.0];
        let times = base.map(|time| 1.5 * time);
        let ratio = paired(&times, &base).expect("times");
        assert_eq!((ratio.low, ratio.median, ratio.high), (1.5, 1.5, 1.5));
        assert_eq!(paired(&times, &[0.0; 5]), None);
        assert_eq!(paired(&[], &[]), None);
    }

    #[test]
    fn the_interval_holds_the_median_and_grows_with_the_spread() {
        assert_eq!(estimate(&[]), None);
        let same = estimate(&[2.0; 9]).expect("values");
        assert_eq!((same.low, same.median, same.high), (2.0, 2.0, 2.0));
        let values: Vec<f64> = (0..41).map(f64::from).collect();
        let wide = estimate(&values).expect("values");
        assert_eq!(wide.median, 20.0);
        assert!(wide.low < 20.0 && wide.high > 20.0);
        // Of 41 values the interval of the order statistics is the 14th to the 28th.
        assert!((11.0..=16.0).contains(&wide.low), "{wide:?}");
        assert!((24.0..=29.0).contains(&wide.high), "{wide:?}");
    }
}
