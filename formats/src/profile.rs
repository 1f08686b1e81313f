//! The profile of one thread: its logical calling context tree (L-CCT).
//!
//! The file is a shared mapping of the tree in memory, so it is complete up to the last sample even when the
//! program is killed.
//! Threads that run one after the other may share a file ([`profiles`]), so a program with many short threads
//! makes few files.
//!
//! Layout: one header of [`HEADER_SIZE`] bytes, then records of [`RECORD_SIZE`] bytes. Record 0
//! is the synthetic root of the paper's appendix. A child always has a larger index than its
//! parent. The header has a table of the metrics, and each context one value a metric, in groups of
//! [`VALUES_PER_RECORD`]. FORMATS.md has the byte table.

mod metric;

pub use metric::{
    Aggregation, EFFORT_SQUARES, IDLENESS, IDLENESS_SQUARES, LOCK_WAIT, LONG_POLL, MAX_METRICS,
    METRIC_NAME_SIZE, METRIC_SIZE, MPI_WAIT, Metric, OVERSUBSCRIPTION, Representation, SAMPLES, STANDSTILL,
    Unit, VALUES_PER_RECORD, WORK, WORK_SQUARES, default_metrics, square_metrics, wait_metric,
};

use crate::address::CodeAddress;
use crate::error::{FileError, Kind};
use crate::loss::{LOSS_SLOTS, LossCause};
use crate::numbered;

pub static KIND: Kind = Kind::measured("profile", *b"HPCRSPRF", 5);
/// Bytes before the first record.
pub const HEADER_SIZE: usize = header::METRICS + MAX_METRICS * METRIC_SIZE;
/// Bytes of a record.
pub const RECORD_SIZE: usize = 32;

/// Byte offsets of the header's fields.
pub mod header {
    /// Of [`super::KIND`].
    pub const MAGIC: usize = 0;
    /// u16 major, u16 minor version.
    pub const VERSION: usize = 8;
    /// u32 [`super::HEADER_SIZE`].
    pub const HEADER_SIZE: usize = 12;
    /// u32 process id.
    pub const PID: usize = 16;
    /// u32 ordinal of the thread in its process, from 1; never reused.
    pub const THREAD: usize = 20;
    /// u32 kernel thread id.
    pub const TID: usize = 24;
    /// u32 0 while the thread runs, 1 when it ended and the profile is final.
    pub const STATE: usize = 28;
    /// u64 monotonic clock at the start of the process image, which changes at exec; as in the process file.
    pub const IMAGE: usize = 32;
    /// u64 sampling period, nanoseconds.
    pub const PERIOD_NS: usize = 40;
    /// u64 number of records that are valid, the synthetic root included.
    pub const RECORDS: usize = 48;
    /// u64 samples in the tree.
    pub const SAMPLES: usize = 56;
    /// u64 periods in the tree: samples weighted by timer overruns.
    pub const WEIGHT: usize = 64;
    /// u64 periods that fell while the thread was idle (not in the tree).
    pub const IDLE_WEIGHT: usize = 72;
    /// f64 periods times the share of working threads beyond the cores.
    pub const OVERSUBSCRIBED: usize = 80;
    /// u64 thread CPU time from the start of sampling to the end, nanoseconds; 0 while it runs.
    pub const CPU_NS: usize = 88;
    /// u64 monotonic clock at the last sample, nanoseconds.
    pub const LAST_NS: usize = 96;
    /// u32 ordinal of the creating thread, 0 when unknown or the first thread.
    pub const CREATOR_THREAD: usize = 104;
    /// u32 record index of the creation context in the creator's profile.
    pub const CREATOR_NODE: usize = 108;
    /// 16 bytes, NUL-padded thread name.
    pub const NAME: usize = 112;
    /// u64 bytes from this header to that of the next profile in the file, 0: the last one.
    pub const NEXT: usize = 128;
    /// u32 number of metrics, at most [`super::MAX_METRICS`].
    pub const METRIC_COUNT: usize = 136;
    /// u64 counters by [`crate::loss::LossCause`] number.
    pub const LOSSES: usize = 256;
    /// The metrics, of [`super::METRIC_SIZE`] bytes each ([`super::Metric::encode`]).
    pub const METRICS: usize = 512;
}

numbered! {
    /// How many physical (left) and logical (right) notes a bichord has (paper, section 3.1).
    Association {
        /// Native code.
        OneToOne = 1, "1<->1";
        /// One frame of run-time support.
        OneToZero = 2, "1<->0";
        /// Several frames of run-time support.
        ManyToZero = 3, "M<->0";
        /// Several frames implement one user-level frame.
        ManyToOne = 4, "M<->1";
        /// One frame stands for several user-level frames.
        OneToMany = 5, "1<->M";
    }
}

/// Kind of a record, in the low four bits of its first word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum RecordKind {
    /// The synthetic root; record 0 only.
    Root = 1,
    /// Child of the root: paths that start at the program's entry.
    Entry = 2,
    /// Child of the root: paths that continue a context in another tree
    /// (`ip` = thread ordinal, `lip` = record index there): thread creation or a kept spawn.
    Anchor = 3,
    /// Child of the root: paths whose outer part is missing (`ip` = [`LossCause`] number). Child of another
    /// root: time of a thread without a place.
    Partial = 4,
    /// A note pair (the paper's X-structure).
    Note = 5,
    /// A group of metric values of the record `parent`.
    Metric = 6,
}

/// One record, decoded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Record {
    Root,
    Entry,
    Anchor {
        /// Ordinal of the thread whose tree has the context.
        thread: u32,
        /// Record index in that tree.
        node: u32,
    },
    Partial {
        /// Index of the parent record.
        parent: u32,
        /// Why the place is not known.
        cause: LossCause,
    },
    Note {
        /// Index of the parent record.
        parent: u32,
        association: Association,
        /// 1-based position within the bichord, outermost first.
        note_id: u32,
        /// Physical address, or none beyond the p-chord.
        ip: CodeAddress,
        /// Logical address, or none beyond the l-chord.
        lip: CodeAddress,
    },
    Metric {
        /// Record that the values belong to.
        owner: u32,
        /// The group's number g: its values are those of the metrics 3g, 3g + 1 and 3g + 2.
        group: u32,
        /// Words of the values, for [`Metric::amount`]; 0 beyond the last metric.
        values: [u64; VALUES_PER_RECORD],
    },
}

/// Packs a record's first word. A metric record has its group's number in place of a note-id.
#[inline]
pub const fn meta(kind: RecordKind, association: u8, note_id: u32) -> u32 {
    kind as u32 | (association as u32) << 4 | note_id << 8
}

/// Largest note-id that fits a record.
pub const MAX_NOTE_ID: u32 = (1 << 24) - 1;

/// The header, decoded.
#[derive(Clone, PartialEq, Debug)]
/// Each field is documented at its offset in [`header`](mod@header).
pub struct Header {
    pub pid: u32,
    pub thread: u32,
    pub tid: u32,
    pub finished: bool,
    pub image: u64,
    pub period_ns: u64,
    pub records: u64,
    pub samples: u64,
    pub weight: u64,
    pub idle_weight: u64,
    pub oversubscribed: f64,
    pub cpu_ns: u64,
    pub last_ns: u64,
    pub creator_thread: u32,
    pub creator_node: u32,
    pub name: String,
    pub losses: Vec<(LossCause, u64)>,
    pub metrics: Vec<Metric>,
}

/// A profile over the bytes of its file.
#[derive(Clone, Debug)]
pub struct Profile<'a> {
    pub header: Header,
    records: &'a [u8],
    header_size: usize,
    /// Records that the header promises but the file does not have.
    pub missing_records: u64,
}

fn u32_at(data: &[u8], at: usize) -> u32 {
    data.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(data: &[u8], at: usize) -> u64 {
    data.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// The profiles in the bytes of a file, for [`Profile::parse`] each. A file that is cut where another one
/// should follow has an empty one at its end, which is an error there.
pub fn profiles(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(file);
    std::iter::from_fn(move || {
        let data = rest.take()?;
        let next = usize::try_from(u64_at(data, header::NEXT)).unwrap_or(usize::MAX);
        if next == 0 || !data.starts_with(&KIND.magic) {
            return Some(data);
        }
        rest = Some(data.get(next..).unwrap_or(&[]));
        // A next one within the header of this cannot be: this is damaged, and said to be.
        Some(data.get(..next).unwrap_or(data))
    })
}

impl<'a> Profile<'a> {
    /// Reads the header and finds the records. A file cut within its records is readable:
    /// `missing_records` says how much is gone.
    pub fn parse(data: &'a [u8]) -> Result<Profile<'a>, FileError> {
        KIND.begin(data, HEADER_SIZE)?;
        let header_size = u32_at(data, header::HEADER_SIZE) as usize;
        if header_size < HEADER_SIZE || header_size > data.len() {
            return Err(KIND.corrupt("header size"));
        }
        let header = Self::parse_header(data)?;
        let body = &data[header_size..];
        let available = (body.len() / RECORD_SIZE) as u64;
        let count = header.records.min(available);
        Ok(Profile {
            missing_records: header.records - count,
            records: &body[..count as usize * RECORD_SIZE],
            header_size,
            header,
        })
    }

    fn parse_header(data: &[u8]) -> Result<Header, FileError> {
        let period_ns = u64_at(data, header::PERIOD_NS);
        if period_ns == 0 {
            return Err(KIND.corrupt("sampling period is zero"));
        }
        let oversubscribed = f64::from_bits(u64_at(data, header::OVERSUBSCRIBED));
        if !oversubscribed.is_finite() || oversubscribed < 0.0 {
            return Err(KIND.corrupt("oversubscription is not a number"));
        }
        let name = &data[header::NAME..header::NAME + 16];
        let end = name.iter().position(|b| *b == 0).unwrap_or(16);
        let losses = (0..LOSS_SLOTS)
            .filter_map(|i| {
                let n = u64_at(data, header::LOSSES + 8 * i);
                (n > 0).then_some(())?;
                Some((LossCause::from_number(i as u8)?, n))
            })
            .collect();
        Ok(Header {
            pid: u32_at(data, header::PID),
            thread: u32_at(data, header::THREAD),
            tid: u32_at(data, header::TID),
            finished: u32_at(data, header::STATE) == 1,
            image: u64_at(data, header::IMAGE),
            period_ns,
            records: u64_at(data, header::RECORDS),
            samples: u64_at(data, header::SAMPLES),
            weight: u64_at(data, header::WEIGHT),
            idle_weight: u64_at(data, header::IDLE_WEIGHT),
            oversubscribed,
            cpu_ns: u64_at(data, header::CPU_NS),
            last_ns: u64_at(data, header::LAST_NS),
            creator_thread: u32_at(data, header::CREATOR_THREAD),
            creator_node: u32_at(data, header::CREATOR_NODE),
            name: String::from_utf8_lossy(&name[..end]).into_owned(),
            losses,
            metrics: metric::parse(data)?,
        })
    }

    /// Number of records present.
    pub fn len(&self) -> usize {
        self.records.len() / RECORD_SIZE
    }

    /// Bytes from the start of the header to the end of the last record.
    pub fn size(&self) -> usize {
        self.header_size + self.records.len()
    }

    /// Whether there is not even the synthetic root.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The record at `index`; `None` when absent or corrupt (unknown kind, a parent that does
    /// not come before its child, a group of no metrics, a value that is not a number).
    pub fn record(&self, index: usize) -> Option<Record> {
        let start = index.checked_mul(RECORD_SIZE)?;
        let bytes = self.records.get(start..start + RECORD_SIZE)?;
        let meta = u32_at(bytes, 0);
        let parent = u32_at(bytes, 4);
        let (ip, lip) = (u64_at(bytes, 8), u64_at(bytes, 16));
        let child_of_root = index > 0 && parent == 0;
        match meta & 0xf {
            k if k == RecordKind::Root as u32 => (index == 0).then_some(Record::Root),
            k if k == RecordKind::Entry as u32 => child_of_root.then_some(Record::Entry),
            k if k == RecordKind::Anchor as u32 => child_of_root.then_some(Record::Anchor {
                thread: u32::try_from(ip).ok()?,
                node: u32::try_from(lip).ok()?,
            }),
            k if k == RecordKind::Partial as u32 => {
                let cause = LossCause::from_number(u8::try_from(ip).ok()?)?;
                ((parent as usize) < index).then_some(Record::Partial { parent, cause })
            }
            k if k == RecordKind::Note as u32 => {
                ((parent as usize) < index && parent != 0).then_some(Record::Note {
                    parent,
                    association: Association::from_number(meta >> 4 & 0xf)?,
                    note_id: meta >> 8,
                    ip: CodeAddress(ip),
                    lip: CodeAddress(lip),
                })
            }
            k if k == RecordKind::Metric as u32 => {
                let (group, values) = (meta >> 8, [ip, lip, u64_at(bytes, 24)]);
                let valid =
                    (parent as usize) < index && metric::are_values(&self.header.metrics, group, &values);
                valid.then_some(Record::Metric { owner: parent, group, values })
            }
            _ => None,
        }
    }
}
