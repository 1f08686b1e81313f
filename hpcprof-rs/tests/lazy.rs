//! A view that is read from the stored tree as far as it shows it is the view of the whole tree.

use crate::support::random;
use crate::support::*;
use fastrand::Rng;
use hpcprof_rs::catalogue::metrics::MetricSelector;
use hpcprof_rs::catalogue::{Catalogue, Projection};
use hpcprof_rs::views::fold::{FoldOptions, fold};
use hpcprof_rs::views::prune::{Limits, prune};
use hpcprof_rs::views::top_down;
use hpcprof_rs::views::view::View;

/// All nodes in the order of printing, with everything that a user sees.
fn nodes(view: &View) -> Vec<String> {
    let line = |(id, depth): (u32, usize)| {
        let node = view.node(id);
        let values = (view.inclusive.of(id), view.exclusive.of(id));
        let what = (node.kind, node.label, node.call, node.recursion);
        format!("{depth} {what:?} {values:?}")
    };
    view.preorder().map(line).collect()
}

#[test]
fn what_is_read_lazily_is_what_is_read_whole() {
    let mut random = Rng::with_seed(7);
    let mut compared = 0;
    for seed in 1..=12 {
        let run = random::run(seed, 4, 150);
        let database = database(&run);
        let catalogue = Catalogue::open(&database).expect("the database");
        let tree = catalogue.contexts(Projection::Logical).expect("contexts");
        let tree = fold(&tree, &catalogue.code, FoldOptions::STORED);
        for metric in [
            MetricSelector::Effort,
            MetricSelector::Metric(0),
            MetricSelector::Metric(1),
            MetricSelector::Metric(catalogue.metrics.len() - 1),
        ] {
            for _ in 0..6 {
                let limits = Limits {
                    depth: random.bool().then(|| random.usize(1..9)),
                    threshold: random.bool().then(|| f64::from(random.u8(..40)) / 4.0),
                };
                let mut whole = top_down::arrange(&tree);
                whole.sort(metric);
                let whole = prune(whole, limits, metric);
                let lazy = top_down::stored(&catalogue, limits, metric).expect("a view");
                assert_eq!(lazy.totals, whole.totals);
                assert_eq!(
                    nodes(&lazy),
                    nodes(&whole),
                    "seed {seed}, {limits:?}, {metric:?}"
                );
                compared += whole.nodes.len();
            }
        }
    }
    assert!(compared > 10_000, "only {compared} nodes");
}
