//! Prints a critical path as text that fits the screen, and as JSON (FORMATS.md).

use crate::catalogue::critical_path::TrackedProcess;
use crate::error::one_line;
use crate::model::critical_path::{CriticalPath, Procedure, Segment};
use crate::render::names::{base_name, middle, wrap};
use crate::render::style::Style;
use crate::views::critical_path::{Part, arrange};
use hpc_formats::critical_path::{Beside, Edge, Near, Place, WORKERS, ratio};
use hpc_formats::json::{Seconds, Text, list, members};
use hpcstruct_rs::known;
use std::io::{self, Write};
use std::sync::Arc;

/// Procedures that are listed.
const PROCEDURES: usize = 12;
/// Places that are listed of those that begin what runs beside the path.
const STARTS: usize = 5;
/// Ranks that are listed.
const RANKS: usize = 8;
/// Processes that are named beside the one shown.
const OTHERS: usize = 8;
/// The least span is named if it is at most this part of the span.
const NOTABLE_DOUBT: f64 = 0.98;
/// The burdened span is named if it is so many times the span.
const NOTABLE_COSTS: f64 = 1.01;
/// A procedure with more of the work may be the program itself.
const MOST_WORK: f64 = 0.95;
/// More workers are not listed if the time is at least this part of that with fewer.
const ALIKE: f64 = 0.99;
/// Columns that a place keeps.
const LEAST_PLACE: usize = 20;
/// A name in fewer columns says nothing.
const LEAST_NAME: usize = 4;

/// What a critical path means, in sentences.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remarks {
    /// Reasons to doubt the figures; they come first.
    pub doubts: Vec<String>,
    /// What limits the program, and what to shorten.
    pub advice: Vec<String>,
    /// What the figures rest on.
    pub basis: String,
}

/// A critical path to print.
#[derive(Clone, Copy, Debug)]
pub struct PathView<'a> {
    /// The path.
    pub path: &'a CriticalPath,
    /// Its process.
    pub process: &'a TrackedProcess,
    /// The other processes, the longest path first.
    pub others: &'a [TrackedProcess],
    /// Workers for which procedures' gains are predicted.
    pub workers: u32,
}

/// In what times are printed: its name, and its nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Scale(&'static str, f64);

impl Scale {
    /// The unit in which a time has three decimals that say something.
    pub fn of(nanoseconds: u64) -> Scale {
        match nanoseconds {
            1_000_000_000.. => Scale("s", 1e9),
            1_000_000.. => Scale("ms", 1e6),
            _ => Scale("us", 1e3),
        }
    }

    fn number(self, nanoseconds: f64) -> String {
        match nanoseconds / self.1 {
            v if v.abs() >= 10_000.0 => format!("{v:.0}"),
            v if v.abs() >= 1000.0 => format!("{v:.1}"),
            v => format!("{v:.3}"),
        }
    }

    fn time(self, nanoseconds: f64) -> String {
        format!("{} {}", self.number(nanoseconds), self.0)
    }

    /// A time within a sentence: three digits that count.
    pub fn about(self, nanoseconds: f64) -> String {
        let decimals = match nanoseconds / self.1 {
            v if v.abs() >= 100.0 => 0,
            v if v.abs() >= 10.0 => 1,
            v if v.abs() >= 1.0 => 2,
            _ => 3,
        };
        format!("{:.decimals$} {}", nanoseconds / self.1, self.0)
    }
}

fn percent(part: u64, whole: u64) -> String {
    match ratio(part, whole) * 100.0 {
        v if v >= 9.95 => format!("{v:.0} %"),
        v => format!("{v:.1} %"),
    }
}

impl PathView<'_> {
    /// Prints text: the remarks, and at most `rows` parts of the path.
    pub fn text(
        &self,
        remarks: &Remarks,
        rows: usize,
        style: Style,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let path = self.path;
        let scale = Scale::of(path.span);
        let width = style.width;
        for doubt in &remarks.doubts {
            paragraph(&style, &one_line(&format!("! {doubt}")), width, out)?;
        }
        let at_least = match ratio(path.span_at_least, path.span) <= NOTABLE_DOUBT {
            true => format!(" (at least {})", scale.time(path.span_at_least as f64)),
            false => String::new(),
        };
        let head = format!(
            "work {}   span {}{at_least}   parallelism {:.2}   wall {}",
            scale.time(path.work as f64),
            scale.time(path.span as f64),
            path.parallelism(),
            scale.time(path.wall as f64)
        );
        writeln!(out, "{}", style.bold(&head))?;
        let costs = match ratio(path.burdened_span, path.span) >= NOTABLE_COSTS {
            true => {
                format!("; span with the edges' costs {}", scale.time(path.burdened_span as f64))
            }
            false => String::new(),
        };
        let process = format!("{}, {} cores{costs}", name_of(self.process), self.process.cores);
        writeln!(out, "{}", middle(&process, width))?;
        for line in &remarks.advice {
            paragraph(&style, &one_line(&format!("* {line}")), width, out)?;
        }
        self.ranks(scale, style, out)?;
        self.segments(rows, scale, style, out)?;
        self.procedures(scale, style, out)?;
        self.branches(scale, style, out)?;
        self.exposing(scale, style, out)?;
        self.predictions(scale, style, out)?;
        writeln!(out)?;
        paragraph(&style, &one_line(&remarks.basis), width, out)?;
        self.name_others(scale, width, out)
    }

    /// The parts of several processes, the largest first.
    fn ranks(&self, scale: Scale, style: Style, out: &mut impl Write) -> io::Result<()> {
        let path = self.path;
        if path.ranks.is_empty() {
            return Ok(());
        }
        let mut ranks = path.ranks.clone();
        ranks.sort_by_key(|share| (std::cmp::Reverse(share.on_path), share.rank));
        let title = format!("{:>9}  share      work  {} ranks", scale.0, ranks.len());
        writeln!(out, "\n{}", style.bold(&title))?;
        for share in ranks.iter().take(RANKS) {
            writeln!(
                out,
                "{:>9}{:>7}{:>10}  rank {}",
                scale.number(share.on_path as f64),
                percent(share.on_path, path.span),
                scale.number(share.work as f64),
                share.rank
            )?;
        }
        match ranks.len().saturating_sub(RANKS) {
            0 => Ok(()),
            more => writeln!(out, "{:>9}  {more} more", "…"),
        }
    }

    fn segments(
        &self,
        rows: usize,
        scale: Scale,
        style: Style,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let path = self.path;
        let parts = arrange(&path.segments, rows);
        let count = parts.iter().map(Part::segments).fold(0, u64::saturating_add);
        let subpaths = match count {
            1 => "1 subpath".to_owned(),
            n => format!("{n} subpaths"),
        };
        let whose = match path.ranks.is_empty() {
            true => "thread",
            false => "rank",
        };
        let title = format!("{:>9}  share  begins by{whose:>8}  {subpaths}", scale.0);
        writeln!(out, "\n{}", style.bold(&title))?;
        let mut work: Vec<(&Part<Arc<Place>>, &str)> =
            parts.iter().rev().map(|p| (p, "")).collect();
        while let Some((part, indent)) = work.pop() {
            let time = format!(
                "{:>9}{:>7}",
                scale.number(part.time() as f64),
                percent(part.time(), path.span)
            );
            match part {
                Part::Loop(rounds, parts) => {
                    writeln!(out, "{time}  {indent}x {rounds}:")?;
                    work.extend(parts.iter().rev().map(|p| (p, "  ")));
                }
                Part::Rest(segments, _) => {
                    let text = format!("{indent}… {segments} shorter ones");
                    writeln!(out, "{time}  {}", style.faint(&text))?;
                }
                Part::Segment(segment) => {
                    let number = |n: Option<u32>| n.map_or("-".to_owned(), |n| n.to_string());
                    // A rank's first thread is not named.
                    let thread = match (segment.rank, segment.thread) {
                        (None, thread) if path.ranks.is_empty() => number(thread),
                        (rank, None | Some(1)) => number(rank),
                        (rank, thread) => format!("{}:{}", number(rank), number(thread)),
                    };
                    let times = match segment.count {
                        1 => String::new(),
                        n => format!("x {n}  "),
                    };
                    let edge = format!("{indent}{}", segment.edge.name());
                    let line = format!("{time}  {edge:<9}{thread:>8}  {times}");
                    let room = room(&line, style);
                    let what = match segment.edge {
                        Edge::Folded => "the oldest subpaths of a long path".to_owned(),
                        _ => from_to(&Self::begin(segment), &segment.end, room),
                    };
                    writeln!(out, "{line}{what}")?;
                }
            }
        }
        Ok(())
    }

    /// Where a segment begins. The start of a program has no place.
    fn begin(segment: &Segment) -> Place {
        let place = Place::clone(&segment.begin);
        match segment.edge == Edge::Start && place == Place::default() {
            true => Place { name: "[start]".to_owned(), ..place },
            false => place,
        }
    }

    fn procedures(&self, scale: Scale, style: Style, out: &mut impl Write) -> io::Result<()> {
        let path = self.path;
        let all = parts(path);
        let listed = &all[..all.len().min(PROCEDURES)];
        if listed.is_empty() {
            let text = "no procedure was sampled or marked on the path";
            return writeln!(out, "\n{text}");
        }
        let workers = format!("{} workers", self.workers);
        let title = format!(
            "{:>9} {:>8} {:>8} {:>12} {workers:>12}  procedure",
            format!("gain {}", scale.0),
            "of work",
            "of path",
            "span without"
        );
        writeln!(out, "\n{}", style.bold(&title))?;
        for p in listed {
            let line = format!(
                "{:>9} {:>8} {:>8} {:>12} {:>12}  ",
                scale.number(path.gain(p) as f64),
                percent(p.work, path.work),
                percent(p.on_path, path.span),
                scale.number(p.zeroed_span as f64),
                scale.number(path.without(p, self.workers)),
            );
            let room = room(&line, style);
            writeln!(out, "{line}{}", shown(&p.name.place, room))?;
        }
        match all.len() - listed.len() {
            0 => Ok(()),
            more => writeln!(out, "{:>9}  {more} more", "…"),
        }
    }

    fn branches(&self, scale: Scale, style: Style, out: &mut impl Write) -> io::Result<()> {
        let path = self.path;
        if path.near.is_empty() {
            return Ok(());
        }
        let title =
            format!("{:>9} {:>9}  thread  nearly as long as the path beside", scale.0, "slack");
        writeln!(out, "\n{}", style.bold(&title))?;
        let mut shown: Vec<&Near<Arc<Place>>> = Vec::new();
        for branch in &path.near {
            // The longest of those at one place; branches come with the longest first.
            if !shown.iter().any(|b| (&b.begin, &b.end) == (&branch.begin, &branch.end)) {
                shown.push(branch);
            }
        }
        for branch in shown {
            let thread = branch.thread.map_or("-".to_owned(), |t| t.to_string());
            let line = format!(
                "{:>9} {:>9}{thread:>8}  ",
                scale.number(branch.time as f64),
                scale.number(branch.slack as f64),
            );
            let room = room(&line, style);
            let what = from_to(&branch.begin, &branch.end, room);
            writeln!(out, "{line}{what}")?;
        }
        Ok(())
    }

    /// What begins to run beside the path, the earliest first.
    fn exposing(&self, scale: Scale, style: Style, out: &mut impl Write) -> io::Result<()> {
        let mut starts = self.path.exposing().take(STARTS).peekable();
        if starts.peek().is_none() {
            return Ok(());
        }
        let title = format!(
            "{:>9} {:>9}  of work    times  begins what runs beside the path",
            format!("at {}", scale.0),
            scale.0
        );
        writeln!(out, "\n{}", style.bold(&title))?;
        for start in starts {
            let line = format!(
                "{:>9} {:>9} {:>8} {:>8}  ",
                scale.number(start.first as f64),
                scale.number(start.beside as f64),
                percent(start.beside, self.path.work),
                start.count
            );
            let room = room(&line, style);
            writeln!(out, "{line}{}", shown(&start.place, room))?;
        }
        Ok(())
    }

    fn predictions(&self, scale: Scale, style: Style, out: &mut impl Write) -> io::Result<()> {
        let title = format!(
            "{:>9} {:>9} {:>9} {:>9} {:>9}",
            "workers", scale.0, "at least", "at most", "speed-up"
        );
        writeln!(out, "\n{}", style.bold(&title))?;
        let mut before = f64::INFINITY;
        for workers in WORKERS {
            let prediction = self.path.prediction(workers);
            if workers > self.workers && prediction.time > before * ALIKE {
                break;
            }
            before = prediction.time;
            let faster = match prediction.time {
                0.0 => "-".to_owned(),
                time => format!("{:.2}", self.path.work as f64 / time),
            };
            let times = [prediction.time, prediction.lower, prediction.upper];
            let [time, lower, upper] = times.map(|time| scale.number(time));
            writeln!(out, "{workers:>9} {time:>9} {lower:>9} {upper:>9} {faster:>9}")?;
        }
        Ok(())
    }

    fn name_others(&self, scale: Scale, width: usize, out: &mut impl Write) -> io::Result<()> {
        if self.others.is_empty() {
            return Ok(());
        }
        let (named, more) = self.others.split_at(self.others.len().min(OTHERS));
        let named =
            named.iter().map(|p| format!("{} (span {})", name_of(p), scale.time(p.span as f64)));
        let mut names: Vec<String> = named.collect();
        if !more.is_empty() {
            names.push(format!("{} more", more.len()));
        }
        let text = format!("other processes, see --process PID: {}", names.join("; "));
        for line in wrap(&text, width) {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    /// Prints JSON.
    pub fn json(&self, remarks: &Remarks, out: &mut impl Write) -> io::Result<()> {
        let doubts = list(remarks.doubts.iter().map(|doubt| Text(doubt).to_string()));
        let doubts = members(&[("doubts", &doubts)]);
        let others = self.others.iter().map(|p| {
            let fields = process_fields(p);
            format!("{{{fields},\"span\":{}}}", Seconds(p.span))
        });
        let beside = Beside {
            process: format!("{},{doubts}", process_fields(self.process)),
            workers: self.workers,
            others: others.collect(),
        };
        let json = self.path.to_json(
            |place| Place::clone(place),
            |known| Some(Place::clone(&known.place)),
            Some(&beside),
        );
        writeln!(out, "{json}")
    }
}

fn process_fields(process: &TrackedProcess) -> String {
    members(&[
        ("run", &Text(&process.run)),
        ("host", &Text(&process.host)),
        ("pid", &process.pid),
        ("program", &Text(&process.program)),
    ])
}

fn name_of(process: &TrackedProcess) -> String {
    let host = match process.host.as_str() {
        "" => String::new(),
        host => format!(" on {}", one_line(host)),
    };
    format!("{}, process {}{host}", one_line(&process.program), process.pid)
}

/// The procedures that are parts of the program which can be shortened: neither what starts it, nor what has
/// nearly all of its work and calls the others for it. Where there are the user's own, others count for those
/// that call them.
pub fn parts(path: &CriticalPath) -> Vec<&Procedure> {
    let is_part = |p: &&Procedure| {
        let name = &p.name.place.name;
        (path.gain(p) > 0 || p.on_path > 0)
            && !known::is_start_up(name)
            && !known::is(known::Kind::Shim, name)
    };
    let mut parts: Vec<&Procedure> = path.procedures.iter().filter(is_part).collect();
    if parts.iter().any(|p| p.name.is_user) {
        parts.retain(|p| p.name.is_user);
    }
    // A mark's time is its own.
    let is_whole = |p: &Procedure| is_function(p) && ratio(p.work, path.work) >= MOST_WORK;
    let (whole, others): (Vec<&Procedure>, Vec<&Procedure>) =
        parts.iter().partition(|p| is_whole(p));
    let others = others.iter().map(|p| p.work).fold(0, u64::saturating_add);
    // The innermost one has time of its own if the others have not half as much. `main` is outside.
    let own = whole.iter().map(|p| p.work).min();
    let own = own.filter(|work| others < work / 2);
    let inner = whole.iter().filter(|p| Some(p.work) == own);
    let is_one = inner.count() == 1;
    let is_main = |p: &Procedure| tail(&p.name.place.name) == "main";
    parts.retain(|p| !is_whole(p) || Some(p.work) == own && (is_one || !is_main(p)));
    parts
}

/// Whether it is known by samples: others are marks.
pub fn is_function(procedure: &Procedure) -> bool {
    !procedure.name.place.module.is_empty()
}

/// A text in as many lines as it needs; the second line and those below it are indented.
fn paragraph(style: &Style, text: &str, width: usize, out: &mut impl Write) -> io::Result<()> {
    for line in wrap(text, width) {
        let line = match text.starts_with('!') {
            true => style.paint("1;31", &line),
            false => line,
        };
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Columns that are left for a place.
fn room(line: &str, style: Style) -> usize {
    let left = style.line.saturating_sub(line.chars().count());
    left.max(LEAST_PLACE)
}

/// `file.rs:12`, as far as it is known.
fn location(place: &Place) -> String {
    let file = one_line(base_name(&place.file));
    match place.line {
        0 => file,
        line => format!("{file}:{line}"),
    }
}

/// A procedure's name without the path to it. A closure keeps the procedure around it.
fn tail(name: &str) -> &str {
    let mut depth = 0_usize;
    let mut start = 0;
    for (at, c) in name.char_indices() {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' if !name[..at].ends_with(['-', '=']) => depth = depth.saturating_sub(1),
            ':' if depth == 0 && name[..at].ends_with(':') => {
                let rest = &name[at + 1..];
                if !rest.starts_with(['{', '<']) {
                    start = at + 1;
                }
            }
            _ => {}
        }
    }
    &name[start..]
}

/// The module of a place whose procedure has no symbol, and the offset there.
pub fn without_symbol(place: &Place) -> Option<(&str, &str)> {
    let offset = place.name.strip_prefix('?')?;
    Some((base_name(&place.module), offset))
}

/// The name of a place's procedure, on one line.
pub fn name_in(place: &Place) -> String {
    let offset = without_symbol(place);
    let name = offset.map(|(module, offset)| format!("{module}+{offset}"));
    one_line(name.as_ref().unwrap_or(&place.name))
}

/// Name and location in at most `room` columns, if the location leaves any to the name.
fn shown(place: &Place, room: usize) -> String {
    let location = location(place);
    let name = name_in(place);
    if location.is_empty() {
        let known = if name.is_empty() { "?" } else { &name };
        return short(known, room);
    }
    let left = room.saturating_sub(location.chars().count() + 1);
    match name.is_empty() || left < LEAST_NAME {
        true => location,
        false => format!("{} {location}", short(&name, left)),
    }
}

/// A name in at most `room` columns.
fn short(name: &str, room: usize) -> String {
    match name.chars().count() > room {
        true => middle(tail(name), room),
        false => name.to_owned(),
    }
}

/// Where something begins and ends, in at most `room` columns.
fn from_to(begin: &Place, end: &Place, room: usize) -> String {
    const ARROW: &str = " -> ";
    if begin == end {
        return shown(begin, room);
    }
    let is_same = (&begin.name, &begin.file) == (&end.name, &end.file);
    if is_same && end.line > 0 {
        let rest = format!("{ARROW}{}", end.line);
        return format!("{}{rest}", shown(begin, room.saturating_sub(rest.len())));
    }
    let room = room.saturating_sub(ARROW.len());
    let (from, to) = (shown(begin, usize::MAX), shown(end, usize::MAX));
    let (from_length, to_length) = (from.chars().count(), to.chars().count());
    // What one side does not need is the other's.
    let half = room / 2;
    let (from_room, to_room) = match (from_length <= half, to_length <= half) {
        (true, _) => (from_length, room - from_length),
        (_, true) => (room - to_length, to_length),
        _ => (half, room - half),
    };
    format!("{}{ARROW}{}", shown(begin, from_room), shown(end, to_room))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::critical_path::Known;

    fn place(name: &str, line: u32) -> Place {
        Place {
            name: name.to_owned(),
            file: "/src/app/main.rs".to_owned(),
            line,
            ..Place::default()
        }
    }

    #[test]
    fn names_lose_their_paths_first() {
        for (name, short) in [
            ("app::solve::factor", "factor"),
            ("main", "main"),
            ("app::run::{closure#0}", "run::{closure#0}"),
            ("app::run::{closure#0}::{closure#1}", "run::{closure#0}::{closure#1}"),
            ("<app::List<u8> as core::iter::Iterator>::next", "next"),
            ("app::apply::<fn(u8) -> app::X>", "apply::<fn(u8) -> app::X>"),
            ("", ""),
        ] {
            assert_eq!(tail(name), short, "{name}");
        }
    }

    #[test]
    fn places_fit_their_room() {
        let (a, b) = (place("app::solve::factor", 8), place("app::solve", 120));
        assert_eq!(from_to(&a, &a, 80), "app::solve::factor main.rs:8");
        assert_eq!(
            from_to(&a, &place("app::solve::factor", 9), 80),
            "app::solve::factor main.rs:8 -> 9"
        );
        let both = "app::solve::factor main.rs:8 -> app::solve main.rs:120";
        assert_eq!(from_to(&a, &b, both.len()), both);
        assert_eq!(from_to(&a, &b, 42), "factor main.rs:8 -> solve main.rs:120");
        // Both locations and the arrow.
        for room in 24..60 {
            assert!(from_to(&a, &b, room).chars().count() <= room, "{room}");
        }
        assert_eq!(from_to(&Place::default(), &b, 40), "? -> app::solve main.rs:120");
        assert_eq!(shown(&place("", 3), 20), "main.rs:3");
        let stripped = Place {
            name: "?0x1a2b".to_owned(),
            module: "/usr/lib/libz.so.1".to_owned(),
            ..Place::default()
        };
        assert_eq!(shown(&stripped, 80), "libz.so.1+0x1a2b");
    }

    #[test]
    fn what_merely_calls_others_is_no_part() {
        let found = |works: &[(&str, u64)]| {
            let procedure = |(name, work): &(&str, u64)| Procedure {
                name: Known {
                    place: Arc::new(Place { module: "/bin/app".to_owned(), ..place(name, 1) }),
                    is_user: true,
                },
                work: *work,
                on_path: 1,
                zeroed_span: 0,
            };
            let path = CriticalPath {
                work: 1000,
                procedures: works.iter().map(procedure).collect(),
                ..CriticalPath::default()
            };
            let names = parts(&path).into_iter().map(|p| p.name.place.name.clone());
            names.collect::<Vec<String>>().join(" ")
        };
        let main = ("app::main", 1000);
        for (works, expected) in [
            (vec![main, ("w", 980), ("other", 20)], "w other"),
            (vec![main, ("w", 1000)], "w"),
            (vec![main], "app::main"),
            (vec![main, ("run", 980), ("f", 600), ("g", 370)], "f g"),
            (vec![main, ("f", 600)], "f"),
        ] {
            assert_eq!(found(&works), expected, "{works:?}");
        }
    }

    #[test]
    fn times_have_a_unit_that_fits() {
        assert_eq!(Scale::of(1_500_000_000).time(1.5e9), "1.500 s");
        assert_eq!(Scale::of(99_000_000).time(99e6), "99.000 ms");
        assert_eq!(Scale::of(99_000_000).about(9.9e6), "9.90 ms");
        assert_eq!(Scale::of(99_000_000).about(99e6), "99.0 ms");
        assert_eq!(Scale::of(5).time(5.0), "0.005 us");
        assert_eq!(Scale::of(1_500_000_000).number(1.2345e13), "12345");
    }
}
