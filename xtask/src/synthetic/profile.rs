//! The bytes of a synthetic profile: the one place that knows how values are laid out in it.

use hpc_formats::address::CodeAddress;
use hpc_formats::profile::{
    Association, HEADER_SIZE, MAGIC, METRIC_SIZE, RECORD_SIZE, RecordKind, VERSION_MAJOR,
    VERSION_MINOR, default_metrics, header, meta,
};

/// What identifies a thread.
#[derive(Clone, Copy)]
pub(crate) struct Thread {
    pub(crate) pid: u32,
    pub(crate) image: u64,
    /// From 1. The first one creates the others.
    pub(crate) ordinal: u32,
}

/// The values of one context in one thread.
#[derive(Clone, Copy)]
pub(crate) struct Values {
    /// Samples, each of which stands for one period.
    pub(crate) samples: u64,
    /// Periods × n_idle / n_working.
    pub(crate) idleness: f64,
}

/// A profile in memory, ended and complete.
pub(crate) struct ProfileWriter {
    bytes: Vec<u8>,
    samples: u64,
}

impl ProfileWriter {
    /// Begins one in the memory of another. Its first record is the synthetic root.
    pub(crate) fn begin(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        bytes.resize(HEADER_SIZE, 0);
        let mut writer = ProfileWriter { bytes, samples: 0 };
        writer.record(meta(RecordKind::Root, 0, 0), 0, [0; 3]);
        writer
    }

    /// Paths that begin at the program's entry.
    pub(crate) fn entry(&mut self) -> u32 {
        self.record(meta(RecordKind::Entry, 0, 0), 0, [0; 3])
    }

    /// Paths that continue a context of another thread.
    pub(crate) fn anchor(&mut self, thread: u32, record: u32) -> u32 {
        let meta = meta(RecordKind::Anchor, 0, 0);
        self.record(meta, 0, [u64::from(thread), u64::from(record), 0])
    }

    /// A native frame with its values, if it has any.
    pub(crate) fn frame(
        &mut self,
        parent: u32,
        address: CodeAddress,
        values: Option<Values>,
    ) -> u32 {
        let own = self.records() as u32;
        let values_at = if values.is_some() { own + 1 } else { 0 };
        let meta = meta(RecordKind::Note, Association::OneToOne as u8, 1);
        self.record(meta, parent, [address.0, address.0, u64::from(values_at)]);
        if let Some(values) = values {
            self.values(own, values);
        }
        own
    }

    /// The default metrics: samples, periods of work, periods of idleness.
    fn values(&mut self, owner: u32, values: Values) {
        self.samples += values.samples;
        let words = [values.samples, values.samples, values.idleness.to_bits()];
        self.record(meta(RecordKind::Metric, 0, 0), owner, words);
    }

    fn record(&mut self, meta: u32, parent: u32, words: [u64; 3]) -> u32 {
        let own = self.records() as u32;
        self.bytes.extend_from_slice(&meta.to_le_bytes());
        self.bytes.extend_from_slice(&parent.to_le_bytes());
        for word in words {
            self.bytes.extend_from_slice(&word.to_le_bytes());
        }
        own
    }

    fn records(&self) -> usize {
        (self.bytes.len() - HEADER_SIZE) / RECORD_SIZE
    }

    /// The bytes of the whole profile.
    pub(crate) fn end(mut self, thread: Thread, period_ns: u64) -> Vec<u8> {
        let (records, samples) = (self.records() as u64, self.samples);
        let cpu_ns = samples * period_ns;
        let mut put = |offset: usize, field: &[u8]| {
            self.bytes[offset..offset + field.len()].copy_from_slice(field);
        };
        put(header::MAGIC, &MAGIC);
        put(header::VERSION_MAJOR, &VERSION_MAJOR.to_le_bytes());
        put(header::VERSION_MINOR, &VERSION_MINOR.to_le_bytes());
        put(header::HEADER_SIZE, &(HEADER_SIZE as u32).to_le_bytes());
        put(header::PID, &thread.pid.to_le_bytes());
        put(header::THREAD, &thread.ordinal.to_le_bytes());
        put(header::TID, &(thread.pid + thread.ordinal).to_le_bytes());
        put(header::STATE, &1_u32.to_le_bytes());
        put(header::IMAGE, &thread.image.to_le_bytes());
        put(header::PERIOD_NS, &period_ns.to_le_bytes());
        put(header::RECORDS, &records.to_le_bytes());
        put(header::SAMPLES, &samples.to_le_bytes());
        put(header::WEIGHT, &samples.to_le_bytes());
        put(header::CPU_NS, &cpu_ns.to_le_bytes());
        put(header::LAST_NS, &(thread.image + cpu_ns).to_le_bytes());
        put(header::NAME, b"worker");
        let metrics = default_metrics(period_ns);
        put(header::METRIC_COUNT, &(metrics.len() as u32).to_le_bytes());
        for (index, metric) in metrics.iter().enumerate() {
            put(header::METRICS + index * METRIC_SIZE, &metric.encode());
        }
        self.bytes
    }
}
