//! The program activity graph of a phase, and what follows from it.
//!
//! One duty: copy what the workers have recorded since a phase began, and compute on it: paths, slack, and
//! the span without an entry method. The graph has an entry's activity as a node, and at most two edges into
//! it. Parts whose predecessor belongs to an earlier phase begin with the phase, those whose predecessor is
//! overwritten at the length that they were recorded with.

use std::time::Instant;

use critical_path::Edge;

use crate::strand::Tables;
use crate::table::{Part, Path, Reference};

/// Where a phase begins.
pub(crate) struct Window {
    /// For each worker, its first entry.
    first: Vec<u64>,
    /// The length of all paths.
    pub(crate) base: u64,
    pub(crate) begun: Instant,
    /// Of all workers: work, messages, readings of the system's clock.
    pub(crate) sums: [u64; 3],
}

impl Window {
    /// A phase that begins now.
    pub(crate) fn new(tables: &Tables, base: u64) -> Self {
        Window {
            first: tables.of.iter().map(|table| table.len()).collect(),
            base,
            begun: Instant::now(),
            sums: tables.sums(),
        }
    }
}

/// A part of a task in the graph. Times in nanoseconds.
pub(crate) struct Node {
    pub(crate) part: Part,
    pub(crate) worker: usize,
    /// Its predecessors: that of its longest path first.
    before: [Option<usize>; 2],
    pub(crate) is_on_path: bool,
    /// Its earliest start, from the phase's begin.
    pub(crate) start: u64,
    /// How much longer it may take before the span grows; `None`: it does not lead to the path's end.
    pub(crate) slack: Option<u64>,
    /// The tasks that follow from it, their activity, and what of that could run beside the longest chain
    /// that follows. What depends on two nodes follows from the one on its longest path.
    pub(crate) follow: [u64; 3],
}

impl Node {
    fn end(&self) -> u64 {
        self.start + self.part.time
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Graph {
    /// Each after its predecessors.
    pub(crate) nodes: Vec<Node>,
    /// The nodes of the longest path in order.
    pub(crate) path: Vec<usize>,
    /// The node with which the path ends, if that was given: what does not lead to it is of no interest.
    end: Option<usize>,
    base: u64,
    pub(crate) span: u64,
    /// Parts whose predecessor was overwritten.
    pub(crate) lost: u64,
    pub(crate) edges: u64,
}

impl Graph {
    /// Of what was recorded in the window, up to the path's end if there is one.
    pub(crate) fn new(tables: &Tables, window: &Window, end: Option<Path>) -> Self {
        let mut graph = Graph { base: window.base, ..Graph::default() };
        let numbers = graph.copy(tables, window);
        graph.end = end.and_then(|end| find(&numbers, end.from).ok().flatten());
        // Of equals the first.
        let all = (0..graph.nodes.len()).rev();
        let longest = || all.max_by_key(|node| graph.nodes[*node].end());
        let last = end.map_or_else(longest, |_| graph.end);
        graph.span = last.map_or(0, |last| graph.nodes[last].end());
        let before = |node: &usize| graph.nodes[*node].before[0];
        graph.path = std::iter::successors(last, before).collect();
        graph.path.reverse();
        graph.look_back(end.is_some());
        graph
    }

    /// Copies all tables. A worker's entries are in order already: each waits only for those of other workers
    /// that it refers to. While tasks run, such a one may be younger than the copy: then the copy of this
    /// worker ends before, which leaves out nothing that leads to what the calling thread has recorded.
    fn copy(&mut self, tables: &Tables, window: &Window) -> Numbers {
        let since = tables.of.iter().zip(&window.first);
        let since = since.map(|(table, first)| table.since(*first));
        let (firsts, parts): (Vec<u64>, Vec<Vec<Part>>) = since.unzip();
        let mut numbers: Numbers = firsts.iter().map(|first| (*first, Vec::new())).collect();
        let mut done = usize::MAX;
        while done != self.nodes.len() {
            done = self.nodes.len();
            for (worker, parts) in parts.iter().enumerate() {
                while let Some(part) = parts.get(numbers[worker].1.len()) {
                    let references = [part.begin.from, part.other];
                    let [Ok(longest), Ok(other)] = references.map(|r| find(&numbers, r)) else {
                        break;
                    };
                    let (mut part, mut before) = (*part, [longest, other]);
                    for (reference, node) in references.into_iter().zip(before) {
                        let place = reference.place().filter(|_| node.is_none());
                        let is_lost = |(worker, n): (usize, u64)| n >= window.first[worker];
                        self.lost += u64::from(place.is_some_and(is_lost));
                    }
                    if references[0].place().is_some_and(|(worker, n)| n < window.first[worker]) {
                        part.begin.length = window.base;
                    }
                    let [first, second] = before.map(|before| before.map(|node| self.nodes[node].end()));
                    let start = first.unwrap_or_else(|| self.begun(&part));
                    // What was longer had that from an earlier phase.
                    if second.is_some_and(|second| second > start) {
                        before.swap(0, 1);
                        part.edge = part.edge.map(|edge| match edge {
                            Edge::Message => Edge::Lock,
                            Edge::Lock => Edge::Message,
                            edge => edge,
                        });
                    }
                    if part.edge.is_some() {
                        self.edges += before.iter().flatten().count() as u64;
                    }
                    numbers[worker].1.push(self.nodes.len());
                    self.nodes.push(Node {
                        part,
                        worker,
                        before,
                        is_on_path: false,
                        start: start.max(second.unwrap_or(0)),
                        slack: None,
                        follow: [0; 3],
                    });
                }
            }
        }
        numbers
    }

    /// Earliest end of each node if the entry method `zeroed` took no time and each message `cost`.
    fn ends(&self, zeroed: Option<u32>, cost: u64) -> Vec<u64> {
        let mut ends: Vec<u64> = Vec::with_capacity(self.nodes.len());
        for Node { part, before, .. } in &self.nodes {
            // No message leads from an actor's last task to this one.
            let costs = match part.edge {
                None => [0, 0],
                Some(Edge::Lock) => [0, cost],
                Some(_) => [cost, 0],
            };
            let [longest, other] = [0, 1].map(|n| before[n].map(|before| ends[before] + costs[n]));
            let start = longest.unwrap_or_else(|| self.begun(part));
            let time = if zeroed == Some(part.what.entry) { 0 } else { part.time };
            ends.push(start.max(other.unwrap_or(0)) + time);
        }
        ends
    }

    /// When a part began as it was recorded.
    fn begun(&self, part: &Part) -> u64 {
        part.begin.length.saturating_sub(self.base)
    }

    /// The longest path if the entry method took no time, or each message `cost`.
    pub(crate) fn span_if(&self, zeroed: Option<u32>, cost: u64) -> u64 {
        let ends = self.ends(zeroed, cost);
        let longest = || ends.iter().copied().max().unwrap_or(0);
        self.end.map_or_else(longest, |end| ends[end])
    }

    /// Fills in what depends on the nodes that follow.
    fn look_back(&mut self, is_bound: bool) {
        // The longest chain after each node, and all that follows from it.
        let mut tails = vec![(!is_bound).then_some(0); self.nodes.len()];
        let mut below = vec![(0, 0); self.nodes.len()];
        for node in &self.path {
            self.nodes[*node].is_on_path = true;
        }
        if let Some(end) = self.path.last() {
            tails[*end] = Some(0);
        }
        for (number, node) in self.nodes.iter_mut().enumerate().rev() {
            let (time, tail) = (node.part.time, tails[number]);
            for before in node.before.into_iter().flatten() {
                tails[before] = tails[before].max(tail.map(|tail| tail + time));
            }
            let (tasks, activity) = below[number];
            if let Some(before) = node.before[0] {
                let is_task = u64::from(node.part.is_first());
                below[before].0 += tasks + is_task;
                below[before].1 += activity + time;
            }
            let beside = activity.saturating_sub(tail.unwrap_or(0));
            node.follow = [tasks, activity, beside];
            node.slack = tail.map(|tail| self.span.saturating_sub(tail + node.end()));
        }
    }

    pub(crate) fn on_path(&self) -> impl Iterator<Item = &Node> {
        self.path.iter().map(|node| &self.nodes[*node])
    }

    /// The time before the first node of the path, which was overwritten.
    pub(crate) fn unknown(&self) -> u64 {
        self.on_path().next().map_or(0, |first| self.begun(&first.part))
    }
}

/// For each worker, the number of its first entry that is here, and the nodes of its entries.
type Numbers = Vec<(u64, Vec<usize>)>;

/// The node of an entry; `Ok(None)`: it is overwritten or of an earlier phase; `Err`: it has none so far.
fn find(numbers: &Numbers, reference: Reference) -> Result<Option<usize>, ()> {
    let Some((worker, entry)) = reference.place() else {
        return Ok(None);
    };
    let (first, nodes) = &numbers[worker];
    let index = entry.checked_sub(*first);
    index.map(|index| nodes.get(index as usize).copied().ok_or(())).transpose()
}
