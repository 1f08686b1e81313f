//! What a critical path means: what limits the program, and which procedures to shorten.

use crate::model::critical_path::{CriticalPath, Procedure};
use crate::render::critical_path::{Scale, name_in, without_symbol};
use crate::views::critical_path::{Remarks, is_function, parts};
use hpc_formats::critical_path::{DIVIDED, Edge, ratio};
use hpc_formats::structure::Origin;
use hpcstruct_rs::known::origin_of_module;
use std::collections::BTreeSet;

/// Procedures that are named.
const NAMED: usize = 3;
/// Less of the span is not worth a line.
const LEAST: f64 = 0.02;
/// Gains are equal from this share on.
const SAME: f64 = 0.95;
/// What runs beside the path begins late from this share of the path on.
const LATE: f64 = 0.1;
/// Missing edges from this share on come before all else.
const MANY_MISSING: f64 = 0.01;

/// What is to say about the path of a process with so many threads, with predictions for a number of workers.
pub fn remarks(path: &CriticalPath, workers: u32, threads: u32) -> Remarks {
    let scale = Scale::of(path.span);
    let mut doubts = doubts(path);
    doubts.extend(too_many_events(path));
    Remarks {
        doubts,
        advice: advice(path, workers, threads, |nanoseconds| scale.about(nanoseconds)),
        basis: basis(path),
    }
}

fn doubts(path: &CriticalPath) -> Vec<String> {
    let mut lines = Vec::new();
    if !path.complete {
        lines
            .push("the process did not end in order: this is the path as it was some time before".to_owned());
    }
    let (missing, edges) = (path.quality.missing_edges(), path.quality.edges());
    if ratio(missing, edges) >= MANY_MISSING {
        lines.push(format!(
            "{missing} of {edges} edges are missing ({}): the true path may be longer",
            causes(path)
        ));
    }
    if path.quality.woken_edges > path.quality.exact_edges {
        lines.push(
            "of most edges only a wait and its wake-up were seen: operations without a wait have no edge"
                .to_owned(),
        );
    }
    let procedures = path.procedures.iter().map(|p| &p.name.place);
    let places = path.places().chain(procedures);
    let stripped = places.filter_map(|p| Some(without_symbol(p)?.0));
    let stripped: BTreeSet<&str> =
        stripped.filter(|module| origin_of_module(module) != Some(Origin::System)).collect();
    if !stripped.is_empty() {
        lines.push(format!(
            "no symbols: {}; places there are offsets. Build without stripping, or install debug packages",
            Vec::from_iter(stripped).join(", ")
        ));
    }
    lines
}

/// Activity is divided among functions in pieces. If events are closer together, another branch that ends
/// beside a piece is soon the longest, and most of the piece is no gain.
fn too_many_events(path: &CriticalPath) -> Option<String> {
    let quality = &path.quality;
    let known = quality.exact_edges.saturating_add(quality.woken_edges);
    let between = path.work.checked_div(known)?;
    if between >= DIVIDED || !path.procedures.iter().any(is_function) {
        return None;
    }
    Some(format!(
        "events are {:.3} ms apart, on average: functions may gain more than is shown; mark them",
        between as f64 / 1e6
    ))
}

fn basis(path: &CriticalPath) -> String {
    let quality = &path.quality;
    let lost = match quality.lost_edges.is_empty() {
        true => "none lost".to_owned(),
        false => format!("lost: {}", causes(path)),
    };
    let woken = match quality.woken_edges {
        0 => "none woken".to_owned(),
        n => format!("{n} woken (only a wait and its wake-up were seen)"),
    };
    let grains = match quality.grains {
        0 => String::new(),
        n => {
            format!("; {n} forks were too short to follow those inside of them: their tasks count as serial")
        }
    };
    format!("rests on {} exact edges, {woken}, {lost}{grains}", quality.exact_edges)
}

fn causes(path: &CriticalPath) -> String {
    let lost = path.quality.lost_edges.iter();
    let causes: Vec<String> = lost.map(|(cause, n)| format!("{cause} {n}")).collect();
    causes.join(", ")
}

/// What to do, most useful first. `time` prints nanoseconds.
fn advice(path: &CriticalPath, workers: u32, threads: u32, time: impl Fn(f64) -> String) -> Vec<String> {
    if path.span == 0 {
        return vec!["no activity was tracked".to_owned()];
    }
    let parallelism = path.parallelism();
    let limit = match parallelism < f64::from(workers) {
        true => {
            let strands = path.strands();
            let at_once = strands.map_or(String::new(), |n| format!(", at most {n} at once,"));
            // Each strand may be a thread of its own, so that others may divide the work otherwise.
            let meant = match strands.is_some_and(|n| n <= threads) {
                true => ". Their number is this run's: measure with more of them",
                false => "",
            };
            format!(
                "the path limits the program: with {}{at_once} no number of cores is more than \
                 {parallelism:.1} times as fast as one{meant}",
                given(path)
            )
        }
        false => format!(
            "{workers} workers limit the program: there is work for {parallelism:.1} at once, on average"
        ),
    };
    let is_large = |time| path.share(time) >= LEAST;
    let parts = parts(path);
    // Much of the path, but another path takes its place.
    let is_hidden = |p: &Procedure| is_large(p.on_path) && path.gain(p) < p.on_path / 4;
    // A procedure gains all that it calls: the innermost one is named.
    let is_caller = |p: &Procedure| {
        let callee = |q: &&&Procedure| q.work < p.work && path.gain(q) as f64 >= path.gain(p) as f64 * SAME;
        parts.iter().any(|q| callee(&q))
    };
    let now = path.prediction(workers).time;
    let gaining = parts.iter();
    let gaining = gaining.filter(|p| is_large(path.gain(p)) && !is_hidden(p) && !is_caller(p));
    let gaining = gaining.map(|p| {
        format!(
            "{}; without it {workers} workers would take {} instead of {}",
            shares(path, p),
            time(path.without(p, workers)),
            time(now),
        )
    });
    let hidden = parts.iter().filter(|p| is_hidden(p)).max_by_key(|p| p.on_path);
    let hidden = hidden.map(|p| {
        format!(
            "{}; without it the span would be only {} shorter: another path would be the longest",
            shares(path, p),
            time(path.gain(p) as f64),
        )
    });
    let late = path.exposing().next();
    let late = late.filter(|start| path.share(start.first) >= LATE).map(|start| {
        let place = &start.place;
        format!(
            "little runs beside the first {} of the path, until {}",
            time(start.first as f64),
            match name_in(place) {
                name if name.is_empty() => "something not known begins it".to_owned(),
                name => format!("{name} begins it"),
            }
        )
    });
    let lines = [limit].into_iter().chain(gaining.take(NAMED));
    let lines = lines.chain(hidden).chain(late);
    lines.collect()
}

/// What the path takes for given, and another run may have otherwise.
fn given(path: &CriticalPath) -> &'static str {
    let has = |edges: &[Edge]| path.segments.iter().any(|s| edges.contains(&s.edge));
    match (has(&[Edge::Lock]), has(&[Edge::Condition, Edge::Wake, Edge::Barrier, Edge::Channel])) {
        (true, _) => "these threads and this order of locks",
        (false, true) => "these threads and this order of events",
        (false, false) if has(&[Edge::Message]) => "these messages",
        (false, false) => "these threads or tasks",
    }
}

fn shares(path: &CriticalPath, procedure: &Procedure) -> String {
    let name = name_in(&procedure.name.place);
    let percent = |part, whole| ratio(part, whole) * 100.0;
    format!(
        "{} has {:.0} % of the work, {:.0} % of the path",
        if name.is_empty() { "[unknown]" } else { &name },
        percent(procedure.work, path.work),
        percent(procedure.on_path, path.span),
    )
}
