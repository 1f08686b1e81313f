//! Reads how the work of each context of the folded tree is spread over threads.

use crate::catalogue::metrics::WORK;
use crate::catalogue::{Catalogue, damaged};
use crate::error::Result;
use crate::model::hash::FastMap;

/// How the inclusive work of a context is spread over the threads that have any. Times are nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// Threads.
    pub threads: u32,
    /// Work of all of them.
    pub sum: i64,
    /// Least work of a thread.
    pub least: i64,
    /// Most work of a thread.
    pub most: i64,
    /// Standard deviation.
    pub sigma: f64,
    /// Standard error of the sum, as it rests on samples.
    pub error: f64,
}

impl Spread {
    /// Most work of a thread by the mean.
    pub fn imbalance(&self) -> Option<f64> {
        let mean = self.sum as f64 / f64::from(self.threads);
        Some(self.most as f64 / mean).filter(|ratio| ratio.is_finite())
    }
}

impl Catalogue {
    /// The spreads of work by context of the folded tree, numbered from 0 in preorder.
    pub fn work_spreads(&self) -> Result<FastMap<u32, Spread>> {
        let read = || {
            let sql = "SELECT context - 1, threads, inclusive, least, most, sigma, error
                FROM value WHERE metric = ?";
            let mut query = self.connection.prepare(sql)?;
            let rows = query.query_map([WORK as i64], |row| {
                let spread = Spread {
                    threads: row.get(1)?,
                    sum: row.get(2)?,
                    least: row.get(3)?,
                    most: row.get(4)?,
                    sigma: row.get(5)?,
                    error: row.get(6)?,
                };
                Ok((row.get(0)?, spread))
            })?;
            rows.collect::<rusqlite::Result<_>>()
        };
        read().map_err(|e| damaged(&self.path, &e))
    }
}
