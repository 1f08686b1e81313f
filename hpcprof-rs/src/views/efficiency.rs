//! The efficiency table (paper, table 1) applied to the contexts that matter.
//!
//! A context is chosen so that each row stands for cost of its own: wrappers around one callee
//! are passed through, and a context is split into its callees where these differ from it.

use crate::model::symbols::Kind;
use crate::views::load::{Database, effort};
use crate::views::tree::{Label, View, add_all};
use hpc_formats::structure::Origin;

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
    pub fn advice(self) -> &'static str {
        match self {
            Verdict::Effective => "effective: tune serial code",
            Verdict::Coarsen => "coarsen the tasks",
            Verdict::Refine => "refine: more parallelism",
            Verdict::Change => "change the parallelisation",
        }
    }
}

/// One context that matters.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Node of the view.
    pub node: u32,
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

/// The rows for a top-down view of the logical projection, largest effort first.
pub fn rows(view: &View, database: &Database, thresholds: Thresholds) -> Vec<Row> {
    let chooser = Chooser {
        view,
        database,
        thresholds,
        least: (effort(&view.totals) as f64 * LEAST_SHARE).max(1.0),
    };
    let mut rows = Vec::new();
    let mut top = Vec::new();
    for root in &view.roots {
        if view.nodes[*root as usize].kind != Kind::Partial.name() {
            chooser.user_nodes(*root, &mut top);
        }
    }
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

struct Chooser<'a> {
    view: &'a View,
    database: &'a Database,
    thresholds: Thresholds,
    least: f64,
}

impl Chooser<'_> {
    fn effort(&self, node: u32) -> f64 {
        effort(self.view.inclusive_of(node)) as f64
    }

    fn is_user(&self, node: u32) -> bool {
        match self.view.nodes[node as usize].label {
            Label::Procedure(p) => self.database.procedures[p as usize].origin == Origin::User,
            Label::ParallelLoop(_) => true,
            _ => false,
        }
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

    fn is_closure(&self, node: u32) -> bool {
        match self.view.nodes[node as usize].label {
            Label::Procedure(p) => {
                let name = &self.database.procedures[p as usize].name;
                name.rsplit("::")
                    .next()
                    .is_some_and(|last| last.starts_with("{closure"))
                    || name.ends_with("{{closure}}")
            }
            _ => false,
        }
    }

    /// Rows for the cost at and below `node`, which others do not have.
    fn choose(&self, node: u32, rows: &mut Vec<Row>) {
        let chain = self.chain(node);
        let end = chain.last().copied().unwrap_or(node);
        let verdict = Verdict::of(self.view.inclusive_of(end), self.thresholds);
        if self.different(end, verdict) >= self.effort(end) * DIFFERENT_SHARE {
            self.split(end, rows);
            return;
        }
        // Of a chain of wrappers the outermost named procedure tells most: further in, they
        // tend to be the same for all callers.
        let named = chain.iter().copied().find(|n| !self.is_closure(*n));
        let node = named.unwrap_or(end);
        self.push(node, false, self.view.inclusive_of(node).to_vec(), rows);
    }

    /// The effort of the outermost callees below `node` whose verdict is another.
    fn different(&self, node: u32, verdict: Verdict) -> f64 {
        let mut sum = 0.0;
        let mut stack = self.callees(node);
        while let Some(callee) = stack.pop() {
            let values = self.view.inclusive_of(callee);
            if Verdict::of(values, self.thresholds) == verdict {
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
            self.push(node, !callees.is_empty(), rest, rows);
        }
        for callee in callees {
            self.choose(callee, rows);
        }
    }

    fn push(&self, node: u32, rest: bool, values: Vec<i64>, rows: &mut Vec<Row>) {
        rows.push(Row {
            node,
            rest,
            verdict: Verdict::of(&values, self.thresholds),
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
