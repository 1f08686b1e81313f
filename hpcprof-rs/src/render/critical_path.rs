//! Prints a critical path as text that fits the screen, and as JSON (FORMATS.md).

use crate::catalogue::critical_path::TrackedProcess;
use crate::error::one_line;
use crate::model::critical_path::{CriticalPath, Known, Procedure, Segment};
use crate::render::json;
use crate::render::names::{self, base_name, middle, wrap};
use crate::render::style::Style;
use crate::render::table::Table;
use crate::views::critical_path::{Left, Part, Remarks, arrange, parts};
use hpc_formats::critical_path::{Beside, Edge, IfFaster, Place, WORKERS, ratio};
use hpc_formats::json::{Float, Seconds, Text, list, map, members, object};
use std::cmp::Reverse;
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
/// More workers are not listed if the time is at least this part of that with fewer.
const ALIKE: f64 = 0.99;
/// Columns that a place keeps.
const LEAST_PLACE: usize = 20;
/// A name in fewer columns says nothing.
const LEAST_NAME: usize = 4;

#[derive(Clone, Copy, Debug)]
pub struct PathView<'a> {
    pub path: &'a CriticalPath,
    pub process: &'a TrackedProcess,
    /// The other processes, the longest path first.
    pub others: &'a [TrackedProcess],
    /// Workers for which procedures' gains are predicted.
    pub workers: u32,
    /// Procedures that are to be so many times as fast.
    pub faster: &'a [(&'a Procedure, f64)],
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

    pub fn unit(self) -> &'static str {
        self.0
    }

    pub fn number(self, nanoseconds: u64) -> String {
        self.real(nanoseconds as f64)
    }

    fn real(self, nanoseconds: f64) -> String {
        match nanoseconds / self.1 {
            v if v.abs() >= 10_000.0 => format!("{v:.0}"),
            v if v.abs() >= 1000.0 => format!("{v:.1}"),
            v => format!("{v:.3}"),
        }
    }

    fn time(self, nanoseconds: u64) -> String {
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
    pub fn text(&self, remarks: &Remarks, rows: usize, style: Style, out: &mut impl Write) -> io::Result<()> {
        let scale = Scale::of(self.path.span);
        let mut page = Page { path: self.path, view: *self, scale, style, out };
        for doubt in &remarks.doubts {
            page.paragraph(&format!("! {doubt}"))?;
        }
        page.head()?;
        page.faster()?;
        for line in &remarks.advice {
            page.paragraph(&format!("* {line}"))?;
        }
        page.ranks()?;
        page.segments(rows)?;
        page.procedures()?;
        page.branches()?;
        page.exposing()?;
        page.predictions()?;
        page.paragraph("")?;
        page.paragraph(&remarks.basis)?;
        page.name_others()
    }

    /// Prints JSON; `more` is what was left out.
    pub fn json(&self, remarks: &Remarks, more: &[Left], out: &mut impl Write) -> io::Result<()> {
        let more = members!("more": map(more.iter().copied()));
        let doubts = list(remarks.doubts.iter().map(|doubt| Text(doubt).to_string()));
        let doubts = members!("doubts": doubts);
        let others = self.others.iter().map(|p| {
            let fields = process_fields(p);
            format!("{{{fields},\"span\":{}}}", Seconds(p.span))
        });
        let beside = Beside {
            process: format!("{},{doubts},{more}", process_fields(self.process)),
            workers: self.workers,
            faster: self.faster.iter().map(|(p, factor)| self.if_faster(p, *factor)).collect(),
            others: others.collect(),
        };
        let name = |known: &Known| Some(Place::clone(&known.place));
        writeln!(out, "{}", self.path.to_json(|place| Place::clone(place), name, Some(&beside)))
    }

    fn if_faster(&self, procedure: &Procedure, factor: f64) -> String {
        let IfFaster { span, time } = self.path.if_faster(procedure, factor, self.workers);
        let range =
            |(least, most): (f64, f64)| object!("least": Float(least / 1e9), "most": Float(most / 1e9));
        object!(
            "name": Text(&procedure.name.place.name), "factor": Float(factor), "exact": (span.0 == span.1),
            "span": range(span), "predicted": range(time)
        )
    }
}

struct Page<'a> {
    path: &'a CriticalPath,
    view: PathView<'a>,
    scale: Scale,
    style: Style,
    out: &'a mut dyn Write,
}

impl<'a> Page<'a> {
    fn table(&mut self, columns: &[(&str, usize)], text: &str) -> io::Result<Table<'_>> {
        writeln!(self.out)?;
        Table::begin(self.out, self.style, columns, text)
    }

    /// A text in as many lines as it needs; the second line and those below it are indented.
    fn paragraph(&mut self, text: &str) -> io::Result<()> {
        for line in wrap(&one_line(text), self.style.width) {
            let line = match text.starts_with('!') {
                true => self.style.paint("1;31", &line),
                false => line,
            };
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }

    fn head(&mut self) -> io::Result<()> {
        let (path, process) = (self.path, self.view.process);
        let time = |nanoseconds| self.scale.time(nanoseconds);
        let at_least = match ratio(path.span_at_least, path.span) <= NOTABLE_DOUBT {
            true => format!(" (at least {})", time(path.span_at_least)),
            false => String::new(),
        };
        let costs = match ratio(path.burdened_span, path.span) >= NOTABLE_COSTS {
            true => format!("; span with the edges' costs {}", time(path.burdened_span)),
            false => String::new(),
        };
        let head = format!(
            "work {}   span {}{at_least}   parallelism {:.2}   wall {}",
            time(path.work),
            time(path.span),
            path.parallelism(),
            time(path.wall)
        );
        let fits = head.len() <= self.style.line;
        for line in if fits { vec![head] } else { wrap(&head, self.style.line) } {
            writeln!(self.out, "{}", self.style.bold(&line))?;
        }
        let process =
            format!("{}, {}{costs}", name_of(process), names::counted(u64::from(process.cores), "core"));
        writeln!(self.out, "{}", middle(&process, self.style.width))?;
        if path.edges {
            let [edge, spawn] = [path.message_cost, path.spawn_cost].map(|cost| cost as f64 / 1e3);
            let all = time(path.edge_time());
            self.paragraph(&format!("an edge costs {edge} us, a spawn {spawn} us: {all} of the span"))?;
        }
        Ok(())
    }

    /// What was asked of procedures that are faster.
    fn faster(&mut self) -> io::Result<()> {
        let (path, workers) = (self.path, self.view.workers);
        for (procedure, factor) in self.view.faster {
            let found = path.if_faster(procedure, *factor, workers);
            let range = |(least, most): (f64, f64)| match least == most {
                true => self.scale.about(least),
                false => format!("{} to {}", self.scale.about(least), self.scale.about(most)),
            };
            let now = [path.span as f64, path.prediction(workers).time];
            let [span, time] = now.map(|time| self.scale.about(time));
            self.paragraph(&format!(
                "* with {} {factor} times as fast: span {} instead of {span}, {workers} workers {} instead \
                 of {time}{}",
                name_in(&procedure.name.place),
                range(found.span),
                range(found.time),
                match found.span.0 == found.span.1 {
                    true => "",
                    false if path.ranks.is_empty() => " (bounds; `hpcrun-rs --faster` tells exactly)",
                    false => " (bounds: messages carry no more)",
                }
            ))?;
        }
        Ok(())
    }

    /// The parts of several processes, the largest first.
    fn ranks(&mut self) -> io::Result<()> {
        let (path, scale) = (self.path, self.scale);
        if path.ranks.is_empty() {
            return Ok(());
        }
        let mut ranks = path.ranks.clone();
        ranks.sort_by_key(|share| (Reverse(share.on_path), share.rank));
        let columns = [(scale.0, 9), ("share", 7), ("work", 10)];
        let mut table = self.table(&columns, &format!("{} ranks", ranks.len()))?;
        for share in ranks.iter().take(RANKS) {
            let [on_path, work] = [share.on_path, share.work].map(|time| scale.number(time));
            let cells = [on_path, percent(share.on_path, path.span), work];
            table.row(cells, |_| format!("rank {}", share.rank))?;
        }
        table.more(ranks.len().saturating_sub(RANKS))
    }

    fn segments(&mut self, rows: usize) -> io::Result<()> {
        let (path, scale, style) = (self.path, self.scale, self.style);
        let parts = arrange(&path.segments, rows);
        let subpaths = match parts.iter().map(Part::segments).fold(0, u64::saturating_add) {
            1 => "1 subpath".to_owned(),
            n => format!("{n} subpaths"),
        };
        let whose = if path.ranks.is_empty() { "thread" } else { "rank" };
        let title = format!("begins by{whose:>8}  {subpaths}");
        let mut table = self.table(&[(scale.0, 9), ("share", 7)], &title)?;
        let mut work: Vec<(&Part<Arc<Place>>, &str)> = parts.iter().rev().map(|p| (p, "")).collect();
        while let Some((part, indent)) = work.pop() {
            let edge_time = match part {
                Part::Segment(segment) => path.edge_time_of(segment),
                Part::Loop(..) | Part::Rest(..) => 0,
            };
            let cells = |time| [scale.number(time), percent(time, path.span)];
            if let (Part::Segment(segment), 1..) = (part, edge_time) {
                let line = format!("{indent}{:<17}{}", segment.edge.name(), times(segment.count));
                table.row(cells(edge_time), |_| line)?;
            }
            let cells = cells(part.time() - edge_time);
            table.row(cells, |room| match part {
                Part::Loop(rounds, parts) => {
                    work.extend(parts.iter().rev().map(|p| (p, "  ")));
                    format!("{indent}x {rounds}:")
                }
                Part::Rest(segments, _) => style.faint(&format!("{indent}… {segments} shorter ones")),
                Part::Segment(segment) => {
                    // A rank's first thread is not named.
                    let thread = match (segment.rank, segment.thread) {
                        (None, thread) if path.ranks.is_empty() => number(thread),
                        (rank, None | Some(1)) => number(rank),
                        (rank, thread) => format!("{}:{}", number(rank), number(thread)),
                    };
                    let edge = if edge_time > 0 { "" } else { segment.edge.name() };
                    let edge = format!("{indent}{edge}");
                    let line = format!("{edge:<9}{thread:>8}  {}", times(segment.count));
                    let room = room.saturating_sub(line.chars().count()).max(LEAST_PLACE);
                    match segment.edge {
                        Edge::Folded => format!("{line}the oldest subpaths of a long path"),
                        _ => format!("{line}{}", from_to(&begin(segment), &segment.end, room)),
                    }
                }
            })?;
        }
        Ok(())
    }

    fn procedures(&mut self) -> io::Result<()> {
        let (path, scale, workers) = (self.path, self.scale, self.view.workers);
        let all = parts(path);
        if all.is_empty() {
            let text = "no procedure was sampled or marked on the path";
            return writeln!(self.out, "\n{text}");
        }
        let titles = [&format!("gain {}", scale.0), &format!("{workers} workers")];
        let columns = [(titles[0].as_str(), 9), ("of work", 9), ("of path", 9), ("span without", 13)];
        let columns = [&columns[..], &[(titles[1].as_str(), 13)]].concat();
        let mut table = self.table(&columns, "procedure")?;
        for p in all.iter().take(PROCEDURES) {
            let cells = [
                scale.number(path.gain(p)),
                percent(p.work, path.work),
                percent(p.on_path, path.span),
                scale.number(p.zeroed_span),
                scale.real(path.without(p, workers)),
            ];
            table.row(cells, |room| shown(&p.name.place, room.max(LEAST_PLACE)))?;
        }
        table.more(all.len().saturating_sub(PROCEDURES))
    }

    fn branches(&mut self) -> io::Result<()> {
        let (path, scale) = (self.path, self.scale);
        if path.near.is_empty() {
            return Ok(());
        }
        let columns = [(scale.0, 9), ("slack", 10), ("thread", 8)];
        let mut table = self.table(&columns, "nearly as long as the path beside")?;
        let mut seen: Vec<(&Place, &Place)> = Vec::new();
        for branch in &path.near {
            // The longest of those at one place; branches come with the longest first.
            let places = (&*branch.begin, &*branch.end);
            if seen.contains(&places) {
                continue;
            }
            seen.push(places);
            let [time, slack] = [branch.time, branch.slack].map(|time| scale.number(time));
            let cells = [time, slack, number(branch.thread)];
            table.row(cells, |room| from_to(places.0, places.1, room.max(LEAST_PLACE)))?;
        }
        Ok(())
    }

    /// What begins to run beside the path, the earliest first.
    fn exposing(&mut self) -> io::Result<()> {
        let (path, scale) = (self.path, self.scale);
        let mut starts = path.exposing().take(STARTS).peekable();
        if starts.peek().is_none() {
            return Ok(());
        }
        let at = format!("at {}", scale.0);
        let columns = [(at.as_str(), 9), (scale.0, 10), ("of work", 9), ("times", 9)];
        let mut table = self.table(&columns, "begins what runs beside the path")?;
        for start in starts {
            let [first, beside] = [start.first, start.beside].map(|time| scale.number(time));
            let cells = [first, beside, percent(start.beside, path.work), start.count.to_string()];
            table.row(cells, |room| shown(&start.place, room.max(LEAST_PLACE)))?;
        }
        Ok(())
    }

    fn predictions(&mut self) -> io::Result<()> {
        let (path, scale, asked) = (self.path, self.scale, self.view.workers);
        let columns = [("workers", 9), (scale.0, 10), ("at least", 10), ("at most", 10), ("speed-up", 10)];
        let mut table = self.table(&columns, "")?;
        let mut before = f64::INFINITY;
        for workers in WORKERS {
            let prediction = path.prediction(workers);
            if workers > asked && prediction.time > before * ALIKE {
                break;
            }
            before = prediction.time;
            let faster = match prediction.time {
                0.0 => "-".to_owned(),
                time => format!("{:.2}", path.prediction(1).time / time),
            };
            let times = [prediction.time, prediction.lower, prediction.upper];
            let [time, lower, upper] = times.map(|time| scale.real(time));
            table.row([workers.to_string(), time, lower, upper, faster], |_| String::new())?;
        }
        Ok(())
    }

    fn name_others(&mut self) -> io::Result<()> {
        let others = self.view.others;
        if others.is_empty() {
            return Ok(());
        }
        let (named, more) = others.split_at(others.len().min(OTHERS));
        let named = named.iter().map(|p| format!("{} (span {})", name_of(p), self.scale.time(p.span)));
        let mut names: Vec<String> = named.collect();
        if !more.is_empty() {
            names.push(format!("{} more", more.len()));
        }
        self.paragraph(&format!("other processes, see --process PID: {}", names.join("; ")))
    }
}

/// Where a segment begins. The start of a program has no place.
fn begin(segment: &Segment) -> Place {
    let place = Place::clone(&segment.begin);
    match segment.edge == Edge::Start && place == Place::default() {
        true => Place { name: "[start]".to_owned(), ..place },
        false => place,
    }
}

fn times(count: u64) -> String {
    if count == 1 { String::new() } else { format!("x {count}  ") }
}

fn number(n: Option<u32>) -> String {
    n.map_or("-".to_owned(), |n| n.to_string())
}

fn process_fields(p: &TrackedProcess) -> String {
    json::process(&p.run, &p.host, p.pid, &p.program)
}

fn name_of(process: &TrackedProcess) -> String {
    let host = match process.host.as_str() {
        "" => String::new(),
        host => format!(" on {}", one_line(host)),
    };
    format!("{}, process {}{host}", one_line(&process.program), process.pid)
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
    let location = names::at(&place.file, place.line);
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
    if name.chars().count() > room { middle(tail(name), room) } else { name.to_owned() }
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

    fn place(name: &str, line: u32) -> Place {
        Place { name: name.to_owned(), file: "/src/app/main.rs".to_owned(), line, ..Place::default() }
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
        assert_eq!(from_to(&a, &place("app::solve::factor", 9), 80), "app::solve::factor main.rs:8 -> 9");
        let both = "app::solve::factor main.rs:8 -> app::solve main.rs:120";
        assert_eq!(from_to(&a, &b, both.len()), both);
        assert_eq!(from_to(&a, &b, 42), "factor main.rs:8 -> solve main.rs:120");
        // Both locations and the arrow.
        for room in 24..60 {
            assert!(from_to(&a, &b, room).chars().count() <= room, "{room}");
        }
        assert_eq!(from_to(&Place::default(), &b, 40), "? -> app::solve main.rs:120");
        assert_eq!(shown(&place("", 3), 20), "main.rs:3");
        let stripped =
            Place { name: "?0x1a2b".to_owned(), module: "/usr/lib/libz.so.1".to_owned(), ..Place::default() };
        assert_eq!(shown(&stripped, 80), "libz.so.1+0x1a2b");
    }

    #[test]
    fn times_have_a_unit_that_fits() {
        assert_eq!(Scale::of(1_500_000_000).time(1_500_000_000), "1.500 s");
        assert_eq!(Scale::of(99_000_000).time(99_000_000), "99.000 ms");
        assert_eq!(Scale::of(99_000_000).about(9.9e6), "9.90 ms");
        assert_eq!(Scale::of(99_000_000).about(99e6), "99.0 ms");
        assert_eq!(Scale::of(5).time(5), "0.005 us");
        assert_eq!(Scale::of(1_500_000_000).real(1.2345e13), "12345");
    }
}
