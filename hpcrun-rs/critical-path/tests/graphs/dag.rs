//! Activity graphs, and their longest paths by visiting every edge.

use hpc_formats::critical_path::PARTS;

/// Nodes have a procedure and a duration; an edge has a cost.
#[derive(Default)]
pub(crate) struct Dag {
    nodes: Vec<(Option<usize>, u64)>,
    /// Edges into each node.
    edges: Vec<Vec<(usize, u64)>>,
    /// The edges' costs are a part of every path.
    has_costs: bool,
}

/// The longest path of a graph.
pub(crate) struct Longest {
    pub(crate) length: u64,
    /// Its nodes in order.
    pub(crate) path: Vec<usize>,
}

impl Dag {
    pub(crate) fn with_costs(has_costs: bool) -> Dag {
        Dag { has_costs, ..Dag::default() }
    }

    /// A node after all of `before`, each edge with its cost. Nodes are made in a topological order.
    pub(crate) fn node(&mut self, procedure: Option<usize>, time: u64, before: &[(usize, u64)]) -> usize {
        assert!(before.iter().all(|(node, _)| *node < self.nodes.len()));
        self.nodes.push((procedure, time));
        self.edges.push(before.to_vec());
        self.nodes.len() - 1
    }

    pub(crate) fn work(&self, procedure: Option<usize>) -> u64 {
        let counts = |p: &Option<usize>| procedure.is_none() || *p == procedure;
        self.nodes.iter().filter(|(p, _)| counts(p)).map(|(_, time)| time).sum()
    }

    /// The longest path if the procedure `zeroed` takes no time, and edges cost something or not.
    pub(crate) fn longest(&self, zeroed: Option<usize>, with_costs: bool) -> Longest {
        self.longest_without(|procedure| Some(procedure) == zeroed, with_costs)
    }

    /// The longest path if some procedures take no time.
    pub(crate) fn longest_without(&self, is_zeroed: impl Fn(usize) -> bool, with_costs: bool) -> Longest {
        let own = |procedure: Option<usize>, time| if procedure.is_some_and(&is_zeroed) { 0 } else { time };
        self.longest_with(own, u64::from(with_costs || self.has_costs))
    }

    /// The longest path's length if some procedures take less time by so many parts of `PARTS`.
    pub(crate) fn longest_if_faster(&self, is_faster: impl Fn(usize) -> bool, saved: u32) -> u64 {
        let all = u64::from(PARTS);
        let left = |faster: bool| if faster { all - u64::from(saved) } else { all };
        let time = |procedure: Option<usize>, time: u64| time * left(procedure.is_some_and(&is_faster));
        self.longest_with(time, if self.has_costs { all } else { 0 }).length.div_ceil(all)
    }

    /// A path has so many times the cost of each edge.
    fn longest_with(&self, own: impl Fn(Option<usize>, u64) -> u64, costs: u64) -> Longest {
        let mut ends: Vec<u64> = Vec::new();
        let mut from: Vec<Option<usize>> = Vec::new();
        for ((procedure, time), edges) in self.nodes.iter().zip(&self.edges) {
            let arrival = |(node, cost): &(usize, u64)| (ends[*node] + costs * cost, *node);
            let last = edges.iter().map(arrival).max_by_key(|(end, _)| *end);
            let end = last.map_or(0, |(end, _)| end) + own(*procedure, *time);
            from.push(last.map(|(_, node)| node));
            ends.push(end);
        }
        let last = (0..ends.len()).max_by_key(|node| ends[*node]);
        let mut path: Vec<usize> = std::iter::successors(last, |node| from[*node]).collect();
        path.reverse();
        Longest { length: last.map_or(0, |node| ends[node]), path }
    }

    /// The times at which nodes of the ideal execution begin and end, in order.
    fn moments(&self) -> (Vec<(u64, u64)>, Vec<u64>) {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for ((_, time), edges) in self.nodes.iter().zip(&self.edges) {
            let cost = |cost: &u64| if self.has_costs { *cost } else { 0 };
            let begin = edges.iter().map(|(node, of_edge)| runs[*node].1 + cost(of_edge)).max();
            let begin = begin.unwrap_or(0);
            runs.push((begin, begin + time));
        }
        let mut moments: Vec<u64> = runs.iter().flat_map(|(begin, end)| [*begin, *end]).collect();
        moments.sort_unstable();
        moments.dedup();
        (runs, moments)
    }

    /// The time on so many cores if between two moments of the ideal execution there is a barrier, and each
    /// part between them is run by one core; and the number of their turns.
    pub(crate) fn level_by_level(&self, workers: u64) -> (f64, u64) {
        let (runs, moments) = self.moments();
        let (mut time, mut turns) = (0, 0);
        for level in moments.windows(2) {
            let is_in = |(begin, end): &&(u64, u64)| *begin <= level[0] && level[1] <= *end;
            // Where nobody is active, all wait for an edge.
            let rounds = (runs.iter().filter(is_in).count() as u64).div_ceil(workers).max(1);
            time += (level[1] - level[0]) * rounds;
            turns += rounds;
        }
        (time as f64, turns)
    }

    pub(crate) fn time(&self, node: usize) -> u64 {
        self.nodes[node].1
    }

    /// The time of a procedure on a path.
    pub(crate) fn on_path(&self, path: &[usize], procedure: usize) -> u64 {
        let nodes = path.iter().map(|node| self.nodes[*node]);
        nodes.filter(|(p, _)| *p == Some(procedure)).map(|(_, time)| time).sum()
    }
}
