//! What lies near the critical path: the stretches of threads that are in a chain of work at most so much
//! shorter than the longest one.
//!
//! A chain goes on in its thread, and over an edge from what was waited for to who has waited. A task follows
//! its creation, not what its thread has done before. Edges for which nobody has waited are not known.

use crate::catalogue::Catalogue;
use crate::catalogue::trace::{Edge, Slice};
use hpc_formats::trace::State;
use std::collections::BTreeMap;

/// Process and ordinal of a thread.
type Owner = (i64, u32);

/// From when to when, by thread.
#[derive(Debug, Default)]
pub struct Near(BTreeMap<Owner, Vec<(i64, i64)>>);

impl Near {
    /// The critical path alone.
    pub fn path(edges: &[Edge]) -> Near {
        Near::of(Catalogue::stretches(edges))
    }

    /// The path, and what has at most such a share of the longest chain as its slack.
    pub fn new(slices: &[Slice], edges: &[Edge], share: f64) -> Near {
        let mut all = Catalogue::stretches(edges);
        all.extend(chains(slices, edges, share));
        Near::of(all)
    }

    fn of(mut all: Vec<(Owner, i64, i64)>) -> Near {
        all.sort_unstable();
        let mut near = Near::default();
        for (owner, start, end) in all {
            let own = near.0.entry(owner).or_default();
            match own.last_mut().filter(|last| start <= last.1) {
                Some(last) => last.1 = last.1.max(end),
                None => own.push((start, end)),
            }
        }
        near
    }

    /// The parts of a slice that are near.
    pub fn parts(&self, slice: &Slice) -> impl Iterator<Item = Slice> {
        let all = self.0.get(&slice.owner).map_or(&[][..], Vec::as_slice);
        let all = &all[all.partition_point(|(_, end)| *end <= slice.start)..];
        let slice = *slice;
        all.iter().take_while(move |(start, _)| *start < slice.end()).map(move |(start, end)| {
            let start = slice.start.max(*start);
            Slice { start, duration: slice.end().min(*end) - start, ..slice }
        })
    }
}

/// The stretches between edges that are in long enough chains.
fn chains(slices: &[Slice], edges: &[Edge], share: f64) -> Vec<(Owner, i64, i64)> {
    let begins = slices.chunk_by(|a, b| a.owner == b.owner);
    let begins =
        begins.flat_map(|own| [(own[0].owner, own[0].start), (own[0].owner, own[own.len() - 1].end())]);
    let mut points: Vec<(Owner, i64)> =
        edges.iter().flat_map(|edge| [edge.from, edge.to]).chain(begins).collect();
    points.sort_unstable();
    points.dedup();
    let index = |point| points.binary_search(point).ok();
    let edges = edges.iter().filter_map(|edge| Some((index(&edge.from)?, index(&edge.to)?, edge)));
    let edges: Vec<(usize, usize, &Edge)> = edges.filter(|(from, to, _)| from != to).collect();
    let mut into = vec![Vec::new(); points.len()];
    let mut out = into.clone();
    let mut is_new = vec![false; points.len()];
    for (from, to, edge) in edges {
        into[to].push(from);
        out[from].push(to);
        is_new[to] |= ["spawn", "start"].contains(&edge.kind.as_str());
    }
    let work = works(slices, &points);
    let is_own = |at: usize| at + 1 < points.len() && points[at].0 == points[at + 1].0;
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by_key(|at| (points[*at].1, !into[*at].is_empty()));
    let mut before = vec![0; points.len()];
    for at in &order {
        let own = at.checked_sub(1).filter(|last| is_own(*last) && !is_new[*at]);
        let own = own.map(|last| before[last] + work[last]);
        before[*at] = into[*at].iter().map(|from| before[*from]).chain(own).max().unwrap_or(0);
    }
    // Behind a point: as its thread goes on, or not.
    let mut behind = vec![[0, 0]; points.len()];
    let goes_on = |behind: &[[i64; 2]], at: usize| work[at] + behind[at + 1][usize::from(is_new[at + 1])];
    for at in order.iter().rev() {
        let left = out[*at].iter().map(|to| behind[*to][0]).max().unwrap_or(0);
        let own = if is_own(*at) { goes_on(&behind, *at) } else { 0 };
        behind[*at] = [own.max(left), left];
    }
    let stretches = (0..points.len()).filter(|at| is_own(*at));
    let chains: Vec<(usize, i64)> = stretches.map(|at| (at, before[at] + goes_on(&behind, at))).collect();
    let longest = chains.iter().map(|(_, length)| *length).max().unwrap_or(0);
    let least = (longest as f64 * (1.0 - share)).ceil() as i64;
    let near = chains.into_iter().filter(|(_, length)| *length >= least);
    near.map(|(at, _)| (points[at].0, points[at].1, points[at + 1].1)).collect()
}

/// The work between each point and the next one, if it is of the same thread.
fn works(slices: &[Slice], points: &[(Owner, i64)]) -> Vec<i64> {
    let mut work = vec![0; points.len()];
    for slice in slices.iter().filter(|slice| slice.state == Some(State::Works)) {
        let mut at = points.partition_point(|point| *point <= (slice.owner, slice.start)).saturating_sub(1);
        while at + 1 < points.len() && points[at] < (slice.owner, slice.end()) {
            work[at] += slice.end().min(points[at + 1].1) - slice.start.max(points[at].1);
            at += 1;
        }
    }
    work
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fork into three threads and a join: 40 before it, 50, 45 and 20 within, 10 behind it.
    fn fork() -> (Vec<Slice>, Vec<Edge>) {
        let slice = |ordinal, start, end, state| {
            let (owner, duration) = ((1, ordinal), end - start);
            Slice { owner, thread: None, start, duration, state: Some(state), context: None, sampled: 0 }
        };
        let slices = vec![
            slice(1, 0, 60, State::Works),
            slice(1, 60, 90, State::Waits),
            slice(1, 90, 100, State::Works),
            slice(2, 40, 90, State::Works),
            slice(3, 40, 85, State::Works),
        ];
        let edge = |to, from, kind: &str, on_path| Edge { to, from, kind: kind.to_owned(), on_path };
        let at = |ordinal, time| ((1, ordinal), time);
        let edges = vec![
            edge(at(1, 0), at(1, 0), "start", Some(1)),
            edge(at(2, 40), at(1, 40), "spawn", Some(2)),
            edge(at(3, 40), at(1, 40), "spawn", None),
            edge(at(1, 90), at(2, 90), "join", Some(3)),
            edge(at(1, 90), at(3, 85), "join", None),
            edge(at(1, 100), at(1, 100), "folded", Some(4)),
        ];
        (slices, edges)
    }

    fn near(share: f64) -> Vec<(u32, i64, i64)> {
        let (slices, edges) = fork();
        let near = Near::new(&slices, &edges, share);
        let found = slices.iter().flat_map(|slice| near.parts(slice));
        found.map(|slice| (slice.owner.1, slice.start, slice.end())).collect()
    }

    #[test]
    fn what_has_more_slack_is_left_out() {
        let path = [(1, 0, 40), (1, 90, 100), (2, 40, 90)];
        assert_eq!(near(0.0), path);
        assert_eq!(near(0.04), path, "the third thread has 5 of slack");
        assert_eq!(near(0.05), [&path[..], &[(3, 40, 85)]].concat());
        // The first thread itself does 20 of the 50 between fork and join.
        let all = [(1, 0, 60), (1, 60, 90), (1, 90, 100), (2, 40, 90), (3, 40, 85)];
        assert_eq!(near(0.3), all);
    }

    #[test]
    fn a_task_does_not_follow_what_its_thread_did_before() {
        let (mut slices, mut edges) = fork();
        // The second thread has done something else before.
        slices[3] = Slice { start: 0, duration: 90, ..slices[3] };
        edges.retain(|edge| edge.kind != "folded");
        let near = Near::new(&slices, &edges, 0.0);
        let kept: Vec<_> = near.parts(&slices[3]).map(|slice| (slice.start, slice.end())).collect();
        assert_eq!(kept, [(40, 90)]);
    }
}
