//! The metrics of an image's samples, fixed when it starts: what its profiles' headers say of them, and how
//! the tree adds their values.
//!
//! Invariant: the first group is that of `hpc_formats::profile::default_metrics`, the second that of
//! `square_metrics`, and all metrics are sums.
//!
//! Async-signal-safe, except [`MetricSet::new`] and [`MetricSet::push`].

use hpc_formats::profile::{
    Aggregation, MAX_METRICS, METRIC_NAME_SIZE, METRIC_SIZE, Metric, Representation, VALUES_PER_RECORD,
    default_metrics, square_metrics,
};

pub const MAX_GROUPS: usize = MAX_METRICS.div_ceil(VALUES_PER_RECORD);

/// The floating-point values of the first group, as in [`MetricSet::floats`]: idleness.
pub const FIRST_FLOATS: u32 = 1 << 2;

/// The words of one sample's values, or of a sum of several, by group and position in it. 0 beyond the last
/// metric.
pub type Words = [[u64; VALUES_PER_RECORD]; MAX_GROUPS];

#[derive(Clone, Debug)]
pub struct MetricSet {
    table: [u8; MAX_METRICS * METRIC_SIZE],
    count: u32,
    floats: u32,
}

impl MetricSet {
    /// Those that every sample has, for a sampling period in nanoseconds.
    pub fn new(period_ns: u64) -> MetricSet {
        let mut set = MetricSet { table: [0; MAX_METRICS * METRIC_SIZE], count: 0, floats: 0 };
        for metric in default_metrics(period_ns).iter().chain(&square_metrics(period_ns)) {
            set.push(metric);
        }
        set
    }

    /// Adds one more. False if there is no room for it, if it is not a sum, or if a header cannot have it.
    pub fn push(&mut self, metric: &Metric) -> bool {
        let entry = metric.encode();
        let mut entries = self.table.chunks_exact_mut(METRIC_SIZE);
        let has_its_name = |other: &mut [u8]| other.starts_with(&entry[..METRIC_NAME_SIZE]);
        let is_known = entries.by_ref().take(self.count as usize).any(has_its_name);
        let is_whole = Metric::decode(&entry).as_ref() == Ok(metric);
        let Some(vacant) =
            entries.next().filter(|_| is_whole && !is_known && metric.aggregation == Aggregation::Sum)
        else {
            return false;
        };
        vacant.copy_from_slice(&entry);
        let is_float = metric.representation == Representation::Float;
        self.floats |= u32::from(is_float) << self.count;
        self.count += 1;
        true
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn groups(&self) -> u32 {
        self.count.div_ceil(VALUES_PER_RECORD as u32)
    }

    /// A bit for each metric whose values are floating-point numbers, from the lowest.
    pub fn floats(&self) -> u32 {
        self.floats
    }

    /// The metrics, as in a profile's header.
    pub fn table(&self) -> &[u8] {
        &self.table[..self.count as usize * METRIC_SIZE]
    }
}
