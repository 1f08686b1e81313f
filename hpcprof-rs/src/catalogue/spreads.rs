//! How work is spread over threads. For contexts of the folded tree that is stored; for the nodes of other
//! views it is computed from the values of all threads.

use crate::catalogue::Catalogue;
use crate::catalogue::folded::FoldedContext;
use crate::catalogue::metrics::WORK;
use crate::error::Result;
use crate::model::spread;
use rusqlite::OptionalExtension as _;

/// How the inclusive work of a node is spread over the threads that have any. Times are nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    pub threads: u32,
    /// Threads that could have had some: these, and as many as the cores.
    pub takers: u32,
    /// Work of all of them.
    pub sum: i64,
    pub least: i64,
    pub most: i64,
    pub sigma: f64,
}

impl Spread {
    /// Most work of a thread by the mean of all that could have had some.
    pub fn imbalance(&self) -> Option<f64> {
        let mean = self.sum as f64 / f64::from(self.takers);
        Some(self.most as f64 / mean).filter(|ratio| ratio.is_finite())
    }
}

/// The work of all threads in a node, and its spread.
type Sums = (i64, spread::Spread);

impl Spread {
    fn of(&(sum, spread): &Sums, takers: u32) -> Option<Spread> {
        (spread.threads > 0).then(|| Spread {
            threads: spread.threads,
            takers: takers.max(spread.threads),
            sum,
            least: spread.least,
            most: spread.most,
            sigma: spread.sigma(sum),
        })
    }
}

/// Nodes of a view, parents first, with the work of one thread.
struct OneThread<'a> {
    parents: &'a [Option<u32>],
    work: Vec<i64>,
    is_touched: Vec<bool>,
    touched: Vec<u32>,
}

impl OneThread<'_> {
    fn add(&mut self, node: u32, amount: i64) {
        let work = &mut self.work[node as usize];
        *work = work.saturating_add(amount);
        let mut next = Some(node);
        while let Some(at) = next.filter(|at| !self.is_touched[*at as usize]) {
            self.is_touched[at as usize] = true;
            self.touched.push(at);
            next = self.parents[at as usize];
        }
    }

    /// Adds what the thread has to the spreads, and begins anew.
    fn end(&mut self, sums: &mut [Sums]) {
        self.touched.sort_unstable();
        for node in self.touched.drain(..).rev() {
            self.is_touched[node as usize] = false;
            let amount = std::mem::take(&mut self.work[node as usize]);
            if let Some(parent) = self.parents[node as usize] {
                let work = &mut self.work[parent as usize];
                *work = work.saturating_add(amount);
            }
            let (sum, spread) = &mut sums[node as usize];
            *sum = sum.saturating_add(amount);
            spread.add(amount);
        }
    }
}

impl Catalogue {
    /// The spreads of work by node. `nodes` has the node of each context of the logical projection, `parents`
    /// the node above each.
    pub fn work_spreads(
        &self,
        nodes: &[Option<u32>],
        parents: &[Option<u32>],
    ) -> Result<Vec<Option<Spread>>> {
        let node = |context: i32| {
            let index = usize::try_from(context.checked_sub(1)?).ok()?;
            nodes.get(index).copied().flatten()
        };
        let mut sums = vec![Sums::default(); parents.len()];
        let mut one = OneThread {
            parents,
            work: vec![0; parents.len()],
            is_touched: vec![false; parents.len()],
            touched: Vec::new(),
        };
        let mut thread = None;
        self.each_value(
            |context| node(context).is_some(),
            |value| {
                if thread.replace(value.thread) != Some(value.thread) {
                    one.end(&mut sums);
                }
                if value.metric == WORK {
                    one.add(node(value.context)?, value.amount);
                }
                Some(())
            },
        )?;
        one.end(&mut sums);
        let takers = self.statistics.takers;
        Ok(sums.iter().map(|sums| Spread::of(sums, takers)).collect())
    }

    pub fn work_spread(&self, context: &FoldedContext) -> Result<Option<Spread>> {
        self.query(|connection| {
            let sql = "SELECT threads, inclusive, least, most, sigma FROM value
                WHERE context = ? AND metric = ?";
            let mut query = connection.prepare_cached(sql)?;
            let spread = query.query_row([context.row(), WORK as i64], |row| {
                let threads = row.get(0)?;
                Ok(Spread {
                    threads,
                    takers: self.statistics.takers.max(threads),
                    sum: row.get(1)?,
                    least: row.get(2)?,
                    most: row.get(3)?,
                    sigma: row.get(4)?,
                })
            });
            spread.optional()
        })
    }
}
