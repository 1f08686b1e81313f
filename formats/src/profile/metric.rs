//! The metrics of a profile: a table in its header, and groups of value words in its metric records.
//!
//! A value is a word of eight bytes. The table says what it counts, how values of several samples, contexts
//! and threads combine, and how the word becomes an amount.

use super::{KIND, header, u32_at, u64_at};
use crate::error::FileError;
use crate::numbered;

/// Most metrics of a profile.
pub const MAX_METRICS: usize = 10;
/// Values in one metric record.
pub const VALUES_PER_RECORD: usize = 3;
/// Bytes of a metric in the header.
pub const METRIC_SIZE: usize = 64;
/// Most bytes of a metric's name.
pub const METRIC_NAME_SIZE: usize = 48;
/// Offset in an entry of unit, aggregation and representation, a byte each.
const KINDS: usize = METRIC_NAME_SIZE;
/// Offset in an entry of the scale.
const SCALE: usize = 56;

/// Name of the number of samples.
pub const SAMPLES: &str = "samples";
/// Name of the time in which a sampled thread worked.
pub const WORK: &str = "work";
/// Name of the idle cores' time that a sampled thread is charged.
pub const IDLENESS: &str = "idleness";

/// Name of the sum over samples of the squares of their work.
pub const WORK_SQUARES: &str = "squares:work";
/// Name of the same of their idleness.
pub const IDLENESS_SQUARES: &str = "squares:idleness";
/// Name of the same of their work and idleness together.
pub const EFFORT_SQUARES: &str = "squares:effort";

/// Name of the time that other threads waited for a lock that the context held.
pub const LOCK_WAIT: &str = "lock-wait";
/// Name of the time that the thread waited in calls of a message-passing library.
pub const MPI_WAIT: &str = "mpi-wait";

/// Name of the time that the thread was ready to run and had no core.
pub const OVERSUBSCRIPTION: &str = "oversubscription";
/// Name of the time that the thread waited while nobody worked.
pub const STANDSTILL: &str = "standstill";
/// Name of the time of a task's parts that kept their worker from other tasks for long.
pub const LONG_POLL: &str = "long-poll";

numbered! {
    /// What an amount is measured in.
    Unit {
        /// Time; its base unit is the nanosecond.
        Seconds = 1, "seconds";
        /// A number of events.
        Count = 2, "count";
        /// An amount of memory.
        Bytes = 3, "bytes";
        /// A quotient of two amounts.
        Ratio = 4, "ratio";
        /// A square of time; its base unit is that of the microsecond.
        SquareSeconds = 5, "seconds^2";
    }
}

numbered! {
    /// How values of one metric combine.
    Aggregation {
        /// They add up.
        Sum = 1, "sum";
        /// The largest one stands for all.
        Max = 2, "max";
        /// They do not combine.
        None = 3, "none";
    }
}

numbered! {
    /// What the word of a value is.
    Representation {
        /// A u64.
        Integer = 1, "integer";
        /// The bits of a finite f64 that is not negative.
        Float = 2, "float";
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Metric {
    /// Its name, of at most [`METRIC_NAME_SIZE`] bytes, which no other metric of the profile has.
    pub name: String,
    pub unit: Unit,
    pub aggregation: Aggregation,
    pub representation: Representation,
    /// Base units that a value of 1 stands for; finite and positive.
    pub scale: f64,
}

impl Metric {
    /// The amount that the word of a value stands for, in base units: nanoseconds for seconds, square
    /// microseconds for their squares, else units.
    /// Infinite if it is beyond the range of an f64.
    pub fn amount(&self, word: u64) -> f64 {
        let value = match self.representation {
            Representation::Integer => word as f64,
            Representation::Float => f64::from_bits(word),
        };
        value * self.scale
    }

    /// Its entry in a header's table. A longer name is cut.
    pub fn encode(&self) -> [u8; METRIC_SIZE] {
        let mut entry = [0; METRIC_SIZE];
        let mut lengths = (0..=METRIC_NAME_SIZE).rev();
        let length = lengths.find(|n| self.name.is_char_boundary(*n));
        for (to, byte) in entry.iter_mut().zip(self.name.bytes()).take(length.unwrap_or(0)) {
            *to = byte;
        }
        entry[KINDS] = self.unit as u8;
        entry[KINDS + 1] = self.aggregation as u8;
        entry[KINDS + 2] = self.representation as u8;
        entry[SCALE..].copy_from_slice(&self.scale.to_le_bytes());
        entry
    }

    /// From its entry in a header's table; an error says what is wrong.
    pub fn decode(entry: &[u8]) -> Result<Metric, &'static str> {
        let name = entry.get(..METRIC_NAME_SIZE).unwrap_or_default();
        let length = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        let name = std::str::from_utf8(&name[..length]).map_err(|_| "a metric's name is not UTF-8")?;
        if name.is_empty() {
            return Err("a metric has no name");
        }
        let scale = f64::from_bits(u64_at(entry, SCALE));
        if !scale.is_finite() || scale <= 0.0 {
            return Err("a metric's scale is not a positive number");
        }
        let kinds = u32_at(entry, KINDS).to_le_bytes();
        Ok(Metric {
            name: name.to_owned(),
            unit: Unit::from_number(kinds[0]).ok_or("a metric's unit is unknown")?,
            aggregation: Aggregation::from_number(kinds[1]).ok_or("a metric's aggregation is unknown")?,
            representation: Representation::from_number(kinds[2])
                .ok_or("a metric's representation is unknown")?,
            scale,
        })
    }
}

/// The metrics that every sample has, in this order, for a sampling period in nanoseconds.
pub fn default_metrics(period_ns: u64) -> [Metric; 3] {
    use Representation::{Float, Integer};
    let sum = |name: &str, unit, representation, scale| Metric {
        name: name.to_owned(),
        unit,
        aggregation: Aggregation::Sum,
        representation,
        scale,
    };
    let period = period_ns as f64;
    [
        sum(SAMPLES, Unit::Count, Integer, 1.0),
        sum(WORK, Unit::Seconds, Integer, period),
        sum(IDLENESS, Unit::Seconds, Float, period),
    ]
}

/// The sums of squares, by which sums over samples err, in this order, for a sampling period in nanoseconds.
pub fn square_metrics(period_ns: u64) -> [Metric; 3] {
    use Representation::{Float, Integer};
    let period_us = period_ns as f64 / 1e3;
    let sum = |name: &str, representation| Metric {
        name: name.to_owned(),
        unit: Unit::SquareSeconds,
        aggregation: Aggregation::Sum,
        representation,
        scale: period_us * period_us,
    };
    [sum(WORK_SQUARES, Integer), sum(IDLENESS_SQUARES, Float), sum(EFFORT_SQUARES, Float)]
}

/// Waiting by the clock, in nanoseconds, by the name of what is waited for.
pub fn wait_metric(name: &str) -> Metric {
    Metric {
        name: name.to_owned(),
        unit: Unit::Seconds,
        aggregation: Aggregation::Sum,
        representation: Representation::Integer,
        scale: 1.0,
    }
}

pub(super) fn parse(data: &[u8]) -> Result<Vec<Metric>, FileError> {
    let count = u32_at(data, header::METRIC_COUNT) as usize;
    if count > MAX_METRICS {
        return Err(KIND.corrupt("too many metrics"));
    }
    let table = data.get(header::METRICS..).unwrap_or_default();
    let entries = table.chunks(METRIC_SIZE).take(count);
    let mut metrics: Vec<Metric> = Vec::with_capacity(count);
    for entry in entries {
        let metric = Metric::decode(entry).map_err(|what| KIND.corrupt(what))?;
        if metrics.iter().any(|other| other.name == metric.name) {
            return Err(KIND.corrupt("two metrics have one name"));
        }
        metrics.push(metric);
    }
    Ok(metrics)
}

/// Whether the words of a group can be values of these metrics: there is such a group, and its floating-point
/// values are finite and not negative.
pub(super) fn are_values(metrics: &[Metric], group: u32, words: &[u64]) -> bool {
    let first = (group as usize).saturating_mul(VALUES_PER_RECORD);
    let is_value = |(metric, word): (&Metric, &u64)| {
        let value = f64::from_bits(*word);
        metric.representation == Representation::Integer || (value.is_finite() && value >= 0.0)
    };
    match metrics.get(first..) {
        None | Some([]) => false,
        Some(metrics) => metrics.iter().zip(words).all(is_value),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HEADER_SIZE, Profile, RECORD_SIZE, Record, RecordKind, meta};
    use super::*;

    fn put(data: &mut [u8], at: usize, bytes: &[u8]) {
        data[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// A profile with these metrics, a root, and one metric record of each group with these words.
    fn profile(metrics: &[Metric], words: &[[u64; VALUES_PER_RECORD]]) -> Vec<u8> {
        let mut data = vec![0; HEADER_SIZE + RECORD_SIZE * (1 + words.len())];
        put(&mut data, header::MAGIC, &KIND.magic);
        put(&mut data, header::VERSION, &KIND.version().to_le_bytes());
        put(&mut data, header::HEADER_SIZE, &(HEADER_SIZE as u32).to_le_bytes());
        put(&mut data, header::PERIOD_NS, &[9]);
        put(&mut data, header::RECORDS, &[1 + words.len() as u8]);
        put(&mut data, header::METRIC_COUNT, &[metrics.len() as u8]);
        for (i, metric) in metrics.iter().enumerate() {
            put(&mut data, header::METRICS + i * METRIC_SIZE, &metric.encode());
        }
        put(&mut data, HEADER_SIZE, &[RecordKind::Root as u8]);
        for (group, words) in words.iter().enumerate() {
            let at = HEADER_SIZE + RECORD_SIZE * (1 + group);
            let meta = meta(RecordKind::Metric, 0, group as u32);
            put(&mut data, at, &meta.to_le_bytes());
            for (i, word) in words.iter().enumerate() {
                put(&mut data, at + 8 + 8 * i, &word.to_le_bytes());
            }
        }
        data
    }

    fn of_all_kinds() -> Vec<Metric> {
        let metric = |name: &str, unit, aggregation, representation, scale| Metric {
            name: name.to_owned(),
            unit,
            aggregation,
            representation,
            scale,
        };
        use {Aggregation::*, Representation::*, Unit::*};
        vec![
            metric("a", Seconds, Sum, Integer, 4.0),
            metric("b", Count, Max, Float, 0.5),
            metric("c", Bytes, None, Integer, 1.0),
            metric("stalled-cycles-frontend/a-name-of-48-bytes/anyä", Ratio, None, Float, 1e-3),
        ]
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let metrics = of_all_kinds();
        let float = |value: f64| value.to_bits();
        let written = [[3, float(3.0), u64::MAX], [float(1.0), 0, 0]];
        let data = profile(&metrics, &written);
        let read = Profile::parse(&data).expect("sound");
        assert_eq!(read.header.metrics, metrics);
        let amounts = metrics.iter().zip(written.as_flattened());
        let amounts: Vec<f64> = amounts.map(|(m, word)| m.amount(*word)).collect();
        assert_eq!(amounts, [12.0, 1.5, u64::MAX as f64, 1e-3]);
        for (group, values) in written.into_iter().enumerate() {
            let record = Record::Metric { owner: 0, group: group as u32, values };
            assert_eq!(read.record(1 + group), Some(record));
        }
    }

    #[test]
    fn only_values_of_metrics_are_readable() {
        let metrics = of_all_kinds();
        let is_read = |metrics: &[Metric], words: &[[u64; 3]]| {
            let data = profile(metrics, words);
            let read = Profile::parse(&data).expect("sound");
            read.record(words.len()).is_some()
        };
        assert!(is_read(&metrics, &[[0; 3], [0; 3]]));
        assert!(!is_read(&metrics, &[[0; 3]; 3]), "no such group");
        assert!(!is_read(&metrics[..3], &[[0; 3]; 2]), "no such group");
        assert!(!is_read(&[], &[[0; 3]]), "no such group");
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            let bad = f64::to_bits(bad);
            assert!(is_read(&metrics, &[[bad, 0, bad]]), "an integer");
            assert!(!is_read(&metrics, &[[0, bad, 0]]), "a number");
            assert!(!is_read(&metrics, &[[0; 3], [bad, 0, 0]]), "a number");
            assert!(is_read(&metrics, &[[0; 3], [0, bad, 0]]), "no metric's");
        }
    }

    #[test]
    fn an_impossible_table_is_a_corrupt_header() {
        let sound = profile(&of_all_kinds(), &[]);
        assert!(Profile::parse(&sound).is_ok());
        let second = header::METRICS + METRIC_SIZE;
        let scale = |value: f64| value.to_le_bytes();
        let cases: [(usize, &[u8], &str); 12] = [
            (header::METRIC_COUNT, &[11], "too many metrics"),
            (header::METRIC_COUNT, &[4, 0, 1], "too many metrics"),
            (second, b"a", "two metrics have one name"),
            (second, &[0], "a metric has no name"),
            (second, &[0xff], "a metric's name is not UTF-8"),
            (second + KINDS, &[0], "a metric's unit is unknown"),
            (second + KINDS, &[6], "a metric's unit is unknown"),
            (second + KINDS + 1, &[4], "a metric's aggregation is unknown"),
            (second + KINDS + 2, &[3], "a metric's representation is unknown"),
            (second + SCALE, &scale(0.0), "a metric's scale is not a positive number"),
            (second + SCALE, &scale(-1.0), "a metric's scale is not a positive number"),
            (second + SCALE, &scale(f64::NAN), "a metric's scale is not a positive number"),
        ];
        for (at, bytes, what) in cases {
            let mut data = sound.clone();
            put(&mut data, at, bytes);
            let error = Profile::parse(&data).expect_err(what);
            assert_eq!(error, KIND.corrupt(what));
        }
    }
}
