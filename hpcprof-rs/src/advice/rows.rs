//! Chooses the contexts that matter: the rows of the first screen.
//!
//! Each row stands for cost of its own: wrappers around one callee are passed through, and a context is
//! split into its callees where their verdicts differ from its own, or where it has so much that they divide
//! the program's time. Rows are the user's procedures. What libraries and scaffolding cost is part of them,
//! unless most of the program is that. Contexts that differ only in such code are one row.

use crate::advice::efficiency::{Thresholds, Verdict};
use crate::advice::owners::{Owner, enclosing, is_interpreter, owners};
use crate::catalogue::Catalogue;
use crate::catalogue::metrics::{busy, effort, sum};
use crate::error::one_line;
use crate::model::code::{Code, Procedure};
use crate::model::tree::{Label, add_all};
use crate::render::names;
use crate::views::view::View;
use hpc_formats::structure::{Origin, SPIN_LOOP};
use hpcstruct_rs::known;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// One context that matters.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The user's procedure, or the parallel loop, that it is.
    pub name: String,
    /// The node of the view whose location is shown.
    pub location: u32,
    /// Whether callees that have rows of their own are left out of its values.
    pub rest: bool,
    /// The procedure that has most of its work, if it is another one.
    pub mostly: Option<String>,
    pub values: Vec<i64>,
    pub verdict: Verdict,
    /// Of its time what goes into waiting without blocking.
    pub waits: TimeIn,
}

impl Row {
    pub fn place(&self, view: &View, code: &Code) -> String {
        let label = view.node(self.location).label;
        match (label.location(code), label.module(code)) {
            (Some(at), _) => names::location(code, at),
            (None, Some(module)) => one_line(names::base_name(module)),
            (None, None) => String::new(),
        }
    }

    /// Its name, with the procedure that has most of its work.
    pub fn called(&self) -> String {
        let mostly = self.mostly.as_ref().map_or(String::new(), |most| format!(" (mostly {most})"));
        one_line(&format!("{}{mostly}", self.name))
    }
}

/// Whether a procedure is known by its address alone.
pub fn is_unnamed(name: &str) -> bool {
    name.starts_with("?0x")
}

/// Least share of the total effort of a row.
const LEAST_SHARE: f64 = 0.01;
/// A context is a wrapper when its own part is below this share of it.
const WRAPPER_SHARE: f64 = 0.05;
/// A context is split when callees of another verdict hold this share of it.
const DIFFERENT_SHARE: f64 = 0.2;
/// A context with this share of the effort is split when several callees hold [`DIFFERENT_SHARE`] of it.
const LARGE_SHARE: f64 = 0.4;
/// A procedure has most of a row's work from this share on.
const MOST_SHARE: f64 = 0.5;

/// Owners are added until the rows' procedures hold this share of the effort.
const OWNED_SHARE: f64 = 0.5;

/// The rows for a top-down view of the logical projection, largest effort first.
pub fn rows(view: &View, catalogue: &Catalogue, thresholds: Thresholds) -> Vec<Row> {
    let mut chooser = Chooser {
        view,
        catalogue,
        thresholds,
        least: (effort(&view.totals) as f64 * LEAST_SHARE).max(1.0),
        owners: owners(catalogue),
        shown: Owner::Program,
        waits: time_in(view, catalogue, known::Kind::Wait),
    };
    chooser.mark_clock_helpers();
    let is_whole = |root: &&u32| !matches!(view.node(**root).label, Label::Partial(_));
    let roots: Vec<u32> = view.roots.iter().filter(is_whole).copied().collect();
    let programs = catalogue.statistics.executables.iter().map(|path| names::base_name(path));
    let interpreter = programs.into_iter().find(|program| is_interpreter(program));
    let mut top = Vec::new();
    for shown in [Owner::Program, Owner::Library, Owner::Scaffold] {
        chooser.shown = shown;
        top.clear();
        for root in &roots {
            chooser.user_nodes(*root, &mut top);
        }
        let owned: f64 = top.iter().map(|node| chooser.effort(*node)).sum();
        let is_native = interpreter.is_some() && shown == Owner::Library;
        if owned >= effort(&view.totals) as f64 * OWNED_SHARE || is_native {
            break;
        }
    }
    let mut rows = Vec::new();
    if let [only] = top[..] {
        let chain = chooser.chain(only);
        let end = chain.last().copied().unwrap_or(only);
        match (chooser.callees(end).is_empty(), chain.get(1)) {
            // What is nearest to the program's entry is where it can be changed.
            (true, Some(outermost)) => chooser.choose(*outermost, &mut rows),
            _ => chooser.split(end, &mut rows),
        }
    } else {
        for node in top {
            chooser.choose(node, &mut rows);
        }
    }
    let mut rows = chooser.merged(rows);
    // The interpreter's own procedures say nothing of what a script does.
    let own = rows.iter().fold(view.totals.clone(), |mut own, row| {
        add_all(&mut own, &row.values.iter().map(|value| -value).collect::<Vec<_>>());
        own
    });
    if let (Some(program), Some(root)) = (interpreter, roots.first().filter(|_| effort(&own) > 0)) {
        let (name, verdict) = (format!("{program} itself"), chooser.verdict_of(&own, (0, "")));
        let row =
            Row { name, location: *root, rest: false, mostly: None, values: own, verdict, waits: (0, "") };
        rows.extend((effort(&row.values) as f64 >= chooser.least).then_some(row));
    }
    rows.sort_by_key(|r| Reverse(effort(&r.values)));
    rows
}

/// Time that a context spends in procedures of libc, nanoseconds, and the procedure with most of it.
pub type TimeIn = (i64, &'static str);

/// How much of each node's work and overhead lies in procedures of libc that are known as this; a loop that
/// only waits counts as a wait.
fn time_in(view: &View, catalogue: &Catalogue, what: known::Kind) -> Vec<TimeIn> {
    let known = |row: &Procedure| {
        let plain = row.name.split('@').next().unwrap_or(&row.name);
        let plain = plain.trim_start_matches('_');
        let found = known::find(what, plain).filter(|_| row.origin == Origin::System);
        found.map(|(_, name)| name)
    };
    let mut found: Vec<TimeIn> = vec![(0, ""); view.nodes.len()];
    for (id, node) in view.nodes.iter().enumerate().rev() {
        let spins = node.label.code(&catalogue.code).is_some_and(|own| own.name.starts_with(SPIN_LOOP));
        let name = match node.label {
            Label::Loop(_) => (spins && what == known::Kind::Wait).then_some("a loop"),
            label => label.procedure().and_then(|p| known(catalogue.code.procedure(p))),
        };
        let below = view.children[id].iter().map(|c| found[*c as usize]);
        let largest = below.clone().max_by_key(|(time, _)| *time);
        found[id] = match name {
            Some(name) => (busy(view.inclusive.of(id as u32)), name),
            None => (sum(below.map(|b| b.0)), largest.map_or("", |l| l.1)),
        };
    }
    found
}

/// The work and overhead of each procedure at and below these nodes, but for these callees.
pub fn own_time(view: &View, nodes: &[u32], callees: &[u32]) -> BTreeMap<u32, i64> {
    let mut own: BTreeMap<u32, i64> = BTreeMap::new();
    let mut stack: Vec<(u32, Option<u32>)> = nodes.iter().map(|node| (*node, None)).collect();
    while let Some((at, around)) = stack.pop() {
        let around = view.node(at).label.procedure().or(around);
        if let Some(procedure) = around {
            let sum = own.entry(procedure).or_default();
            *sum = sum.saturating_add(busy(view.exclusive.of(at)));
        }
        let below = view.children[at as usize].iter().filter(|c| !callees.contains(c));
        stack.extend(below.map(|c| (*c, around)));
    }
    own
}

struct Chooser<'a> {
    view: &'a View,
    catalogue: &'a Catalogue,
    thresholds: Thresholds,
    least: f64,
    owners: Vec<Owner>,
    /// Rows are about procedures of this owner and of the owners before it.
    shown: Owner,
    waits: Vec<TimeIn>,
}

impl Chooser<'_> {
    /// Makes helpers that spin by the clock scaffolding: those that several procedures call, or whose name
    /// says what they do.
    fn mark_clock_helpers(&mut self) {
        let clocks = time_in(self.view, self.catalogue, known::Kind::Clock);
        let mut users: BTreeMap<u32, (i64, BTreeSet<Option<u32>>)> = BTreeMap::new();
        let mut nearest: Vec<Option<u32>> = Vec::with_capacity(self.view.nodes.len());
        for (id, node) in self.view.nodes.iter().enumerate() {
            let caller = node.parent.and_then(|p| nearest[p as usize]);
            let own = node.label.procedure();
            let own = own.filter(|p| self.owners[*p as usize] != Owner::System);
            nearest.push(own.or(caller));
            if let Some(procedure) = own {
                let all = busy(self.view.inclusive.of(id as u32));
                let elsewhere = all.saturating_sub(clocks[id].0);
                let (balance, callers) = users.entry(procedure).or_default();
                *balance = balance.saturating_add(clocks[id].0.saturating_sub(elsewhere));
                callers.insert(caller.filter(|c| *c != procedure));
            }
        }
        for (procedure, (balance, callers)) in users {
            let name = &self.catalogue.code.procedure(procedure).name;
            let says = name.ends_with("now") || name.contains("clock");
            let is_called = !callers.contains(&None);
            if balance > 0 && is_called && (says || callers.len() > 1) {
                self.owners[procedure as usize] = Owner::Scaffold;
            }
        }
    }

    fn effort(&self, node: u32) -> f64 {
        effort(self.view.inclusive.of(node)) as f64
    }

    fn is_user(&self, node: u32) -> bool {
        match self.view.node(node).label {
            Label::Procedure(p) | Label::Inlined(p) => {
                let owner = self.owners[p as usize];
                let spins = || matches!(self.verdict(node), Verdict::Spins(_));
                owner <= self.shown || (owner == Owner::Library && spins())
            }
            Label::ParallelLoop(_) => true,
            // A loop is part of its procedure.
            _ => false,
        }
    }

    fn verdict(&self, node: u32) -> Verdict {
        self.verdict_of(self.view.inclusive.of(node), self.waits[node as usize])
    }

    /// The verdict for values, part of which is time in a wait.
    fn verdict_of(&self, values: &[i64], (waits, name): TimeIn) -> Verdict {
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
                stack.extend(&self.view.children[node as usize]);
            }
        }
    }

    fn callees(&self, node: u32) -> Vec<u32> {
        let mut out = Vec::new();
        for child in &self.view.children[node as usize] {
            self.user_nodes(*child, &mut out);
        }
        out
    }

    /// The values of `node` without those of `callees`.
    fn rest(&self, node: u32, callees: &[u32]) -> Vec<i64> {
        let mut rest = self.view.inclusive.of(node).to_vec();
        for callee in callees {
            let negative = self.view.inclusive.of(*callee).iter();
            let negative: Vec<i64> = negative.map(|v| v.saturating_neg()).collect();
            add_all(&mut rest, &negative);
        }
        rest
    }

    /// `from` and the contexts below it, through wrappers: contexts that do little but call one other.
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
        let procedure = self.view.node(node).label.procedure()?;
        Some(&self.catalogue.code.procedure(procedure).name)
    }

    fn is_closure(&self, node: u32) -> bool {
        let name = self.procedure_name(node);
        name.is_some_and(|name| enclosing(name) != name)
    }

    /// What a row about `node` is called, and the node that has its location. A closure is called by the
    /// procedure that it stands in.
    fn name(&self, node: u32) -> (String, u32) {
        let label = self.view.node(node).label;
        let Some(own) = self.procedure_name(node) else {
            return (enclosing(&names::label(&self.catalogue.code, label)).to_owned(), node);
        };
        let name = enclosing(own);
        let has_location = label.location(&self.catalogue.code).is_some();
        if name == own || (has_location && !name.is_empty()) {
            return (name.to_owned(), node);
        }
        let mut next = self.view.node(node).parent;
        while let Some(at) = next {
            let outer = self.procedure_name(at).filter(|_| self.is_user(at));
            match outer.map(enclosing) {
                Some(outer) if outer == name || (name.is_empty() && !outer.is_empty()) => {
                    return (outer.to_owned(), if has_location { node } else { at });
                }
                _ => next = self.view.node(at).parent,
            }
        }
        let name = if name.is_empty() { own } else { name };
        (name.to_owned(), node)
    }

    /// Adds rows for the cost at and below `node`.
    fn choose(&self, node: u32, rows: &mut Vec<Row>) {
        let chain = self.chain(node);
        let end = chain.last().copied().unwrap_or(node);
        let verdict = self.verdict(end);
        let splits = |part: f64| part >= self.effort(end) * DIFFERENT_SHARE;
        let is_large = self.effort(end) >= effort(&self.view.totals) as f64 * LARGE_SHARE;
        if splits(self.different(end, verdict)) || (is_large && self.divides(end)) {
            self.split(end, rows);
            return;
        }
        // The outermost named procedure of a chain of wrappers tells most: further in, wrappers tend to be
        // the same for all callers.
        let named = chain.iter().copied().find(|n| !self.is_closure(*n));
        let node = match self.shown {
            // An interpreter's entry tells nothing.
            Owner::Scaffold => end,
            _ => named.unwrap_or(end),
        };
        self.push(node, &[], rows);
    }

    /// Whether the time of `node` divides among several callees, at it or further down.
    fn divides(&self, node: u32) -> bool {
        let mut at = node;
        loop {
            let callees = self.callees(at);
            let held: f64 = callees.iter().map(|callee| self.effort(*callee)).sum();
            match callees[..] {
                _ if held < self.effort(at) * DIFFERENT_SHARE => return false,
                [only] => at = only,
                _ => return true,
            }
        }
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

    /// The procedure that has most of the work at and below `node`, but for these callees.
    fn most(&self, node: u32, callees: &[u32], work: i64) -> Option<String> {
        let own = own_time(self.view, &[node], callees);
        let (procedure, most) = own.into_iter().max_by_key(|(_, own)| *own)?;
        let is_most = most > 0 && most as f64 >= work as f64 * MOST_SHARE;
        let code = &self.catalogue.code;
        let Procedure { name, module, .. } = code.procedure(procedure);
        // A closure is called by the procedure that the row is about, or is unknown to who wrote it.
        let is_said = is_most && enclosing(name) == name;
        is_said.then(|| match module.filter(|_| is_unnamed(name)) {
            Some(module) => format!("{name} in {}", names::base_name(code.module(module))),
            None => name.split('@').next().unwrap_or(name).to_owned(),
        })
    }

    /// Rows of one procedure in one place as one, and the tasks of one join of a library.
    fn merged(&self, rows: Vec<Row>) -> Vec<Row> {
        let code = &self.catalogue.code;
        let label = |row: &Row| self.view.node(row.location).label;
        let place = |row: &Row| label(row).location(code);
        let is_task = |row: &Row| {
            label(row).parallel_loop(code).is_some() && names::label(code, label(row)) != row.name
        };
        let mut merged: Vec<Row> = Vec::with_capacity(rows.len());
        for row in rows {
            let is_at = |known: &Row| place(known) == place(&row) || (is_task(known) && is_task(&row));
            let is_same = |known: &&mut Row| known.name == row.name && is_at(known);
            match merged.iter_mut().find(is_same) {
                Some(known) => {
                    add_all(&mut known.values, &row.values);
                    known.rest |= row.rest;
                    known.waits = (known.waits.0.saturating_add(row.waits.0), known.waits.1.max(row.waits.1));
                    known.mostly = known.mostly.take().filter(|m| Some(m) == row.mostly.as_ref());
                    if known.verdict != row.verdict {
                        known.verdict = self.verdict_of(&known.values, known.waits);
                    }
                }
                None => merged.push(row),
            }
        }
        merged
    }

    /// A row for what `node` has beside these callees.
    fn push(&self, node: u32, callees: &[u32], rows: &mut Vec<Row>) {
        let (all, wait) = self.waits[node as usize];
        let elsewhere = sum(callees.iter().map(|c| self.waits[*c as usize].0));
        let values = self.rest(node, callees);
        let (name, location) = self.name(node);
        let waits = (all.saturating_sub(elsewhere), wait);
        let verdict = self.verdict_of(&values, waits);
        let spins = matches!(verdict, Verdict::Spins(_));
        let most = self.most(node, callees, busy(&values));
        rows.push(Row {
            mostly: most.filter(|most| *most != name && !spins),
            name,
            location,
            rest: !callees.is_empty(),
            verdict,
            values,
            waits,
        });
    }
}
