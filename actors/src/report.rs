//! The critical path for readers: as data, as JSON, as text.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use critical_path::{Edge, Levels, Lost, Settings};
use hpc_formats::critical_path::{
    CriticalPath, Level, Near, Place, Procedure, ProcedureName, Quality, Segment, Start,
};

use crate::graph::{Graph, Node};
use crate::names;
use crate::pattern::{self, MOST_STEPS, Phase};
use crate::shared::Shared;
use crate::table::{Path, What};

/// Rows of near branches.
const MOST: usize = 8;
/// Rows of each table as text.
const ROWS: usize = 12;
/// A task is nearly critical if its slack is at most this share of the span.
const NEAR: f64 = 0.05;

/// A part of a task of an actor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The actor.
    pub actor: String,
    /// The entry method.
    pub entry: String,
    /// The worker that ran it.
    pub worker: usize,
    /// When it can start at the earliest, from the begin of the phase, in nanoseconds of activity.
    pub start: u64,
    /// Its activity, in nanoseconds.
    pub time: u64,
    /// How much longer it may take before the span grows, in nanoseconds.
    pub slack: u64,
}

/// The critical path of a phase.
pub struct PathReport {
    /// Work, span, segments and entry methods (as procedures). A place has an entry method as its name and an
    /// actor as its module; the system knows no files and lines. Branches are near whose tasks are not on the
    /// path, but their slack is at most a twentieth of the span: those of an actor's entry method are one,
    /// with the sum of their times, the least slack first. Tasks from which much activity follows that could
    /// run beside the longest chain expose parallelism: the sooner they run, the sooner all have work.
    pub report: CriticalPath<Place>,
    graph: Graph,
    shared: Arc<Shared>,
}

impl PathReport {
    pub(crate) fn new(shared: &Arc<Shared>, end: Option<Path>) -> Self {
        let (graph, (wall, [work, _, resyncs])) = (shared.graph(end), shared.so_far());
        let lost = Lost::OtherSession.name().to_owned();
        let report = CriticalPath {
            work,
            span: graph.span,
            burdened_span: graph.span_if(None, Settings::default().message_cost),
            span_at_least: graph.span,
            levels: levels(&graph),
            wall,
            segments: segments(shared, &graph),
            procedures: procedures(&graph),
            near: near(shared, &graph),
            starts: starts(shared, &graph),
            quality: Quality {
                resyncs,
                lost_edges: Vec::from_iter((graph.lost != 0).then_some((lost, graph.lost))),
                exact_edges: graph.edges,
                ..Quality::default()
            },
            ..CriticalPath::default()
        };
        PathReport { report, graph, shared: Arc::clone(shared) }
    }

    /// The report in JSON (`hpcprof-rs/critical-path/1`).
    pub fn to_json(&self) -> String {
        let named = |name: &ProcedureName| Place { name: name.to_string(), ..Place::default() };
        self.report.to_json(Place::clone, |name| Some(named(name)), None)
    }

    fn messages_on_path(&self) -> impl Iterator<Item = What> + '_ {
        let tasks = self.graph.on_path().map(|node| node.part);
        let tasks = tasks.filter(|part| part.is_first());
        tasks.map(|part| part.what)
    }

    /// The tasks on the path in order: actor and entry method. Tasks of which it has only the end of an
    /// earlier part are left out.
    pub fn steps(&self) -> Vec<(String, String)> {
        self.messages_on_path().map(|what| self.shared.name(what)).collect()
    }

    /// The sequence of entry methods that the path repeats, if one does so at least `support` times (the
    /// paper: 6). Starts are indices of [`PathReport::steps`], of which the last 16384 are searched.
    pub fn phase(&self, support: usize) -> Option<Phase> {
        let entries: Vec<u32> = self.messages_on_path().map(|what| what.entry).collect();
        let skipped = entries.len().saturating_sub(MOST_STEPS);
        let mut phase = pattern::repeated(&entries[skipped..], support)?;
        phase.starts.iter_mut().for_each(|start| *start += skipped);
        Some(phase)
    }

    /// What of a trace matters: the parts of tasks whose slack is at most this share of the span (0: those on
    /// a critical path), in an order in which they could run.
    pub fn tasks(&self, slack: f64) -> impl Iterator<Item = Task> + '_ {
        let most = (slack * self.report.span as f64) as u64;
        let parts = self.graph.nodes.iter().filter(|node| node.part.time != 0);
        parts.filter_map(move |node| {
            let slack = node.slack.filter(|slack| *slack <= most)?;
            let (actor, entry) = self.shared.name(node.part.what);
            Some(Task { actor, entry, worker: node.worker, start: node.start, time: node.part.time, slack })
        })
    }
}

fn place(shared: &Shared, what: What) -> Place {
    let (module, name) = shared.name(what);
    Place { name, module, ..Place::default() }
}

/// What the ideal execution consists of.
fn levels(graph: &Graph) -> Vec<Level> {
    let mut levels = Levels::new(Settings::default().level);
    for node in &graph.nodes {
        levels.add(node.start, node.start + node.part.time);
    }
    levels.of(graph.span)
}

/// The path: consecutive parts of an actor's entry method are one segment.
fn segments(shared: &Shared, graph: &Graph) -> Vec<Segment<Place>> {
    let segment = |edge, begin: Place, thread, time| Segment {
        end: begin.clone(),
        begin,
        edge,
        rank: None,
        thread,
        time,
        count: 1,
    };
    let mut segments: Vec<Segment<Place>> = Vec::new();
    if graph.unknown() != 0 {
        segments.push(segment(Edge::Folded, Place::default(), None, graph.unknown()));
    }
    let mut last_what = None;
    for Node { part, worker, .. } in graph.on_path().filter(|node| node.part.time != 0) {
        let worker = Some(*worker as u32);
        let edge = match segments.is_empty() {
            true => Edge::Start,
            false => part.edge.unwrap_or(Edge::Message),
        };
        match segments.last_mut() {
            Some(last) if last_what == Some(part.what) => {
                last.time += part.time;
                last.count += u64::from(part.edge.is_some());
                last.thread = last.thread.filter(|_| last.thread == worker);
            }
            _ => segments.push(segment(edge, place(shared, part.what), worker, part.time)),
        }
        last_what = Some(part.what);
    }
    segments
}

fn procedures(graph: &Graph) -> Vec<Procedure> {
    let mut sums: HashMap<u32, (u64, u64)> = HashMap::new();
    for node in &graph.nodes {
        let (work, on_path) = sums.entry(node.part.what.entry).or_default();
        *work += node.part.time;
        *on_path += if node.is_on_path { node.part.time } else { 0 };
    }
    let procedure = |(entry, (work, on_path))| Procedure {
        name: ProcedureName::Mark(names::of_entry(entry)),
        work,
        on_path,
        faster_span: graph.span,
        zeroed_span: match on_path {
            // It gains nothing.
            0 => graph.span,
            _ => graph.span_if(Some(entry), 0),
        },
    };
    let mut procedures: Vec<Procedure> = sums.into_iter().map(procedure).collect();
    procedures.sort_by_cached_key(|p| (p.zeroed_span, u64::MAX - p.work, p.name.to_string()));
    procedures
}

/// Of the branches of an actor's entry method, the least slack and all time.
fn near(shared: &Shared, graph: &Graph) -> Vec<Near<Place>> {
    let most = (graph.span as f64 * NEAR) as u64;
    let mut near: HashMap<What, Near<Place>> = HashMap::new();
    for Node { part, slack, worker, is_on_path, .. } in &graph.nodes {
        let (Some(slack), false, 1..) = (slack.filter(|s| *s <= most), *is_on_path, part.time) else {
            continue;
        };
        let branch = near.entry(part.what).or_insert_with(|| Near {
            begin: place(shared, part.what),
            end: place(shared, part.what),
            thread: None,
            time: 0,
            slack: u64::MAX,
        });
        if slack < branch.slack {
            (branch.slack, branch.thread) = (slack, Some(*worker as u32));
        }
        branch.time += part.time;
    }
    let mut near: Vec<Near<Place>> = near.into_values().collect();
    near.sort_by(|a, b| (a.slack, b.time, &a.begin).cmp(&(b.slack, a.time, &b.begin)));
    near.truncate(MOST);
    near
}

/// For each actor's entry method, what follows from the task that exposes most. The program itself cannot run
/// sooner.
fn starts(shared: &Shared, graph: &Graph) -> Vec<Start<Place>> {
    let mut most: HashMap<What, &Node> = HashMap::new();
    let tasks = graph.nodes.iter().filter(|node| node.part.what.actor != names::PROGRAM);
    for node in tasks.filter(|node| node.follow[2] != 0) {
        let known = most.entry(node.part.what).or_insert(node);
        if known.follow[2] < node.follow[2] {
            *known = node;
        }
    }
    let start = |node: &Node| Start {
        place: place(shared, node.part.what),
        edge: Edge::Message,
        first: node.start,
        count: node.follow[0],
        time: node.follow[1],
        beside: node.follow[2],
    };
    let mut starts: Vec<Start<Place>> = most.into_values().map(start).collect();
    starts.sort_by(|a, b| (a.first, &a.place).cmp(&(b.first, &b.place)));
    starts
}

fn ms(time: u64) -> String {
    format!("{:.3} ms", time as f64 / 1e6)
}

impl fmt::Display for PathReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.report;
        let (work, span, parallelism) = (ms(path.work), ms(path.span), path.parallelism());
        writeln!(f, "work {work}, span {span}, parallelism {parallelism:.2}")?;
        writeln!(f, "on the path by actor and entry method:")?;
        let at = |place: &Place| format!("{} {}", place.module, place.name);
        let mut sums: HashMap<&Place, (u64, u64)> = HashMap::new();
        for segment in path.segments.iter().filter(|s| s.edge != Edge::Folded) {
            let (time, count) = sums.entry(&segment.begin).or_default();
            (*time, *count) = (*time + segment.time, *count + segment.count);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(place, (time, _))| (u64::MAX - time, *place));
        for (place, (time, count)) in sums.into_iter().take(ROWS) {
            let (share, time, at) = (100.0 * path.share(time), ms(time), at(place));
            writeln!(f, "{share:6.1} % {time:>15}  x {count:<6} {at}")?;
        }
        writeln!(f, "entry methods, by what the span loses without them:")?;
        for procedure in path.procedures.iter().take(ROWS) {
            let (gain, on_path) = (ms(path.gain(procedure)), ms(procedure.on_path));
            writeln!(f, "{gain:>15}  on the path {on_path}  {}", procedure.name)?;
        }
        for near in &path.near {
            let (time, slack, at) = (ms(near.time), ms(near.slack), at(&near.begin));
            writeln!(f, "nearly critical: {time}, slack {slack}  {at}")?;
        }
        let mut exposing: Vec<_> = path.exposing().collect();
        exposing.sort_by_key(|start| u64::MAX - start.beside);
        for start in exposing.into_iter().take(MOST) {
            let (beside, at) = (ms(start.beside), at(&start.place));
            writeln!(f, "exposes parallelism: {beside}  {at}")?;
        }
        Ok(())
    }
}
