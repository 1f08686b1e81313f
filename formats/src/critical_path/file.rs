//! A critical path in a file: a header, then one checksummed payload.

use super::{
    CriticalPath, Edge, Export, Level, Levels, Moment, Near, OnPath, Procedure, ProcedureName, Quality, Rank,
    RankShare, Segment, Site, Start, Steps,
};
use crate::address::CodeAddress;
use crate::bytes::{ByteReader, ByteWriter};
use crate::error::{FileError, Kind};
use crate::fields::{Field, by_number, structures};
use std::collections::BTreeMap;

pub static KIND: Kind = Kind::measured("critical path", *b"HPCRPATH", 10);
pub const EXTENSION: &str = "hpcpath";

/// The file of a process image in its measurement directory.
pub fn file_name(pid: u32, image: u64) -> String {
    format!("path-{pid}-{image}.{EXTENSION}")
}

/// Stands for no number: of the thread of a segment that several threads ran, of an index.
const NONE: u32 = u32::MAX;

structures! {
    Segment<u32>, Segment { begin end edge rank thread time count }
    Procedure, Procedure { name work on_path zeroed_span faster_span }
    Near<u32>, Near { begin end thread time slack }
    OnPath, OnPath { profile record time }
    Level, Level { cores time work }
    Start<u32>, Start { place edge first count time beside }
    Moment, Moment { wall work span procedures }
    Quality, Quality { resyncs exact_edges woken_edges grains lost_edges }
    Numbered, CriticalPath {
        pid image complete work span burdened_span span_at_least wall spawn_cost message_cost edges
        faster levels quality segments procedures near starts series on_path threads rank ranks
    }
    RankShare, RankShare { rank work on_path }
    Rank<u32>, Rank { job rank ranks savings names first segments contexts exports levels }
    Levels, Levels { shift buckets }
    Steps, Steps { up lengths }
    Export<u32>, Export { length last before contexts marks }
}

impl Field for Option<u32> {
    fn write(&self, w: &mut ByteWriter) {
        self.unwrap_or(NONE).write(w);
    }
    fn read(r: &mut ByteReader<'_>) -> Option<Self> {
        Some(Some(r.u32()?).filter(|number| *number != NONE))
    }
}

by_number! { Edge }

impl Field for Site {
    fn write(&self, w: &mut ByteWriter) {
        match self {
            Site::Unknown => w.u8(0),
            Site::Address(address) => {
                w.u8(1);
                w.u64(address.0);
            }
            Site::Source { file, line } => {
                w.u8(2);
                w.string(file);
                w.u32(*line);
            }
            Site::Context { profile, record } => {
                w.u8(3);
                w.u32(*profile);
                w.u32(*record);
            }
            Site::Remote { rank, export } => {
                w.u8(4);
                w.u32(*rank);
                w.u32(*export);
            }
        }
    }
    fn read(r: &mut ByteReader<'_>) -> Option<Self> {
        Some(match r.u8()? {
            0 => Site::Unknown,
            1 => Site::Address(CodeAddress(r.u64()?)),
            2 => Site::Source { file: r.string()?, line: r.u32()? },
            3 => Site::Context { profile: r.u32()?, record: r.u32()? },
            4 => Site::Remote { rank: r.u32()?, export: r.u32()? },
            _ => return None,
        })
    }
}

impl Field for ProcedureName {
    fn write(&self, w: &mut ByteWriter) {
        match self {
            ProcedureName::Mark(name) => {
                w.u8(0);
                w.string(name);
            }
            ProcedureName::Function(address, depth) => {
                w.u8(1);
                w.u64(address.0);
                w.u32(*depth);
            }
        }
    }
    fn read(r: &mut ByteReader<'_>) -> Option<Self> {
        Some(match r.u8()? {
            0 => ProcedureName::Mark(r.string()?),
            1 => ProcedureName::Function(CodeAddress(r.u64()?), r.u32()?),
            _ => return None,
        })
    }
}

/// A path whose places are numbers of sites.
type Numbered = CriticalPath<u32>;

impl Field for Option<Rank<u32>> {
    fn write(&self, w: &mut ByteWriter) {
        self.iter().cloned().collect::<Vec<_>>().write(w);
    }
    fn read(r: &mut ByteReader<'_>) -> Option<Self> {
        Some(Vec::read(r)?.into_iter().next())
    }
}

impl CriticalPath {
    pub fn encode(&self) -> Vec<u8> {
        // Every site once, in ascending order.
        let sites: BTreeMap<Site, u32> = self.places().map(|site| (site.clone(), 0)).collect();
        let sites: BTreeMap<Site, u32> = sites.into_keys().zip(0..).collect();
        let path = self.clone().map(|site| sites[&site], |name| name);
        let mut payload = ByteWriter::new();
        (sites.into_keys().collect::<Vec<_>>(), path).write(&mut payload);
        let (length, sum) = (payload.data.len(), crc32fast::hash(&payload.data));
        let mut bytes = KIND.header(0, length as u64, sum);
        bytes.extend(payload.data);
        bytes
    }

    pub fn decode(data: &[u8]) -> Result<CriticalPath, FileError> {
        let (.., payload) = KIND.open(data)?;
        let read: Option<(Vec<Site>, Numbered)> = Field::read(&mut ByteReader::new(payload));
        let is_sound = |(sites, path): &(Vec<Site>, Numbered)| {
            path.rank.as_ref().is_none_or(Rank::is_sound)
                && path.places().all(|place| (*place as usize) < sites.len())
        };
        let read = read.filter(is_sound).ok_or(KIND.corrupt("a part of its payload"))?;
        let (sites, path) = read;
        Ok(path.map(|place| sites[place as usize].clone(), |name| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::ModuleId;
    use crate::sealed::HEADER_SIZE;
    use crate::sealed::tests::{check_reader, signed};

    fn sample() -> CriticalPath {
        let source = |line| Site::Source { file: "src/mäin.rs".to_owned(), line };
        let address = CodeAddress::new(ModuleId(3), 0x1234);
        let context = Site::Context { profile: 2, record: 9 };
        let segment = |begin, end, edge, thread, time| Segment {
            begin,
            end,
            edge,
            rank: None,
            thread,
            time,
            count: 1 + time / 10,
        };
        let procedure = |name, work, on_path, zeroed_span, faster_span| Procedure {
            name,
            work,
            on_path,
            zeroed_span,
            faster_span,
        };
        let mut levels = Levels::new(16);
        levels.add(3, 40);
        CriticalPath {
            pid: 7,
            image: 1 << 40,
            complete: true,
            work: 95,
            span: 65,
            burdened_span: 71,
            span_at_least: 60,
            levels: vec![Level { cores: 1, time: 35, work: 35 }, Level { cores: 2, time: 30, work: 60 }],
            wall: 80,
            spawn_cost: 4,
            message_cost: 2,
            edges: true,
            faster: 5000,
            segments: vec![
                segment(Site::Unknown, source(3), Edge::Start, Some(0), 10),
                segment(source(3), Site::Address(address), Edge::Spawn, Some(1), 50),
                segment(Site::Address(address), context, Edge::Folded, None, 5),
            ],
            procedures: vec![
                procedure(ProcedureName::Function(address, 0), 80, 50, 15, 40),
                procedure(ProcedureName::Mark("a mark".to_owned()), u64::MAX, 0, 65, 65),
            ],
            near: vec![Near { begin: source(3), end: source(4), thread: Some(2), time: 48, slack: 2 }],
            starts: vec![Start {
                place: source(9),
                edge: Edge::Spawn,
                first: 15,
                count: 2,
                time: 20,
                beside: 15,
            }],
            series: vec![Moment {
                wall: 40,
                work: 50,
                span: 30,
                procedures: vec![(ProcedureName::Function(address, 0), 20)],
            }],
            on_path: vec![OnPath { profile: 1, record: 17, time: 5_000_000 }],
            threads: vec![(0, 1), (1, 4)],
            quality: Quality {
                resyncs: 1,
                exact_edges: 2,
                woken_edges: 3,
                grains: 5,
                lost_edges: vec![("untracked".to_owned(), 4)],
            },
            rank: Some(Rank {
                job: 1 << 50,
                rank: 1,
                ranks: 4,
                savings: vec![(5, 10)],
                names: vec![(5, ProcedureName::Function(address, 2))],
                first: 3,
                segments: vec![
                    (None, segment(Site::Remote { rank: 2, export: 7 }, source(3), Edge::Message, None, 10)),
                    (Some(0), segment(source(3), source(5), Edge::Message, Some(1), 5)),
                ],
                contexts: vec![(None, vec![OnPath { profile: 1, record: 2, time: 3 }])],
                exports: vec![Export {
                    length: 15,
                    last: segment(source(5), source(3), Edge::Message, Some(1), 0),
                    before: Some(1),
                    contexts: Some(0),
                    marks: vec![(6, 5)],
                }],
                levels,
            }),
            ranks: Vec::new(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for path in [sample(), CriticalPath::default()] {
            assert_eq!(CriticalPath::decode(&path.encode()), Ok(path));
        }
        assert_eq!(file_name(12, 345), "path-12-345.hpcpath");
    }

    #[test]
    fn a_site_is_written_once() {
        let mut path = sample();
        let once = path.encode().len();
        let again = path.segments[0].clone();
        path.segments.push(again);
        // Two numbers of sites, edge, rank, thread, time, count.
        assert_eq!(path.encode().len(), once + 4 + 4 + 1 + 4 + 4 + 8 + 8);
    }

    #[test]
    fn damage_is_found() {
        check_reader(&KIND, &sample().encode(), CriticalPath::decode);
    }

    /// A checksum protects against accidents, not against an author.
    #[test]
    fn a_signed_payload_that_ends_early_or_has_impossible_values_is_an_error() {
        let bytes = sample().encode();
        let payload = &bytes[HEADER_SIZE..];
        let decode = |payload: &[u8]| CriticalPath::decode(&signed(&bytes, payload));
        for n in 0..payload.len() {
            assert!(decode(&payload[..n]).is_err(), "{n}");
        }
        let mut refused = 0;
        for at in 0..payload.len() {
            for value in 0..=255 {
                let mut damaged = payload.to_vec();
                damaged[at] = value;
                refused += u32::from(decode(&damaged).is_err());
            }
        }
        assert!(refused > 1000, "only {refused} refused");
        let longer = [payload, &[1, 2, 3]].concat();
        let what = "a later minor version adds fields at the end";
        assert_eq!(decode(&longer), Ok(sample()), "{what}");
    }
}
