//! A critical path as JSON: the schema `hpcprof-rs/critical-path/1`, for reports and views alike.

use super::{CriticalPath, Place, Segment, WORKERS};
use crate::json::{Float, OrNull, Seconds, Text, list, members, object};
use std::fmt::Display;

/// What a view has beside the path.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// Members that tell which process it is.
    pub process: String,
    /// The number of workers for which procedures have predictions.
    pub workers: u32,
    /// What is to be expected of procedures that are faster, as objects.
    pub faster: Vec<String>,
    /// The other processes, as objects.
    pub others: Vec<String>,
}

impl Place {
    /// Its members. What is not known is null, but for a name, which is empty.
    fn members(&self) -> String {
        let or_null = |text: &str| OrNull((!text.is_empty()).then(|| Text(text).to_string()));
        members!(
            "name": Text(&self.name), "module": or_null(&self.module), "file": or_null(&self.file),
            "line": OrNull((self.line != 0).then_some(self.line))
        )
    }
}

impl<P, N> CriticalPath<P, N> {
    /// The JSON, in seconds. `place` names places, `procedure` those procedures that are listed.
    pub fn to_json(
        &self,
        place: impl Fn(&P) -> Place,
        procedure: impl Fn(&N) -> Option<Place>,
        beside: Option<&Beside>,
    ) -> String {
        let at = |site: &P| format!("{{{}}}", place(site).members());
        let prediction = WORKERS.map(|workers| {
            let prediction = self.prediction(workers);
            object!(
                "workers": workers, "seconds": Float(prediction.time / 1e9),
                "lower": Float(prediction.lower / 1e9), "upper": Float(prediction.upper / 1e9)
            )
        });
        let levels = self.levels.iter().map(|level| {
            object!("cores": level.cores, "seconds": Seconds(level.time), "work": Seconds(level.work))
        });
        let row = |s: &Segment<P>, kind: &str, time, (begin, end)| {
            object!(
                "kind": Text(kind), "rank": OrNull(s.rank), "thread": OrNull(s.thread),
                "seconds": Seconds(time), "share": Float(self.share(time)), "count": s.count,
                "edge": Text(s.edge.name()), "begin": at(begin), "end": at(end)
            )
        };
        let ends = self.segments.iter().map(|s| &s.end);
        let before = self.segments.first().map(|s| &s.begin).into_iter().chain(ends);
        let segments = self.segments.iter().zip(before).flat_map(|(s, before)| {
            let time = self.edge_time_of(s);
            let edge = (time > 0).then(|| row(s, "edge", time, (before, &s.begin)));
            edge.into_iter().chain([row(s, "activity", s.time - time, (&s.begin, &s.end))])
        });
        let procedures = self.procedures.iter().filter_map(|p| {
            let place = procedure(&p.name)?.members();
            let times = members!(
                "work": Seconds(p.work), "on_path": Seconds(p.on_path),
                "share": Float(self.share(p.on_path)), "zeroed_span": Seconds(p.zeroed_span),
                "gain": Seconds(self.gain(p))
            );
            let predicted = beside.map_or_else(String::new, |beside| {
                let seconds = Float(self.without(p, beside.workers) / 1e9);
                format!(",\"predicted\":{seconds}")
            });
            Some(format!("{{{place},{times}{predicted}}}"))
        });
        let near = self.near.iter().map(|n| {
            object!(
                "thread": OrNull(n.thread), "seconds": Seconds(n.time), "slack": Seconds(n.slack),
                "begin": at(&n.begin), "end": at(&n.end)
            )
        });
        let exposing = self.exposing().map(|s| {
            object!(
                "first": Seconds(s.first), "edge": Text(s.edge.name()), "count": s.count,
                "seconds": Seconds(s.time), "beside": Seconds(s.beside), "place": at(&s.place)
            )
        });
        let ranks = self.ranks.iter().map(|r| {
            object!(
                "rank": r.rank, "work": Seconds(r.work), "on_path": Seconds(r.on_path),
                "share": Float(self.share(r.on_path))
            )
        });
        let over_time = self.series.iter().map(|moment| {
            let of = |(name, time): &(N, u64)| {
                let name = procedure(name)?.name;
                Some(object!("name": Text(&name), "on_path": Seconds(*time)))
            };
            object!(
                "wall": Seconds(moment.wall), "work": Seconds(moment.work), "span": Seconds(moment.span),
                "procedures": list(moment.procedures.iter().filter_map(of))
            )
        });
        let lost = self.quality.lost_edges.iter();
        let lost: Vec<(&str, &dyn Display)> =
            lost.map(|(cause, n)| (cause.as_str(), n as &dyn Display)).collect();
        let quality = object!(
            "resyncs": self.quality.resyncs, "lost_edges": object(&lost),
            "exact_edges": self.quality.exact_edges, "woken_edges": self.quality.woken_edges,
            "grains": self.quality.grains
        );
        let (schema, unit, clock) = (Text("hpcprof-rs/critical-path/1"), Text("seconds"), Text("cpu"));
        let head = members!("schema": schema, "unit": unit, "clock": clock);
        let totals = members!(
            "complete": self.complete, "work": Seconds(self.work), "span": Seconds(self.span),
            "burdened_span": Seconds(self.burdened_span), "span_at_least": Seconds(self.span_at_least),
            "wall": Seconds(self.wall), "parallelism": Float(self.parallelism()),
            "spawn_cost": Seconds(self.spawn_cost), "message_cost": Seconds(self.message_cost),
            "edges": OrNull(self.edges.then(|| Seconds(self.edge_time())))
        );
        let lists = members!(
            "strands": OrNull(self.strands()), "prediction": list(prediction), "levels": list(levels),
            "segments": list(segments), "ranks": list(ranks), "procedures": list(procedures),
            "near": list(near), "exposing": list(exposing), "over_time": list(over_time),
            "quality": quality
        );
        let (mut process, mut workers, mut others) = (String::new(), String::new(), String::new());
        if let Some(beside) = beside {
            process = format!("{},", beside.process);
            workers = format!("{},", members!("workers": beside.workers));
            others = format!(
                ",{}",
                members!("faster": list(beside.faster.clone()), "others": list(beside.others.clone()))
            );
        }
        format!("{{{head},{process}{totals},{workers}{lists}{others}}}")
    }
}
