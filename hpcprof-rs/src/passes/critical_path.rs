//! Names the places of critical paths: addresses by the frames of their process, captured contexts by the
//! records of their profiles, source lines by the frames that have them.
//!
//! A place is the innermost procedure of the user's own code: who waits for a lock is shown, not std's or
//! libc's function that waits. Where there is none it is the innermost procedure.

use crate::model::critical_path::{Branch, CriticalPath, Place, Procedure, Quality, Segment};
use crate::model::hash::{FastMap, FastSet, NumberedSet};
use crate::model::symbols::{Frame, Kind, Line, ProcedureIndex, Symbols, base_name};
use crate::model::warnings::Warnings;
use crate::passes::function_times::{self, Times};
use crate::passes::merge::paths::ProcessFrames;
use crate::sources::measurements::{Measurements, ProcessInput};
use hpc_formats::address::CodeAddress;
use hpc_formats::critical_path::{self as file, EDGES, ProcedureName, Site};
use hpc_formats::profile::Record;
use hpc_formats::structure::Origin;
use std::collections::BTreeMap;

pub mod ranks;

/// Anchors that lead from one profile to the next are followed so often: they may form a cycle.
const MOST_ANCHORS: usize = 64;

/// The critical paths of all processes that have one, each with the index of its process.
pub fn resolve(
    measurements: &Measurements,
    frames: &[ProcessFrames],
    symbols: &Symbols,
    warnings: &mut Warnings,
) -> Vec<(usize, CriticalPath)> {
    let processes = measurements.processes.iter().zip(frames).enumerate();
    let tracked = processes.filter_map(|(index, (process, frames))| {
        let path = process.critical_path.as_ref()?;
        Some((index, process, frames, path))
    });
    let tracked: Vec<_> = tracked.collect();
    for (_, process, _, path) in &tracked {
        if let Some(line) = lost_samples(process, path) {
            warnings.add(line);
        }
    }
    let lines = lines(tracked.iter().map(|(.., path)| *path), symbols);
    let named = tracked.into_iter().map(|(index, process, frames, path)| {
        let names = Names {
            process,
            symbols,
            frames,
            contexts: contexts(process, frames, symbols, path.sites()),
            lines: &lines,
        };
        (index, names.path(path))
    });
    named.collect()
}

/// A warning if samples of a path belong to threads that have no readable profile.
fn lost_samples(process: &ProcessInput, path: &file::CriticalPath) -> Option<String> {
    let is_lost = |profile: u32| !process.threads.contains_key(&profile);
    let lost = path.on_path.iter().filter(|sample| is_lost(sample.profile));
    let lost = lost.fold(0_u64, |sum, sample| sum.saturating_add(sample.time));
    (lost > 0).then(|| {
        format!(
            "process {}: samples of {:.3} s on its critical path belong to profiles that are missing or \
             unreadable; `on_path` lacks them: run again for them",
            process.pid,
            lost as f64 / 1e9
        )
    })
}

/// Procedures by file name and line.
type Lines = FastMap<(String, u32), Vec<(ProcedureIndex, Line)>>;

/// The procedures that have the source lines of the paths' places.
fn lines<'a>(paths: impl Iterator<Item = &'a file::CriticalPath>, symbols: &Symbols) -> Lines {
    let mut lines = Lines::default();
    for site in paths.flat_map(file::CriticalPath::sites) {
        if let Site::Source { file, line } = site {
            lines
                .entry((base_name(file).to_owned(), *line))
                .or_default();
        }
    }
    if lines.is_empty() {
        return lines;
    }
    let numbers: FastSet<u32> = lines.keys().map(|(_, line)| *line).collect();
    for (procedure, line) in symbols.frames.iter().flat_map(procedures) {
        let Some(line) = line.filter(|line| numbers.contains(&line.line)) else {
            continue;
        };
        let base = base_name(symbols.text(line.file)).to_owned();
        if let Some(known) = lines.get_mut(&(base, line.line)) {
            known.push((procedure, line));
        }
    }
    lines
}

/// The procedures of a frame, innermost first, each with the line that it has reached.
fn procedures(frame: &Frame) -> impl Iterator<Item = (ProcedureIndex, Option<Line>)> {
    let mut line = frame.line;
    let scopes = frame.scopes.iter().rev();
    scopes
        .filter(|scope| scope.kind != Kind::Loop)
        .map(move |scope| {
            let reached = line;
            line = scope.call;
            (scope.procedure, reached)
        })
}

/// A procedure, and a line in it.
type Found = (ProcedureIndex, Option<Line>);

/// The innermost procedure of the user's own code in a frame.
fn own(frame: &Frame, symbols: &Symbols) -> Option<Found> {
    procedures(frame).find(|(p, _)| symbols.procedure(*p).origin == Origin::User)
}

/// A record of a profile, by the profile's ordinal.
type Context = (u32, u32);

/// The procedures of captured contexts.
fn contexts<'a>(
    process: &ProcessInput,
    frames: &ProcessFrames,
    symbols: &Symbols,
    sites: impl Iterator<Item = &'a Site>,
) -> FastMap<Context, Found> {
    let mut found = FastMap::default();
    // By profile: the contexts asked for, each with the record to go on from.
    let mut pending: BTreeMap<u32, Vec<(Context, u32)>> = BTreeMap::new();
    for site in sites {
        if let Site::Context { profile, record } = site {
            let asked = ((*profile, *record), *record);
            pending.entry(*profile).or_default().push(asked);
        }
    }
    let mut innermost = FastMap::default();
    let mut buffer = Vec::new();
    for _ in 0..MOST_ANCHORS {
        for (profile, asked) in std::mem::take(&mut pending) {
            let thread = process.threads.get(&profile);
            let Some(Ok(profile)) = thread.map(|thread| thread.read(&mut buffer)) else {
                continue;
            };
            for (context, mut at) in asked {
                // A parent has a smaller index, so this ends.
                while let Some(Record::Note {
                    parent, ip, lip, ..
                }) = profile.record(at as usize)
                {
                    let address = if lip.is_none() { ip } else { lip };
                    if let Some(frame) = frames.get(&address.0).map(|f| symbols.frame(*f)) {
                        if let Some(own) = own(frame, symbols) {
                            found.insert(context, own);
                            break;
                        }
                        innermost
                            .entry(context)
                            .or_insert_with(|| procedures(frame).next());
                    }
                    at = parent;
                }
                if let Some(Record::Anchor { thread, node }) = profile.record(at as usize) {
                    pending.entry(thread).or_default().push((context, node));
                }
            }
        }
    }
    for (context, procedure) in innermost {
        if let Some(procedure) = procedure {
            found.entry(context).or_insert(procedure);
        }
    }
    found
}

/// The names of one process.
struct Names<'a> {
    process: &'a ProcessInput,
    symbols: &'a Symbols,
    frames: &'a ProcessFrames,
    contexts: FastMap<(u32, u32), Found>,
    lines: &'a Lines,
}

impl Names<'_> {
    fn path(&self, path: &file::CriticalPath) -> CriticalPath {
        let mut places = NumberedSet::default();
        let mut number = |place: Place| places.insert_full(place).0 as u32;
        let ordinals: BTreeMap<u32, u32> = path.threads.iter().copied().collect();
        let ordinal = |thread: u32| ordinals.get(&thread).copied();
        let segments = path.segments.iter().map(|segment| Segment {
            edge: EDGES[segment.edge as usize],
            rank: None,
            thread: segment.thread.and_then(ordinal),
            time: signed(segment.time),
            count: signed(segment.count),
            begin: number(self.place(&segment.begin)),
            end: number(self.place(&segment.end)),
        });
        let segments = segments.collect();
        let mut procedures: Vec<Procedure> = Vec::new();
        for (place, times) in self.procedures(path) {
            procedures.push(Procedure {
                place: number(place),
                ..times
            });
        }
        let branches = path.near.iter().map(|near| Branch {
            thread: ordinal(near.thread),
            time: signed(near.time),
            slack: signed(near.slack),
            begin: number(self.place(&near.begin)),
            end: number(self.place(&near.end)),
        });
        let branches = branches.collect();
        let places: Vec<Place> = places.into_iter().collect();
        let lost = path.quality.lost_edges.iter();
        let mut named = CriticalPath {
            complete: path.complete,
            work: signed(path.work),
            span: signed(path.span),
            burdened_span: signed(path.burdened_span),
            wall: signed(path.wall),
            spawn_cost: signed(path.spawn_cost),
            message_cost: signed(path.message_cost),
            places,
            segments,
            procedures,
            branches,
            quality: Quality {
                resyncs: signed(path.quality.resyncs),
                exact_edges: signed(path.quality.exact_edges),
                woken_edges: signed(path.quality.woken_edges),
                lost_edges: lost.map(|(cause, n)| (cause.clone(), signed(*n))).collect(),
            },
            ranks: Vec::new(),
        };
        named.sort_procedures();
        named
    }

    fn place(&self, site: &Site) -> Place {
        match site {
            Site::Unknown | Site::Remote { .. } => Place::default(),
            Site::Address(address) => {
                self.named(self.frame(*address).and_then(|frame| {
                    own(frame, self.symbols).or_else(|| procedures(frame).next())
                }))
            }
            Site::Context { profile, record } => {
                self.named(self.contexts.get(&(*profile, *record)).copied())
            }
            Site::Source { file, line } => Place {
                file: file.clone(),
                line: *line,
                ..self.named(self.at_line(file, *line))
            },
        }
    }

    fn frame(&self, address: CodeAddress) -> Option<&Frame> {
        Some(self.symbols.frame(*self.frames.get(&address.0)?))
    }

    fn named(&self, found: Option<Found>) -> Place {
        let Some((index, line)) = found else {
            return Place::default();
        };
        let procedure = self.symbols.procedure(index);
        let module = procedure.module.map(|m| self.symbols.module(m));
        Place {
            name: self.symbols.text(procedure.name).to_owned(),
            module: module.map_or_else(String::new, |m| m.path.clone()),
            file: line.map_or("", |l| self.symbols.text(l.file)).to_owned(),
            line: line.map_or(0, |l| l.line),
        }
    }

    /// The procedure at a line. The compiler may have been given a path within the package. A closure has its
    /// lines in common with the procedure around it, whose name is shorter.
    fn at_line(&self, file: &str, line: u32) -> Option<Found> {
        let is_in = |path: &str| {
            let before = path.strip_suffix(file);
            before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
        };
        let known = self.lines.get(&(base_name(file).to_owned(), line))?.iter();
        let same = known.filter(|(_, at)| is_in(self.symbols.text(at.file)));
        let name = |found: &&(ProcedureIndex, Line)| {
            let name = self.symbols.name_of(found.0);
            (name.len(), name)
        };
        same.min_by_key(name).map(|(p, line)| (*p, Some(*line)))
    }

    /// The procedures: marks as they were measured, functions with what their samples say. Instances of one
    /// generic function are one; zeroing all of them gains no less than the best of them.
    fn procedures(&self, path: &file::CriticalPath) -> Vec<(Place, Procedure)> {
        let mut procedures = Vec::new();
        let mut functions: BTreeMap<ProcedureIndex, u64> = BTreeMap::new();
        for procedure in &path.procedures {
            let function = match &procedure.name {
                ProcedureName::Mark(_) => None,
                ProcedureName::Function(address) => {
                    let frame = self.frame(*address).and_then(|frame| frame.scopes.first());
                    frame.map(|scope| scope.procedure)
                }
            };
            match (function, &procedure.name) {
                (Some(function), _) => {
                    let span = functions.entry(function).or_insert(u64::MAX);
                    *span = procedure.zeroed_span.min(*span);
                }
                (None, name) => {
                    let name = match name {
                        ProcedureName::Mark(mark) => mark.clone(),
                        ProcedureName::Function(address) => format!("[{address}]"),
                    };
                    let place = Place {
                        name,
                        ..Place::default()
                    };
                    procedures.push((
                        place,
                        times(procedure.work, procedure.on_path, procedure.zeroed_span),
                    ));
                }
            }
        }
        // A task runtime's functions call the user's tasks: views fold them, too.
        functions.retain(|p, _| self.symbols.procedure(*p).origin != Origin::Runtime);
        let known = functions.keys().copied().collect();
        let measured = function_times::of(&known, self.process, self.frames, self.symbols);
        for (function, zeroed_span) in functions {
            let declared = self.symbols.procedure(function).declared;
            let Times { work, on_path } = measured.get(&function).copied().unwrap_or_default();
            let place = self.named(Some((function, declared)));
            procedures.push((
                place,
                times(work.round() as u64, on_path.round() as u64, zeroed_span),
            ));
        }
        procedures
    }
}

/// The times of a procedure whose place is not numbered yet.
fn times(work: u64, on_path: u64, zeroed_span: u64) -> Procedure {
    Procedure {
        place: 0,
        work: signed(work),
        on_path: signed(on_path),
        zeroed_span: signed(zeroed_span),
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
