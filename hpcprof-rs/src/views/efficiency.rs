//! The efficiency table (paper, table 1) applied to the contexts that matter.
//!
//! A context is chosen so that each row stands for cost of its own: wrappers around one callee are passed
//! through, and a context is split into its callees where these differ from it. Rows are the user's
//! procedures: what libraries and scaffolding cost is part of them, unless most of the program is that.

use crate::model::symbols::Kind;
use crate::views::load::{Database, effort};
use crate::views::names;
use crate::views::owners::{Owner, enclosing, owners};
use crate::views::tree::{Label, View, add_all};
use hpc_formats::structure::Origin;
use std::collections::{BTreeMap, BTreeSet};

/// From which share of a context's effort idleness and overhead count as high.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Thresholds {
    /// Percent of idleness.
    pub idleness: f64,
    /// Percent of overhead.
    pub overhead: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Thresholds {
            idleness: 20.0,
            overhead: 10.0,
        }
    }
}

/// A cell of the efficiency table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Idleness low, overhead low.
    Effective,
    /// Idleness low, overhead high.
    Coarsen,
    /// Idleness high, overhead low.
    Refine,
    /// Both high.
    Change,
    /// Most of its time goes into this procedure, which waits without blocking.
    Spins(&'static str),
}

impl Verdict {
    /// The verdict for a context's values.
    pub fn of(values: &[i64], thresholds: Thresholds) -> Verdict {
        let total = effort(values).max(1) as f64;
        let share = |metric: usize| values[metric] as f64 * 100.0 / total;
        match (
            share(1) >= thresholds.idleness,
            share(2) >= thresholds.overhead,
        ) {
            (false, false) => Verdict::Effective,
            (false, true) => Verdict::Coarsen,
            (true, false) => Verdict::Refine,
            (true, true) => Verdict::Change,
        }
    }

    /// What to do, in a few words.
    pub fn advice(self) -> String {
        match self {
            Verdict::Effective => "effective: tune serial code".to_owned(),
            Verdict::Coarsen => "coarsen the tasks".to_owned(),
            Verdict::Refine => "refine: more parallelism".to_owned(),
            Verdict::Change => "change the parallelisation".to_owned(),
            Verdict::Spins(by) => format!("spins in {by}: wait for an event instead"),
        }
    }
}

/// One context that matters.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Node of the view.
    pub node: u32,
    /// The user's procedure, or the parallel loop, that it is.
    pub name: String,
    /// The node whose place in the source says where that is.
    pub place: u32,
    /// Whether callees that have rows of their own are left out of its values.
    pub rest: bool,
    /// Its values.
    pub values: Vec<i64>,
    /// Its cell of the table.
    pub verdict: Verdict,
}

/// Least share of the total effort of a row.
const LEAST_SHARE: f64 = 0.01;
/// A context is a wrapper when its own part is below this share of it.
const WRAPPER_SHARE: f64 = 0.05;
/// A context is split when callees of another verdict hold this share of it.
const DIFFERENT_SHARE: f64 = 0.2;

/// From this share of the effort on, rows are about procedures of one owner alone.
const OWNED_SHARE: f64 = 0.5;

/// The rows for a top-down view of the logical projection, largest effort first.
pub fn rows(view: &View, database: &Database, thresholds: Thresholds) -> Vec<Row> {
    let mut chooser = Chooser {
        view,
        database,
        thresholds,
        least: (effort(&view.totals) as f64 * LEAST_SHARE).max(1.0),
        owners: owners(database),
        shown: Owner::Program,
        waits: leaves(view, database, &WAITS),
    };
    chooser.pass_clocks();
    let is_whole = |root: &&u32| view.nodes[**root as usize].kind != Kind::Partial.name();
    let roots: Vec<u32> = view.roots.iter().filter(is_whole).copied().collect();
    let mut top = Vec::new();
    for shown in [Owner::Program, Owner::Library, Owner::Scaffold] {
        chooser.shown = shown;
        top.clear();
        roots
            .iter()
            .for_each(|root| chooser.user_nodes(*root, &mut top));
        let owned: f64 = top.iter().map(|node| chooser.effort(*node)).sum();
        if owned >= effort(&view.totals) as f64 * OWNED_SHARE {
            break;
        }
    }
    let mut rows = Vec::new();
    if let [only] = top[..] {
        let chain = chooser.chain(only);
        chooser.split(chain.last().copied().unwrap_or(only), &mut rows);
    } else {
        for node in top {
            chooser.choose(node, &mut rows);
        }
    }
    rows.sort_by_key(|r| std::cmp::Reverse(effort(&r.values)));
    rows
}

/// Procedures of libc that wait, or give the core away, and cost CPU time only where they are called all the
/// time.
const WAITS: [&str; 12] = [
    "sleep",
    "usleep",
    "nanosleep",
    "clock_nanosleep",
    "thrd_sleep",
    "sched_yield",
    "thrd_yield",
    "poll",
    "ppoll",
    "select",
    "pselect",
    "epoll_wait",
];

/// Procedures that read a clock: what spends its time in them waits by looking at it.
const CLOCKS: [&str; 4] = ["clock_gettime", "gettimeofday", "clock", "time"];

/// For each node, how much of its work and overhead lies in procedures of libc with these names, and in which
/// of them most.
fn leaves(view: &View, database: &Database, names: &[&'static str]) -> Vec<(i64, &'static str)> {
    let known = |label: &Label| {
        let Label::Procedure(p) = label else {
            return None;
        };
        let row = &database.procedures[*p as usize];
        let plain = row.name.split('@').next().unwrap_or(&row.name);
        let plain = plain.trim_start_matches('_');
        let names = names.iter().copied();
        names
            .filter(|_| row.origin == Origin::System)
            .find(|name| *name == plain)
    };
    let mut found = vec![(0_i64, ""); view.nodes.len()];
    for (id, node) in view.nodes.iter().enumerate().rev() {
        found[id] = match known(&node.label) {
            Some(name) => (busy(view.inclusive_of(id as u32)), name),
            None => {
                let below = node.children.iter().map(|c| found[*c as usize]);
                let largest = below.clone().max_by_key(|(time, _)| *time);
                let sum = below.fold(0_i64, |sum, (time, _)| sum.saturating_add(time));
                (sum, largest.map_or("", |(_, name)| name))
            }
        };
    }
    found
}

/// Work and overhead.
fn busy(values: &[i64]) -> i64 {
    values[0].saturating_add(values[2])
}

struct Chooser<'a> {
    view: &'a View,
    database: &'a Database,
    thresholds: Thresholds,
    least: f64,
    owners: Vec<Owner>,
    /// Rows are about procedures of this owner and of those before.
    shown: Owner,
    waits: Vec<(i64, &'static str)>,
}

impl Chooser<'_> {
    /// A helper that spins by the clock is scaffolding: several procedures call it, or its name says what it
    /// does.
    fn pass_clocks(&mut self) {
        let clocks = leaves(self.view, self.database, &CLOCKS);
        let mut users: BTreeMap<u32, (i64, BTreeSet<Option<u32>>)> = BTreeMap::new();
        let mut nearest: Vec<Option<u32>> = Vec::with_capacity(self.view.nodes.len());
        for (id, node) in self.view.nodes.iter().enumerate() {
            let caller = node.parent.and_then(|p| nearest[p as usize]);
            let own = match node.label {
                Label::Procedure(p) if self.owners[p as usize] != Owner::System => Some(p),
                _ => None,
            };
            nearest.push(own.or(caller));
            if let Some(procedure) = own.filter(|_| node.kind != Kind::Loop.name()) {
                let all = busy(self.view.inclusive_of(id as u32));
                let elsewhere = all.saturating_sub(clocks[id].0);
                let (balance, callers) = users.entry(procedure).or_default();
                *balance = balance.saturating_add(clocks[id].0.saturating_sub(elsewhere));
                callers.insert(caller.filter(|c| *c != procedure));
            }
        }
        for (procedure, (balance, callers)) in users {
            let name = &self.database.procedures[procedure as usize].name;
            let says = name.ends_with("now") || name.contains("clock");
            let is_called = !callers.contains(&None);
            if balance > 0 && is_called && (says || callers.len() > 1) {
                self.owners[procedure as usize] = Owner::Scaffold;
            }
        }
    }

    fn effort(&self, node: u32) -> f64 {
        effort(self.view.inclusive_of(node)) as f64
    }

    fn is_user(&self, node: u32) -> bool {
        match self.view.nodes[node as usize].label {
            Label::Procedure(p) => {
                let owner = self.owners[p as usize];
                let spins = || matches!(self.verdict(node), Verdict::Spins(_));
                owner <= self.shown || (owner == Owner::Library && spins())
            }
            Label::ParallelLoop(_) => true,
            _ => false,
        }
    }

    fn verdict(&self, node: u32) -> Verdict {
        self.verdict_of(self.view.inclusive_of(node), self.waits[node as usize])
    }

    /// The verdict for values of which so much is in a wait.
    fn verdict_of(&self, values: &[i64], (waits, name): (i64, &'static str)) -> Verdict {
        if waits > 0 && waits.saturating_mul(2) > busy(values) {
            return Verdict::Spins(name);
        }
        Verdict::of(values, self.thresholds)
    }

    /// The outermost significant user contexts at or below `node`.
    fn user_nodes(&self, node: u32, out: &mut Vec<u32>) {
        let mut stack = vec![node];
        while let Some(node) = stack.pop() {
            if self.effort(node) < self.least {
                continue;
            }
            if self.is_user(node) {
                out.push(node);
            } else {
                stack.extend(&self.view.nodes[node as usize].children);
            }
        }
    }

    fn callees(&self, node: u32) -> Vec<u32> {
        let mut out = Vec::new();
        for child in &self.view.nodes[node as usize].children {
            self.user_nodes(*child, &mut out);
        }
        out
    }

    /// The values of `node` without those of `callees`.
    fn rest(&self, node: u32, callees: &[u32]) -> Vec<i64> {
        let mut rest = self.view.inclusive_of(node).to_vec();
        for callee in callees {
            let negative: Vec<i64> = self.view.inclusive_of(*callee).iter().map(|v| -v).collect();
            add_all(&mut rest, &negative);
        }
        rest
    }

    /// From `from` through contexts that do little but call one other; both ends included.
    fn chain(&self, from: u32) -> Vec<u32> {
        let mut chain = vec![from];
        let mut node = from;
        while let [only] = self.callees(node)[..] {
            let own = effort(&self.rest(node, &[only])) as f64;
            if own >= self.effort(node) * WRAPPER_SHARE {
                break;
            }
            chain.push(only);
            node = only;
        }
        chain
    }

    fn procedure_name(&self, node: u32) -> Option<&str> {
        match self.view.nodes[node as usize].label {
            Label::Procedure(p) => Some(&self.database.procedures[p as usize].name),
            _ => None,
        }
    }

    fn is_closure(&self, node: u32) -> bool {
        let name = self.procedure_name(node);
        name.is_some_and(|name| enclosing(name) != name)
    }

    /// What a row about `node` is called, and the node whose place that is: a closure is called by the
    /// procedure that it stands in.
    fn name(&self, node: u32) -> (String, u32) {
        let Some(own) = self.procedure_name(node) else {
            let label = &self.view.nodes[node as usize].label;
            return (names::label(self.database, label), node);
        };
        let name = enclosing(own);
        let has_place = |node: u32| match self.view.nodes[node as usize].label {
            Label::Procedure(p) => self.database.procedures[p as usize].declared.is_some(),
            _ => false,
        };
        if name == own || (has_place(node) && !name.is_empty()) {
            return (name.to_owned(), node);
        }
        let mut next = self.view.nodes[node as usize].parent;
        while let Some(at) = next {
            let outer = self.procedure_name(at).filter(|_| self.is_user(at));
            match outer.map(enclosing) {
                Some(outer) if outer == name || (name.is_empty() && !outer.is_empty()) => {
                    return (outer.to_owned(), if has_place(node) { node } else { at });
                }
                _ => next = self.view.nodes[at as usize].parent,
            }
        }
        let name = if name.is_empty() { own } else { name };
        (name.to_owned(), node)
    }

    /// Rows for the cost at and below `node`, which others do not have.
    fn choose(&self, node: u32, rows: &mut Vec<Row>) {
        let chain = self.chain(node);
        let end = chain.last().copied().unwrap_or(node);
        let verdict = self.verdict(end);
        if self.different(end, verdict) >= self.effort(end) * DIFFERENT_SHARE {
            self.split(end, rows);
            return;
        }
        // Of a chain of wrappers the outermost named procedure tells most: further in, they
        // tend to be the same for all callers.
        let named = chain.iter().copied().find(|n| !self.is_closure(*n));
        let node = match self.shown {
            // An interpreter's entry tells nothing.
            Owner::Scaffold => end,
            _ => named.unwrap_or(end),
        };
        self.push(node, &[], rows);
    }

    /// The effort of the outermost callees below `node` whose verdict is another.
    fn different(&self, node: u32, verdict: Verdict) -> f64 {
        let mut sum = 0.0;
        let mut stack = self.callees(node);
        while let Some(callee) = stack.pop() {
            if self.verdict(callee) == verdict {
                stack.extend(self.callees(callee));
            } else {
                sum += self.effort(callee);
            }
        }
        sum
    }

    fn split(&self, node: u32, rows: &mut Vec<Row>) {
        let callees = self.callees(node);
        let rest = self.rest(node, &callees);
        if callees.is_empty() || effort(&rest) as f64 >= self.least {
            self.push(node, &callees, rows);
        }
        for callee in callees {
            self.choose(callee, rows);
        }
    }

    /// A row for what `node` has beside these callees.
    fn push(&self, node: u32, callees: &[u32], rows: &mut Vec<Row>) {
        let (all, name) = self.waits[node as usize];
        let elsewhere = callees.iter().map(|c| self.waits[*c as usize].0);
        let waits = elsewhere.fold(all, i64::saturating_sub);
        let values = self.rest(node, callees);
        let (name_shown, place) = self.name(node);
        rows.push(Row {
            node,
            name: name_shown,
            place,
            rest: !callees.is_empty(),
            verdict: self.verdict_of(&values, (waits, name)),
            values,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_cells() {
        let t = Thresholds::default();
        assert_eq!(Verdict::of(&[80, 10, 5], t), Verdict::Effective);
        assert_eq!(Verdict::of(&[80, 5, 15], t), Verdict::Coarsen);
        assert_eq!(Verdict::of(&[60, 35, 5], t), Verdict::Refine);
        assert_eq!(Verdict::of(&[40, 40, 20], t), Verdict::Change);
        assert_eq!(Verdict::of(&[0, 0, 0], t), Verdict::Effective);
    }
}
