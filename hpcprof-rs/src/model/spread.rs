//! How amounts are spread over threads.

/// The spread of some threads' amounts, whose sum is known beside it.
///
/// Without padding: of a million contexts there is one for each metric.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, packed(4))]
pub struct Spread {
    sum_of_squares: u128,
    /// Least amount of a thread that has any.
    pub least: i64,
    pub most: i64,
    pub threads: u32,
}

impl Spread {
    /// Adds the amount of one more thread.
    pub fn add(&mut self, amount: i64) {
        let square = u128::from(amount.unsigned_abs()).pow(2);
        let sum = self.sum_of_squares;
        self.sum_of_squares = sum.saturating_add(square);
        self.least = if self.threads == 0 { amount } else { self.least.min(amount) };
        self.most = self.most.max(amount);
        self.threads += 1;
    }

    /// Standard deviation, given the sum over all threads.
    pub fn sigma(&self, sum: i64) -> f64 {
        let n = f64::from(self.threads.max(1));
        let mean = sum as f64 / n;
        (self.sum_of_squares as f64 / n - mean * mean).max(0.0).sqrt()
    }
}
