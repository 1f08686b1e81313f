//! Arranges a critical path to be read: what repeats is a loop, and what is short is summed up; which
//! procedures are parts of the program.

use crate::error::{Error, Result};
use crate::model::critical_path::{CriticalPath, Known, Procedure};
use hpc_formats::critical_path::{Segment, ratio};
use hpcstruct_rs::known;
use std::cmp::Reverse;

/// Most segments of a loop's body.
const LONGEST_BODY: usize = 16;
/// Fewest rounds of a loop of several segments.
const FEWEST_ROUNDS: usize = 3;
/// Most parts of a loop that are shown.
const PARTS_OF_LOOP: usize = 6;
/// A procedure with more of the work may be the program itself.
const MOST_WORK: f64 = 0.95;

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

/// The name of a list, and how many of its elements are left out.
pub type Left = (&'static str, usize);

/// Keeps so many of the longest segments, in their order, and the first ones of the other lists.
pub fn bound(path: &mut CriticalPath, rows: usize) -> [Left; 3] {
    let mut longest: Vec<usize> = (0..path.segments.len()).collect();
    longest.sort_by_key(|at| Reverse(path.segments[*at].time));
    longest.truncate(rows);
    longest.sort_unstable();
    let before = [path.segments.len(), path.procedures.len(), path.near.len()];
    path.segments = longest.iter().map(|at| path.segments[*at].clone()).collect();
    path.procedures.truncate(rows);
    path.near.truncate(rows);
    let names = ["segments", "procedures", "near"];
    let left = before.map(|length| length.saturating_sub(rows));
    std::array::from_fn(|at| (names[at], left[at]))
}

/// A part of a path as it is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part<P> {
    Segment(Segment<P>),
    /// Segments that follow one another in each of so many rounds, with the sums over all rounds.
    Loop(u64, Vec<Part<P>>),
    /// So many short segments, and their time.
    Rest(u64, u64),
}

impl<P> Part<P> {
    pub fn time(&self) -> u64 {
        match self {
            Part::Segment(segment) => segment.time,
            Part::Loop(_, parts) => total(parts.iter().map(Part::time)),
            Part::Rest(_, time) => *time,
        }
    }

    /// How many segments it stands for.
    pub fn segments(&self) -> u64 {
        match self {
            Part::Segment(segment) => segment.count,
            Part::Loop(_, parts) => total(parts.iter().map(Part::segments)),
            Part::Rest(segments, _) => *segments,
        }
    }
}

/// A sum that a forged database cannot make overflow.
fn total(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

/// The path with its loops folded; besides the `most` longest parts, neighbours are summed up.
pub fn arrange<P: Clone + PartialEq>(segments: &[Segment<P>], most: usize) -> Vec<Part<P>> {
    shorten(fold(&merged(segments)), most)
}

/// Whether two segments are equal but for their times. Rounds of a loop may run on several threads.
fn is_same<P: PartialEq>(a: &Segment<P>, b: &Segment<P>) -> bool {
    (a.edge, &a.begin, &a.end) == (b.edge, &b.begin, &b.end)
}

fn add<P>(to: &mut Segment<P>, other: &Segment<P>) {
    to.time = to.time.saturating_add(other.time);
    to.count = to.count.saturating_add(other.count);
    let is_same = to.rank == other.rank;
    to.rank = to.rank.filter(|_| is_same);
    to.thread = to.thread.filter(|thread| is_same && other.thread == Some(*thread));
}

/// Equal consecutive segments as one.
fn merged<P: Clone + PartialEq>(segments: &[Segment<P>]) -> Vec<Segment<P>> {
    let mut merged: Vec<Segment<P>> = Vec::new();
    for segment in segments {
        match merged.last_mut().filter(|last| is_same(last, segment)) {
            Some(last) => add(last, segment),
            None => merged.push(segment.clone()),
        }
    }
    merged
}

fn fold<P: Clone + PartialEq>(segments: &[Segment<P>]) -> Vec<Part<P>> {
    let mut parts = Vec::new();
    let mut at = 0;
    while at < segments.len() {
        let rest = &segments[at..];
        // The length of the body, and how many rounds it has.
        let rounds = |body: usize| {
            let again = rest.iter().zip(&rest[body..]);
            let equal = again.take_while(|(a, b)| is_same(a, b)).count();
            equal / body + 1
        };
        let bodies = 2..=LONGEST_BODY.min(rest.len() / FEWEST_ROUNDS);
        let loops = bodies.map(|body| (body, rounds(body)));
        let longest = loops
            .filter(|(_, rounds)| *rounds >= FEWEST_ROUNDS)
            .max_by_key(|(body, rounds)| (body * rounds, Reverse(*body)));
        let Some((body, rounds)) = longest else {
            parts.push(Part::Segment(rest[0].clone()));
            at += 1;
            continue;
        };
        let (mut sums, others) = (rest[..body].to_vec(), &rest[body..body * rounds]);
        for (index, segment) in others.iter().enumerate() {
            add(&mut sums[index % body], segment);
        }
        let sums = sums.into_iter().map(Part::Segment).collect();
        parts.push(Part::Loop(rounds as u64, shorten(sums, PARTS_OF_LOOP)));
        at += body * rounds;
    }
    parts
}

/// Keeps the `most` longest parts, and sums up neighbours between them.
fn shorten<P>(parts: Vec<Part<P>>, most: usize) -> Vec<Part<P>> {
    let mut by_time: Vec<usize> = (0..parts.len()).collect();
    by_time.sort_by_key(|index| Reverse(parts[*index].time()));
    let mut is_kept = vec![false; parts.len()];
    by_time.iter().take(most).for_each(|index| is_kept[*index] = true);
    let mut shown: Vec<Part<P>> = Vec::new();
    let mut last_kept = true;
    for (part, kept) in parts.into_iter().zip(is_kept) {
        match shown.last_mut().filter(|_| !kept && !last_kept) {
            Some(last) => {
                *last = Part::Rest(
                    last.segments().saturating_add(part.segments()),
                    last.time().saturating_add(part.time()),
                );
            }
            None => shown.push(part),
        }
        last_kept = kept;
    }
    shown
}

/// What a path has grown by from one moment to the next. Times are nanoseconds.
#[derive(Clone, PartialEq, Debug)]
pub struct Interval {
    /// The wall time up to its end.
    pub until: u64,
    pub grown: u64,
    /// Of the procedures that were asked for.
    pub shares: Vec<f64>,
    /// The path has become another one, which is the case where a procedure has less of it than before: then
    /// this is the growth from its begin.
    pub is_other: bool,
}

/// At most so many intervals of a path's series, of about the same number of moments each.
pub fn intervals(path: &CriticalPath, procedures: &[&Known], most: usize) -> Vec<Interval> {
    let count = path.series.len();
    let is_end = |number: usize| (number + 1) * most / count.max(1) > number * most / count.max(1);
    let ends = path.series.iter().enumerate().filter(|(number, _)| count <= most || is_end(*number));
    let mut before = (0, vec![0; procedures.len()]);
    let interval = ends.map(|(_, moment)| {
        let time = |known: &&Known| {
            let found = moment.procedures.iter().find(|(name, _)| name == *known);
            found.map_or(0, |(_, time)| *time)
        };
        let times: Vec<u64> = procedures.iter().map(time).collect();
        let is_other = moment.span < before.0 || times.iter().zip(&before.1).any(|(now, then)| now < then);
        let (span, then) = std::mem::replace(&mut before, (moment.span, times.clone()));
        let (span, then) = if is_other { (0, vec![0; times.len()]) } else { (span, then) };
        let grown = moment.span - span;
        let shares = times.iter().zip(then).map(|(now, then)| ratio(now - then, grown).min(1.0));
        Interval { until: moment.wall, grown, shares: shares.collect(), is_other }
    });
    interval.collect()
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
    let (whole, others): (Vec<&Procedure>, Vec<&Procedure>) = parts.iter().partition(|p| is_whole(p));
    let others = others.iter().map(|p| p.work).fold(0, u64::saturating_add);
    // The innermost one has time of its own if the others have not half as much. `main` is outside.
    let own = whole.iter().map(|p| p.work).min();
    let own = own.filter(|work| others < work / 2);
    let inner = whole.iter().filter(|p| Some(p.work) == own);
    let is_one = inner.count() == 1;
    let is_main = |p: &Procedure| {
        let name = &p.name.place.name;
        name == "main" || name.ends_with("::main")
    };
    parts.retain(|p| !is_whole(p) || Some(p.work) == own && (is_one || !is_main(p)));
    parts
}

/// The procedure of that name, or whose name ends with it.
pub fn find_procedure<'a>(path: &'a CriticalPath, name: &str) -> Result<&'a Procedure> {
    let is_it = |p: &&Procedure| {
        let end = p.name.place.name.strip_suffix(name);
        end.is_some_and(|before| before.is_empty() || before.ends_with("::"))
    };
    // Those that gain most come first.
    let mut found: Vec<&Procedure> = path.procedures.iter().filter(is_it).collect();
    if let Some(exact) = found.iter().position(|p| p.name.place.name == name) {
        return Ok(found[exact]);
    }
    found.dedup_by_key(|p| &p.name.place.name);
    let listed = |all: &[&Procedure]| {
        let names = all.iter().take(5).map(|p| format!("`{}`", p.name.place.name));
        Vec::from_iter(names).join(", ")
    };
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(Error::Usage(format!(
            "no procedure `{name}` was sampled or marked; --faster takes what `critical-path` lists: {}",
            listed(&parts(path))
        ))),
        several => Err(Error::Usage(format!("`{name}` may be {}: give --faster one", listed(several)))),
    }
}

/// Whether it is known by samples: others are marks.
pub fn is_function(procedure: &Procedure) -> bool {
    !procedure.name.place.module.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::critical_path::Moment;
    use hpc_formats::critical_path::{Edge, Place};
    use std::sync::Arc;

    fn segment(end: u32, time: u64) -> Segment<u32> {
        Segment { edge: Edge::Join, rank: None, thread: Some(1), time, count: 1, begin: 0, end }
    }

    /// Two moments on one path, then one on another path, on which A has less.
    #[test]
    fn shares_are_of_what_the_path_has_grown_by() {
        let known = |name: &str| Known {
            place: Arc::new(Place { name: name.to_owned(), ..Place::default() }),
            is_user: true,
        };
        let moment = |wall, span, a, b| Moment {
            wall,
            work: span,
            span,
            procedures: vec![(known("A"), a), (known("B"), b)],
        };
        let series = vec![moment(10, 100, 90, 0), moment(20, 200, 110, 80), moment(30, 250, 50, 200)];
        let path = CriticalPath { series, ..CriticalPath::default() };
        let (a, b) = (known("A"), known("B"));
        let interval = |until, grown, shares: [f64; 2], is_other| Interval {
            until,
            grown,
            shares: shares.to_vec(),
            is_other,
        };
        let all = [
            interval(10, 100, [0.9, 0.0], false),
            interval(20, 100, [0.2, 0.8], false),
            interval(30, 250, [0.2, 0.8], true),
        ];
        assert_eq!(intervals(&path, &[&a, &b], 3), all);
        assert_eq!(
            intervals(&path, &[&b], 1),
            [interval(30, 250, [0.8, 0.0], false)].map(|mut one| {
                one.shares.pop();
                one
            })
        );
        assert_eq!(intervals(&CriticalPath::default(), &[&a], 3), []);
    }

    #[test]
    fn loops_are_folded_and_nothing_is_lost() {
        // 9, then four rounds of 1 1 2, then 9 again.
        let mut path = vec![segment(9, 100)];
        for _ in 0..4 {
            path.extend([segment(1, 10), segment(1, 10), segment(2, 5)]);
        }
        path.push(segment(9, 100));
        let parts = arrange(&path, 20);
        let [Part::Segment(first), Part::Loop(4, body), Part::Segment(last)] = &parts[..] else {
            panic!("{parts:?}");
        };
        assert_eq!((first.time, last.time), (100, 100));
        assert_eq!(body[0], Part::Segment(Segment { count: 8, ..segment(1, 80) }));
        assert_eq!(body[1], Part::Segment(Segment { count: 4, ..segment(2, 20) }));
        let sum = |of: fn(&Part<u32>) -> u64| parts.iter().map(of).sum::<u64>();
        assert_eq!((sum(Part::time), sum(Part::segments)), (300, 14));
    }

    #[test]
    fn an_unfinished_round_stays_outside_of_the_loop() {
        let path: Vec<Segment<u32>> = (0..7).map(|n| segment(1 + n % 2, 1)).collect();
        let parts = arrange(&path, 20);
        assert!(matches!(parts[..], [Part::Loop(3, _), Part::Segment(_)]));
    }

    #[test]
    fn a_loop_on_several_threads_has_none() {
        let mut path: Vec<Segment<u32>> = (0..3).map(|_| segment(1, 1)).collect();
        path[1].thread = Some(2);
        let parts = arrange(&path, 1);
        let expected = Segment { rank: None, thread: None, count: 3, ..segment(1, 3) };
        assert_eq!(parts, [Part::Segment(expected)]);
    }

    #[test]
    fn short_parts_between_long_ones_are_summed_up() {
        let path: Vec<Segment<u32>> = [9, 1, 1, 9, 1].iter().zip(1..).map(|(t, n)| segment(n, *t)).collect();
        let parts = arrange(&path, 2);
        let times: Vec<u64> = parts.iter().map(Part::time).collect();
        assert_eq!(times, [9, 2, 9, 1]);
        assert_eq!(parts[1], Part::Rest(2, 2));
        assert!(matches!(parts[3], Part::Segment(_)), "one alone is itself");
        assert_eq!(arrange::<u32>(&[], 2), []);
    }

    #[test]
    fn what_merely_calls_others_is_no_part() {
        let found = |works: &[(&str, u64)]| {
            let procedure = |(name, work): &(&str, u64)| Procedure {
                name: Known {
                    place: Arc::new(Place {
                        name: (*name).to_owned(),
                        module: "/bin/app".to_owned(),
                        ..Place::default()
                    }),
                    is_user: true,
                },
                work: *work,
                on_path: 1,
                zeroed_span: 0,
                faster_span: 0,
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
}
