//! The program activity graph of a phase, and what follows from it.
//!
//! One duty: copy what the workers have recorded since a phase began, and compute on it: paths, slack, and
//! the span without an entry method. The graph has an entry's activity as a node, and at most two edges into
//! it. Parts whose predecessor is overwritten or belongs to an earlier phase begin at the length that they
//! were recorded with.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::strand::Tables;
use crate::table::{Link, Part, Path, Reference, What};

/// Where a phase begins.
#[derive(Debug)]
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
    pub(crate) fn new(tables: &Tables) -> Self {
        let sum = |value: fn(&crate::table::Table) -> u64| tables.of.iter().map(value).sum();
        Window {
            first: tables.of.iter().map(crate::table::Table::len).collect(),
            base: 0,
            begun: Instant::now(),
            messages: sum(|table| table.messages.load(Ordering::Relaxed)),
            work: sum(|table| table.work.load(Ordering::Relaxed)),
            resyncs: sum(|table| table.resyncs.load(Ordering::Relaxed)),
        }
    }
}

/// A node of the graph, by its number.
pub(crate) type Node = usize;

/// See the module. Times in nanoseconds.
pub(crate) struct Analysis {
    parts: Vec<Part>,
    worker: Vec<u16>,
    /// The predecessors of each node: that of its longest path first.
    before: Vec<[Option<Node>; 2]>,
    /// All nodes, each after its predecessors.
    order: Vec<Node>,
    /// The last node of the longest path.
    end: Option<Node>,
    /// Whether the path ends with a given task: what does not lead to it is of no interest then.
    is_bound: bool,
    base: u64,
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
        let now = Window::new(tables);
        let copy = Copied::new(tables, window);
        let mut analysis = Analysis {
            parts: Vec::new(),
            worker: Vec::new(),
            before: Vec::new(),
            order: Vec::new(),
            end: end.and_then(|path| copy.node(path.from)),
            is_bound: end.is_some(),
            base: window.base,
            work: now.work - window.work,
            resyncs: now.resyncs.saturating_sub(window.resyncs),
            lost: 0,
            edges: 0,
        };
        for (worker, parts) in copy.parts.iter().enumerate() {
            for part in parts {
                let before = [part.before, part.other].map(|before| copy.node(before));
                let is_lost = |reference: Reference| {
                    let place = reference.place();
                    place.is_some_and(|(worker, n)| {
                        n >= window.first[worker] && copy.node(reference).is_none()
                    })
                };
                analysis.lost += u64::from(is_lost(part.before)) + u64::from(is_lost(part.other));
                let edges = if part.link == Link::Same {
                    0
                } else {
                    before.iter().flatten().count()
                };
                analysis.edges += edges as u64;
                analysis.before.push(before);
                analysis.worker.push(worker as u16);
            }
        }
        analysis.order = copy.order(&analysis.before);
        analysis.parts = copy.parts.into_iter().flatten().collect();
        if end.is_none() {
            let longest = |longest: Option<Node>, node: Node| match longest {
                Some(other) if analysis.parts[other].length >= analysis.parts[node].length => {
                    longest
                }
                _ => Some(node),
            };
            analysis.end = analysis.order.iter().copied().fold(None, longest);
        }
        analysis
    }

    /// Earliest end of each node if the entry method `zeroed` took no time and each message `cost`.
    fn ends(&self, zeroed: Option<u32>, cost: u64) -> Vec<u64> {
        let mut ends = vec![0; self.parts.len()];
        for &node in &self.order {
            let part = &self.parts[node];
            let [longest, other] =
                self.before[node].map(|before| before.map(|before| ends[before]));
            let begun = || (part.length - part.time).saturating_sub(self.base);
            let start = longest.unwrap_or_else(begun).max(other.unwrap_or(0));
            let time = if zeroed == Some(part.what.entry) {
                0
            } else {
                part.time
            };
            let cost = if part.link == Link::Same { 0 } else { cost };
            ends[node] = start + cost + time;
        }
        ends
    }

    fn span_of(&self, ends: &[u64]) -> u64 {
        match self.end.filter(|_| self.is_bound) {
            Some(end) => ends[end],
            None => ends.iter().copied().max().unwrap_or(0),
        }
    }

    /// The longest path.
    pub(crate) fn span(&self) -> u64 {
        self.end.map_or(0, |end| self.parts[end].length - self.base)
    }

    /// The longest path if the entry method took no time.
    pub(crate) fn zeroed_span(&self, entry: u32) -> u64 {
        self.span_of(&self.ends(Some(entry), 0))
    }

    /// The longest path if each message costs so much.
    pub(crate) fn burdened_span(&self, cost: u64) -> u64 {
        self.span_of(&self.ends(None, cost))
    }

    /// The longest chain after each node; `None`: it does not lead to the path's end.
    fn tails(&self) -> Vec<Option<u64>> {
        let free = if self.is_bound { None } else { Some(0) };
        let mut tails = vec![free; self.parts.len()];
        if let Some(end) = self.end {
            tails[end] = Some(0);
        }
        for &node in self.order.iter().rev() {
            let through = tails[node].map(|tail| tail + self.parts[node].time);
            for before in self.before[node].into_iter().flatten() {
                tails[before] = tails[before].max(through);
            }
        }
        tails
    }

    /// How much longer each node may take before the span grows.
    pub(crate) fn slacks(&self) -> Vec<Option<u64>> {
        let (ends, span) = (self.ends(None, 0), self.span());
        let tails = self.tails().into_iter().zip(ends);
        tails
            .map(|(tail, end)| Some(span.saturating_sub(tail? + end)))
            .collect()
    }

    /// The nodes of the longest path in order.
    pub(crate) fn path(&self) -> Vec<Node> {
        let mut path: Vec<Node> =
            std::iter::successors(self.end, |node| self.before[*node][0]).collect();
        path.reverse();
        path
    }

    /// The time before the first node of the path, which was overwritten.
    pub(crate) fn unknown(&self, path: &[Node]) -> u64 {
        let first = path.first().map(|first| &self.parts[*first]);
        first.map_or(0, |part| {
            (part.length - part.time).saturating_sub(self.base)
        })
    }

    pub(crate) fn part(&self, node: Node) -> &Part {
        &self.parts[node]
    }

    pub(crate) fn worker(&self, node: Node) -> usize {
        usize::from(self.worker[node])
    }

    /// All nodes, each after those that it depends on.
    pub(crate) fn nodes(&self) -> &[Node] {
        &self.order
    }

    /// Earliest starts of all nodes, from the phase's begin.
    pub(crate) fn starts(&self) -> Vec<u64> {
        let ends = self.ends(None, 0).into_iter().zip(&self.parts);
        ends.map(|(end, part)| end - part.time).collect()
    }

    /// For each node, the activity that follows from it and could run beside the longest chain that follows.
    /// What depends on two nodes follows from the one on its longest path.
    pub(crate) fn exposed(&self) -> Vec<u64> {
        let mut below = vec![0; self.parts.len()];
        for &node in self.order.iter().rev() {
            if let Some(before) = self.before[node][0] {
                below[before] += below[node] + self.parts[node].time;
            }
        }
        let tails = self.tails().into_iter().map(|tail| tail.unwrap_or(0));
        below
            .into_iter()
            .zip(tails)
            .map(|(below, tail): (u64, u64)| below.saturating_sub(tail))
            .collect()
    }

    /// Sums of activity by entry method.
    pub(crate) fn work_by_entry(&self) -> HashMap<u32, u64> {
        let mut sums = HashMap::new();
        for part in &self.parts {
            *sums.entry(part.what.entry).or_default() += part.time;
        }
        sums
    }

    /// For each actor's entry method, the least slack of its tasks.
    pub(crate) fn least_slacks(&self) -> HashMap<What, u64> {
        let mut least = HashMap::new();
        for (part, slack) in self.parts.iter().zip(self.slacks()) {
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
        let mut copy = Copied {
            first: first
                .map(|(first, table)| table.oldest().max(*first))
                .collect(),
            parts: vec![Vec::new(); tables.of.len()],
        };
        let mut len: Vec<u64> = tables.of.iter().map(crate::table::Table::len).collect();
        let mut is_closed = false;
        // While tasks run, an entry may refer to one that its worker had not made when its table's length
        // was read. It is there by now.
        while !is_closed {
            is_closed = true;
            for (worker, table) in tables.of.iter().enumerate() {
                let have = copy.first[worker] + copy.parts[worker].len() as u64;
                for index in have..len[worker] {
                    let Some(part) = table.get(index) else {
                        copy.parts[worker].clear();
                        copy.first[worker] = index + 1;
                        continue;
                    };
                    for (other, n) in [part.before, part.other]
                        .into_iter()
                        .filter_map(Reference::place)
                    {
                        if n >= len[other] {
                            len[other] = n + 1;
                            is_closed = false;
                        }
                    }
                    copy.parts[worker].push(part);
                }
            }
        }
        copy
    }

    /// The node of an entry, in the numbering of all parts worker by worker.
    fn node(&self, reference: Reference) -> Option<Node> {
        let (worker, index) = reference.place()?;
        let index = usize::try_from(index.checked_sub(self.first[worker])?).ok()?;
        let offset: usize = self.parts[..worker].iter().map(Vec::len).sum();
        (index < self.parts[worker].len()).then_some(offset + index)
    }

    /// A worker's entries are in order already: each waits only for those of other workers.
    fn order(&self, before: &[[Option<Node>; 2]]) -> Vec<Node> {
        let mut ends = Vec::new();
        for parts in &self.parts {
            ends.push(ends.last().copied().unwrap_or(0) + parts.len());
        }
        let mut next: Vec<Node> = std::iter::once(0).chain(ends.iter().copied()).collect();
        let mut is_done = vec![false; before.len()];
        let mut order = Vec::with_capacity(before.len());
        loop {
            let done = order.len();
            for (next, end) in next.iter_mut().zip(&ends) {
                while *next < *end && before[*next].iter().flatten().all(|node| is_done[*node]) {
                    is_done[*next] = true;
                    order.push(*next);
                    *next += 1;
                }
            }
            if order.len() == done {
                return order;
            }
        }
    }
}
