//! The edges of a run's traces: which thread has waited for which moment of another one, and the critical
//! path, walked backwards from its end. Where a thread goes on after a longer chain of activity, its trace
//! says so, so the path leads to that moment of the other thread; before its last such edge it is the
//! thread's own. It begins where the threads' traces do: a full one keeps the newest.

use crate::error::Result;
use crate::sources::measurements::Measurements;
use hpc_formats::critical_path::Edge;
use hpc_formats::trace::Event;
use std::collections::BTreeMap;

/// Index of a process, and ordinal of a thread.
type Thread = (usize, u32);

/// An edge; times are of the monotonic clock, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceEdge {
    /// Who has waited, until when.
    pub to: (Thread, u64),
    /// For what.
    pub from: (Thread, u64),
    /// Its kind. `start` is the begin of the path, and of a thread that has left a task where the strand that
    /// it left for that goes on; `folded` is the end of the path.
    pub edge: Edge,
    /// What follows goes on after it.
    is_path: bool,
    /// Number of the edge on the critical path, from 1 in its order.
    pub on_path: Option<u32>,
}

impl TraceEdge {
    fn new(edge: Edge, to: (Thread, u64), from: (Thread, u64), is_path: bool) -> TraceEdge {
        TraceEdge { to, from, edge, is_path, on_path: None }
    }
}

/// The edges of a run, by thread and time.
pub fn of(measurements: &Measurements, run: usize) -> Result<Vec<TraceEdge>> {
    let mut edges = Vec::new();
    let (mut sent, mut received) = (BTreeMap::new(), Vec::new());
    let mut spans: BTreeMap<Thread, (u64, u64)> = BTreeMap::new();
    let processes = || measurements.processes.iter().enumerate().filter(|(_, p)| p.run == run);
    let ranks: BTreeMap<u32, usize> = processes().filter_map(|(index, p)| Some((p.rank?, index))).collect();
    for (process, input) in processes() {
        let Some(trace) = input.trace.as_ref().filter(|_| input.critical_path.is_some()) else { continue };
        trace.read(|trace| {
            for block in &trace.blocks {
                let thread = (process, block.thread);
                let span = spans.entry(thread).or_insert((block.time, block.time));
                for (time, event) in block.events().flatten() {
                    span.1 = span.1.max(time);
                    match event {
                        Event::Followed(f) => {
                            let from = ((process, f.from), time.saturating_sub(f.ago));
                            edges.push(TraceEdge::new(f.edge, (thread, time), from, f.is_path));
                        }
                        Event::Sent(export) => drop(sent.insert((process, export), (thread, time))),
                        Event::Received { is_path, rank, export } => {
                            received.push(((thread, time), (rank, export), is_path));
                        }
                        _ => {}
                    }
                }
            }
            Ok(())
        })?;
    }
    edges.extend(received.into_iter().filter_map(|(to, (rank, export), is_path)| {
        let from = sent.get(&(*ranks.get(&rank)?, export))?;
        (from.1 <= to.1).then(|| TraceEdge::new(Edge::Message, to, *from, is_path))
    }));
    edges.sort_by_key(|edge| edge.to);
    let longest = processes().filter_map(|(process, input)| {
        let path = input.critical_path.as_ref()?;
        let number = path.segments.last()?.thread?;
        let ordinal = path.threads.iter().find(|(known, _)| *known == number)?.1;
        Some((path.span, (process, ordinal)))
    });
    if let Some((_, thread)) = longest.max() {
        walk(&mut edges, &spans, thread);
    }
    Ok(edges)
}

/// Marks the critical path, which ends in this thread.
fn walk(edges: &mut Vec<TraceEdge>, spans: &BTreeMap<Thread, (u64, u64)>, mut thread: Thread) {
    let Some((_, end)) = spans.get(&thread).copied() else { return };
    let mut path = Vec::new();
    let (last, mut at) = (((thread, end), (thread, end)), end);
    loop {
        let before = edges.partition_point(|edge| edge.to <= (thread, at));
        let own = edges[..before].iter().rposition(|e| e.is_path || e.to.0 != thread);
        let Some(index) = own.filter(|index| edges[*index].to.0 == thread && path.len() <= edges.len())
        else {
            break;
        };
        path.push(index);
        (thread, at) = edges[index].from;
        // What a thread returns to was left just before the task that it left it for began.
        at -= u64::from(edges[index].edge == Edge::Start && at > 0);
    }
    for (number, index) in (2..).zip(path.iter().rev()) {
        edges[*index].on_path = Some(number);
    }
    let first = spans.get(&thread).map_or(at, |(begin, _)| (*begin).min(at));
    let mut add = |edge, (to, from), number| {
        edges.push(TraceEdge { on_path: Some(number), ..TraceEdge::new(edge, to, from, true) });
    };
    add(Edge::Start, ((thread, first), (thread, first)), 1);
    add(Edge::Folded, last, path.len() as u32 + 2);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_leads_back_over_the_last_edges() {
        let at = |thread, time| ((0, thread), time);
        let edge = |edge, to, from, is_path| TraceEdge::new(edge, to, from, is_path);
        let mut edges = vec![
            edge(Edge::Lock, at(1, 30), at(2, 25), false),
            edge(Edge::Join, at(1, 50), at(2, 40), true),
            edge(Edge::Join, at(1, 90), at(3, 60), false),
            edge(Edge::Spawn, at(2, 11), at(1, 10), true),
            // Between them thread 2 ran a task of thread 3, and came back to what it had left.
            edge(Edge::Spawn, at(2, 20), at(3, 5), true),
            edge(Edge::Start, at(2, 30), at(2, 20), true),
        ];
        walk(&mut edges, &BTreeMap::from([((0, 1), (0, 100))]), (0, 1));
        let mut path: Vec<_> = edges.iter().filter_map(|e| Some((e.on_path?, e.from.1, e.to))).collect();
        path.sort_unstable();
        let expected = [(1, 0, at(1, 0)), (2, 10, at(2, 11)), (3, 20, at(2, 30)), (4, 40, at(1, 50))];
        assert_eq!(path[..4], expected);
        assert_eq!(path[4..], [(5, 100, at(1, 100))]);
    }
}
