//! The critical path of a process, with names of its places, and what follows from it.
//!
//! Times are nanoseconds of CPU time, except for the wall time.

/// A place in the program. Empty texts and line 0 stand for the unknown.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Place {
    /// The procedure.
    pub name: String,
    /// Path of its load module.
    pub module: String,
    /// Path of the source file.
    pub file: String,
    /// Line of the file.
    pub line: u32,
}

/// A critical path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CriticalPath {
    /// Whether the process ended; otherwise it is the path up to some moment before.
    pub complete: bool,
    /// All activity (T1).
    pub work: i64,
    /// The longest chain of activity (Tinf).
    pub span: i64,
    /// The longest chain if edges cost what the next two say.
    pub burdened_span: i64,
    /// Wall time while the path was tracked.
    pub wall: i64,
    /// Cost of a spawn.
    pub spawn_cost: i64,
    /// Cost of any other edge.
    pub message_cost: i64,
    /// The places of segments, procedures and branches.
    pub places: Vec<Place>,
    /// The path in its order; the times add up to the span.
    pub segments: Vec<Segment>,
    /// Procedures by what their time costs the program.
    pub procedures: Vec<Procedure>,
    /// Branches beside the path that are nearly as long, the longest first.
    pub branches: Vec<Branch>,
    /// What the result rests on.
    pub quality: Quality,
    /// Of a path through several processes: the part of each.
    pub ranks: Vec<RankShare>,
}

/// The part of a process in a path through several, by its rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RankShare {
    /// Its rank.
    pub rank: u32,
    /// Its activity.
    pub work: i64,
    /// Its activity on the path.
    pub on_path: i64,
}

/// A part of the path: activity of one strand between two events. Equal consecutive parts are one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// How it begins, one of [`hpc_formats::critical_path::EDGES`].
    pub edge: &'static str,
    /// Of a path through several processes: whose.
    pub rank: Option<u32>,
    /// Ordinal of the thread that ran it; `None` if several did, or if it is not known.
    pub thread: Option<u32>,
    /// Its activity, of all `count` times together.
    pub time: i64,
    /// How often it occurs.
    pub count: i64,
    /// The place where it begins, by index.
    pub begin: u32,
    /// The place where it ends, by index.
    pub end: u32,
}

/// A procedure's part in the path, with what it calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Procedure {
    /// Its name, and where it is declared.
    pub place: u32,
    /// Its activity in all threads.
    pub work: i64,
    /// Its activity on the path.
    pub on_path: i64,
    /// The span if it took no time.
    pub zeroed_span: i64,
}

/// A branch beside the path that is nearly as long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Branch {
    /// Ordinal of the thread of its last segment, if it is known.
    pub thread: Option<u32>,
    /// Its length since it left the path.
    pub time: i64,
    /// By how much it is shorter than the path beside it.
    pub slack: i64,
    /// Where its last segment begins.
    pub begin: u32,
    /// Where its last segment ends.
    pub end: u32,
}

/// What a result rests on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Quality {
    /// Clock readings that had to ask the system.
    pub resyncs: i64,
    /// Edges whose operation was seen.
    pub exact_edges: i64,
    /// Edges of which only the wait and the wake-up were seen.
    pub woken_edges: i64,
    /// What is missing, by cause.
    pub lost_edges: Vec<(String, i64)>,
}

/// The cause by which the tracker counts procedures that it had no room for: their time is on the path, and
/// no edge is missing.
const NAMELESS: &str = "procedure";

impl Quality {
    /// Edges that are missing.
    pub fn missing_edges(&self) -> i64 {
        let lost = self
            .lost_edges
            .iter()
            .filter(|(cause, _)| cause != NAMELESS);
        lost.fold(0, |sum, (_, edges)| sum.saturating_add(*edges))
    }

    /// Edges that are known or missing.
    pub fn edges(&self) -> i64 {
        let known = self.exact_edges.saturating_add(self.woken_edges);
        known.saturating_add(self.missing_edges())
    }
}

/// The numbers of workers for which times are predicted.
pub const WORKERS: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// The time on a number of workers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prediction {
    /// The number of workers.
    pub workers: u32,
    /// No schedule is shorter: max(T1 / P, Tinf).
    pub lower: f64,
    /// No schedule is longer in which a worker is idle only for want of work (Brent): (T1 - Tinf) / P + Tinf.
    pub upper: f64,
}

impl CriticalPath {
    /// What a number of workers would take.
    pub fn prediction(&self, workers: u32) -> Prediction {
        let (work, span) = (self.work as f64, self.span as f64);
        Prediction {
            workers,
            lower: (work / f64::from(workers)).max(span),
            upper: bound(work, span, workers),
        }
    }

    /// The upper bound for a number of workers if a procedure took no time. It is the same bound as a
    /// prediction's, so that the two can be compared.
    pub fn without(&self, procedure: &Procedure, workers: u32) -> f64 {
        let work = self.work.saturating_sub(procedure.work);
        bound(work as f64, procedure.zeroed_span as f64, workers)
    }

    /// By how much the span is shorter if a procedure takes no time.
    pub fn gain(&self, procedure: &Procedure) -> i64 {
        self.span.saturating_sub(procedure.zeroed_span)
    }

    /// Sorts the procedures by what they gain.
    pub fn sort_procedures(&mut self) {
        let name = |p: &Procedure| &self.places[p.place as usize].name;
        self.procedures.sort_by(|a, b| {
            let by_gain = a.zeroed_span.cmp(&b.zeroed_span);
            by_gain.then(b.work.cmp(&a.work)).then(name(a).cmp(name(b)))
        });
    }

    /// T1 / Tinf; 0 for a process without activity.
    pub fn parallelism(&self) -> f64 {
        ratio(self.work, self.span)
    }

    /// A place.
    pub fn place(&self, index: u32) -> &Place {
        &self.places[index as usize]
    }
}

fn bound(work: f64, span: f64, workers: u32) -> f64 {
    (work - span).max(0.0) / f64::from(workers) + span
}

/// A part by the whole; 0 if that is 0.
pub fn ratio(part: i64, whole: i64) -> f64 {
    match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64,
    }
}
