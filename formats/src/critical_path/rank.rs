//! The part of a process in a job whose processes exchange messages: what it has exported, so that the path
//! can be followed from process to process.

use super::{Levels, OnPath, ProcedureName, Segment};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rank<P> {
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
    pub segments: Vec<(Option<u32>, Segment<P>)>,
    /// Samples on the path, in lists, each with the index of the list that it adds to, which comes earlier.
    pub contexts: Vec<(Option<u32>, Vec<OnPath>)>,
    pub exports: Vec<Export<P>>,
    /// What it does at each length, as others do at the same.
    pub levels: Levels,
}

/// An export: the path up to some point, on its way to another process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export<P> {
    pub length: u64,
    pub last: Segment<P>,
    /// Index of the segment before that.
    pub before: Option<u32>,
    /// Index of its list of samples, since the path came from another process.
    pub contexts: Option<u32>,
    /// Times in marked procedures since then.
    pub marks: Vec<(u64, u64)>,
}

/// The part of a process in a path through several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RankShare {
    pub rank: u32,
    pub work: u64,
    pub on_path: u64,
}

impl<P> Rank<P> {
    pub fn segments(&self) -> impl Iterator<Item = &Segment<P>> {
        let shared = self.segments.iter().map(|(_, segment)| segment);
        shared.chain(self.exports.iter().map(|export| &export.last))
    }

    /// Whether each index is one of something that comes earlier, and numbers are possible.
    pub(super) fn is_sound(&self) -> bool {
        let before = |end: usize, index: Option<u32>| index.is_none_or(|i| (i as usize) < end);
        let segments = self.segments.iter().map(|(index, _)| *index);
        let contexts = self.contexts.iter().map(|(index, _)| *index);
        self.levels.is_sound()
            && segments.enumerate().all(|(own, index)| before(own, index))
            && contexts.enumerate().all(|(own, index)| before(own, index))
            && self.exports.iter().all(|export| {
                before(self.segments.len(), export.before) && before(self.contexts.len(), export.contexts)
            })
    }

    /// The same with other places.
    pub(super) fn map<Q>(self, mut place: impl FnMut(P) -> Q) -> Rank<Q> {
        let segments = self.segments.into_iter();
        let segments = segments.map(|(before, segment)| (before, segment.map(&mut place)));
        let segments = segments.collect();
        let exports = self.exports.into_iter().map(|export| {
            let last = export.last.map(&mut place);
            with!(export: Export { length before contexts marks }, last)
        });
        let exports = exports.collect();
        with!(self: Rank { job rank ranks savings names first contexts levels }, segments, exports)
    }
}
