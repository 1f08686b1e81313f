//! The JSON of a view (schema `hpcprof-rs/view/1`), typed, and what must hold for every view.
//!
//! Input: the text that `hpcprof-rs VIEW DATABASE --format json` prints. Unknown keys are accepted,
//! missing ones are not: that is the schema test.

use serde::Deserialize;
use std::collections::BTreeMap;

/// Bytes of stack for the parser, which recurses as deep as the profiled program did.
const PARSER_STACK: usize = 1 << 28;

/// Metric name to seconds.
pub type Values = BTreeMap<String, f64>;

/// A view.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)] // the fields are those of FORMATS.md
pub struct View {
    pub schema: String,
    pub view: String,
    pub unit: String,
    pub cores: u32,
    pub metrics: Vec<String>,
    pub totals: Values,
    pub quality: Quality,
    pub roots: Vec<Node>,
}

/// How much of what was sampled the view stands on.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Quality {
    pub samples: u64,
    pub rooted: u64,
    pub lost: BTreeMap<String, u64>,
    pub spawnerless: u64,
    #[serde(default)]
    pub missing: Vec<Missing>,
    pub unknown_lock_wait_seconds: f64,
}

/// Seconds of CPU time that no sample stands for.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Missing {
    pub what: String,
    pub seconds: f64,
}

/// What is known of a parallel loop's tasks.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct ParallelLoop {
    pub entry: String,
    #[serde(deserialize_with = "present")]
    pub splits: Option<u64>,
    #[serde(deserialize_with = "present")]
    pub steals: Option<u64>,
    #[serde(deserialize_with = "present")]
    pub stolen_seconds: Option<f64>,
    #[serde(deserialize_with = "present")]
    pub mean_task_seconds: Option<f64>,
    #[serde(deserialize_with = "present")]
    pub mean_stolen_task_seconds: Option<f64>,
    pub shared_by: u32,
}

/// A node of a view's tree.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Node {
    pub kind: String,
    pub name: String,
    #[serde(deserialize_with = "present")]
    pub module: Option<String>,
    #[serde(deserialize_with = "present")]
    pub file: Option<String>,
    #[serde(deserialize_with = "present")]
    pub line: Option<u64>,
    pub inclusive: Values,
    pub exclusive: Values,
    #[serde(default)]
    pub parallel_loop: Option<ParallelLoop>,
    pub children: Vec<Node>,
}

/// An optional value whose key must be there all the same.
fn present<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

/// The value of a metric, 0 when absent.
pub fn value(values: &Values, metric: &str) -> f64 {
    values.get(metric).copied().unwrap_or(0.0)
}

/// Panics unless `measured` seconds are as near to the truth as `allowed`.
pub fn assert_close(what: &str, measured: f64, truth: f64, allowed: f64) {
    assert!(
        (measured - truth).abs() <= allowed,
        "{what}: measured {measured:.4} s, truth {truth:.4} s, allowed {allowed:.4} s"
    );
}

impl Node {
    /// Seconds in which a core was busy right here: work and overhead.
    pub fn busy(&self) -> f64 {
        value(&self.exclusive, "work") + value(&self.exclusive, "overhead")
    }

    /// Calls `visit` for this node and all below it, with the nodes above, outermost first.
    pub fn walk<'a>(&'a self, above: &mut Vec<&'a Node>, visit: &mut dyn FnMut(&[&'a Node], &'a Node)) {
        visit(above, self);
        above.push(self);
        for child in &self.children {
            child.walk(above, visit);
        }
        above.pop();
    }
}

impl View {
    /// Reads the JSON text of a view.
    pub fn parse(json: &str) -> View {
        // A deep recursion makes deep JSON: no depth limit, and a stack to match.
        let parse = || {
            let mut deserializer = serde_json::Deserializer::from_str(json);
            deserializer.disable_recursion_limit();
            View::deserialize(&mut deserializer)
        };
        let parsed = std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().stack_size(PARSER_STACK);
            let thread = builder.spawn_scoped(scope, parse);
            thread.expect("a thread starts").join()
        });
        parsed.expect("parsing does not panic").unwrap_or_else(|e| {
            let start: String = json.chars().take(300).collect();
            panic!("the view is not as FORMATS.md states it: {e}\n{start}")
        })
    }

    /// Calls `visit` for every node, with the nodes above it, outermost first.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&[&'a Node], &'a Node)) {
        for root in &self.roots {
            root.walk(&mut Vec::new(), visit);
        }
    }

    /// Inclusive seconds of `metric` over the outermost nodes named `name`.
    pub fn inclusive(&self, name: &str, metric: &str) -> f64 {
        self.inclusive_under(&[name], metric)
    }

    /// Inclusive seconds of `metric` over the outermost nodes named as the last of `path`, those
    /// above it containing the rest of `path` in this order.
    pub fn inclusive_under(&self, path: &[&str], metric: &str) -> f64 {
        let (name, rest) = path.split_last().expect("a path has a name");
        let mut sum = 0.0;
        self.walk(&mut |above, node| {
            let outermost = node.name == *name && above.iter().all(|n| n.name != *name);
            if outermost && is_subsequence(rest, above) {
                sum += value(&node.inclusive, metric);
            }
        });
        sum
    }

    /// Sum of the exclusive seconds of `metric` over all nodes.
    pub fn exclusive_sum(&self, metric: &str) -> f64 {
        let mut sum = 0.0;
        self.walk(&mut |_, node| sum += value(&node.exclusive, metric));
        sum
    }

    /// Every distinct name, for messages.
    pub fn names(&self) -> Vec<String> {
        let mut names = std::collections::BTreeSet::new();
        self.walk(&mut |_, node| {
            names.insert(node.name.clone());
        });
        names.into_iter().collect()
    }

    /// Samples that are lost or partial, by the quality line.
    pub fn unrooted(&self) -> u64 {
        self.quality.lost.values().sum()
    }

    /// Panics unless there are more than `least` samples, at least 99.9 % of them are rooted, and each
    /// of the others has a cause.
    pub fn assert_rooted(&self, least: u64) {
        let quality = &self.quality;
        assert!(quality.samples > least, "there are samples: {quality:?}");
        assert!(quality.rooted as f64 >= 0.999 * quality.samples as f64, "not rooted: {quality:?}");
        assert!(
            self.unrooted() >= quality.samples - quality.rooted,
            "every sample that is not rooted has a cause: {quality:?}"
        );
    }

    /// Panics unless totals, roots, exclusives and inclusive values agree for every metric.
    pub fn assert_conserved(&self) {
        for metric in &self.metrics {
            let total = value(&self.totals, metric);
            let tolerance = 1e-6 + 1e-6 * total.abs();
            let near = |what: &str, sum: f64| {
                assert!(
                    (sum - total).abs() <= tolerance,
                    "{} view, {metric}: {what} are {sum} s, the total is {total} s",
                    self.view
                );
            };
            near("the exclusive values", self.exclusive_sum(metric));
            near("the roots' inclusive values", self.roots.iter().map(|r| value(&r.inclusive, metric)).sum());
            self.walk(&mut |above, node| self.assert_node(metric, above, node));
        }
        let split: f64 = self
            .totals
            .iter()
            .filter(|(name, _)| name.starts_with("overhead:"))
            .map(|(_, seconds)| seconds)
            .sum();
        let overhead = value(&self.totals, "overhead");
        assert!(
            (split - overhead).abs() <= 1e-6 + 1e-6 * overhead,
            "{} view: the categories sum to {split} s of {overhead} s overhead",
            self.view
        );
    }

    fn assert_node(&self, metric: &str, above: &[&Node], node: &Node) {
        let (inclusive, exclusive) = (value(&node.inclusive, metric), value(&node.exclusive, metric));
        assert!(
            inclusive.is_finite() && inclusive >= -1e-9 && exclusive >= -1e-9,
            "{}: {metric} is not a time: {inclusive}, {exclusive}",
            node.name
        );
        let below: f64 = node.children.iter().map(|c| value(&c.inclusive, metric)).sum();
        // Bottom-up, the children divide the node's cost by caller; what remains has no caller.
        let sum = if self.view == "bottom-up" { below.max(inclusive) } else { exclusive + below };
        assert!(
            (inclusive - sum).abs() <= 1e-6 + 1e-6 * inclusive,
            "{} view, {} at depth {}: {metric} inclusive {inclusive} s, parts {sum} s",
            self.view,
            node.name,
            above.len()
        );
    }
}

/// Whether `names` occur among the nodes' names in this order.
fn is_subsequence(names: &[&str], nodes: &[&Node]) -> bool {
    let mut nodes = nodes.iter();
    names.iter().all(|name| nodes.any(|node| node.name == *name))
}
