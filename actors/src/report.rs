//! The critical path for readers: as data, as JSON, as text.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use critical_path::{Edge, Levels, Lost, Settings};
use hpc_formats::critical_path::{
    CriticalPath, Level, Near, Place, Procedure, ProcedureName, Quality, Segment,
};

use crate::graph::{Graph, Node};
use crate::names;
use crate::pattern::{self, MOST_STEPS, Phase};
use crate::shared::Shared;
use crate::table::{Link, Path, What};

/// Rows of near branches and of [`PathReport::exposing`].
const MOST: usize = 8;
/// Rows of each table as text.
const ROWS: usize = 12;
/// A task is nearly critical if its slack is at most this share of the span.
const NEAR: f64 = 0.05;

/// A task of an actor, or several of one entry method.
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
    /// Its activity, in nanoseconds; of tasks that expose parallelism, the activity that follows and could
    /// run beside the longest chain that follows.
    pub time: u64,
    /// How much longer it may take before the span grows, in nanoseconds.
    pub slack: u64,
}

/// The critical path of a phase.
pub struct PathReport {
    /// Work, span, segments and entry methods (as procedures). A place has an entry method as its name and an
    /// actor as its module; the system knows no files and lines. Branches are near whose tasks are not on the
    /// path, but their slack is at most a twentieth of the span: those of an actor's entry method are one,
    /// with the sum of their times, the least slack first.
    pub report: CriticalPath<Place>,
    /// Tasks from which much activity follows that can run in parallel: the sooner they run, the sooner there
    /// is work for all. The most first.
    pub exposing: Vec<Task>,
    /// Messages handled in the phase, if it was recorded whole.
    pub messages: u64,
    graph: Graph,
    shared: Arc<Shared>,
}

/// What a message costs, for the burdened span.
fn message_cost() -> u64 {
    static COST: OnceLock<u64> = OnceLock::new();
    *COST.get_or_init(|| Settings::default().calibrated().message_cost)
}

impl PathReport {
    pub(crate) fn new(shared: &Arc<Shared>, end: Option<Path>) -> Self {
        let (graph, (wall, [work, messages, resyncs])) = (shared.graph(end), shared.so_far());
        let lost = Lost::OtherSession.name().to_owned();
        let report = CriticalPath {
            work,
            span: graph.span,
            burdened_span: graph.span_if(None, message_cost()),
            span_at_least: graph.span,
            levels: levels(&graph),
            wall,
            segments: segments(shared, &graph),
            procedures: procedures(&graph),
            near: near(shared, &graph),
            quality: Quality {
                resyncs,
                lost_edges: Vec::from_iter((graph.lost != 0).then_some((lost, graph.lost))),
                exact_edges: graph.edges,
                ..Quality::default()
            },
            ..CriticalPath::default()
        };
        PathReport {
            report,
            exposing: exposing(shared, &graph),
            messages,
            graph,
            shared: Arc::clone(shared),
        }
    }

    /// The report in JSON (`hpcprof-rs/critical-path/1`).
    pub fn to_json(&self) -> String {
        let named = |name: &ProcedureName| Place {
            name: name.to_string(),
            ..Place::default()
        };
        self.report
            .to_json(Place::clone, |name| Some(named(name)), None)
    }

    fn messages_on_path(&self) -> impl Iterator<Item = What> + '_ {
        let tasks = self.graph.on_path().map(|node| node.part);
        let tasks = tasks.filter(|part| matches!(part.link, Link::Message | Link::Actor));
        tasks.map(|part| part.what)
    }

    /// The tasks on the path in order: actor and entry method. Tasks of which it has only the end of an
    /// earlier part are left out.
    pub fn steps(&self) -> Vec<(String, String)> {
        self.messages_on_path()
            .map(|what| self.shared.name(what))
            .collect()
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
            Some(task(&self.shared, (node, node.part.time, slack)))
        })
    }
}

/// A task, its time and its slack.
type Row<'a> = (&'a Node, u64, u64);

fn task(shared: &Shared, (node, time, slack): Row<'_>) -> Task {
    let (actor, entry) = shared.name(node.part.what);
    Task {
        actor,
        entry,
        worker: node.worker,
        start: node.start,
        time,
        slack,
    }
}

fn place(shared: &Shared, what: What) -> Place {
    let (module, name) = shared.name(what);
    Place {
        name,
        module,
        ..Place::default()
    }
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
        segments.push(segment(
            Edge::Folded,
            Place::default(),
            None,
            graph.unknown(),
        ));
    }
    let mut last_what = None;
    for Node { part, worker, .. } in graph.on_path().filter(|node| node.part.time != 0) {
        let worker = Some(*worker as u32);
        let edge = match part.link {
            _ if segments.is_empty() => Edge::Start,
            Link::Message | Link::Same => Edge::Message,
            Link::Actor => Edge::Lock,
            Link::Merge => Edge::Join,
        };
        match segments.last_mut() {
            Some(last) if last_what == Some(part.what) => {
                last.time += part.time;
                last.count += u64::from(part.link != Link::Same);
                last.thread = last.thread.filter(|_| last.thread == worker);
            }
            _ => segments.push(segment(edge, place(shared, part.what), worker, part.time)),
        }
        last_what = Some(part.what);
    }
    segments
}

/// Activity by some key.
fn sums<'a, K: Eq + std::hash::Hash>(
    nodes: impl Iterator<Item = &'a Node>,
    key: impl Fn(What) -> K,
) -> HashMap<K, (u64, u64)> {
    let mut sums = HashMap::new();
    for Node { part, .. } in nodes {
        let (time, count) = sums.entry(key(part.what)).or_default();
        *time += part.time;
        *count += u64::from(part.link != Link::Same);
    }
    sums
}

fn procedures(graph: &Graph) -> Vec<Procedure> {
    let on_path = sums(graph.on_path(), |what| what.entry);
    let procedure = |(entry, (work, _))| {
        let on_path = on_path.get(&entry).map_or(0, |(time, _)| *time);
        let zeroed = Some(entry).filter(|_| on_path != 0);
        Procedure {
            name: ProcedureName::Mark(names::of_entry(entry)),
            work,
            on_path,
            // Off the path it gains nothing.
            zeroed_span: zeroed.map_or(graph.span, |_| graph.span_if(zeroed, 0)),
        }
    };
    let all = sums(graph.nodes.iter(), |what| what.entry).into_iter();
    let mut procedures: Vec<Procedure> = all.map(procedure).collect();
    procedures.sort_by_cached_key(|p| (p.zeroed_span, u64::MAX - p.work, p.name.to_string()));
    procedures
}

fn near(shared: &Shared, graph: &Graph) -> Vec<Near<Place>> {
    let most = (graph.span as f64 * NEAR) as u64;
    let mut times: Vec<u64> = graph.nodes.iter().map(|node| node.part.time).collect();
    graph.path.iter().for_each(|node| times[*node] = 0);
    let near = graph.nodes.iter().zip(times).filter(|(_, time)| *time != 0);
    let near = near.filter_map(|(node, time)| Some((node, time, node.slack?)));
    let near = near.filter(|(_, _, slack)| *slack <= most);
    let order = |(_, time, slack): &Row<'_>| (*slack, u64::MAX - time);
    let branch = |(node, time, slack): Row<'_>| Near {
        begin: place(shared, node.part.what),
        end: place(shared, node.part.what),
        thread: Some(node.worker as u32),
        time,
        slack,
    };
    merged(near, u64::wrapping_add, order).map(branch).collect()
}

fn exposing(shared: &Shared, graph: &Graph) -> Vec<Task> {
    // The program itself is no task that could run sooner.
    let exposes = |node: &&Node| node.exposed != 0 && node.part.what.actor != names::PROGRAM;
    let nodes = graph.nodes.iter().filter(exposes);
    let exposing = nodes.map(|node| (node, node.exposed, node.slack.unwrap_or(u64::MAX)));
    let order = |(_, time, slack): &Row<'_>| (u64::MAX - time, *slack);
    merged(exposing, u64::max, order)
        .map(|row| task(shared, row))
        .collect()
}

/// One row, with the task of the least slack, for those of each actor's entry method; the first ones by
/// `order`.
fn merged<'a>(
    rows: impl Iterator<Item = Row<'a>>,
    times: fn(u64, u64) -> u64,
    order: fn(&Row<'a>) -> (u64, u64),
) -> impl Iterator<Item = Row<'a>> {
    let mut merged: HashMap<What, Row<'a>> = HashMap::new();
    for (node, time, slack) in rows {
        let sum = merged.entry(node.part.what).or_insert((node, 0, slack));
        let node = if slack < sum.2 { node } else { sum.0 };
        *sum = (node, times(sum.1, time), sum.2.min(slack));
    }
    let mut merged: Vec<Row<'a>> = merged.into_values().collect();
    merged.sort_by_key(order);
    merged.into_iter().take(MOST)
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
        let mut sums: Vec<_> = sums(self.graph.on_path(), |what| what)
            .into_iter()
            .collect();
        sums.sort_by_key(|(what, (time, _))| (u64::MAX - time, what.actor, what.entry));
        for (what, (time, count)) in sums.into_iter().take(ROWS) {
            let (actor, entry) = self.shared.name(what);
            let (share, time) = (100.0 * path.share(time), ms(time));
            writeln!(f, "{share:6.1} % {time:>15}  x {count:<6} {actor} {entry}")?;
        }
        writeln!(f, "entry methods, by what the span loses without them:")?;
        for procedure in path.procedures.iter().take(ROWS) {
            let (gain, on_path) = (ms(path.gain(procedure)), ms(procedure.on_path));
            writeln!(f, "{gain:>15}  on the path {on_path}  {}", procedure.name)?;
        }
        for near in &path.near {
            let (time, slack, Place { name, module, .. }) =
                (ms(near.time), ms(near.slack), &near.begin);
            writeln!(f, "nearly critical: {time}, slack {slack}  {module} {name}")?;
        }
        for task in &self.exposing {
            let (time, slack) = (ms(task.time), ms(task.slack));
            writeln!(
                f,
                "exposes parallelism: {time}, slack {slack}  {} {}",
                task.actor, task.entry
            )?;
        }
        Ok(())
    }
}
