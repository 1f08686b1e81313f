//! The result: the path, its length, and what they mean.

use hpc_formats::address::CodeAddress;
use hpc_formats::critical_path::{CriticalPath, Moment, OnPath, Place, ProcedureName, Quality};

use crate::lock;
use crate::path::Site;
use crate::remote::key_of;
use crate::sampled::Context;
use crate::savings::{Savings, Times};
use crate::tracker::{EXACT, GRAINS, LOST, Lost, PROCEDURES, RESYNCS, Tracker, WOKEN, WORK};

/// A critical path, as it was tracked. Functions follow the procedures that were marked.
pub type Report = CriticalPath<Site>;

/// A procedure's part in it.
pub type ProcedureTimes = hpc_formats::critical_path::Procedure;

impl Tracker {
    /// The critical path up to the ends of all strands that have ended or were published.
    pub fn report(&self) -> Report {
        let (sums, wall) = self.sums();
        let names = self.names();
        self.with_longest(|longest| {
            let span = longest.map_or(0, |strand| strand.0.length);
            let procedure = |name, work, on_path, times: Times| ProcedureTimes {
                name,
                work,
                on_path,
                zeroed_span: span - times.saving.min(span),
                faster_span: span - times.saved_if_faster().min(span),
            };
            let of_mark = |(number, (name, _)): (usize, &(Box<str>, u32))| {
                let times = longest.map(|strand| strand.0.marks.get(key_of(name))).unwrap_or_default();
                let work = sums.get(PROCEDURES + number);
                procedure(ProcedureName::Mark(name.to_string()), work, times.on_path, times)
            };
            let mut procedures: Vec<ProcedureTimes> = names.iter().enumerate().map(of_mark).collect();
            procedures.sort_by(|a, b| {
                let by_gain = a.zeroed_span.cmp(&b.zeroed_span);
                let by_name = || a.name.to_string().cmp(&b.name.to_string());
                by_gain.then(b.work.cmp(&a.work)).then_with(by_name)
            });
            let lost =
                Lost::ALL.into_iter().map(|cause| (cause.name().to_owned(), sums.get(LOST + cause as usize)));
            let mut report = Report {
                work: sums.get(WORK),
                span,
                burdened_span: span,
                span_at_least: span,
                levels: lock(&self.levels).of(span),
                wall,
                spawn_cost: self.settings.spawn_cost,
                message_cost: self.settings.message_cost,
                edges: self.settings.edges,
                faster: self.settings.faster,
                procedures,
                quality: Quality {
                    resyncs: sums.get(RESYNCS),
                    lost_edges: lost.filter(|(_, count)| *count != 0).collect(),
                    exact_edges: sums.get(EXACT),
                    woken_edges: sums.get(WOKEN),
                    grains: sums.get(GRAINS),
                },
                ..Report::default()
            };
            let Some(longest) = longest else {
                return report;
            };
            report.burdened_span = longest.0.burdened;
            report.span_at_least = longest.0.grain.least;
            report.segments = longest.segments(&self.arena);
            report.near = longest.near().iter().map(|branch| branch.near).collect();
            report.starts = lock(&self.starts).all();
            report.count_beside(self.settings.near_least);
            let savings = || longest.0.sampled.savings().into_iter().flat_map(Savings::all);
            let name = |function| ProcedureName::Function(CodeAddress(function), 0);
            // Views know a function's own work and its time on the path by its contexts.
            report.procedures.extend(savings().map(|(f, times)| procedure(name(f), 0, 0, times)));
            let functions = savings().map(|(f, times)| (name(f), times.on_path));
            let marks = report.procedures.iter().map(|p| (p.name.clone(), p.on_path));
            report.series = vec![Moment {
                wall,
                work: report.work,
                span,
                procedures: marks.chain(functions).filter(|(_, time)| *time > span / 100).collect(),
            }];
            report.on_path = longest.0.sampled.on_path().iter().map(on_path).collect();
            report
        })
    }
}

pub(crate) fn on_path((context, time): &(Context, u64)) -> OnPath {
    OnPath { profile: context.profile, record: context.record, time: *time }
}

/// A report as JSON (`hpcprof-rs/critical-path/1`); `place` names the sites.
pub fn to_json(report: &Report, place: impl Fn(&Site) -> Place) -> String {
    let mark = |name: &ProcedureName| match name {
        ProcedureName::Mark(name) => Some(Place { name: name.clone(), ..Place::default() }),
        ProcedureName::Function(..) => None,
    };
    report.to_json(place, mark, None)
}
