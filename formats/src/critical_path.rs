//! The critical path of one process, as it was tracked while the process ran.
//!
//! Layout: a header of [`HEADER_SIZE`] bytes, then one checksummed payload. A file is written whole, so a
//! truncated one is refused. FORMATS.md has the byte table.

use crate::address::CodeAddress;
use crate::bytes::{ByteReader, ByteWriter};
use std::collections::BTreeMap;
use std::fmt;

mod rank;

pub use rank::{Export, Rank};

/// First bytes of every file.
pub const MAGIC: [u8; 8] = *b"HPCRPATH";
/// Readers refuse another major version.
pub const VERSION_MAJOR: u16 = 1;
/// Readers accept any minor version, and ignore what follows the payload that they know.
pub const VERSION_MINOR: u16 = 1;
/// Bytes before the payload.
pub const HEADER_SIZE: usize = 32;
/// Extension of the files.
pub const EXTENSION: &str = "hpcpath";

/// How a segment begins: names by number, those of `critical_path::Edge`.
pub const EDGES: [&str; 10] = [
    "start",
    "spawn",
    "join",
    "channel",
    "lock",
    "condition",
    "barrier",
    "wake",
    "message",
    "folded",
];
/// The edge of a segment that stands for others, which were folded to bound the memory.
pub const FOLDED: u8 = 9;

/// The file of a process image in its measurement directory.
pub fn file_name(pid: u32, image: u64) -> String {
    format!("path-{pid}-{image}.{EXTENSION}")
}

/// The critical path of a process. Times are nanoseconds of CPU time, except for the wall time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CriticalPath {
    /// Process id.
    pub pid: u32,
    /// The image, as in its process file.
    pub image: u64,
    /// Whether the process ended; otherwise the state at some moment before.
    pub complete: bool,
    /// All activity.
    pub work: u64,
    /// The longest chain of activity.
    pub span: u64,
    /// The longest chain if edges cost what the next two say.
    pub burdened_span: u64,
    /// Wall time while the path was tracked.
    pub wall: u64,
    /// Calibrated cost of a spawn.
    pub spawn_cost: u64,
    /// Calibrated cost of any other edge.
    pub message_cost: u64,
    /// The path in its order; the times add up to the span.
    pub segments: Vec<Segment>,
    /// Procedures with activity.
    pub procedures: Vec<Procedure>,
    /// Branches beside the path that are nearly as long.
    pub near: Vec<Near>,
    /// Samples on the path, by context.
    pub on_path: Vec<OnPath>,
    /// Numbers of threads in this file, and their ordinals in the process.
    pub threads: Vec<(u32, u32)>,
    /// What the result rests on.
    pub quality: Quality,
    /// The process's part in a job of several processes that exchange messages.
    pub rank: Option<Rank>,
}

/// A place in the program.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Site {
    /// Not known.
    #[default]
    Unknown,
    /// An address for look-up, as in profiles.
    Address(CodeAddress),
    /// A place in the source.
    Source {
        /// Path of the file, as the compiler was given it.
        file: String,
        /// Line, from 1.
        line: u32,
    },
    /// A captured calling context: a record of a thread's profile.
    Context {
        /// Ordinal of the profile.
        profile: u32,
        /// Record there.
        record: u32,
    },
    /// In another process of the job: the segment stands for the path up to there.
    Remote {
        /// Its rank.
        rank: u32,
        /// Number of the export.
        export: u32,
    },
}

/// A part of the path: activity of one strand between two events. Equal consecutive parts are one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Where it begins.
    pub begin: Site,
    /// Where it ends.
    pub end: Site,
    /// How it begins: a number of [`EDGES`].
    pub edge: u8,
    /// The thread that ran it; `None` if several did.
    pub thread: Option<u32>,
    /// Its activity, of all `count` times together.
    pub time: u64,
    /// How often it occurs.
    pub count: u64,
}

/// What a procedure is known by.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ProcedureName {
    /// The name that the program gave to a part of its own.
    Mark(String),
    /// An address in its code.
    Function(CodeAddress),
}

/// A procedure's part in the path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Procedure {
    /// Which procedure.
    pub name: ProcedureName,
    /// Its activity in all threads; 0 for a function, whose samples tell.
    pub work: u64,
    /// Its activity on the path; the same.
    pub on_path: u64,
    /// The span if it took no time.
    pub zeroed_span: u64,
}

/// A branch beside the path that is nearly as long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Near {
    /// Where its last segment begins.
    pub begin: Site,
    /// Where its last segment ends.
    pub end: Site,
    /// The thread of its last segment.
    pub thread: u32,
    /// Its length since it left the path.
    pub time: u64,
    /// By how much it is shorter than the path beside it.
    pub slack: u64,
}

/// The sampled time of a context on the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OnPath {
    /// Ordinal of the profile.
    pub profile: u32,
    /// Record there: the context's last note, as in an anchor.
    pub record: u32,
    /// Time of the samples.
    pub time: u64,
}

/// What a result rests on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Quality {
    /// Clock readings that had to ask the system.
    pub resyncs: u64,
    /// Edges whose operation was seen.
    pub exact_edges: u64,
    /// Edges of which only the wait and the wake-up were seen.
    pub woken_edges: u64,
    /// Edges that are missing, by cause.
    pub lost_edges: Vec<(String, u64)>,
}

/// Why a file is not readable.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CriticalPathError {
    /// The first bytes are not [`MAGIC`].
    NotACriticalPath,
    /// Written by an incompatible version.
    Version {
        /// Major version found.
        major: u16,
        /// Minor version found.
        minor: u16,
    },
    /// Fewer bytes than the header states.
    Truncated {
        /// Bytes found.
        found: u64,
        /// Bytes stated.
        expected: u64,
    },
    /// The payload's checksum differs.
    Checksum,
    /// A field has an impossible value.
    Corrupt(&'static str),
}

impl fmt::Display for CriticalPathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CriticalPathError::NotACriticalPath => {
                write!(f, "not a critical path: wrong first bytes")
            }
            CriticalPathError::Version { major, minor } => write!(
                f,
                "critical path version {major}.{minor} is not readable by this version ({VERSION_MAJOR}.x): \
                 use the hpcprof-rs of the same release"
            ),
            CriticalPathError::Truncated { found, expected } => {
                write!(f, "truncated: {found} of {expected} bytes")
            }
            CriticalPathError::Checksum => write!(f, "damaged: wrong checksum"),
            CriticalPathError::Corrupt(what) => write!(f, "damaged: {what}"),
        }
    }
}

impl std::error::Error for CriticalPathError {}

const SITE_UNKNOWN: u8 = 0;
const SITE_ADDRESS: u8 = 1;
const SITE_SOURCE: u8 = 2;
const SITE_CONTEXT: u8 = 3;
const SITE_REMOTE: u8 = 4;
const NAME_MARK: u8 = 0;
const NAME_FUNCTION: u8 = 1;
/// Stands for the thread of a segment that several threads ran.
const SEVERAL: u32 = u32::MAX;

/// Sites with their numbers.
type Sites<'a> = BTreeMap<&'a Site, u32>;

impl CriticalPath {
    /// The bytes of a file.
    pub fn encode(&self) -> Vec<u8> {
        let payload = self.payload();
        let mut w = ByteWriter::new();
        w.data.extend(MAGIC);
        w.u16(VERSION_MAJOR);
        w.u16(VERSION_MINOR);
        w.u32(0);
        w.u64(payload.len() as u64);
        w.u64(u64::from(crc32fast::hash(&payload)));
        w.data.extend(payload);
        w.data
    }

    /// Reads the bytes of a file.
    pub fn decode(data: &[u8]) -> Result<CriticalPath, CriticalPathError> {
        let mut header = ByteReader::new(data);
        if header.take(MAGIC.len()) != Some(MAGIC.as_slice()) {
            return Err(CriticalPathError::NotACriticalPath);
        }
        let truncated = |expected| CriticalPathError::Truncated {
            found: data.len() as u64,
            expected,
        };
        let fields = (|| {
            let version = (header.u16()?, header.u16()?);
            header.u32()?;
            Some((version, header.u64()?, header.u64()?))
        })();
        let ((major, minor), length, sum) = fields.ok_or(truncated(HEADER_SIZE as u64))?;
        if major != VERSION_MAJOR {
            return Err(CriticalPathError::Version { major, minor });
        }
        let payload = usize::try_from(length)
            .ok()
            .and_then(|n| header.take(n))
            .ok_or(truncated(length.saturating_add(HEADER_SIZE as u64)))?;
        if u64::from(crc32fast::hash(payload)) != sum {
            return Err(CriticalPathError::Checksum);
        }
        Decoder(ByteReader::new(payload)).critical_path(minor)
    }

    /// The places of all segments and branches.
    pub fn sites(&self) -> impl Iterator<Item = &Site> {
        let segments = self.segments.iter().flat_map(|s| [&s.begin, &s.end]);
        let near = self.near.iter().flat_map(|n| [&n.begin, &n.end]);
        let exports = self.rank.iter().flat_map(Rank::segments);
        let exports = exports.flat_map(|s| [&s.begin, &s.end]);
        segments.chain(near).chain(exports)
    }

    /// All code addresses.
    pub fn addresses(&self) -> impl Iterator<Item = CodeAddress> {
        let sites = self.sites().filter_map(|site| match site {
            Site::Address(address) => Some(*address),
            _ => None,
        });
        let functions = self.procedures.iter().filter_map(|p| match p.name {
            ProcedureName::Function(address) => Some(address),
            ProcedureName::Mark(_) => None,
        });
        sites.chain(functions)
    }

    /// Every site once, numbered in ascending order.
    fn numbered_sites(&self) -> Sites<'_> {
        let mut sites: Sites<'_> = self.sites().map(|s| (s, 0)).collect();
        for (number, of) in (0..).zip(sites.values_mut()) {
            *of = number;
        }
        sites
    }

    fn payload(&self) -> Vec<u8> {
        let mut w = ByteWriter::new();
        w.u32(self.pid);
        w.u64(self.image);
        w.u8(u8::from(self.complete));
        for time in [
            self.work,
            self.span,
            self.burdened_span,
            self.wall,
            self.spawn_cost,
            self.message_cost,
            self.quality.resyncs,
            self.quality.exact_edges,
            self.quality.woken_edges,
        ] {
            w.u64(time);
        }
        list(&mut w, &self.quality.lost_edges, |w, (cause, edges)| {
            w.string(cause);
            w.u64(*edges);
        });
        let sites = self.numbered_sites();
        w.u32(sites.len() as u32);
        for site in sites.keys() {
            write_site(&mut w, site);
        }
        list(&mut w, &self.segments, |w, segment| {
            write_segment(w, segment, &sites);
        });
        list(&mut w, &self.procedures, |w, procedure| {
            write_name(w, &procedure.name);
            w.u64(procedure.work);
            w.u64(procedure.on_path);
            w.u64(procedure.zeroed_span);
        });
        list(&mut w, &self.near, |w, near| {
            w.u32(sites[&near.begin]);
            w.u32(sites[&near.end]);
            w.u32(near.thread);
            w.u64(near.time);
            w.u64(near.slack);
        });
        list(&mut w, &self.on_path, |w, context| {
            w.u32(context.profile);
            w.u32(context.record);
            w.u64(context.time);
        });
        list(&mut w, &self.threads, |w, (number, profile)| {
            w.u32(*number);
            w.u32(*profile);
        });
        list(&mut w, self.rank.as_slice(), |w, rank| {
            rank.write(w, &sites)
        });
        w.data
    }
}

fn write_segment(w: &mut ByteWriter, segment: &Segment, sites: &Sites<'_>) {
    w.u32(sites[&segment.begin]);
    w.u32(sites[&segment.end]);
    w.u8(segment.edge);
    w.u32(segment.thread.unwrap_or(SEVERAL));
    w.u64(segment.time);
    w.u64(segment.count);
}

fn list<T>(w: &mut ByteWriter, items: &[T], mut write: impl FnMut(&mut ByteWriter, &T)) {
    w.u32(items.len() as u32);
    for item in items {
        write(w, item);
    }
}

fn write_name(w: &mut ByteWriter, name: &ProcedureName) {
    match name {
        ProcedureName::Mark(name) => {
            w.u8(NAME_MARK);
            w.string(name);
        }
        ProcedureName::Function(address) => {
            w.u8(NAME_FUNCTION);
            w.u64(address.0);
        }
    }
}

fn read_name(d: &mut ByteReader<'_>) -> Option<ProcedureName> {
    Some(match d.u8()? {
        NAME_MARK => ProcedureName::Mark(d.string()?),
        NAME_FUNCTION => ProcedureName::Function(CodeAddress(d.u64()?)),
        _ => return None,
    })
}

fn write_site(w: &mut ByteWriter, site: &Site) {
    match site {
        Site::Unknown => w.u8(SITE_UNKNOWN),
        Site::Address(address) => {
            w.u8(SITE_ADDRESS);
            w.u64(address.0);
        }
        Site::Source { file, line } => {
            w.u8(SITE_SOURCE);
            w.string(file);
            w.u32(*line);
        }
        Site::Context { profile, record } => {
            w.u8(SITE_CONTEXT);
            w.u32(*profile);
            w.u32(*record);
        }
        Site::Remote { rank, export } => {
            w.u8(SITE_REMOTE);
            w.u32(*rank);
            w.u32(*export);
        }
    }
}

/// Reads the payload; every method returns `None` past the end or for an impossible value.
struct Decoder<'a>(ByteReader<'a>);

impl Decoder<'_> {
    fn critical_path(mut self, minor: u16) -> Result<CriticalPath, CriticalPathError> {
        let corrupt = CriticalPathError::Corrupt;
        let mut path = self.totals().ok_or(corrupt("totals"))?;
        path.quality.lost_edges = self
            .list(|d| Some((d.0.string()?, d.0.u64()?)))
            .ok_or(corrupt("lost edges"))?;
        let sites = self.list(Decoder::site).ok_or(corrupt("sites"))?;
        path.segments = self
            .list(|d| d.segment(&sites))
            .ok_or(corrupt("segments"))?;
        path.procedures = self.list(Decoder::procedure).ok_or(corrupt("procedures"))?;
        path.near = self.list(|d| d.near(&sites)).ok_or(corrupt("near"))?;
        path.on_path = self
            .list(Decoder::on_path)
            .ok_or(corrupt("samples on the path"))?;
        path.threads = self
            .list(|d| Some((d.0.u32()?, d.0.u32()?)))
            .ok_or(corrupt("threads"))?;
        if minor >= 1 {
            let ranks = self.list(|d| d.rank(&sites)).ok_or(corrupt("ranks"))?;
            path.rank = ranks.into_iter().next();
        }
        Ok(path)
    }

    fn totals(&mut self) -> Option<CriticalPath> {
        let d = &mut self.0;
        Some(CriticalPath {
            pid: d.u32()?,
            image: d.u64()?,
            complete: match d.u8()? {
                0 => false,
                1 => true,
                _ => return None,
            },
            work: d.u64()?,
            span: d.u64()?,
            burdened_span: d.u64()?,
            wall: d.u64()?,
            spawn_cost: d.u64()?,
            message_cost: d.u64()?,
            quality: Quality {
                resyncs: d.u64()?,
                exact_edges: d.u64()?,
                woken_edges: d.u64()?,
                lost_edges: Vec::new(),
            },
            ..CriticalPath::default()
        })
    }

    /// Memory is taken for each element that is there, whatever the count says.
    fn list<T>(&mut self, mut element: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.0.u32()?;
        (0..count).map(|_| element(self)).collect()
    }

    fn site(&mut self) -> Option<Site> {
        let d = &mut self.0;
        Some(match d.u8()? {
            SITE_UNKNOWN => Site::Unknown,
            SITE_ADDRESS => Site::Address(CodeAddress(d.u64()?)),
            SITE_SOURCE => Site::Source {
                file: d.string()?,
                line: d.u32()?,
            },
            SITE_CONTEXT => Site::Context {
                profile: d.u32()?,
                record: d.u32()?,
            },
            SITE_REMOTE => Site::Remote {
                rank: d.u32()?,
                export: d.u32()?,
            },
            _ => return None,
        })
    }

    fn one_of(&mut self, sites: &[Site]) -> Option<Site> {
        sites.get(self.0.u32()? as usize).cloned()
    }

    fn segment(&mut self, sites: &[Site]) -> Option<Segment> {
        Some(Segment {
            begin: self.one_of(sites)?,
            end: self.one_of(sites)?,
            edge: self.0.u8().filter(|e| (*e as usize) < EDGES.len())?,
            thread: Some(self.0.u32()?).filter(|thread| *thread != SEVERAL),
            time: self.0.u64()?,
            count: self.0.u64()?,
        })
    }

    fn procedure(&mut self) -> Option<Procedure> {
        let d = &mut self.0;
        Some(Procedure {
            name: read_name(d)?,
            work: d.u64()?,
            on_path: d.u64()?,
            zeroed_span: d.u64()?,
        })
    }

    fn near(&mut self, sites: &[Site]) -> Option<Near> {
        Some(Near {
            begin: self.one_of(sites)?,
            end: self.one_of(sites)?,
            thread: self.0.u32()?,
            time: self.0.u64()?,
            slack: self.0.u64()?,
        })
    }

    fn on_path(&mut self) -> Option<OnPath> {
        let d = &mut self.0;
        Some(OnPath {
            profile: d.u32()?,
            record: d.u32()?,
            time: d.u64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::ModuleId;

    fn sample() -> CriticalPath {
        let source = |line| Site::Source {
            file: "src/mäin.rs".to_owned(),
            line,
        };
        let address = CodeAddress::new(ModuleId(3), 0x1234);
        let segment = |begin, end, edge, thread, time| Segment {
            begin,
            end,
            edge,
            thread,
            time,
            count: 1 + time / 10,
        };
        CriticalPath {
            pid: 7,
            image: 1 << 40,
            complete: true,
            work: 95,
            span: 65,
            burdened_span: 71,
            wall: 80,
            spawn_cost: 4,
            message_cost: 2,
            segments: vec![
                segment(Site::Unknown, source(3), 0, Some(0), 10),
                segment(source(3), Site::Address(address), 1, Some(1), 50),
                segment(
                    Site::Address(address),
                    Site::Context {
                        profile: 2,
                        record: 9,
                    },
                    FOLDED,
                    None,
                    5,
                ),
            ],
            procedures: vec![
                Procedure {
                    name: ProcedureName::Function(address),
                    work: 80,
                    on_path: 50,
                    zeroed_span: 15,
                },
                Procedure {
                    name: ProcedureName::Mark("a mark".to_owned()),
                    work: u64::MAX,
                    on_path: 0,
                    zeroed_span: 65,
                },
            ],
            near: vec![Near {
                begin: source(3),
                end: source(4),
                thread: 2,
                time: 48,
                slack: 2,
            }],
            on_path: vec![OnPath {
                profile: 1,
                record: 17,
                time: 5_000_000,
            }],
            threads: vec![(0, 1), (1, 4)],
            quality: Quality {
                resyncs: 1,
                exact_edges: 2,
                woken_edges: 3,
                lost_edges: vec![("untracked".to_owned(), 4)],
            },
            rank: Some(Rank {
                job: 1 << 50,
                rank: 1,
                ranks: 4,
                savings: vec![(5, 10)],
                names: vec![(5, ProcedureName::Function(address))],
                first: 3,
                segments: vec![
                    (
                        None,
                        segment(Site::Remote { rank: 2, export: 7 }, source(3), 8, None, 10),
                    ),
                    (Some(0), segment(source(3), source(5), 8, Some(1), 5)),
                ],
                contexts: vec![(
                    None,
                    vec![OnPath {
                        profile: 1,
                        record: 2,
                        time: 3,
                    }],
                )],
                exports: vec![Export {
                    length: 15,
                    last: segment(source(5), source(3), 8, Some(1), 0),
                    before: Some(1),
                    contexts: Some(0),
                    marks: vec![(6, 5)],
                }],
            }),
        }
    }

    /// `bytes` with another payload and its right checksum.
    fn signed(bytes: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut out = bytes[..16].to_vec();
        out.extend((payload.len() as u64).to_le_bytes());
        out.extend(u64::from(crc32fast::hash(payload)).to_le_bytes());
        out.extend(payload);
        out
    }

    #[test]
    fn what_is_written_is_read() {
        for path in [sample(), CriticalPath::default()] {
            assert_eq!(CriticalPath::decode(&path.encode()), Ok(path));
        }
        assert_eq!(file_name(12, 345), "path-12-345.hpcpath");
        assert_eq!(EDGES[FOLDED as usize], "folded");
    }

    #[test]
    fn a_site_is_written_once() {
        let mut path = sample();
        let once = path.encode().len();
        let again = path.segments[0].clone();
        path.segments.push(again);
        // Two numbers of sites, edge, thread, time, count.
        assert_eq!(path.encode().len(), once + 4 + 4 + 1 + 4 + 8 + 8);
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = sample().encode();
        for n in 0..bytes.len() {
            let expected = match n {
                0..8 => CriticalPathError::NotACriticalPath,
                _ => CriticalPathError::Truncated {
                    found: n as u64,
                    expected: if n < HEADER_SIZE {
                        HEADER_SIZE
                    } else {
                        bytes.len()
                    } as u64,
                },
            };
            assert_eq!(CriticalPath::decode(&bytes[..n]), Err(expected), "{n}");
        }
    }

    #[test]
    fn every_flipped_bit_is_found_except_in_the_minor_version_and_the_reserved_word() {
        let bytes = sample().encode();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let tolerated = (10..16).contains(&(bit / 8));
            let decoded = CriticalPath::decode(&damaged);
            assert_eq!(decoded.is_ok(), tolerated, "bit {bit}");
        }
    }

    /// A checksum protects against accidents, not against an author.
    #[test]
    fn a_signed_payload_that_ends_early_or_has_impossible_values_is_an_error() {
        let bytes = sample().encode();
        let payload = &bytes[HEADER_SIZE..];
        for n in 0..payload.len() {
            let decoded = CriticalPath::decode(&signed(&bytes, &payload[..n]));
            assert!(matches!(decoded, Err(CriticalPathError::Corrupt(_))), "{n}");
        }
        let mut refused = 0;
        for at in 0..payload.len() {
            for value in 0..=255 {
                let mut damaged = payload.to_vec();
                damaged[at] = value;
                match CriticalPath::decode(&signed(&bytes, &damaged)) {
                    Ok(path) => {
                        let mut edges = path.segments.iter().map(|s| s.edge as usize);
                        assert!(edges.all(|edge| edge < EDGES.len()));
                    }
                    Err(_) => refused += 1,
                }
            }
        }
        assert!(refused > 1000, "only {refused} refused");
        let mut longer = payload.to_vec();
        longer.extend([1, 2, 3]);
        assert_eq!(
            CriticalPath::decode(&signed(&bytes, &longer)),
            Ok(sample()),
            "a later minor version adds fields at the end"
        );
    }

    #[test]
    fn other_versions_are_refused_by_name() {
        let mut bytes = sample().encode();
        bytes[8] = 9;
        let error = CriticalPath::decode(&bytes).expect_err("major version 9");
        assert!(error.to_string().contains("9.1"), "{error}");
    }
}
