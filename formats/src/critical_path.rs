//! The critical path of a process: as data, as it is tracked, in a file, with names, and as JSON.
//!
//! FORMATS.md has the byte table of the file, and the fields of the JSON. Times are nanoseconds of CPU time,
//! except for the wall time.

/// A structure with these fields of another one, and with others.
macro_rules! with {
    ($of:ident: $name:ident { $($same:ident)* }, $($other:ident),*) => {
        $name { $($same: $of.$same,)* $($other),* }
    };
}

mod file;
mod json;
mod levels;
mod rank;

use crate::address::CodeAddress;
use crate::numbered;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

pub use file::{EXTENSION, KIND, file_name};
pub use json::Beside;
pub use levels::{Levels, Steps};
pub use rank::{Export, Rank, RankShare};

numbered! {
    /// How a segment begins.
    #[derive(Default, Serialize, Deserialize)]
    Edge {
        /// The program's start, or a thread's whose creation was not seen.
        #[default]
        Start = 0, "start";
        /// The creation of the thread or task.
        Spawn = 1, "spawn";
        /// The end of a thread or task for which the segment's strand waited.
        Join = 2, "join";
        /// A value from a channel, or room in one.
        Channel = 3, "channel";
        /// The release of a lock.
        Lock = 4, "lock";
        /// A signalled condition.
        Condition = 5, "condition";
        /// The last arrival at a barrier.
        Barrier = 6, "barrier";
        /// A wake-up, where the operation that caused it was not seen.
        Wake = 7, "wake";
        /// A message from another process, or to an event handler.
        Message = 8, "message";
        /// Not an edge: stands for segments that were folded to bound the memory.
        Folded = 9, "folded";
    }
}

impl Edge {
    /// Whether what waits has not begun before, or does the next piece of work that it is given.
    pub fn is_start(self) -> bool {
        use Edge::{Barrier, Channel, Condition, Message, Spawn, Wake};
        matches!(self, Spawn | Channel | Condition | Barrier | Message | Wake)
    }
}

/// A critical path, with places `P` and procedures that are known by an `N`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CriticalPath<P = Site, N = ProcedureName> {
    pub pid: u32,
    /// The process image, as in its process file.
    pub image: u64,
    /// Whether the process ended; otherwise the state at some moment before.
    pub complete: bool,
    /// All activity (T1).
    pub work: u64,
    /// The longest chain of activity (Tinf).
    pub span: u64,
    /// The longest chain if edges cost what the next two say.
    pub burdened_span: u64,
    /// The longest chain if what counts as serial, though there may be forks in it, took no time.
    pub span_at_least: u64,
    /// What the ideal execution consists of, by the number of cores that are busy. Without it, predictions
    /// are upper bounds.
    pub levels: Vec<Level>,
    /// Wall time while the path was tracked.
    pub wall: u64,
    pub spawn_cost: u64,
    /// Cost of any other edge.
    pub message_cost: u64,
    /// The edges' costs are a part of the path: a segment's time has those of the edges by which it begins.
    pub edges: bool,
    /// What is saved of a procedure in its `faster_span`, in [`PARTS`]; 0: nobody has asked for it.
    pub faster: u32,
    /// The path in its order; the times add up to the span.
    pub segments: Vec<Segment<P>>,
    /// Procedures with activity, those that gain most first.
    pub procedures: Vec<Procedure<N>>,
    /// Branches beside the path that are nearly as long, the longest first.
    pub near: Vec<Near<P>>,
    /// Where activity has begun that had to wait for another strand, the earliest first.
    pub starts: Vec<Start<P>>,
    /// The path as it was at moments before, and at last.
    #[serde(default)]
    pub series: Vec<Moment<N>>,
    /// Samples on the path, by context.
    #[serde(skip)]
    pub on_path: Vec<OnPath>,
    /// Numbers of threads here, and their ordinals in the process.
    #[serde(skip)]
    pub threads: Vec<(u32, u32)>,
    pub quality: Quality,
    /// The process's part in a job of several processes that exchange messages.
    #[serde(skip)]
    pub rank: Option<Rank<P>>,
    /// Of a path through several processes: the part of each. Not in a file.
    pub ranks: Vec<RankShare>,
}

/// A place in the program, as it is recorded.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Site {
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
        rank: u32,
        /// Number of the export.
        export: u32,
    },
}

/// A place in the program, by names. Empty texts and line 0 stand for the unknown.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Place {
    pub name: String,
    pub module: String,
    pub file: String,
    pub line: u32,
}

/// A part of the path: activity of one strand between two events. Equal consecutive parts are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment<P> {
    pub begin: P,
    pub end: P,
    pub edge: Edge,
    /// Of a path through several processes: whose.
    pub rank: Option<u32>,
    /// The thread that ran it; `None` if several did, or if it is not known.
    pub thread: Option<u32>,
    /// Its activity, of all `count` times together.
    pub time: u64,
    /// How often it occurs.
    pub count: u64,
}

impl<P> Segment<P> {
    fn map<Q>(self, mut place: impl FnMut(P) -> Q) -> Segment<Q> {
        let (begin, end) = (place(self.begin), place(self.end));
        with!(self: Segment { edge rank thread time count }, begin, end)
    }
}

/// What a procedure is known by.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ProcedureName {
    /// The name that the program gave to a part of its own.
    Mark(String),
    /// An address in its code, and how many procedures are around it there: 0 for the one that has the
    /// machine code, more for one that is inlined in it.
    Function(CodeAddress, u32),
}

impl Default for ProcedureName {
    fn default() -> Self {
        ProcedureName::Mark(String::new())
    }
}

impl fmt::Display for ProcedureName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcedureName::Mark(mark) => f.write_str(mark),
            ProcedureName::Function(address, 0) => write!(f, "[{address}]"),
            ProcedureName::Function(address, depth) => write!(f, "[{address} {depth}]"),
        }
    }
}

impl<T: AsRef<str>> PartialEq<T> for ProcedureName {
    /// Whether it is this mark.
    fn eq(&self, mark: &T) -> bool {
        matches!(self, ProcedureName::Mark(own) if own == mark.as_ref())
    }
}

/// A procedure's part in the path. A mark's time is its own, a function's has what it calls.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Procedure<N = ProcedureName> {
    pub name: N,
    /// Its activity in all threads; 0 for an address, whose samples tell.
    pub work: u64,
    /// Its activity on the path; the same.
    pub on_path: u64,
    /// The span if it took no time.
    pub zeroed_span: u64,
    /// The span if it took as much less time as was asked for before the run; the span itself if nothing was.
    pub faster_span: u64,
}

/// The path at some moment, up to the strands that had ended or told then how long they were.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Moment<N = ProcedureName> {
    /// Wall time up to it.
    pub wall: u64,
    /// All activity that was known.
    pub work: u64,
    /// The length of the path.
    pub span: u64,
    /// Procedures with their times on it, a function's with what it calls.
    pub procedures: Vec<(N, u64)>,
}

/// Parts of a procedure's time.
pub const PARTS: u32 = 10_000;

/// What a procedure saves that is so many times as fast, in [`PARTS`]; `None` for a factor that is none.
pub fn saved(factor: f64) -> Option<u32> {
    let parts = f64::from(PARTS) * (1.0 - 1.0 / factor);
    (1.0..f64::from(PARTS)).contains(&parts).then_some(parts.round() as u32)
}

/// `NAME=FACTOR` of `--faster`: a procedure, and how many times as fast it is.
pub fn faster(text: &str) -> Result<(String, f64), String> {
    let (name, factor) = text.rsplit_once('=').ok_or("not PROCEDURE=FACTOR, as in parse=2")?;
    let factor = factor.parse().ok().filter(|factor| saved(*factor).is_some());
    Ok((name.to_owned(), factor.ok_or("FACTOR is not a number above 1, and below 10000")?))
}

/// What is to be expected if one procedure is faster.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct IfFaster {
    /// Least and most of the span, in nanoseconds. Equal: this is what was asked for before the run.
    pub span: (f64, f64),
    /// The time for a number of workers with each of them.
    pub time: (f64, f64),
}

/// A branch beside the path that is nearly as long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Near<P> {
    /// Where its last segment begins.
    pub begin: P,
    /// Where its last segment ends.
    pub end: P,
    /// The thread of its last segment, if it is known.
    pub thread: Option<u32>,
    /// Its length since it left the path: in a fork-join program since the fork, otherwise that of its last
    /// segment.
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
    pub time: u64,
}

/// Nanoseconds in which a running thread sees what another one has done, on usual machines. Threads that
/// sleep take 10 µs and more.
pub const MESSAGE: u64 = 150;

/// A spawn costs so many messages, since a thief must look and claim the task.
pub const SPAWNS: u64 = 2;

/// Activity of fewer nanoseconds starts nothing by itself.
pub const SHORT: u64 = 10_000;

/// Activity between two events that is longer, in nanoseconds, is divided among functions on its own.
pub const DIVIDED: u64 = 50_000;

/// A place that others wait for: what spawns, sends, signals or ends a barrier, and what has begun then. It
/// exposes parallelism if much of that is beside the path.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Start<P = Site> {
    pub place: P,
    /// How what begins is ordered after it; the first one if there are several.
    pub edge: Edge,
    /// The length of the longest chain up to it, when it was first there.
    pub first: u64,
    /// How many activities it has begun.
    pub count: u64,
    /// How long they were.
    pub time: u64,
    /// What of that is not on the path.
    pub beside: u64,
}

/// The part of the execution on any number of cores, where nothing waits for a core, in which so many cores
/// are busy: at least `cores` and less than one more, or more than there are predictions for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Level {
    pub cores: u32,
    pub time: u64,
    pub work: u64,
}

/// What a result rests on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Quality {
    /// Clock readings that had to ask the system.
    pub resyncs: u64,
    /// Edges whose operation was seen.
    pub exact_edges: u64,
    /// Edges of which only the wait and the wake-up were seen.
    pub woken_edges: u64,
    /// Forks of so little activity that each of their tasks counts as serial.
    pub grains: u64,
    /// What is missing, by cause; only what is.
    pub lost_edges: Vec<(String, u64)>,
}

/// The cause by which the tracker counts procedures that it had no room for: their time is on the path, and
/// no edge is missing.
const NAMELESS: &str = "procedure";

impl Quality {
    pub fn missing_edges(&self) -> u64 {
        let lost = self.lost_edges.iter();
        let lost = lost.filter(|(cause, _)| cause != NAMELESS);
        lost.fold(0, |sum, (_, edges)| sum.saturating_add(*edges))
    }

    /// Edges that are known or missing.
    pub fn edges(&self) -> u64 {
        let known = self.exact_edges.saturating_add(self.woken_edges);
        known.saturating_add(self.missing_edges())
    }
}

/// The numbers of workers for which times are predicted.
pub const WORKERS: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// The time on a number of workers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prediction {
    pub workers: u32,
    /// If the levels of the ideal execution follow one another: the sum of ceil(k / P) t over all in which k
    /// cores are busy for the time t.
    pub time: f64,
    /// No schedule is shorter: max(T1 / P, Tinf).
    pub lower: f64,
    /// No schedule is longer in which a worker is idle only for want of work (Brent): (T1 - Tinf) / P + Tinf.
    pub upper: f64,
}

impl<P, N> CriticalPath<P, N> {
    /// What a number of workers would take.
    pub fn prediction(&self, workers: u32) -> Prediction {
        let (least, upper) = self.bounds(self.work as f64, self.span as f64, workers);
        Prediction {
            workers,
            time: self.by_levels(workers).max(least).min(upper),
            lower: (self.work as f64 / f64::from(workers)).max(self.span_at_least as f64),
            upper,
        }
    }

    /// One level after another. What is in none counts as in Brent's bound.
    fn by_levels(&self, workers: u32) -> f64 {
        let (mut time, mut work) = (self.span as f64, self.work as f64);
        let mut sum = 0.0;
        for level in &self.levels {
            let (level_time, level_work) = (level.time as f64, level.work as f64);
            (time, work) = (time - level_time, work - level_work);
            // For a part of the time there is one core more.
            let rounds = |cores: u32| f64::from(cores.div_ceil(workers.max(1)));
            let more = level_work - f64::from(level.cores) * level_time;
            let step = rounds(level.cores.saturating_add(1)) - rounds(level.cores);
            sum += match level.cores <= WORKERS[WORKERS.len() - 1] {
                true => rounds(level.cores) * level_time + step * more,
                false => level_time + (level_work - level_time) / f64::from(workers),
            }
            .max(level_time);
        }
        sum + time.max(0.0) + work.max(0.0) / f64::from(workers)
    }

    /// The time for a number of workers if a procedure took none.
    pub fn without(&self, procedure: &Procedure<N>, workers: u32) -> f64 {
        let work = self.work.saturating_sub(procedure.work);
        self.with(work as f64, procedure.zeroed_span as f64, workers)
    }

    /// The span and the time for a number of workers if a procedure is so many times as fast.
    ///
    /// The span is convex in the time that the procedure takes: it is the longest of chains, the length of
    /// each of which is a line. Known are its values where the procedure takes no time, all of it, or what
    /// was asked for; a chord bounds it from above between two of them, and from below beyond, as does its
    /// slope at all of the time, which is the procedure's time on the path.
    pub fn if_faster(&self, procedure: &Procedure<N>, factor: f64, workers: u32) -> IfFaster {
        let saved = f64::from(saved(factor).unwrap_or(0)) / f64::from(PARTS);
        let span = self.span as f64;
        let zeroed = (1.0, span - procedure.zeroed_span as f64);
        let asked = f64::from(self.faster) / f64::from(PARTS);
        let asked = (asked, span - procedure.faster_span as f64);
        // What is gained, by what is saved of the procedure.
        let (mut least, mut most) = (zeroed.1 * saved, zeroed.1);
        most = most.min(procedure.on_path as f64 * saved);
        if self.faster > 0 {
            let chord =
                |(x, gain): (f64, f64)| asked.1 + (gain - asked.1) * (saved - asked.0) / (x - asked.0);
            let (inner, outer) = match saved < asked.0 {
                true => ((0.0, 0.0), zeroed),
                false => (zeroed, (0.0, 0.0)),
            };
            least = least.max(chord(inner));
            // Two points of a chord that are one have no line.
            most = if asked.0 < 1.0 { most.min(chord(outer)) } else { most };
            if (saved - asked.0).abs() < 1.5 / f64::from(PARTS) {
                (least, most) = (asked.1, asked.1);
            }
        }
        let work = self.work as f64 - procedure.work as f64 * saved;
        let span = (span - most.max(least), span - least);
        let time = |span| self.with(work, span, workers);
        IfFaster { span, time: (time(span.0), time(span.1)) }
    }

    /// The time for a number of workers with other work and another span: as far between its bounds as the
    /// prediction is.
    fn with(&self, work: f64, span: f64, workers: u32) -> f64 {
        let (lower, upper) = self.bounds(self.work as f64, self.span as f64, workers);
        let above = match upper > lower {
            true => (self.prediction(workers).time - lower) / (upper - lower),
            false => 1.0,
        };
        let (lower, upper) = self.bounds(work, span, workers);
        lower + above * (upper - lower)
    }

    /// Of the time on a number of workers, the least and the greatest that work and span allow.
    fn bounds(&self, work: f64, span: f64, workers: u32) -> (f64, f64) {
        let beside = (work + self.edge_time() as f64 - span).max(0.0) / f64::from(workers);
        ((work / f64::from(workers)).max(span), beside + span)
    }

    /// What of a segment's time is that of the edges by which it begins; of folded ones that is not known.
    pub fn edge_time_of(&self, segment: &Segment<P>) -> u64 {
        match segment.edge {
            Edge::Start | Edge::Folded => 0,
            Edge::Spawn => self.cost_of(segment, self.spawn_cost),
            _ => self.cost_of(segment, self.message_cost),
        }
    }

    fn cost_of(&self, segment: &Segment<P>, cost: u64) -> u64 {
        let cost = if self.edges { cost } else { 0 };
        segment.count.saturating_mul(cost).min(segment.time)
    }

    /// The time of the path's edges; an upper bound where segments were folded.
    pub fn edge_time(&self) -> u64 {
        let segments = self.segments.iter().filter(|_| self.edges);
        let most = self.spawn_cost.max(self.message_cost);
        let time = |segment: &Segment<P>| {
            if segment.edge == Edge::Folded {
                self.cost_of(segment, most)
            } else {
                self.edge_time_of(segment)
            }
        };
        segments.map(time).fold(0, u64::saturating_add)
    }

    /// By how much the span is shorter if a procedure takes no time.
    pub fn gain(&self, procedure: &Procedure<N>) -> u64 {
        self.span.saturating_sub(procedure.zeroed_span)
    }

    /// How many strands are active at once for at least a hundredth of the span; `None` without levels. With
    /// fixed threads that is their number, and predictions for more workers mean it, too.
    pub fn strands(&self) -> Option<u32> {
        let mut levels: Vec<&Level> = self.levels.iter().filter(|level| level.time > 0).collect();
        levels.sort_by_key(|level| std::cmp::Reverse(level.cores));
        let mut time = 0_u64;
        let level = levels.into_iter().find(|level| {
            time = time.saturating_add(level.time);
            time >= self.span / 100
        })?;
        let more = level.work as f64 - f64::from(level.cores) * level.time as f64;
        Some(level.cores + u32::from(more > 0.01 * level.time as f64))
    }

    /// T1 / Tinf; 0 for a process without activity.
    pub fn parallelism(&self) -> f64 {
        ratio(self.work, self.span)
    }

    /// A segment's or a procedure's share of the span.
    pub fn share(&self, time: u64) -> f64 {
        ratio(time, self.span)
    }

    /// The places that begin at least a hundredth of the work beside the path, the earliest first.
    pub fn exposing(&self) -> impl Iterator<Item = &Start<P>> {
        let least = (self.work / 100).max(1);
        self.starts.iter().filter(move |s| s.beside >= least)
    }

    /// The places of all segments, branches, starts and exports.
    pub fn places(&self) -> impl Iterator<Item = &P> {
        let segments = self.segments.iter().flat_map(|s| [&s.begin, &s.end]);
        let near = self.near.iter().flat_map(|n| [&n.begin, &n.end]);
        let exports = self.rank.iter().flat_map(Rank::segments);
        let exports = exports.flat_map(|s| [&s.begin, &s.end]);
        let starts = self.starts.iter().map(|s| &s.place);
        segments.chain(near).chain(starts).chain(exports)
    }

    /// The same path with other places and names.
    pub fn map<Q, M>(self, mut place: impl FnMut(P) -> Q, name: impl Fn(N) -> M) -> CriticalPath<Q, M> {
        let segments = self.segments.into_iter().map(|s| s.map(&mut place)).collect();
        let rank = self.rank.map(|rank| rank.map(&mut place));
        let near = self.near.into_iter().map(|n| {
            let (begin, end) = (place(n.begin), place(n.end));
            with!(n: Near { thread time slack }, begin, end)
        });
        let near = near.collect();
        let starts = self.starts.into_iter().map(|s| {
            let place = place(s.place);
            with!(s: Start { edge first count time beside }, place)
        });
        let starts = starts.collect();
        let procedures = self.procedures.into_iter().map(|p| {
            let name = name(p.name);
            with!(p: Procedure { work on_path zeroed_span faster_span }, name)
        });
        let procedures = procedures.collect();
        let series = self.series.into_iter().map(|moment| {
            let procedures = moment.procedures.into_iter().map(|(n, time)| (name(n), time)).collect();
            with!(moment: Moment { wall work span }, procedures)
        });
        let series = series.collect();
        with!(self: CriticalPath {
            pid image complete work span burdened_span span_at_least levels wall spawn_cost message_cost edges
            faster on_path threads quality ranks
        }, segments, procedures, near, starts, series, rank)
    }
}

impl<P: Ord, N> CriticalPath<P, N> {
    /// Finds what of the starts is beside the path. What starts a segment of the path is the end of the one
    /// before or, if that is shorter than `short`, what has started that one. Equal ones that follow one
    /// another are one.
    pub fn count_beside(&mut self, short: u64) {
        let mut on_path: BTreeMap<&P, u64> = BTreeMap::new();
        // What starts a segment that follows.
        let mut next: Option<&P> = None;
        for segment in &self.segments {
            let time = segment.time - self.edge_time_of(segment);
            let one = time / segment.count.max(1);
            let cause = next.filter(|_| segment.edge.is_start());
            next = cause.filter(|_| one < short).or(Some(&segment.end));
            for (place, time) in [(cause, one), (cause.and(next), time - one)] {
                if let Some(place) = place {
                    let sum = on_path.entry(place).or_default();
                    *sum = sum.saturating_add(time);
                }
            }
        }
        for start in &mut self.starts {
            let on_path = on_path.get(&start.place).copied();
            start.beside = start.time.saturating_sub(on_path.unwrap_or(0));
        }
    }
}

impl CriticalPath {
    pub fn addresses(&self) -> impl Iterator<Item = CodeAddress> {
        let sites = self.places().filter_map(|site| match site {
            Site::Address(address) => Some(*address),
            _ => None,
        });
        let of_series = self.series.iter().flat_map(|moment| &moment.procedures);
        let names = self.procedures.iter().map(|p| &p.name).chain(of_series.map(|(name, _)| name));
        let functions = names.filter_map(|name| match name {
            ProcedureName::Function(address, _) => Some(*address),
            ProcedureName::Mark(_) => None,
        });
        sites.chain(functions)
    }
}

/// A part by the whole; 0 if that is 0.
pub fn ratio(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A serial half, and one for four cores.
    fn path() -> CriticalPath {
        let level = |cores, work| Level { cores, time: 50, work };
        CriticalPath {
            work: 250,
            span: 100,
            span_at_least: 100,
            levels: vec![level(1, 50), level(4, 200)],
            ..CriticalPath::default()
        }
    }

    /// A segment's start is the end of the one before, or, after a short one, what has started that.
    #[test]
    fn what_is_on_the_path_is_not_beside_it() {
        let segment =
            |edge, end, time, count| Segment { begin: 0, end, edge, rank: None, thread: None, time, count };
        let start = |place, time| Start { place, edge: Edge::Spawn, first: 0, count: 1, time, beside: time };
        let mut path: CriticalPath<u32> = CriticalPath {
            segments: vec![
                segment(Edge::Start, 1, 100, 1),
                segment(Edge::Spawn, 2, 5, 1),
                segment(Edge::Condition, 3, 50, 1),
                segment(Edge::Join, 4, 70, 1),
                segment(Edge::Channel, 5, 90, 3),
            ],
            starts: [1, 2, 3, 4, 5].map(|place| start(place, 80)).into(),
            ..CriticalPath::default()
        };
        path.count_beside(10);
        let beside = Vec::from_iter(path.starts.iter().map(|s| s.beside));
        assert_eq!(beside, [80 - 5 - 50, 80, 80, 80 - 30, 80 - 60]);
    }

    #[test]
    fn levels_follow_one_another() {
        let mut path = path();
        let times = |path: &CriticalPath| [1, 2, 3, 4].map(|workers| path.prediction(workers).time);
        assert_eq!(times(&path), [250.0, 150.0, 150.0, 100.0]);
        // Three for a half of the time, four for the other.
        path.levels[1] = Level { cores: 3, time: 50, work: 175 };
        path.work = 225;
        assert_eq!(times(&path), [225.0, 150.0, 125.0, 100.0]);
        assert_eq!(path.strands(), Some(4));
        path.levels.push(Level { cores: 9, time: 0, work: 0 });
        path.levels[1] = Level { cores: 3, time: 50, work: 150 };
        assert_eq!((path.strands(), CriticalPath::<Site>::default().strands()), (Some(3), None));
        path = self::path();
        let upper = [1, 2, 3, 4].map(|workers| path.prediction(workers).upper);
        assert_eq!(upper, [250.0, 175.0, 150.0, 137.5]);
        // Without levels, or with some that are impossible, the bounds hold.
        path.levels[0].time = 5000;
        assert_eq!(times(&path), upper);
        path.levels.clear();
        assert_eq!(times(&path), upper);
    }

    /// The prediction for two, 150, is halfway between its bounds, 125 and 175.
    #[test]
    fn a_procedure_without_time_leaves_the_prediction_between_its_bounds() {
        let procedure = Procedure {
            name: ProcedureName::Mark("f".to_owned()),
            work: 100,
            on_path: 25,
            zeroed_span: 75,
            faster_span: 100,
        };
        let mut path = path();
        assert_eq!(path.without(&procedure, 1), 150.0);
        assert_eq!(path.without(&procedure, 2), (75.0 + 112.5) / 2.0);
        path.levels.clear();
        assert_eq!(path.without(&procedure, 2), 112.5);
    }
}
