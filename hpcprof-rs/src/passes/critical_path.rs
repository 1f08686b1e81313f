//! Names the places of critical paths: addresses by the frames of their process, captured contexts by the
//! records of their profiles, source lines by the frames that have them.
//!
//! A place is the innermost procedure of the user's own code: who waits for a lock is shown, not std's or
//! libc's function that waits, and who calls a parallel loop, not where it splits its tasks. A segment that
//! begins or ends in a runtime, where no context was captured, has there the place of its other end. Where
//! there is none it is the innermost procedure.

use crate::error::Result;
use crate::model::critical_path::{CriticalPath, Known, Moment, Procedure, Start};
use crate::model::hash::{FastMap, FastSet};
use crate::model::loops::{LoopIndex, ParallelLoops};
use crate::model::symbols::{Frame, FrameIndex, Kind, Line, ModuleIndex, ProcedureIndex, Symbols, base_name};
use crate::model::warnings::Warnings;
use crate::passes::function_times::{Functions, Times};
use crate::passes::merge::paths::ProcessFrames;
use crate::passes::merge::reduce::Merged;
use crate::passes::parallel_loops::rules::Part;
use crate::sources::measurements::{Measurements, ProcessInput};
use hpc_formats::address::CodeAddress;
use hpc_formats::critical_path::{self as file, Place, ProcedureName, Site};
use hpc_formats::profile::Record;
use hpc_formats::structure::Origin;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub mod ranks;

/// Anchors that lead from one profile to the next are followed so often: they may form a cycle.
const MOST_ANCHORS: usize = 64;

/// The critical paths of all processes that have one, each with the index of its process.
pub fn resolve(
    measurements: &Measurements,
    frames: &[ProcessFrames],
    symbols: &Symbols,
    (merged, others): (&Merged, &[String]),
    warnings: &mut Warnings,
) -> Result<Vec<(usize, CriticalPath)>> {
    let processes = measurements.processes.iter().zip(frames).enumerate();
    let tracked = processes.filter_map(|(index, (process, frames))| {
        let path = process.critical_path.as_ref()?;
        Some((index, process, frames, path))
    });
    let tracked: Vec<_> = tracked.collect();
    if tracked.is_empty() {
        return Ok(Vec::new());
    }
    for (_, process, _, path) in &tracked {
        if let Some(line) = lost_samples(process, path) {
            warnings.add(line);
        }
    }
    let functions = Functions::new(merged, others);
    let loops = loop_callers(&merged.trees.loops.loops, symbols);
    let lines = lines(tracked.iter().map(|(.., path)| *path), symbols);
    let named = tracked.into_iter().map(|(index, process, frames, path)| {
        let names = Names {
            symbols,
            times: functions.times(index)?,
            frames,
            contexts: contexts(process, frames, symbols, path.places()),
            package: package(path, frames, symbols),
            lines: &lines,
            loops: &loops,
        };
        Ok((index, names.path(path)))
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
    for site in paths.flat_map(file::CriticalPath::places) {
        if let Site::Source { file, line } = site {
            lines.entry((base_name(file).to_owned(), *line)).or_default();
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

/// The folder that relative paths of a path's places begin at. A compiler is given relative paths within one
/// folder, that of the program's workspace, and absolute ones of all else. So it is the folder that has most
/// of these files, and the program's `main`.
fn package(path: &file::CriticalPath, frames: &ProcessFrames, symbols: &Symbols) -> Option<String> {
    let relative: BTreeSet<&str> = path
        .places()
        .filter_map(|site| match site {
            Site::Source { file, .. } if !file.starts_with('/') => Some(file.as_str()),
            _ => None,
        })
        .collect();
    if relative.is_empty() {
        return None;
    }
    let mut known: BTreeSet<&str> = BTreeSet::new();
    let mut main: BTreeSet<&str> = BTreeSet::new();
    let frames = frames.values().collect::<FastSet<_>>().into_iter();
    for (index, line) in frames.flat_map(|f| procedures(symbols.frame(*f))) {
        let procedure = symbols.procedure(index);
        if procedure.origin != Origin::User {
            continue;
        }
        let declared = procedure.declared.map(|at| symbols.text(at.file));
        known.extend(line.map(|at| symbols.text(at.file)).into_iter().chain(declared));
        let name = symbols.text(procedure.name);
        if name == "main" || name.ends_with("::main") {
            main.extend(declared);
        }
    }
    let mut files: BTreeMap<&str, usize> = BTreeMap::new();
    for path in &known {
        let before = relative.iter().filter_map(|file| path.strip_suffix(file));
        for folder in before.filter(|folder| folder.is_empty() || folder.ends_with('/')) {
            *files.entry(folder).or_default() += 1;
        }
    }
    let has_main = |folder: &str| main.iter().any(|file| file.starts_with(folder));
    let best =
        files.into_iter().max_by_key(|(folder, files)| (files + usize::from(has_main(folder)), folder.len()));
    best.map(|(folder, _)| folder.to_owned())
}

/// Who calls a parallel loop that was seen in a procedure's own machine code, by module and number in the
/// module's structure; if that is one loop.
type LoopCallers = FastMap<(ModuleIndex, u32), Found>;

fn loop_callers(loops: &ParallelLoops, symbols: &Symbols) -> LoopCallers {
    let calls: FastSet<Line> = loops.all.keys().filter_map(|key| key.call).collect();
    let mut callers = FastMap::default();
    for found in symbols.frames.iter().flat_map(procedures) {
        let line = found.1.filter(|line| calls.contains(line) && is_own(found.0, symbols));
        line.map(|line| *callers.entry(line).or_insert(found));
    }
    let functions = loops.by_function.iter().filter(|(_, loops)| loops.len() == 1);
    let caller = |index: &LoopIndex| loops.all.get_index(index.0 as usize)?.0.call;
    let known = functions.filter_map(|(function, loops)| {
        let call = loops.first().and_then(caller)?;
        Some((*function, *callers.get(&call)?))
    });
    known.collect()
}

/// The procedures of a frame, innermost first, each with the line that it has reached.
fn procedures(frame: &Frame) -> impl Iterator<Item = (ProcedureIndex, Option<Line>)> {
    let mut line = frame.line;
    let scopes = frame.scopes.iter().rev();
    scopes.filter(|scope| scope.kind != Kind::Loop).map(move |scope| {
        let reached = line;
        line = scope.call;
        (scope.procedure, reached)
    })
}

type Found = (ProcedureIndex, Option<Line>);

/// The innermost procedure of the user's own code in a frame.
fn own(frame: &Frame, symbols: &Symbols) -> Option<Found> {
    procedures(frame).find(|(p, _)| is_own(*p, symbols))
}

/// Whether a procedure is the user's, and none of those by which channels and programs report events.
fn is_own(procedure: ProcedureIndex, symbols: &Symbols) -> bool {
    let name = symbols.name_of(procedure).trim_start_matches('<');
    let reports = name.starts_with("hpcrun_") || name.starts_with("crossbeam_channel::");
    Part::of(symbols, procedure) == Part::User && !reports
}

/// A record of a profile, by the profile's ordinal.
type Context = (u32, u32);

/// A place, and whether it is known to be outside of the user's own code.
#[derive(Clone)]
struct At {
    place: Place,
    is_foreign: bool,
}

/// A foreign end of a segment has the place of the other one, if that is the user's.
fn settle(begin: &mut At, end: &mut At) {
    let is_own = |at: &At| !at.is_foreign && at.place != Place::default();
    if begin.is_foreign && is_own(end) {
        begin.clone_from(end);
    } else if end.is_foreign && is_own(begin) {
        end.clone_from(begin);
    }
}

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
                while let Some(Record::Note { parent, ip, lip, .. }) = profile.record(at as usize) {
                    let address = if lip.is_none() { ip } else { lip };
                    if let Some(frame) = frames.get(&address.0).map(|f| symbols.frame(*f)) {
                        if let Some(own) = own(frame, symbols) {
                            found.insert(context, own);
                            break;
                        }
                        innermost.entry(context).or_insert_with(|| procedures(frame).next());
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

struct Names<'a> {
    symbols: &'a Symbols,
    times: FastMap<ProcedureIndex, Times>,
    frames: &'a ProcessFrames,
    contexts: FastMap<(u32, u32), Found>,
    /// Where relative source files are.
    package: Option<String>,
    lines: &'a Lines,
    loops: &'a LoopCallers,
}

impl Names<'_> {
    fn path(&self, path: &file::CriticalPath) -> CriticalPath {
        let mut places: FastSet<Arc<Place>> = FastSet::default();
        let mut shared = |place: Place| match places.get(&place) {
            Some(known) => Arc::clone(known),
            None => {
                let place = Arc::new(place);
                places.insert(Arc::clone(&place));
                place
            }
        };
        let mut procedures = self.procedures(path);
        sort_procedures(&mut procedures);
        let ordinals: BTreeMap<u32, u32> = path.threads.iter().copied().collect();
        let ordinal = |thread: &mut Option<u32>| {
            *thread = thread.and_then(|thread| ordinals.get(&thread).copied());
        };
        let mut known = path.clone();
        known.procedures.clear();
        let series = known.series.drain(..).map(|moment| self.moment(moment)).collect();
        known.segments.iter_mut().for_each(|s| ordinal(&mut s.thread));
        known.near.iter_mut().for_each(|n| ordinal(&mut n.thread));
        let mut named = known.map(|site| self.place(&site), |_| unreachable!("cleared"));
        let segments = named.segments.iter_mut().map(|s| (&mut s.begin, &mut s.end));
        let near = named.near.iter_mut().map(|n| (&mut n.begin, &mut n.end));
        segments.chain(near).for_each(|(begin, end)| settle(begin, end));
        let mut path = CriticalPath { procedures, series, ..named.map(|at| shared(at.place), |known| known) };
        join_starts(&mut path.starts);
        path
    }

    /// A moment's functions, but for a runtime's; instances of a generic one are one.
    fn moment(&self, moment: file::Moment) -> Moment {
        let mut functions: BTreeMap<ProcedureIndex, u64> = BTreeMap::new();
        let mut procedures = Vec::new();
        for (name, time) in moment.procedures {
            let function = match name {
                ProcedureName::Mark(_) => None,
                ProcedureName::Function(address, depth) => self.function(address, depth),
            };
            if let Some(function) = function {
                let sum = functions.entry(function).or_default();
                *sum = sum.saturating_add(time).min(moment.span);
            } else if let ProcedureName::Mark(name) = name {
                procedures.push((known(Place { name, ..Place::default() }), time));
            }
        }
        functions.retain(|p, _| self.symbols.procedure(*p).origin != Origin::Runtime);
        procedures.extend(functions.into_iter().map(|(function, time)| (self.known(function), time)));
        Moment { wall: moment.wall, work: moment.work, span: moment.span, procedures }
    }

    fn known(&self, function: ProcedureIndex) -> Known {
        let procedure = self.symbols.procedure(function);
        let place = self.named(Some((function, procedure.declared)));
        Known { is_user: procedure.origin == Origin::User, ..known(place) }
    }

    fn place(&self, site: &Site) -> At {
        let found = match site {
            Site::Unknown | Site::Remote { .. } => None,
            Site::Address(address) => self.frames.get(&address.0).and_then(|f| self.in_frame(*f)),
            Site::Context { profile, record } => self.contexts.get(&(*profile, *record)).copied(),
            Site::Source { file, line } => self.at_line(file, *line),
        };
        let mut at =
            At { place: self.named(found), is_foreign: found.is_some_and(|(p, _)| !is_own(p, self.symbols)) };
        if let Site::Source { file, line } = site {
            at.place.file.clone_from(file);
            at.place.line = *line;
            at.is_foreign |= self.is_runtime(file);
        }
        at
    }

    fn in_frame(&self, id: FrameIndex) -> Option<Found> {
        let frame = self.symbols.frame(id);
        let in_loop = || self.loops.get(&self.symbols.function_of(id)?).copied();
        own(frame, self.symbols).or_else(in_loop).or_else(|| procedures(frame).next())
    }

    /// A source file, as debug information names it; `None` if that is not known.
    fn full_path(&self, file: &str) -> Option<String> {
        match file.starts_with('/') {
            true => Some(file.to_owned()),
            false => Some(format!("{}{file}", self.package.as_ref()?)),
        }
    }

    fn is_runtime(&self, file: &str) -> bool {
        let Some(file) = self.full_path(file) else {
            return false;
        };
        let is_it = |(p, _): (ProcedureIndex, _)| {
            let procedure = self.symbols.procedure(p);
            let declared = procedure.declared.filter(|_| procedure.origin == Origin::Runtime);
            declared.is_some_and(|at| self.symbols.text(at.file) == file)
        };
        self.symbols.frames.iter().flat_map(procedures).any(is_it)
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

    /// The procedure at a line. A closure has its lines in common with the procedure around it, whose name is
    /// shorter.
    fn at_line(&self, file: &str, line: u32) -> Option<Found> {
        let full = self.full_path(file)?;
        let known = self.lines.get(&(base_name(file).to_owned(), line))?.iter();
        let same = known.filter(|(_, at)| self.symbols.text(at.file) == full);
        let name = |found: &&(ProcedureIndex, Line)| {
            let name = self.symbols.name_of(found.0);
            (name.len(), name)
        };
        same.min_by_key(name).map(|(p, line)| (*p, Some(*line)))
    }

    /// The procedure that contains an address, with so many around it.
    fn function(&self, address: CodeAddress, depth: u32) -> Option<ProcedureIndex> {
        let scopes = self.frame(address)?.scopes.iter();
        let mut procedures = scopes.filter(|scope| scope.kind != Kind::Loop);
        procedures.nth(depth as usize).map(|scope| scope.procedure)
    }

    /// The user's functions in all samples.
    fn users_functions(&self) -> impl Iterator<Item = ProcedureIndex> {
        let frames = self.frames.values().map(|f| self.symbols.frame(*f));
        let functions = frames.flat_map(procedures).map(|(function, _)| function);
        functions.filter(|function| self.symbols.procedure(*function).origin == Origin::User)
    }

    /// The procedures: marks as they were measured, functions with what their samples say. Instances of one
    /// generic function are one; zeroing all of them gains no less than the best of them.
    fn procedures(&self, path: &file::CriticalPath) -> Vec<Procedure> {
        let mut procedures = Vec::new();
        let mut functions: BTreeMap<ProcedureIndex, [u64; 2]> = BTreeMap::new();
        for procedure in &path.procedures {
            let function = match &procedure.name {
                ProcedureName::Mark(_) => None,
                ProcedureName::Function(address, depth) => self.function(*address, *depth),
            };
            match (function, &procedure.name) {
                (Some(function), _) => {
                    let [zeroed, faster] = functions.entry(function).or_insert([u64::MAX; 2]);
                    *zeroed = procedure.zeroed_span.min(*zeroed);
                    *faster = procedure.faster_span.min(*faster);
                }
                (None, name) => procedures.push(Procedure {
                    name: known(Place { name: name.to_string(), ..Place::default() }),
                    work: procedure.work,
                    on_path: procedure.on_path,
                    zeroed_span: procedure.zeroed_span,
                    faster_span: procedure.faster_span,
                }),
            }
        }
        // A task runtime's functions call the user's tasks: views fold them, too.
        functions.retain(|p, _| self.symbols.procedure(*p).origin != Origin::Runtime);
        let mut asked: FastSet<ProcedureIndex> = functions.keys().copied().collect();
        if path.rank.is_none() {
            asked.extend(self.users_functions());
        }
        for function in asked {
            let Times { work, on_path } = self.times.get(&function).copied().unwrap_or_default();
            let [zeroed_span, faster_span] = match functions.get(&function) {
                Some(spans) => *spans,
                // Without a function that is not on it the path stays as long as it is.
                None if on_path == 0 && work > 0 => [path.span; 2],
                None => continue,
            };
            procedures.push(Procedure {
                name: self.known(function),
                work,
                on_path,
                zeroed_span,
                faster_span,
            });
        }
        procedures
    }
}

/// Those of one place as one, the earliest first.
fn join_starts(starts: &mut Vec<Start>) {
    starts.sort_by(|a, b| a.place.cmp(&b.place).then(a.first.cmp(&b.first)));
    starts.dedup_by(|next, first| {
        let is_same = next.place == first.place;
        if is_same {
            first.count = first.count.saturating_add(next.count);
            first.time = first.time.saturating_add(next.time);
            first.beside = first.beside.saturating_add(next.beside);
        }
        is_same
    });
    starts.sort_by(|a, b| a.first.cmp(&b.first).then(b.beside.cmp(&a.beside)));
}

/// Sorts by gain.
fn sort_procedures(procedures: &mut [Procedure]) {
    procedures.sort_by(|a, b| {
        let by_gain = a.zeroed_span.cmp(&b.zeroed_span);
        by_gain.then(b.work.cmp(&a.work)).then_with(|| a.name.place.name.cmp(&b.name.place.name))
    });
}

/// The user's own.
fn known(place: Place) -> Known {
    Known { place: Arc::new(place), is_user: true }
}
