//! The part of a process in a job whose processes exchange messages: what it has exported, so that the path
//! can be followed from process to process.

use super::{
    Decoder, OnPath, ProcedureName, Segment, Sites, list, read_name, write_name, write_segment,
};
use crate::bytes::ByteWriter;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rank {
    /// The same for all processes of the job, and for no other job.
    pub job: u64,
    /// This process's number, from 0.
    pub rank: u32,
    /// Processes of the job.
    pub ranks: u32,
    /// What the path is shorter by if a procedure takes no time, by the procedure's number in messages.
    pub savings: Vec<(u64, u64)>,
    /// The names of this process's procedures by their numbers in messages.
    pub names: Vec<(u64, ProcedureName)>,
    /// Number of the first export that was kept.
    pub first: u32,
    /// Segments of exports, each with the index of the one before it, which comes earlier here.
    pub segments: Vec<(Option<u32>, Segment)>,
    /// Samples on the path, in lists, each with the index of the list that it adds to, which comes earlier.
    pub contexts: Vec<(Option<u32>, Vec<OnPath>)>,
    /// The exports in order.
    pub exports: Vec<Export>,
}

/// An export: the path up to some point, on its way to another process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// Its length.
    pub length: u64,
    /// Its last segment.
    pub last: Segment,
    /// Index of the segment before that.
    pub before: Option<u32>,
    /// Index of its list of samples, since the path came from another process.
    pub contexts: Option<u32>,
    /// Times in marked procedures since then.
    pub marks: Vec<(u64, u64)>,
}

/// Stands for no index.
const NONE: u32 = u32::MAX;

fn pairs(w: &mut ByteWriter, pairs: &[(u64, u64)]) {
    list(w, pairs, |w, (key, value)| {
        w.u64(*key);
        w.u64(*value);
    });
}

impl Rank {
    /// All segments.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        let shared = self.segments.iter().map(|(_, segment)| segment);
        shared.chain(self.exports.iter().map(|export| &export.last))
    }

    pub(super) fn write(&self, w: &mut ByteWriter, sites: &Sites<'_>) {
        w.u64(self.job);
        w.u32(self.rank);
        w.u32(self.ranks);
        pairs(w, &self.savings);
        list(w, &self.names, |w, (key, name)| {
            w.u64(*key);
            write_name(w, name);
        });
        w.u32(self.first);
        list(w, &self.segments, |w, (before, segment)| {
            w.u32(before.unwrap_or(NONE));
            write_segment(w, segment, sites);
        });
        list(w, &self.contexts, |w, (before, times)| {
            w.u32(before.unwrap_or(NONE));
            list(w, times, |w, context| {
                w.u32(context.profile);
                w.u32(context.record);
                w.u64(context.time);
            });
        });
        list(w, &self.exports, |w, export| {
            w.u64(export.length);
            write_segment(w, &export.last, sites);
            w.u32(export.before.unwrap_or(NONE));
            w.u32(export.contexts.unwrap_or(NONE));
            pairs(w, &export.marks);
        });
    }
}

impl Decoder<'_> {
    /// An index below `end`, or none.
    fn index(&mut self, end: usize) -> Option<Option<u32>> {
        let index = self.0.u32()?;
        let is_one = (index as usize) < end;
        (is_one || index == NONE).then_some(Some(index).filter(|_| is_one))
    }

    fn pairs(&mut self) -> Option<Vec<(u64, u64)>> {
        self.list(|d| Some((d.0.u64()?, d.0.u64()?)))
    }

    pub(super) fn rank(&mut self, sites: &[super::Site]) -> Option<Rank> {
        let mut rank = Rank {
            job: self.0.u64()?,
            rank: self.0.u32()?,
            ranks: self.0.u32()?,
            savings: self.pairs()?,
            names: self.list(|d| Some((d.0.u64()?, read_name(&mut d.0)?)))?,
            first: self.0.u32()?,
            ..Rank::default()
        };
        let mut known = 0;
        rank.segments = self.list(|d| {
            let before = d.index(known)?;
            known += 1;
            Some((before, d.segment(sites)?))
        })?;
        known = 0;
        rank.contexts = self.list(|d| {
            let before = d.index(known)?;
            known += 1;
            Some((before, d.list(Decoder::on_path)?))
        })?;
        let (segments, contexts) = (rank.segments.len(), rank.contexts.len());
        rank.exports = self.list(|d| {
            Some(Export {
                length: d.0.u64()?,
                last: d.segment(sites)?,
                before: d.index(segments)?,
                contexts: d.index(contexts)?,
                marks: d.pairs()?,
            })
        })?;
        Some(rank)
    }
}
