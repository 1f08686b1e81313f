//! Where a thread's samples go. Each [`Sink`] is told of every sample, once: that it was recorded in a
//! context, that it found the thread idle, or that it is lost. [`all`] lists them.
//!
//! | file | sink |
//! |---|---|
//! | `profile` | the tree, which is the profile file |
//! | `critical_path` | the thread's part in the critical path |
//! | `tally` | what no context has: idle and lost samples |
//! | `trace` | the thread's trace |
//!
//! Async-signal-safe.

mod critical_path;
mod profile;
mod tally;
mod trace;

pub(crate) use tally::Tally;

use crate::activity::Charge;
use crate::lcct::metrics::MAX_GROUPS;
use crate::lcct::{Tree, Words};
use crate::path::ThreadPath;
use crate::source::Sample;
use crate::trace::ThreadTrace;
use hpc_formats::loss::LossCause;
use hpc_formats::profile::VALUES_PER_RECORD;

/// A context of a thread's profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    /// Where the profile begins.
    pub(crate) profile: *mut u8,
    pub(crate) record: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Idle,
    Path(Node),
    Lost(LossCause),
}

/// The values of one or more samples.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Values {
    /// One word a metric: number of samples; sum of their weights, in periods; idleness, in periods of one
    /// core; the sums of the squares of each sample's weight, idleness, and both together; those of further
    /// metrics.
    pub(crate) words: Words,
    /// Oversubscription, in periods of one core.
    pub(crate) oversubscribed: f64,
    /// What the samples stand for, nanoseconds.
    pub(crate) time: u64,
    /// Monotonic clock at the last sample, nanoseconds.
    pub(crate) last_ns: u64,
}

impl Values {
    pub(crate) const NONE: Values =
        Values { words: [[0; VALUES_PER_RECORD]; MAX_GROUPS], oversubscribed: 0.0, time: 0, last_ns: 0 };

    #[inline]
    pub(crate) fn of(sample: &Sample, charge: Charge) -> Values {
        let mut values = Values::NONE;
        values.add(sample, charge);
        values
    }

    #[inline]
    pub(crate) fn samples(&self) -> u64 {
        self.words[0][0]
    }

    /// Sum of their weights, in periods.
    #[inline]
    pub(crate) fn periods(&self) -> u64 {
        self.words[0][1]
    }

    #[inline]
    pub(crate) fn add(&mut self, sample: &Sample, charge: Charge) {
        let period = sample.period as f64;
        let idle = charge.idleness / period;
        let effort = idle + sample.weight as f64;
        let add = |sum: &mut u64, value: f64| *sum = (f64::from_bits(*sum) + value).to_bits();
        let [[samples, work, idleness], [work_squares, idleness_squares, effort_squares], ..] =
            &mut self.words;
        *samples += 1;
        *work += sample.weight;
        add(idleness, idle);
        *work_squares = work_squares.wrapping_add(sample.weight.wrapping_mul(sample.weight));
        add(idleness_squares, idle * idle);
        add(effort_squares, effort * effort);
        self.oversubscribed += charge.oversubscribed / period;
        self.time += sample.time();
        self.last_ns = sample.now;
    }
}

pub(crate) trait Sink {
    /// Samples belong to a context. An error: they are lost, and sinks that come later are told so.
    fn recorded(&mut self, _: Node, _: &Values) -> Result<(), LossCause> {
        Ok(())
    }

    fn idle(&mut self, _: &Values) {}

    fn lost(&mut self, _: &Values, _: LossCause) {}

    /// Tells what became of samples.
    #[inline]
    fn take(&mut self, verdict: Verdict, values: &Values) {
        let recorded = match verdict {
            Verdict::Idle => return self.idle(values),
            Verdict::Path(node) => self.recorded(node, values),
            Verdict::Lost(cause) => Err(cause),
        };
        if let Err(cause) = recorded {
            self.lost(values, cause);
        }
    }
}

/// The sinks of a thread that owns these, in the order in which they are told.
#[inline]
pub(crate) fn all(
    tree: Option<&mut Tree>,
    path: &ThreadPath,
    trace: &ThreadTrace,
    tally: &Tally,
) -> impl Sink {
    (profile::Profile(tree), (critical_path::CriticalPath(path), (trace, tally)))
}

impl<A: Sink, B: Sink> Sink for (A, B) {
    #[inline]
    fn recorded(&mut self, node: Node, values: &Values) -> Result<(), LossCause> {
        self.0.recorded(node, values)?;
        self.1.recorded(node, values)
    }

    #[inline]
    fn idle(&mut self, values: &Values) {
        self.0.idle(values);
        self.1.idle(values);
    }

    #[inline]
    fn lost(&mut self, values: &Values, cause: LossCause) {
        self.0.lost(values, cause);
        self.1.lost(values, cause);
    }
}
