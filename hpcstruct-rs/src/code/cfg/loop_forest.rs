//! The loops of a control flow graph and how they nest, irreducible ones included.
//!
//! Method: Havlak, "Nesting of Reducible and Irreducible Loops", ACM TOPLAS 19(4), 1997, figure 4,
//! over one depth-first search, with union-find. The rules:
//! - all back edges to one header make one loop;
//! - a loop that can be entered elsewhere than at its header is irreducible; its header is the block
//!   that the search meets first;
//! - blocks that the entry does not reach are searched from further roots; edges from them to blocks
//!   found before belong to no loop.
//!
//! Invariants: a loop comes after the loop around it; nesting has a bound. Time is bounded by the
//! edges times the depth of irreducible nests; beyond a budget further entries are not followed
//! outwards.

/// Deeper loops are merged into the one around them: no source nests so deeply, and later passes
/// take time by depth.
const MAX_DEPTH: u32 = 128;

/// Marks the absence of an index.
pub(crate) const NONE: u32 = u32::MAX;

/// A graph in compressed rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Csr<'a> {
    /// Index of each node's first successor, and one more at the end.
    pub(crate) first: &'a [u32],
    pub(crate) successors: &'a [u32],
}

impl Csr<'_> {
    fn len(&self) -> usize {
        self.first.len().saturating_sub(1)
    }

    pub(crate) fn of(&self, node: u32) -> &[u32] {
        let i = node as usize;
        &self.successors[self.first[i] as usize..self.first[i + 1] as usize]
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// Its header, a node.
    pub(crate) header: u32,
    /// The loop around it, an index smaller than its own; [`NONE`] when there is none.
    pub(crate) parent: u32,
    /// Whether it can be entered elsewhere than at its header.
    pub(crate) irreducible: bool,
    /// How many loops are around it, itself included.
    depth: u32,
}

/// The loops of a graph, and the buffers to find them.
#[derive(Debug, Default)]
pub(crate) struct LoopForest {
    /// Loops, outer ones before inner ones.
    pub(crate) loops: Vec<Found>,
    /// The innermost loop of each node; [`NONE`] outside of loops.
    pub(crate) inner: Vec<u32>,
    search: Search,
    /// By search number: header of the loop around, union-find parent, kind of loop.
    header: Vec<u32>,
    union: Vec<u32>,
    is_loop: Vec<u8>,
    /// Lists of predecessors by number: heads, then links.
    back: Vec<u32>,
    other: Vec<u32>,
    links: Vec<(u32, u32)>,
    body: Vec<u32>,
    in_body: Vec<u32>,
}

/// A depth-first search's numbers.
#[derive(Debug, Default)]
struct Search {
    /// Number of each node; [`NONE`] = not reached.
    number: Vec<u32>,
    /// Node of each number.
    node: Vec<u32>,
    /// Largest number below each number; [`NONE`] until the search leaves it.
    last: Vec<u32>,
    /// First number of the tree that each number belongs to.
    tree: Vec<u32>,
    stack: Vec<(u32, u32)>,
}

impl Search {
    fn run(&mut self, graph: Csr<'_>, roots: &[u32]) -> bool {
        let mut has_cycle = false;
        self.number.clear();
        self.number.resize(graph.len(), NONE);
        self.node.clear();
        self.last.clear();
        self.tree.clear();
        for root in roots {
            if self.number.get(*root as usize) != Some(&NONE) {
                continue;
            }
            let tree = self.node.len() as u32;
            self.enter(graph, *root, tree);
            while let Some((node, next)) = self.stack.last_mut() {
                if *next == graph.first[*node as usize + 1] {
                    let number = self.number[*node as usize];
                    self.last[number as usize] = self.node.len() as u32 - 1;
                    self.stack.pop();
                    continue;
                }
                let to = graph.successors[*next as usize];
                *next += 1;
                match self.number[to as usize] {
                    NONE => self.enter(graph, to, tree),
                    // Not left yet.
                    number => has_cycle |= self.last[number as usize] == NONE,
                }
            }
        }
        has_cycle
    }

    fn enter(&mut self, graph: Csr<'_>, node: u32, tree: u32) {
        self.number[node as usize] = self.node.len() as u32;
        self.node.push(node);
        self.last.push(NONE);
        self.tree.push(tree);
        self.stack.push((node, graph.first[node as usize]));
    }

    fn is_ancestor(&self, a: u32, b: u32) -> bool {
        a <= b && b <= self.last[a as usize]
    }
}

const PLAIN: u8 = 0;
const SELF: u8 = 1;
const REDUCIBLE: u8 = 2;
const IRREDUCIBLE: u8 = 3;

impl LoopForest {
    /// Finds the loops of `graph`, searched from `roots` in this order.
    pub(crate) fn find(&mut self, graph: Csr<'_>, roots: &[u32]) {
        self.search(graph, roots);
        self.find_searched(graph);
    }

    /// Begins the work; whether there is any loop.
    pub(crate) fn search(&mut self, graph: Csr<'_>, roots: &[u32]) -> bool {
        self.search.run(graph, roots)
    }

    /// As [`LoopForest::find`], after [`LoopForest::search`] of the same graph.
    pub(crate) fn find_searched(&mut self, graph: Csr<'_>) {
        let count = self.search.node.len();
        self.split_predecessors(graph);
        self.header.clear();
        self.header.resize(count, NONE);
        self.is_loop.clear();
        self.is_loop.resize(count, PLAIN);
        self.union.clear();
        self.union.extend(0..count as u32);
        self.in_body.clear();
        self.in_body.resize(count, NONE);
        // Limits the work on irreducible entries.
        let mut budget = 64 * (self.links.len() + count) + 4096;
        for number in (0..count as u32).rev() {
            self.collect_body(number, &mut budget);
        }
        self.number_loops(graph.len());
    }

    /// Whether a node is in a loop, at any depth.
    pub(crate) fn holds(&self, outer: u32, node: u32) -> bool {
        let mut around = self.inner[node as usize];
        // A loop comes after the loop around it.
        while around != NONE && around > outer {
            around = self.loops[around as usize].parent;
        }
        around == outer
    }

    /// Sorts the edges of the search into back edges and others, by their end.
    fn split_predecessors(&mut self, graph: Csr<'_>) {
        let count = self.search.node.len();
        self.back.clear();
        self.back.resize(count, NONE);
        self.other.clear();
        self.other.resize(count, NONE);
        self.links.clear();
        for from in 0..count as u32 {
            for to in graph.of(self.search.node[from as usize]) {
                let to = self.search.number[*to as usize];
                if self.search.tree[to as usize] != self.search.tree[from as usize] {
                    continue;
                }
                let list = if self.search.is_ancestor(to, from) { &mut self.back } else { &mut self.other };
                self.links.push((from, list[to as usize]));
                list[to as usize] = self.links.len() as u32 - 1;
            }
        }
    }

    /// Finds the members of the loop that `header` heads, if it does.
    fn collect_body(&mut self, header: u32, budget: &mut usize) {
        self.body.clear();
        let mut link = self.back[header as usize];
        while link != NONE {
            let (from, next) = self.links[link as usize];
            link = next;
            if from == header {
                self.is_loop[header as usize] = self.is_loop[header as usize].max(SELF);
            } else {
                self.add_member(from, header);
            }
        }
        if self.body.is_empty() {
            return;
        }
        self.is_loop[header as usize] = REDUCIBLE;
        let mut done = 0;
        while let Some(member) = self.body.get(done).copied() {
            done += 1;
            let mut link = self.other[member as usize];
            while link != NONE {
                let (from, next) = self.links[link as usize];
                link = next;
                let from = find(&mut self.union, from);
                if !self.search.is_ancestor(header, from) {
                    self.is_loop[header as usize] = IRREDUCIBLE;
                    if *budget > 0 {
                        *budget -= 1;
                        self.links.push((from, self.other[header as usize]));
                        self.other[header as usize] = self.links.len() as u32 - 1;
                    }
                } else if from != header {
                    self.add_member(from, header);
                }
            }
        }
        for member in &self.body {
            self.header[*member as usize] = header;
            self.union[*member as usize] = header;
        }
    }

    fn add_member(&mut self, from: u32, header: u32) {
        let member = find(&mut self.union, from);
        if member != header && self.in_body[member as usize] != header {
            self.in_body[member as usize] = header;
            self.body.push(member);
        }
    }

    /// Numbers the loops in the order of the search, and gives every node its innermost one.
    fn number_loops(&mut self, nodes: usize) {
        self.loops.clear();
        self.inner.clear();
        self.inner.resize(nodes, NONE);
        for number in 0..self.search.node.len() {
            let node = self.search.node[number];
            let around = match self.header[number] {
                NONE => NONE,
                header => self.inner[self.search.node[header as usize] as usize],
            };
            let kind = self.is_loop[number];
            let depth = self.loops.get(around as usize).map_or(1, |l| l.depth + 1);
            if kind == PLAIN || depth > MAX_DEPTH {
                self.inner[node as usize] = around;
                continue;
            }
            self.inner[node as usize] = self.loops.len() as u32;
            self.loops.push(Found { header: node, parent: around, irreducible: kind == IRREDUCIBLE, depth });
        }
    }
}

/// The representative of a node's set, halving the path to it.
fn find(union: &mut [u32], mut node: u32) -> u32 {
    while union[node as usize] != node {
        let up = union[union[node as usize] as usize];
        union[node as usize] = up;
        node = up;
    }
    node
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// A graph as lists of successors, searched from node 0.
    fn find_in(graph: &[Vec<u32>]) -> LoopForest {
        let mut first = vec![0];
        let mut successors = Vec::new();
        for list in graph {
            successors.extend(list);
            first.push(successors.len() as u32);
        }
        let mut forest = LoopForest::default();
        let rows = Csr { first: &first, successors: &successors };
        let roots: Vec<u32> = (0..graph.len() as u32).collect();
        forest.find(rows, &roots);
        forest
    }

    /// (header, header of the loop around, irreducible).
    type Shape = (u32, Option<u32>, bool);

    fn shapes_of(forest: &LoopForest) -> Vec<Shape> {
        let loops = forest.loops.iter();
        loops
            .map(|l| {
                let around = forest.loops.get(l.parent as usize).map(|p| p.header);
                (l.header, around, l.irreducible)
            })
            .collect()
    }

    #[test]
    fn an_exit_through_two_loops_belongs_to_neither() {
        let graph: [&[u32]; 5] = [&[1], &[2], &[2, 3, 4], &[1], &[]];
        let forest = find_in(&graph.map(<[u32]>::to_vec));
        assert_eq!(forest.inner[4], NONE);
    }

    #[test]
    fn nesting_has_a_bound() {
        // Node i goes on to i + 1; then each goes back, the innermost first.
        let count = 1000u32;
        let mut graph: Vec<Vec<u32>> = (0..count).map(|i| vec![i + 1]).collect();
        for i in 0..count {
            graph.push(vec![count - 1 - i, count + i + 1]);
        }
        graph.push(Vec::new());
        let forest = find_in(&graph);
        assert_eq!(forest.loops.len(), MAX_DEPTH as usize);
        assert!(forest.loops.iter().all(|l| !l.irreducible));
        let deepest = forest.loops.len() as u32 - 1;
        assert_eq!(forest.inner[count as usize - 1], deepest);
    }

    /// Preorder numbers and trees of the same search, by recursion.
    fn number(graph: &[Vec<u32>], node: u32, tree: u32, out: &mut BTreeMap<u32, (u32, u32)>) {
        if out.contains_key(&node) {
            return;
        }
        let next = out.len() as u32;
        out.insert(node, (next, tree));
        for to in &graph[node as usize] {
            number(graph, *to, tree, out);
        }
    }

    fn reach(graph: &[BTreeSet<u32>], nodes: &BTreeSet<u32>, from: u32) -> BTreeSet<u32> {
        let mut seen = BTreeSet::new();
        let mut left: Vec<u32> = vec![from];
        while let Some(node) = left.pop() {
            for to in graph[node as usize].intersection(nodes) {
                if seen.insert(*to) {
                    left.push(*to);
                }
            }
        }
        seen
    }

    /// The same forest by definition: a loop is a strongly connected set; its header is the member
    /// with the smallest number; without the header the rest falls into the inner loops.
    fn by_definition(
        graph: &[BTreeSet<u32>],
        numbers: &BTreeMap<u32, (u32, u32)>,
        nodes: &BTreeSet<u32>,
        around: Option<u32>,
        out: &mut BTreeSet<Shape>,
    ) {
        let mut left = nodes.clone();
        while let Some(node) = left.first().copied() {
            let forward = reach(graph, nodes, node);
            let both = |n: &&u32| forward.contains(n) && reach(graph, nodes, **n).contains(&node);
            let set: BTreeSet<u32> = nodes.iter().filter(both).copied().collect();
            left.remove(&node);
            left.retain(|n| !set.contains(n));
            let Some(header) = set.iter().min_by_key(|n| numbers[n]).copied() else {
                continue;
            };
            let entered = |n: &u32| {
                let outside = |from: &usize| !set.contains(&(*from as u32));
                (0..graph.len()).filter(outside).any(|from| graph[from].contains(n))
            };
            let irreducible = set.iter().any(|n| *n != header && entered(n));
            out.insert((header, around, irreducible));
            let mut rest = set;
            rest.remove(&header);
            by_definition(graph, numbers, &rest, Some(header), out);
        }
    }

    #[test]
    fn random_graphs_agree_with_the_definition() {
        let mut source = fastrand::Rng::with_seed(1);
        let mut random = |n: u64| source.u64(..n);
        let (mut loops, mut irreducible) = (0, 0);
        for _ in 0..3000 {
            let count = 1 + random(14);
            let graph: Vec<Vec<u32>> =
                (0..count).map(|_| (0..random(4)).map(|_| random(count) as u32).collect()).collect();
            let mut numbers = BTreeMap::new();
            for root in 0..count as u32 {
                number(&graph, root, root, &mut numbers);
            }
            // Edges between trees of the search are no edges.
            let same = |from: usize, to: &u32| numbers[&(from as u32)].1 == numbers[to].1;
            let sets: Vec<BTreeSet<u32>> = graph
                .iter()
                .enumerate()
                .map(|(i, l)| l.iter().filter(|to| same(i, to)).copied().collect())
                .collect();
            let mut expected = BTreeSet::new();
            let nodes = (0..count as u32).collect();
            by_definition(&sets, &numbers, &nodes, None, &mut expected);
            let found: BTreeSet<Shape> = shapes_of(&find_in(&graph)).into_iter().collect();
            assert_eq!(found, expected, "{graph:?}");
            loops += expected.len();
            irreducible += expected.iter().filter(|l| l.2).count();
        }
        assert!(loops > 2000 && irreducible > 200, "{loops} {irreducible}");
    }
}
