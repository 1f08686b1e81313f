//! The program activity graph of a phase, and what follows from it.
//!
//! One duty: copy what the workers have recorded since a phase began, and compute on it: paths, slack, and
//! the span without an entry method. The graph has an entry's activity as a node, and at most two edges into
//! it. Parts whose predecessor is overwritten or belongs to an earlier phase begin at the length that they
//! were recorded with.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::strand::Tables;
use crate::table::{Link, Part, Path, Reference, Table, What};

/// Where a phase begins.
pub(crate) struct Window {
    /// For each worker, its first entry.
    first: Vec<u64>,
    /// The length of all paths.
    pub(crate) base: u64,
    pub(crate) begun: Instant,
    pub(crate) messages: u64,
    work: u64,
    resyncs: u64,
}

impl Window {
    /// A phase that begins now.
    pub(crate) fn new(tables: &Tables, base: u64) -> Self {
        let of = tables.of.iter();
        let sum = |value: fn(&Table) -> &AtomicU64| {
            let values = tables.of.iter().map(value);
            values.map(|value| value.load(Ordering::Relaxed)).sum()
        };
        Window {
            first: of.map(Table::len).collect(),
            base,
            begun: Instant::now(),
            messages: sum(|table| &table.messages),
            work: sum(|table| &table.work),
            resyncs: sum(|table| &table.resyncs),
        }
    }
}

/// A part of a task in the graph. Times in nanoseconds.
pub(crate) struct Node {
    pub(crate) part: Part,
    pub(crate) worker: usize,
    /// Its predecessors: that of its longest path first.
    before: [Option<usize>; 2],
    /// Its earliest start, from the phase's begin.
    pub(crate) start: u64,
    /// How much longer it may take before the span grows; `None`: it does not lead to the path's end.
    pub(crate) slack: Option<u64>,
    /// The activity that follows from it and could run beside the longest chain that follows. What depends
    /// on two nodes follows from the one on its longest path.
    pub(crate) exposed: u64,
}

/// See the module.
pub(crate) struct Analysis {
    /// Each after its predecessors.
    pub(crate) nodes: Vec<Node>,
    /// The nodes of the longest path in order.
    pub(crate) path: Vec<usize>,
    /// Whether the path ends with a given task: what does not lead to it is of no interest then.
    is_bound: bool,
    base: u64,
    pub(crate) span: u64,
    /// All activity of the phase.
    pub(crate) work: u64,
    pub(crate) resyncs: u64,
    /// Parts whose predecessor was overwritten.
    pub(crate) lost: u64,
    pub(crate) edges: u64,
}

impl Analysis {
    /// Of what was recorded in the window, up to the path's end if there is one.
    pub(crate) fn new(tables: &Tables, window: &Window, end: Option<Path>) -> Self {
        let now = Window::new(tables, window.base);
        let copy = Copied::new(tables, window);
        let (nodes, numbers) = copy.nodes();
        let mut analysis = Analysis {
            nodes,
            path: Vec::new(),
            is_bound: end.is_some(),
            base: window.base,
            span: 0,
            work: now.work - window.work,
            resyncs: now.resyncs.saturating_sub(window.resyncs),
            lost: 0,
            edges: 0,
        };
        for Node { part, before, .. } in &analysis.nodes {
            let is_lost = |(reference, node): (Reference, Option<usize>)| {
                let place = reference.place();
                node.is_none() && place.is_some_and(|(worker, n)| n >= window.first[worker])
            };
            let references = [part.before, part.other].into_iter().zip(*before);
            analysis.lost += references.filter(|pair| is_lost(*pair)).count() as u64;
            if part.link != Link::Same {
                analysis.edges += before.iter().flatten().count() as u64;
            }
        }
        let length = |node: &usize| analysis.nodes[*node].part.length;
        let last = match end {
            Some(path) => copy.node(path.from, &numbers).flatten(),
            // Of equals the first.
            None => (0..analysis.nodes.len()).rev().max_by_key(length),
        };
        analysis.span = last.map_or(0, |last| length(&last) - window.base);
        let before = |node: &usize| analysis.nodes[*node].before[0];
        analysis.path = std::iter::successors(last, before).collect();
        analysis.path.reverse();
        analysis.look_back();
        analysis
    }

    /// Earliest end of each node if the entry method `zeroed` took no time and each message `cost`.
    fn ends(&self, zeroed: Option<u32>, cost: u64) -> Vec<u64> {
        let mut ends: Vec<u64> = Vec::with_capacity(self.nodes.len());
        for Node { part, before, .. } in &self.nodes {
            let [longest, other] = before.map(|before| before.map(|before| ends[before]));
            let start = longest.unwrap_or_else(|| self.begun(part));
            let time = if zeroed == Some(part.what.entry) {
                0
            } else {
                part.time
            };
            let cost = if part.link == Link::Same { 0 } else { cost };
            ends.push(start.max(other.unwrap_or(0)) + cost + time);
        }
        ends
    }

    /// When a part began as it was recorded.
    fn begun(&self, part: &Part) -> u64 {
        (part.length - part.time).saturating_sub(self.base)
    }

    /// The longest path if the entry method took no time, or each message `cost`.
    pub(crate) fn span_if(&self, zeroed: Option<u32>, cost: u64) -> u64 {
        let ends = self.ends(zeroed, cost);
        match self.path.last().filter(|_| self.is_bound) {
            Some(end) => ends[*end],
            None => ends.into_iter().max().unwrap_or(0),
        }
    }

    /// Fills in what depends on the nodes that follow.
    fn look_back(&mut self) {
        let ends = self.ends(None, 0);
        // The longest chain after each node, and all activity that follows from it.
        let mut tails = vec![(!self.is_bound).then_some(0); self.nodes.len()];
        let mut below = vec![0; self.nodes.len()];
        if let Some(end) = self.path.last() {
            tails[*end] = Some(0);
        }
        for (number, node) in self.nodes.iter_mut().enumerate().rev() {
            let (time, tail) = (node.part.time, tails[number]);
            for before in node.before.into_iter().flatten() {
                tails[before] = tails[before].max(tail.map(|tail| tail + time));
            }
            if let Some(before) = node.before[0] {
                below[before] += below[number] + time;
            }
            node.start = ends[number] - time;
            node.slack = tail.map(|tail| self.span.saturating_sub(tail + ends[number]));
            node.exposed = below[number].saturating_sub(tail.unwrap_or(0));
        }
    }

    /// The time before the first node of the path, which was overwritten.
    pub(crate) fn unknown(&self) -> u64 {
        let first = self.path.first();
        first.map_or(0, |first| self.begun(&self.nodes[*first].part))
    }

    /// Activity by entry method, of some nodes.
    pub(crate) fn by_entry<'a>(nodes: impl Iterator<Item = &'a Node>) -> HashMap<u32, u64> {
        let mut sums = HashMap::new();
        nodes.for_each(|Node { part, .. }| *sums.entry(part.what.entry).or_default() += part.time);
        sums
    }

    /// For each actor's entry method, the least slack of its tasks.
    pub(crate) fn least_slacks(&self) -> HashMap<What, u64> {
        let mut least = HashMap::new();
        for Node { part, slack, .. } in &self.nodes {
            let slack = slack.unwrap_or(u64::MAX);
            let known = least.entry(part.what).or_insert(slack);
            *known = slack.min(*known);
        }
        least
    }
}

/// A consistent copy of all tables.
struct Copied {
    /// For each worker, the number of its first entry here, and its parts.
    first: Vec<u64>,
    parts: Vec<Vec<Part>>,
}

impl Copied {
    fn new(tables: &Tables, window: &Window) -> Self {
        let first = window.first.iter().zip(&tables.of);
        let first = first.map(|(first, table)| table.oldest().max(*first));
        let (mut first, mut parts) = (first.collect::<Vec<_>>(), vec![Vec::new(); tables.of.len()]);
        let mut len: Vec<u64> = tables.of.iter().map(Table::len).collect();
        let mut is_closed = false;
        // While tasks run, an entry may refer to one that its worker had not made when its table's length
        // was read. It is there by now.
        while !is_closed {
            is_closed = true;
            for (worker, table) in tables.of.iter().enumerate() {
                for index in first[worker] + parts[worker].len() as u64..len[worker] {
                    let Some(part) = table.get(index) else {
                        parts[worker].clear();
                        first[worker] = index + 1;
                        continue;
                    };
                    for (other, n) in [part.before, part.other].iter().filter_map(|r| r.place()) {
                        is_closed &= n < len[other];
                        len[other] = len[other].max(n + 1);
                    }
                    parts[worker].push(part);
                }
            }
        }
        Copied { first, parts }
    }

    /// The node of an entry, by the numbers that nodes have so far; `Some(None)`: it is not here.
    fn node(&self, reference: Reference, numbers: &[Vec<usize>]) -> Option<Option<usize>> {
        let here = |(worker, index): (usize, u64)| {
            let index = index.checked_sub(self.first[worker])? as usize;
            (index < self.parts[worker].len()).then_some((worker, index))
        };
        match reference.place().and_then(here) {
            None => Some(None),
            Some((worker, index)) => numbers[worker].get(index).map(|node| Some(*node)),
        }
    }

    /// All parts, each after its predecessors, and the numbers of each worker's. A worker's entries are in
    /// order already: each waits only for those of other workers.
    fn nodes(&self) -> (Vec<Node>, Vec<Vec<usize>>) {
        let (mut nodes, mut numbers) = (Vec::new(), vec![Vec::new(); self.parts.len()]);
        let mut done = usize::MAX;
        while done != nodes.len() {
            done = nodes.len();
            for (worker, parts) in self.parts.iter().enumerate() {
                while let Some(part) = parts.get(numbers[worker].len()) {
                    let before = [part.before, part.other].map(|r| self.node(r, &numbers));
                    let [Some(longest), Some(other)] = before else {
                        break;
                    };
                    numbers[worker].push(nodes.len());
                    nodes.push(Node {
                        part: *part,
                        worker,
                        before: [longest, other],
                        start: 0,
                        slack: None,
                        exposed: 0,
                    });
                }
            }
        }
        (nodes, numbers)
    }
}
