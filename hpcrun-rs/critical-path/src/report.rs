//! The result: the path, its length, and what they mean.

use crate::near::Near;
use crate::path::Segment;
use crate::procedures::Procedure;
use crate::remote::is_nameless;
use crate::sampled::{Context, Function};
use crate::tracker::{EXACT, LOST, Lost, PROCEDURES, RESYNCS, Tracker, WOKEN, WORK};

/// A critical path. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// All activity (T1).
    pub work: u64,
    /// The longest chain of activity (Tinf).
    pub span: u64,
    /// The longest chain if edges cost what the settings say.
    pub burdened_span: u64,
    /// Wall time since the session began.
    pub wall: u64,
    /// The path in order; the times add up to the span.
    pub segments: Vec<Segment>,
    /// The procedures, by what zeroing them gains.
    pub procedures: Vec<ProcedureTimes>,
    /// The span if a function took no time, with what it calls: by samples.
    pub functions: Vec<(Function, u64)>,
    /// The times of sampled contexts on the path.
    pub on_path: Vec<(Context, u64)>,
    /// The largest branches that are nearly as long as the path.
    pub near: Vec<Near>,
    /// What the result rests on.
    pub quality: Quality,
}

/// A procedure's part in the critical path, in nanoseconds. Only its own time counts, not that of marked
/// procedures that it calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcedureTimes {
    /// Its name.
    pub name: String,
    /// Its activity on all threads.
    pub work: u64,
    /// Its activity on the path.
    pub on_path: u64,
    /// The span if it took no time.
    pub zeroed_span: u64,
}

/// What a result rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quality {
    /// Clock readings that had to ask the system.
    pub resyncs: u64,
    /// Edges that are missing, by cause; only those that occurred.
    pub lost_edges: Vec<(Lost, u64)>,
    /// Edges whose operation was seen.
    pub exact_edges: u64,
    /// Edges of which only the wait and the wake-up were seen.
    pub woken_edges: u64,
}

/// The time on a number of workers, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// The number of workers.
    pub workers: u32,
    /// No schedule is shorter: max(T1 / P, Tinf).
    pub lower: f64,
    /// No schedule in which a worker is idle only for want of work is longer (Brent):
    /// (T1 - Tinf) / P + Tinf.
    pub upper: f64,
}

impl Report {
    /// What is predicted for a number of workers.
    pub fn prediction(&self, workers: u32) -> Prediction {
        let (work, span, p) = (self.work as f64, self.span as f64, f64::from(workers));
        Prediction {
            workers,
            lower: (work / p).max(span),
            upper: (work - span) / p + span,
        }
    }

    /// T1 / Tinf; 0 for a program without activity.
    pub fn parallelism(&self) -> f64 {
        ratio(self.work, self.span)
    }

    /// A segment's or a procedure's share of the span.
    pub fn share(&self, time: u64) -> f64 {
        ratio(time, self.span)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}

impl Tracker {
    /// The critical path up to the ends of all strands that have ended or were published.
    pub fn report(&self) -> Report {
        let (sums, wall) = self.sums();
        let names = self.names();
        self.with_longest(|longest| {
            let span = longest.map_or(0, |strand| strand.0.length);
            let times = |number: usize| {
                longest.map_or_else(Default::default, |strand| {
                    strand.0.procedures.get(Procedure(number as u32))
                })
            };
            let mut procedures: Vec<ProcedureTimes> = names
                .iter()
                .enumerate()
                .filter(|(_, known)| !is_nameless(known))
                .map(|(number, (name, _))| ProcedureTimes {
                    name: name.to_string(),
                    work: sums.get(PROCEDURES + number),
                    on_path: times(number).on_path,
                    zeroed_span: span - times(number).saving.min(span),
                })
                .collect();
            procedures.sort_by(|a, b| {
                let by_gain = a.zeroed_span.cmp(&b.zeroed_span);
                by_gain.then(b.work.cmp(&a.work)).then(a.name.cmp(&b.name))
            });
            let lost = Lost::ALL
                .into_iter()
                .map(|cause| (cause, sums.get(LOST + cause as usize)));
            Report {
                work: sums.get(WORK),
                span,
                burdened_span: longest.map_or(0, |strand| strand.0.burdened),
                wall,
                segments: longest.map_or_else(Vec::new, |strand| strand.segments(&self.arena)),
                procedures,
                functions: longest.map_or_else(Vec::new, |strand| {
                    let savings = strand.0.sampled.savings().iter();
                    savings
                        .map(|(f, saving)| (*f, span - saving.min(&span)))
                        .collect()
                }),
                on_path: longest.map_or_else(Vec::new, |strand| strand.0.sampled.on_path()),
                near: longest.map_or_else(Vec::new, |strand| strand.near().to_vec()),
                quality: Quality {
                    resyncs: sums.get(RESYNCS),
                    lost_edges: lost.filter(|(_, count)| *count != 0).collect(),
                    exact_edges: sums.get(EXACT),
                    woken_edges: sums.get(WOKEN),
                },
            }
        })
    }
}
