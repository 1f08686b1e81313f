//! The least size of a region that pays, from its serial times in runs of several sizes: W(L) is fitted as a
//! power of L, by least squares of the logarithms, through the two sizes exactly if there are two.

use start_up::model;

/// Sizes up to this one are looked at.
const MOST: u64 = 1 << 40;

/// What runs of several sizes say of a region.
#[derive(Clone, PartialEq, Debug)]
pub struct Sizes {
    /// Sizes, and the serial time of an execution in nanoseconds, in order.
    pub measured: Vec<(u64, f64)>,
    /// W(L) = factor L^power nanoseconds.
    factor: f64,
    pub power: f64,
}

impl Sizes {
    /// Of the measured sizes; `None` if they are fewer than two, or the time does not grow with them.
    pub fn fit(mut measured: Vec<(u64, f64)>) -> Option<Sizes> {
        measured.retain(|(size, time)| *size > 0 && *time > 0.0);
        measured.sort_by_key(|(size, _)| *size);
        let logarithms = measured.iter().map(|(size, time)| ((*size as f64).ln(), time.ln()));
        let logarithms = Vec::from_iter(logarithms);
        let count = logarithms.len() as f64;
        let (x, y) = logarithms.iter().fold((0.0, 0.0), |sum, (x, y)| (sum.0 + x / count, sum.1 + y / count));
        let squares = logarithms.iter().map(|(a, _)| (a - x) * (a - x)).sum::<f64>();
        let products = logarithms.iter().map(|(a, b)| (a - x) * (b - y)).sum::<f64>();
        let power = products / squares;
        let grows = squares > 0.0 && power > 0.0;
        grows.then(|| Sizes { measured, factor: (y - power * x).exp(), power })
    }

    /// The least size at which an execution pays on so many workers that start in `start_up` nanoseconds.
    pub fn least(&self, start_up: f64, workers: u32) -> Option<u64> {
        let serial = |size: u64| self.factor * (size as f64).powf(self.power);
        model::least_size(start_up, workers, MOST, serial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 5 ns for each of L elements, or for each pair of them, by two or by three sizes.
    #[test]
    fn the_least_size_is_where_the_serial_time_is_the_break_even() {
        for (power, least) in [(1, 400), (2, 20)] {
            let time = |size: u64| (size, 5.0 * size.pow(power) as f64);
            for sizes in [&[100, 10][..], &[1000, 10, 100]] {
                let sizes = Sizes::fit(sizes.iter().map(|size| time(*size)).collect()).expect("it grows");
                assert!((sizes.power - f64::from(power)).abs() < 1e-9, "{sizes:?}");
                // On two workers 2 us of serial time gain 1 us.
                assert_eq!(sizes.least(999.9, 2), Some(least), "{sizes:?}");
                assert_eq!(sizes.least(1.0, 1), None);
            }
        }
        for none in [vec![], vec![(10, 5.0)], vec![(10, 5.0), (10, 6.0)], vec![(10, 5.0), (20, 4.0)]] {
            assert_eq!(Sizes::fit(none), None);
        }
    }
}
