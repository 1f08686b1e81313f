//! Whether the order of rows may be chance: they rest on few samples, and differ by less than they err.

use crate::model::errors::Sampled;

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
