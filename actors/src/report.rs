//! The critical path for readers: as data, as JSON, as text.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use critical_path::{
    Edge, Lost, Place, ProcedureName, ProcedureTimes, Quality, Report, Segment, Settings, Site,
};

use crate::analysis::{Analysis, Node};
use crate::names;
use crate::pattern::{self, MOST_STEPS, Phase};
use crate::shared::Shared;
use crate::table::{Link, Path, What};

/// Rows of [`PathReport::near`] and [`PathReport::exposing`].
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
    /// Work, span, segments and entry methods (as procedures). Its sites are numbers for
    /// [`PathReport::place`]; its list of near branches is empty.
    pub report: Report,
    /// Tasks that are not on the path, but nearly so: their slack is at most a twentieth of the span. Those
    /// of an actor's entry method are one, with the sum of their times; the least slack first.
    pub near: Vec<Task>,
    /// Tasks from which much activity follows that can run in parallel: the sooner they run, the sooner there
    /// is work for all. The most first.
    pub exposing: Vec<Task>,
    /// Messages handled in the phase, if it was recorded whole.
    pub messages: u64,
    steps: Vec<What>,
    /// By [`Site`].
    sites: Vec<What>,
    analysis: Analysis,
    shared: Arc<Shared>,
}

/// What a message costs, for the burdened span.
fn message_cost() -> u64 {
    static COST: OnceLock<u64> = OnceLock::new();
    *COST.get_or_init(|| Settings::default().calibrated().message_cost)
}

impl PathReport {
    pub(crate) fn new(shared: &Arc<Shared>, end: Option<Path>) -> Self {
        let (analysis, (wall, messages)) = (shared.analysis(end), shared.so_far());
        let (segments, sites) = segments(&analysis);
        let on_path = || analysis.path.iter().map(|node| &analysis.nodes[*node]);
        let steps = on_path().filter(|node| node.part.link == Link::Message);
        let steps = steps.map(|node| node.part.what).collect();
        let lost = Lost::OtherSession.name().to_owned();
        let lost = (analysis.lost != 0).then_some((lost, analysis.lost));
        let report = Report {
            work: analysis.work,
            span: analysis.span,
            burdened_span: analysis.span_if(None, message_cost()),
            span_at_least: analysis.span,
            wall,
            segments,
            procedures: procedures(&analysis, &Analysis::by_entry(on_path())),
            quality: Quality {
                resyncs: analysis.resyncs,
                lost_edges: lost.into_iter().collect(),
                exact_edges: analysis.edges,
                ..Quality::default()
            },
            ..Report::default()
        };
        let (near, exposing) = (near(shared, &analysis), exposing(shared, &analysis));
        let shared = Arc::clone(shared);
        PathReport {
            report,
            near,
            exposing,
            messages,
            steps,
            sites,
            analysis,
            shared,
        }
    }

    /// The entry method of a site of the report as a name, the actor as a module; the system knows no files
    /// and lines.
    pub fn place(&self, site: Site) -> Place {
        let Some(what) = self.sites.get(site.0 as usize) else {
            return Place::default();
        };
        let (module, name) = self.shared.name(*what);
        Place {
            name,
            module,
            ..Place::default()
        }
    }

    /// The report in JSON (`hpcprof-rs/critical-path/1`).
    pub fn to_json(&self) -> String {
        critical_path::to_json(&self.report, |site| self.place(*site))
    }

    /// The tasks on the path in order: actor and entry method. Tasks of which it has only the end of an
    /// earlier part are left out.
    pub fn steps(&self) -> Vec<(String, String)> {
        let steps = self.steps.iter();
        steps.map(|what| self.shared.name(*what)).collect()
    }

    /// The sequence of entry methods that the path repeats, if one does so at least `support` times (the
    /// paper: 6). Starts are indices of [`PathReport::steps`], of which the last 16384 are searched.
    pub fn phase(&self, support: usize) -> Option<Phase> {
        let skipped = self.steps.len().saturating_sub(MOST_STEPS);
        let entries = self.steps[skipped..].iter().map(|what| what.entry);
        let mut phase = pattern::repeated(&entries.collect::<Vec<u32>>(), support)?;
        phase.starts.iter_mut().for_each(|start| *start += skipped);
        Some(phase)
    }

    /// What of a trace matters: the parts of tasks whose slack is at most this share of the span (0: those on
    /// a critical path), in an order in which they could run.
    pub fn tasks(&self, slack: f64) -> impl Iterator<Item = Task> + '_ {
        let most = (slack * self.report.span as f64) as u64;
        self.analysis.nodes.iter().filter_map(move |node| {
            let slack = node
                .slack
                .filter(|slack| *slack <= most && node.part.time != 0)?;
            Some(task(&self.shared, node, node.part.time, slack))
        })
    }
}

fn task(shared: &Shared, node: &Node, time: u64, slack: u64) -> Task {
    let (actor, entry) = shared.name(node.part.what);
    let (worker, start) = (node.worker, node.start);
    Task {
        actor,
        entry,
        worker,
        start,
        time,
        slack,
    }
}

/// The path, and what its sites stand for.
fn segments(analysis: &Analysis) -> (Vec<Segment>, Vec<What>) {
    let segment = |edge, begin, thread, time| Segment {
        begin,
        end: begin,
        edge,
        rank: None,
        thread,
        time,
        count: 1,
    };
    let mut sites: Vec<What> = Vec::new();
    let mut numbers: HashMap<What, Site> = HashMap::new();
    let mut segments: Vec<Segment> = Vec::new();
    let unknown = analysis.unknown();
    if unknown != 0 {
        segments.push(segment(Edge::Folded, Site(0), None, unknown));
    }
    for Node { part, worker, .. } in analysis.path.iter().map(|node| &analysis.nodes[*node]) {
        if part.time == 0 {
            continue;
        }
        let site = *numbers.entry(part.what).or_insert_with(|| {
            sites.push(part.what);
            Site(sites.len() as u64 - 1)
        });
        let worker = Some(*worker as u32);
        let edge = match part.link {
            _ if segments.is_empty() => Edge::Start,
            Link::Message | Link::Same => Edge::Message,
            Link::Actor => Edge::Lock,
            Link::Merge => Edge::Join,
        };
        match segments.last_mut() {
            Some(last) if last.begin == site && last.edge != Edge::Folded => {
                last.time += part.time;
                last.count += u64::from(part.link != Link::Same);
                last.thread = last.thread.filter(|_| last.thread == worker);
            }
            _ => segments.push(segment(edge, site, worker, part.time)),
        }
    }
    (segments, sites)
}

fn procedures(analysis: &Analysis, on_path: &HashMap<u32, u64>) -> Vec<ProcedureTimes> {
    let procedure = |(entry, work)| {
        let on_path = on_path.get(&entry).copied().unwrap_or(0);
        ProcedureTimes {
            name: ProcedureName::Mark(names::of_entry(entry)),
            work,
            on_path,
            // Off the path it gains nothing.
            zeroed_span: match on_path {
                0 => analysis.span,
                _ => analysis.span_if(Some(entry), 0),
            },
        }
    };
    let all = Analysis::by_entry(analysis.nodes.iter()).into_iter();
    let mut procedures: Vec<ProcedureTimes> = all.map(procedure).collect();
    procedures.sort_by(|a, b| {
        let order = |p: &ProcedureTimes| (p.zeroed_span, u64::MAX - p.work);
        let name = |p: &ProcedureTimes| p.name.to_string();
        order(a).cmp(&order(b)).then_with(|| name(a).cmp(&name(b)))
    });
    procedures
}

fn near(shared: &Shared, analysis: &Analysis) -> Vec<Task> {
    let most = (analysis.span as f64 * NEAR) as u64;
    let mut is_beside = vec![true; analysis.nodes.len()];
    analysis
        .path
        .iter()
        .for_each(|node| is_beside[*node] = false);
    let nodes = analysis.nodes.iter().zip(is_beside);
    let near = nodes.filter(|(node, is_beside)| *is_beside && node.part.time != 0);
    let near = near.filter_map(|(node, _)| Some((node, node.part.time, node.slack?)));
    let near = near.filter(|(_, _, slack)| *slack <= most);
    merged(shared, near, u64::wrapping_add, |task| {
        (task.slack, u64::MAX - task.time)
    })
}

fn exposing(shared: &Shared, analysis: &Analysis) -> Vec<Task> {
    // The program itself is no task that could run sooner.
    let exposes = |node: &&Node| node.exposed != 0 && node.part.what.actor != names::PROGRAM;
    let nodes = analysis.nodes.iter().filter(exposes);
    let exposing = nodes.map(|node| (node, node.exposed, node.slack.unwrap_or(u64::MAX)));
    merged(shared, exposing, u64::max, |task| {
        (u64::MAX - task.time, task.slack)
    })
}

/// One task, that of the least slack, for the rows (node, time, slack) of each actor's entry method; the
/// first ones by `order`.
fn merged<'a>(
    shared: &Shared,
    rows: impl Iterator<Item = (&'a Node, u64, u64)>,
    times: fn(u64, u64) -> u64,
    order: fn(&Task) -> (u64, u64),
) -> Vec<Task> {
    let mut merged: HashMap<What, (&Node, u64, u64)> = HashMap::new();
    for (node, time, slack) in rows {
        let sum = merged.entry(node.part.what).or_insert((node, 0, slack));
        let node = if slack < sum.2 { node } else { sum.0 };
        *sum = (node, times(sum.1, time), sum.2.min(slack));
    }
    let merged = merged.into_values();
    let mut tasks: Vec<Task> = merged
        .map(|(node, time, slack)| task(shared, node, time, slack))
        .collect();
    tasks.sort_by_key(order);
    tasks.truncate(MOST);
    tasks
}

/// In milliseconds.
struct Ms(u64);

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        format!("{:.3} ms", self.0 as f64 / 1e6).fmt(f)
    }
}

impl fmt::Display for PathReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report {
            work,
            span,
            segments,
            procedures,
            ..
        } = &self.report;
        let parallelism = self.report.parallelism();
        let (work, whole) = (Ms(*work), Ms(*span));
        writeln!(f, "work {work}, span {whole}, parallelism {parallelism:.2}")?;
        writeln!(f, "on the path by actor and entry method:")?;
        let mut sums: HashMap<Site, (u64, u64)> = HashMap::new();
        for segment in segments {
            let sum = sums.entry(segment.begin).or_default();
            *sum = (sum.0 + segment.time, sum.1 + segment.count);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(site, (time, _))| (u64::MAX - time, *site));
        for (site, (time, count)) in sums.iter().take(ROWS) {
            let (Place { name, module, .. }, time) = (self.place(*site), *time);
            let (share, time) = (100.0 * self.report.share(time), Ms(time));
            writeln!(f, "{share:6.1} % {time:>15}  x {count:<6} {module} {name}")?;
        }
        writeln!(f, "entry methods, by what the span loses without them:")?;
        for procedure in procedures.iter().take(ROWS) {
            let (gain, on_path) = (Ms(span - procedure.zeroed_span), Ms(procedure.on_path));
            writeln!(f, "{gain:>15}  on the path {on_path}  {}", procedure.name)?;
        }
        let near = self.near.iter().map(|task| ("nearly critical", task));
        let exposing = self
            .exposing
            .iter()
            .map(|task| ("exposes parallelism", task));
        for (
            title,
            Task {
                actor,
                entry,
                time,
                slack,
                ..
            },
        ) in near.chain(exposing)
        {
            let (time, slack) = (Ms(*time), Ms(*slack));
            writeln!(f, "{title}: {time}, slack {slack}  {actor} {entry}")?;
        }
        Ok(())
    }
}
