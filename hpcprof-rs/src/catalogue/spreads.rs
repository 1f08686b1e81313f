//! How the work of a view's nodes is spread over threads: from the values of all threads.

use crate::catalogue::Catalogue;
use crate::catalogue::metrics::WORK;
use crate::error::Result;

/// How the inclusive work of a node is spread over the threads that have any. Times are nanoseconds.
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
    squares: u128,
}

impl Spread {
    /// Of one thread.
    fn new(amount: i64) -> Spread {
        Spread {
            threads: 1,
            sum: amount,
            least: amount,
            most: amount,
            squares: u128::from(amount.unsigned_abs()).pow(2),
        }
    }

    fn add(&mut self, other: Spread) {
        *self = Spread {
            threads: self.threads + other.threads,
            sum: self.sum.saturating_add(other.sum),
            least: self.least.min(other.least),
            most: self.most.max(other.most),
            squares: self.squares.saturating_add(other.squares),
        };
    }

    fn mean(&self) -> f64 {
        self.sum as f64 / f64::from(self.threads)
    }

    /// Standard deviation.
    pub fn sigma(&self) -> f64 {
        let variance = self.squares as f64 / f64::from(self.threads) - self.mean().powi(2);
        variance.max(0.0).sqrt()
    }

    /// Most work of a thread by the mean.
    pub fn imbalance(&self) -> Option<f64> {
        Some(self.most as f64 / self.mean()).filter(|ratio| ratio.is_finite())
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
    fn end(&mut self, spreads: &mut [Option<Spread>]) {
        self.touched.sort_unstable();
        for node in self.touched.drain(..).rev() {
            self.is_touched[node as usize] = false;
            let amount = std::mem::take(&mut self.work[node as usize]);
            if let Some(parent) = self.parents[node as usize] {
                let work = &mut self.work[parent as usize];
                *work = work.saturating_add(amount);
            }
            let own = Spread::new(amount);
            match &mut spreads[node as usize] {
                Some(known) => known.add(own),
                none => *none = Some(own),
            }
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
        let mut spreads = vec![None; parents.len()];
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
                    one.end(&mut spreads);
                }
                if value.metric == WORK {
                    one.add(node(value.context)?, value.amount);
                }
                Some(())
            },
        )?;
        one.end(&mut spreads);
        Ok(spreads)
    }
}
