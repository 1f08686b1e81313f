//! The critical path for readers: as data, as JSON, as text.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use critical_path::{
    Edge, Lost, Place, ProcedureName, ProcedureTimes, Quality, Report, Segment, Settings, Site,
};

use crate::analysis::Analysis;
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

/// A task of an actor.
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

/// Tasks of one entry method of one actor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// The actor.
    pub actor: String,
    /// The entry method.
    pub entry: String,
    /// For near-critical tasks, their activity; for exposing ones, the activity that follows and could run
    /// beside the longest chain that follows. In nanoseconds.
    pub time: u64,
    /// The least slack of these tasks, in nanoseconds.
    pub slack: u64,
}

/// The critical path of a phase.
///
/// ```
/// # use actors::{Context, Handle, System};
/// struct Counter;
/// impl Handle<u32> for Counter {
///     fn handle(&mut self, left: u32, context: &mut Context<'_, Self>) {
///         if left > 0 {
///             context.address().send(left - 1);
///         }
///     }
/// }
/// let system = System::builder().workers(2).critical_path(true).build()?;
/// let counter = system.spawn(Counter);
/// system.run(|| counter.send(100_u32))?;
/// let path = system.critical_path();
/// assert!(path.report.span <= path.report.work);
/// println!("{path}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PathReport {
    /// Work, span, segments and entry methods (as procedures). Its sites are numbers for
    /// [`PathReport::place`]; its list of near branches is empty.
    pub report: Report,
    /// Tasks that are not on the path, but nearly so: their slack is at most a twentieth of the span. The
    /// least slack first.
    pub near: Vec<Branch>,
    /// Tasks from which much activity follows that can run in parallel: the sooner they run, the sooner there
    /// is work for all. The most first.
    pub exposing: Vec<Branch>,
    /// Messages handled in the phase, if it was recorded whole.
    pub messages: u64,
    steps: Vec<What>,
    sites: Vec<(String, String)>,
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
        let (analysis, wall, messages) = shared.analysis(end);
        let path = analysis.path();
        let mut sites: Vec<What> = Vec::new();
        let mut numbers: HashMap<What, u64> = HashMap::new();
        let mut segments: Vec<Segment> = Vec::new();
        let mut steps = Vec::new();
        let unknown = analysis.unknown(&path);
        if unknown != 0 {
            segments.push(segment(Edge::Folded, Site(0), None, unknown));
        }
        for &node in &path {
            let part = analysis.part(node);
            if part.link == Link::Message {
                steps.push(part.what);
            }
            if part.time == 0 {
                continue;
            }
            let site = Site(*numbers.entry(part.what).or_insert_with(|| {
                sites.push(part.what);
                sites.len() as u64 - 1
            }));
            let worker = Some(analysis.worker(node) as u32);
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
        let name = |what: &What| (shared.groups.name(what.actor), names::of_entry(what.entry));
        let mut near = branches(&analysis, near(&analysis, &path), u64::wrapping_add, name);
        near.sort_by_key(|branch| (branch.slack, u64::MAX - branch.time));
        near.truncate(MOST);
        let mut exposing = branches(&analysis, exposing(&analysis), u64::max, name);
        exposing.sort_by_key(|branch| u64::MAX - branch.time);
        exposing.truncate(MOST);
        PathReport {
            report: Report {
                work: analysis.work,
                span: analysis.span(),
                burdened_span: analysis.burdened_span(message_cost()),
                wall: wall.as_nanos() as u64,
                segments,
                procedures: procedures(&analysis, &path),
                quality: Quality {
                    resyncs: analysis.resyncs,
                    lost_edges: match analysis.lost {
                        0 => Vec::new(),
                        lost => vec![(Lost::OtherSession.name().to_owned(), lost)],
                    },
                    exact_edges: analysis.edges,
                    woken_edges: 0,
                },
                ..Report::default()
            },
            near,
            exposing,
            messages,
            steps,
            sites: sites.iter().map(name).collect(),
            analysis,
            shared: Arc::clone(shared),
        }
    }

    /// The entry method of a site of the report as a name, the actor as a module; the system knows no files
    /// and lines.
    pub fn place(&self, site: Site) -> Place {
        let site = self.sites.get(site.0 as usize);
        site.map_or_else(Place::default, |(actor, entry)| Place {
            name: entry.clone(),
            module: actor.clone(),
            ..Place::default()
        })
    }

    /// The report in JSON (`hpcprof-rs/critical-path/1`).
    pub fn to_json(&self) -> String {
        critical_path::to_json(&self.report, |site| self.place(*site))
    }

    /// The tasks on the path in order: actor and entry method. Tasks of which it has only the end of an
    /// earlier part are left out.
    pub fn steps(&self) -> Vec<(String, String)> {
        let name = |what: &What| {
            (
                self.shared.groups.name(what.actor),
                names::of_entry(what.entry),
            )
        };
        self.steps.iter().map(name).collect()
    }

    /// The sequence of entry methods that the path repeats, if one does so at least `support` times (the
    /// paper: 6). Starts are indices of [`PathReport::steps`], of which the last 16384 are searched.
    pub fn phase(&self, support: usize) -> Option<Phase> {
        let skipped = self.steps.len().saturating_sub(MOST_STEPS);
        let entries: Vec<u32> = self.steps[skipped..]
            .iter()
            .map(|what| what.entry)
            .collect();
        let mut phase = pattern::repeated(&entries, support)?;
        phase.starts.iter_mut().for_each(|start| *start += skipped);
        Some(phase)
    }

    /// What of a trace matters: the parts of tasks whose slack is at most this share of the span (0: those on
    /// a critical path), in an order in which they could run.
    pub fn tasks(&self, slack: f64) -> impl Iterator<Item = Task> + '_ {
        let most = (slack * self.report.span as f64) as u64;
        let (slacks, starts) = (self.analysis.slacks(), self.analysis.starts());
        self.analysis.nodes().iter().filter_map(move |&node| {
            let part = self.analysis.part(node);
            let slack = slacks[node].filter(|slack| *slack <= most && part.time != 0)?;
            Some(Task {
                actor: self.shared.groups.name(part.what.actor),
                entry: names::of_entry(part.what.entry),
                worker: self.analysis.worker(node),
                start: starts[node],
                time: part.time,
                slack,
            })
        })
    }
}

fn segment(edge: Edge, site: Site, thread: Option<u32>, time: u64) -> Segment {
    Segment {
        begin: site,
        end: site,
        edge,
        thread,
        time,
        count: 1,
    }
}

fn procedures(analysis: &Analysis, path: &[usize]) -> Vec<ProcedureTimes> {
    let mut on_path: HashMap<u32, u64> = HashMap::new();
    for part in path.iter().map(|node| analysis.part(*node)) {
        *on_path.entry(part.what.entry).or_default() += part.time;
    }
    let span = analysis.span();
    let procedure = |(entry, work)| ProcedureTimes {
        name: ProcedureName::Mark(names::of_entry(entry)),
        work,
        on_path: on_path.get(&entry).copied().unwrap_or(0),
        // Off the path it gains nothing.
        zeroed_span: match on_path.get(&entry) {
            None | Some(0) => span,
            Some(_) => analysis.zeroed_span(entry),
        },
    };
    let mut procedures: Vec<ProcedureTimes> = analysis
        .work_by_entry()
        .into_iter()
        .map(procedure)
        .collect();
    procedures.sort_by(|a, b| {
        let by_gain = a.zeroed_span.cmp(&b.zeroed_span);
        by_gain
            .then(b.work.cmp(&a.work))
            .then_with(|| a.name.to_string().cmp(&b.name.to_string()))
    });
    procedures
}

/// Node, time, slack.
type Row = (usize, u64, u64);

fn near(analysis: &Analysis, path: &[usize]) -> Vec<Row> {
    let most = (analysis.span() as f64 * NEAR) as u64;
    let mut is_on_path = vec![false; analysis.nodes().len()];
    path.iter().for_each(|node| is_on_path[*node] = true);
    let slacks = analysis.slacks().into_iter().enumerate();
    let near = slacks.filter_map(|(node, slack)| {
        let time = analysis.part(node).time;
        let slack = slack.filter(|slack| !is_on_path[node] && *slack <= most && time != 0)?;
        Some((node, time, slack))
    });
    near.collect()
}

fn exposing(analysis: &Analysis) -> Vec<Row> {
    let slacks = analysis.slacks();
    let exposed = analysis.exposed().into_iter().enumerate();
    // The program itself is no task that could run sooner.
    let rows =
        exposed.filter(|(node, time)| *time != 0 && analysis.part(*node).what.actor != u64::MAX);
    rows.map(|(node, time)| (node, time, slacks[node].unwrap_or(u64::MAX)))
        .collect()
}

/// One branch for the rows of each actor's entry method.
fn branches(
    analysis: &Analysis,
    rows: Vec<Row>,
    times: fn(u64, u64) -> u64,
    name: impl Fn(&What) -> (String, String),
) -> Vec<Branch> {
    let mut sums: HashMap<What, (u64, u64)> = HashMap::new();
    for (node, time, slack) in rows {
        let sum = sums.entry(analysis.part(node).what).or_insert((0, slack));
        *sum = (times(sum.0, time), sum.1.min(slack));
    }
    let branch = |(what, (time, slack)): (What, (u64, u64))| {
        let (actor, entry) = name(&what);
        Branch {
            actor,
            entry,
            time,
            slack,
        }
    };
    sums.into_iter().map(branch).collect()
}

fn milliseconds(time: u64) -> f64 {
    time as f64 / 1e6
}

impl fmt::Display for PathReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { work, span, .. } = self.report;
        let (work_ms, span_ms) = (milliseconds(work), milliseconds(span));
        let parallelism = self.report.parallelism();
        writeln!(
            f,
            "work {work_ms:.3} ms, span {span_ms:.3} ms, parallelism {parallelism:.2}"
        )?;
        writeln!(f, "on the path by actor and entry method:")?;
        let mut sums: HashMap<Site, (u64, u64)> = HashMap::new();
        for segment in &self.report.segments {
            let sum = sums.entry(segment.begin).or_default();
            *sum = (sum.0 + segment.time, sum.1 + segment.count);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(site, (time, _))| (u64::MAX - time, *site));
        for (site, (time, count)) in sums.iter().take(ROWS) {
            let (Place { name, module, .. }, share) = (self.place(*site), self.report.share(*time));
            let (time, share) = (milliseconds(*time), 100.0 * share);
            writeln!(
                f,
                "{share:6.1} % {time:12.3} ms  x {count:<6} {module} {name}"
            )?;
        }
        writeln!(f, "entry methods, by what the span loses without them:")?;
        for procedure in self.report.procedures.iter().take(ROWS) {
            let gain = milliseconds(span - procedure.zeroed_span);
            let on_path = milliseconds(procedure.on_path);
            writeln!(
                f,
                "{gain:12.3} ms  on the path {on_path:.3} ms  {}",
                procedure.name
            )?;
        }
        for (title, branches) in [
            ("nearly critical", &self.near),
            ("exposes parallelism", &self.exposing),
        ] {
            for Branch {
                actor,
                entry,
                time,
                slack,
            } in branches
            {
                let (time, slack) = (milliseconds(*time), milliseconds(*slack));
                writeln!(
                    f,
                    "{title}: {time:.3} ms, slack {slack:.3} ms  {actor} {entry}"
                )?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for PathReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { work, span, .. } = self.report;
        f.debug_struct("PathReport")
            .field("work", &work)
            .field("span", &span)
            .finish_non_exhaustive()
    }
}
