//! Whether the order of rows may be chance: they rest on few samples, and differ by less than they err.

use crate::model::metrics::standard_error;

/// An amount with so many samples errs by a tenth at most.
const FEW_SAMPLES: i64 = 100;

/// An amount that rests on samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sampled {
    /// The amount.
    pub amount: f64,
    /// Its samples.
    pub samples: i64,
}

impl Sampled {
    /// Whether there are so few samples that the error is worth a word.
    pub fn is_few(self) -> bool {
        self.samples < FEW_SAMPLES
    }

    /// Standard error in percent of the amount.
    pub fn percent(self) -> f64 {
        standard_error(100.0, self.samples)
    }

    /// Whether it is larger than `next` by less than twice the standard error of their difference.
    pub fn may_follow(self, next: Sampled) -> bool {
        let error = |row: Sampled| standard_error(row.amount.abs(), row.samples);
        self.amount - next.amount < 2.0 * error(self).hypot(error(next))
    }
}

/// A line about lists of rows, each with the largest first; `None` if no row with few samples might follow
/// the next one.
pub fn line(lists: impl Iterator<Item = Vec<Sampled>>) -> Option<String> {
    let doubtful = lists.flat_map(|rows| {
        let pairs = rows.windows(2).filter(|pair| pair[0].is_few() && pair[0].may_follow(pair[1]));
        let least = pairs.map(|pair| pair[0].percent());
        least.min_by(f64::total_cmp)
    });
    let least = doubtful.min_by(f64::total_cmp)?;
    Some(format!("few samples: from ±{least:.0} % on, the order of rows may be chance"))
}
