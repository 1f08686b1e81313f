//! Compares two databases: every context with what it has in a run of each, the difference with its standard
//! error, and whether that is more than chance.
//!
//! Contexts are the same if their keys are. A database with several runs stands for their mean, and what it
//! errs by follows from how they differ, at least from sampling. How runs differ is not known of one run: as
//! much as all code seems faster or slower is assumed, in bounds. So one change in much code is told from a
//! machine that was slower. Of many comparisons those count that the rule of Benjamini and Hochberg leaves.

use crate::catalogue::Catalogue;
use crate::catalogue::folded::FoldedContext;
use crate::catalogue::keyed::{Ranges, add_range};
use crate::catalogue::metrics::{EFFORT, FIXED, effort};
use crate::error::Result;
use crate::model::code::Code;
use crate::model::hash::{FastMap, NumberedMap, NumberedSet};
use crate::model::keys;
use crate::model::tree::{Label, add_all};
use hpcstruct_rs::parallel;
use std::cmp::Reverse;
use std::path::Path;

/// The metrics that are compared.
pub const METRICS: [&str; 4] = [FIXED[0], FIXED[1], FIXED[2], EFFORT];
/// Of the differences that are called significant, at most this share is chance.
pub const CHANCE: f64 = 0.001;
/// How much single runs of one program differ, at least and at most: a share of each value.
pub const VARIATION: (f64, f64) = (0.02, 0.10);

/// Values by metric, nanoseconds.
pub type Amounts = [f64; METRICS.len()];

/// A value in both databases.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Compared {
    /// In a run of each database.
    pub values: [Amounts; 2],
    /// Standard error of the difference.
    pub error: Amounts,
    pub is_significant: bool,
}

impl Compared {
    /// What the second has more than the first.
    pub fn difference(&self, metric: usize) -> f64 {
        self.values[1][metric] - self.values[0][metric]
    }
}

/// A context, or several of one key.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    pub key: i64,
    /// The node around it.
    pub parent: Option<usize>,
    /// The database whose names it has.
    pub names: usize,
    pub label: Label,
    /// Which databases have it.
    pub is_in: [bool; 2],
    /// Its inclusive values.
    pub compared: Compared,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Diff {
    pub runs: [usize; 2],
    /// By how much single runs are taken to differ; `None` where both databases have several.
    pub variation: Option<f64>,
    /// All contexts together.
    pub total: Compared,
    /// The contexts, parents first.
    pub nodes: Vec<Node>,
    /// Procedures, and parallel loops: what they have without what they call, whoever calls them.
    pub procedures: Vec<Node>,
}

/// Procedures and parallel loops by the key of the name, with what they have without what they call.
type Procedures = FastMap<i64, (Label, Vec<i64>)>;

/// What a database has.
struct Known {
    procedures: Procedures,
    /// Key and last row of each context.
    contexts: Vec<(i64, i64)>,
    /// By context the key of its name, or of a loop of what is around it.
    names: Vec<i64>,
}

/// What one database says of a context or a procedure.
#[derive(Clone, Copy, Default)]
struct Measured {
    mean: Amounts,
    /// Of the mean.
    variance: Amounts,
    /// The part of it that is known from few runs.
    by_runs: Amounts,
}

/// Compares databases. Contexts with less than a percentage of the effort in both are left out.
pub fn diff(databases: [&Catalogue; 2], threshold: f64) -> Result<Diff> {
    let mut nodes: NumberedMap<i64, Node> = NumberedMap::default();
    let mut procedures: NumberedMap<i64, Node> = NumberedMap::default();
    let [a, b] = databases.map(|catalogue| &catalogue.path);
    let (a, b) = parallel::both(2, || known_of(a), || known_of(b));
    let known = [a?, b?];
    for (side, catalogue) in databases.into_iter().enumerate() {
        let least = effort(&catalogue.totals()?) as f64 * threshold / 100.0;
        find((side, catalogue), least, &mut nodes)?;
        find_procedures((side, &known[side].procedures), least, &mut procedures);
    }
    let runs = databases.map(|catalogue| catalogue.statistics.runs.max(1));
    let mut measured = [Vec::new(), Vec::new()];
    for (side, catalogue) in databases.into_iter().enumerate() {
        measured[side] =
            measure((side, catalogue), (runs[side], &known[side]), (&mut nodes, &mut procedures))?;
    }
    let own = |side: usize| own_parts(&nodes, &measured[side]);
    let is_single = runs.map(|runs| runs == 1);
    let scale = scale(own(0).into_iter().zip(own(1)));
    let variation = scale.clamp(VARIATION.0, VARIATION.1);
    for (measured, _) in measured.iter_mut().zip(is_single).filter(|(_, is_single)| *is_single) {
        for of in measured {
            for (variance, mean) in of.variance.iter_mut().zip(of.mean) {
                *variance += (mean * variation).powi(2);
            }
        }
    }
    let [a, b] = &measured;
    let compared = a.iter().zip(b).map(|(a, b)| compare(a, b, runs));
    let (mut compared, freedom): (Vec<Compared>, Vec<Amounts>) = compared.unzip();
    mark_significant(&mut compared, &freedom);
    let total = compared.pop().unwrap_or_default();
    let mut compared = compared.into_iter();
    let mut with = |nodes: NumberedMap<i64, Node>| -> Vec<Node> {
        let nodes = nodes.into_values().zip(compared.by_ref());
        nodes.map(|(node, compared)| Node { compared, ..node }).collect()
    };
    let variation = is_single.contains(&true).then_some(variation);
    Ok(Diff { runs, variation, total, nodes: with(nodes), procedures: with(procedures) })
}

/// Keeps so many of those that differ, with the largest differences of effort, in their order; how many more
/// differ.
pub fn keep_largest(nodes: &mut [Node], most: usize) -> usize {
    let size = |at: &usize| nodes[*at].compared.difference(METRICS.len() - 1).abs();
    let is_different = |at: &usize| nodes[*at].compared.values[0] != nodes[*at].compared.values[1];
    let mut different: Vec<usize> = (0..nodes.len()).filter(is_different).collect();
    let more = different.len().saturating_sub(most);
    different.sort_by(|a, b| size(b).total_cmp(&size(a)).then(a.cmp(b)));
    // The others count as equal: the nodes around what is kept still have their keys.
    different.drain(..different.len() - more);
    for at in different {
        let compared = &mut nodes[at].compared;
        compared.values[1] = compared.values[0];
    }
    more
}

/// Adds the contexts of a database that have enough effort.
fn find(
    (side, catalogue): (usize, &Catalogue),
    least: f64,
    nodes: &mut NumberedMap<i64, Node>,
) -> Result<()> {
    let mut work: Vec<(Option<FoldedContext>, Option<usize>)> = vec![(None, None)];
    while let Some((caller, parent)) = work.pop() {
        let mut below = catalogue.callees(caller.as_ref())?;
        below.retain(|context| effort(&context.inclusive) as f64 >= least);
        for context in below {
            let (key, label) = (context.key, context.node.label);
            let (is_in, compared) = ([false; 2], Compared::default());
            let node = nodes.entry(key);
            let at = node.index();
            node.or_insert(Node { key, parent, names: side, label, is_in, compared });
            work.push((Some(context), Some(at)));
        }
    }
    Ok(())
}

/// The key of the name of a procedure or a parallel loop.
fn name_key(label: Label, code: &Code) -> i64 {
    let name = match (label.parallel_loop(code), label.code(code)) {
        (Some(known), _) => known.name.as_str(),
        (None, known) => known.map_or("", |known| &known.name),
    };
    keys::of_name(name) as i64
}

/// What a database says of its contexts and procedures.
fn known_of(path: &Path) -> Result<Known> {
    // A connection is of one thread.
    let catalogue = &Catalogue::open(path)?;
    let mut labels: NumberedSet<Label> = NumberedSet::default();
    let mut of: Vec<u32> = Vec::new();
    let contexts = catalogue.each_context(|node, last, key| {
        of.push(match node.parent.filter(|_| node.label.is_loop()) {
            Some(around) => of[around as usize],
            None => labels.insert_full(node.label).0 as u32,
        });
        (key, last)
    })?;
    let sums = catalogue.folded_sums(&of, labels.len())?;
    let names: Vec<i64> = labels.iter().map(|label| name_key(*label, &catalogue.code)).collect();
    let mut procedures = Procedures::default();
    for ((number, label), name) in (0..).zip(labels).zip(&names) {
        let values = sums.of(number);
        if values.iter().any(|value| *value != 0) {
            add_all(&mut procedures.entry(*name).or_insert((label, vec![0; values.len()])).1, values);
        }
    }
    Ok(Known { procedures, contexts, names: of.iter().map(|number| names[*number as usize]).collect() })
}

/// Adds the procedures of a database that have enough effort.
fn find_procedures((side, known): (usize, &Procedures), least: f64, nodes: &mut NumberedMap<i64, Node>) {
    let mut found: Vec<_> = known.iter().collect();
    found.retain(|(_, (_, values))| effort(values) as f64 >= least);
    found.sort_by_key(|(key, (_, values))| (Reverse(effort(values)), **key));
    for (key, (label, _)) in found {
        let (is_in, compared) = ([false; 2], Compared::default());
        let node = Node { key: *key, parent: None, names: side, label: *label, is_in, compared };
        nodes.entry(*key).or_insert(node);
    }
}

/// What a database says of each context, each procedure, and of all contexts.
fn measure(
    (side, catalogue): (usize, &Catalogue),
    (runs, known): (usize, &Known),
    (nodes, by_name): (&mut NumberedMap<i64, Node>, &mut NumberedMap<i64, Node>),
) -> Result<Vec<Measured>> {
    let mut ranges = vec![Ranges::new(); nodes.len()];
    for (row, (key, last)) in (1..).zip(&known.contexts) {
        if let Some(at) = nodes.get_index_of(key) {
            add_range(&mut ranges[at], (row, *last));
        }
    }
    for (node, ranges) in nodes.values_mut().zip(&ranges) {
        node.is_in[side] = !ranges.is_empty();
    }
    let errors = catalogue.errors();
    let period = catalogue.statistics.period_ns as f64;
    let totals = catalogue.totals()?;
    let of = |values: &[i64]| {
        let mut of = Measured::default();
        for metric in 0..METRICS.len() {
            let known = (metric < FIXED.len()).then_some(metric);
            let amount = known.map_or_else(|| effort(values), |metric| values[metric]);
            let error = errors.of_part(known, values, &totals).unwrap_or(0.0);
            of.mean[metric] = amount as f64 / runs as f64;
            // One sample more or less is chance, also where there is none.
            of.variance[metric] = (error.powi(2) + period.powi(2)) / (runs as f64).powi(2);
        }
        of
    };
    let all = ranges.iter().map(|ranges| Ok(of(&catalogue.inclusive_in(ranges)?)));
    let mut all: Vec<Measured> = all.collect::<Result<_>>()?;
    for (key, node) in by_name.iter_mut() {
        let values = known.procedures.get(key).map(|(_, values)| values);
        node.is_in[side] = values.is_some();
        all.push(values.map_or_else(|| of(&vec![0; totals.len()]), |values| of(values)));
    }
    all.push(of(&totals));
    if runs > 1 {
        let first = ranges.len();
        ranges.resize(first + by_name.len(), Ranges::new());
        for (row, name) in (1..).zip(&known.names) {
            if let Some(at) = by_name.get_index_of(name) {
                ranges[first + at].push((row, row));
            }
        }
        ranges.push(vec![(1, i64::MAX)]);
        let by_run = catalogue.by_run(&ranges)?;
        for (at, of) in all.iter_mut().enumerate() {
            for metric in 0..METRICS.len() {
                let value = |sums: &[i64; FIXED.len()]| match sums.get(metric) {
                    Some(value) => *value as f64,
                    None => effort(sums) as f64,
                };
                let squares = by_run.iter().map(|run| (value(&run[at]) - of.mean[metric]).powi(2));
                let variance = squares.sum::<f64>() / (runs - 1) as f64 / runs as f64;
                if variance > of.variance[metric] {
                    (of.variance[metric], of.by_runs[metric]) = (variance, variance);
                }
            }
        }
    }
    Ok(all)
}

/// The effort of each node beside that of the nodes below it.
fn own_parts(nodes: &NumberedMap<i64, Node>, measured: &[Measured]) -> Vec<f64> {
    let mut own: Vec<f64> = measured.iter().map(|of| of.mean[METRICS.len() - 1]).collect();
    own.truncate(nodes.len());
    for (node, of) in nodes.values().zip(measured) {
        if let Some(parent) = node.parent {
            own[parent] -= of.mean[METRICS.len() - 1];
        }
    }
    own
}

/// By how much half of the code seems to be faster or slower: the middle logarithm of the quotients, each
/// with the weight of its values.
fn scale(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let pairs = pairs.filter(|(a, b)| *a > 0.0 && *b > 0.0);
    let mut quotients: Vec<(f64, f64)> = pairs.map(|(a, b)| ((b / a).ln(), a.min(b))).collect();
    quotients.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all: f64 = quotients.iter().map(|(_, weight)| weight).sum();
    let mut below = 0.0;
    let middle = quotients.iter().find(|(_, weight)| {
        below += weight;
        below * 2.0 >= all
    });
    middle.map_or(0.0, |(quotient, _)| quotient.abs())
}

/// The comparison, and the degrees of freedom of its errors by Welch and Satterthwaite: infinite where they
/// are those of sampling.
fn compare(a: &Measured, b: &Measured, runs: [usize; 2]) -> (Compared, Amounts) {
    let mut compared = Compared { values: [a.mean, b.mean], ..Compared::default() };
    let mut freedom = Amounts::default();
    for (metric, freedom) in freedom.iter_mut().enumerate() {
        let variance = a.variance[metric] + b.variance[metric];
        let by_runs = [a, b].into_iter().zip(runs);
        let by_runs = by_runs.map(|(of, runs)| of.by_runs[metric].powi(2) / (runs as f64 - 1.0).max(1.0));
        compared.error[metric] = variance.sqrt();
        *freedom = variance.powi(2) / by_runs.sum::<f64>();
    }
    (compared, freedom)
}

/// Marks what is more than chance, by the rule of Benjamini and Hochberg over all values.
fn mark_significant(all: &mut [Compared], freedom: &[Amounts]) {
    let mut tests: Vec<(f64, usize)> = Vec::new();
    for (at, (of, freedom)) in all.iter().zip(freedom).enumerate() {
        for (metric, freedom) in freedom.iter().enumerate() {
            if of.values[0][metric] != 0.0 || of.values[1][metric] != 0.0 {
                let ratio = of.difference(metric) / of.error[metric].max(f64::MIN_POSITIVE);
                tests.push((chance_of(ratio, *freedom), at));
            }
        }
    }
    tests.sort_by(|a, b| a.0.total_cmp(&b.0));
    let count = tests.len() as f64;
    let is_left = |(rank, (chance, _)): (f64, &(f64, usize))| *chance <= CHANCE * rank / count;
    let ranks = (1..).map(f64::from);
    let last = ranks.zip(&tests).collect::<Vec<_>>().into_iter().rposition(is_left);
    for (_, at) in &tests[..last.map_or(0, |last| last + 1)] {
        all[*at].is_significant = true;
    }
}

/// How likely chance alone makes a difference of so many standard errors, up or down. With few runs, of which
/// the error is known by degrees of freedom, Wallace's approximation of Student's distribution.
pub fn chance_of(ratio: f64, freedom: f64) -> f64 {
    let errors = match freedom {
        n if n < 1e6 => (8.0 * n + 1.0) / (8.0 * n + 3.0) * (n * (ratio * ratio / n).ln_1p()).sqrt(),
        _ => ratio.abs(),
    };
    // The complement of the error function, by Chebyshev's polynomials; off by a ten-millionth at most.
    let x = errors / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * x);
    const TERMS: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let sum = TERMS.iter().rev().fold(0.0, |sum, term| sum * t + term);
    t * (sum - x * x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_is_that_of_the_tables() {
        for (ratio, freedom, chance) in [
            (0.0, f64::INFINITY, 1.0),
            (1.959_964, f64::INFINITY, 0.05),
            (-3.290_527, f64::INFINITY, 0.001),
            (2.228_139, 10.0, 0.05),
            (4.604_095, 4.0, 0.01),
        ] {
            let found = chance_of(ratio, freedom);
            assert!((found / chance - 1.0).abs() < 0.06, "{ratio}, {freedom}: {found}");
        }
    }

    #[test]
    fn a_slower_machine_is_told_from_one_change() {
        let slower = [(1.0, 1.2), (5.0, 6.0), (2.0, 2.4)];
        assert!((scale(slower.into_iter()) - 1.2_f64.ln()).abs() < 1e-9);
        assert_eq!(scale([(1.0, 1.0), (5.0, 5.0), (2.0, 9.0)].into_iter()), 0.0);
        assert_eq!(scale([].into_iter()), 0.0);
    }

    #[test]
    fn chance_is_shared_by_all_comparisons() {
        let of = |ratio: f64| Compared {
            values: [[0.0; 4], [ratio, 0.0, 0.0, 0.0]],
            error: [1.0; 4],
            is_significant: false,
        };
        // Alone 3.5 standard errors are enough, beside a thousand others they are not.
        let mut few = [of(3.5)];
        mark_significant(&mut few, &[[f64::INFINITY; 4]]);
        assert!(few[0].is_significant);
        let mut many = vec![of(3.5); 1];
        many.resize(1000, of(0.5));
        many.push(of(6.0));
        mark_significant(&mut many, &[[f64::INFINITY; 4]; 1001]);
        let marked: Vec<bool> = many.iter().map(|of| of.is_significant).collect();
        assert_eq!((marked[0], marked[1000], marked[1]), (false, true, false));
    }
}
