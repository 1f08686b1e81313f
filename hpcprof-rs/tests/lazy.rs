//! What is read in part, from the folded tree that a database has, is the view of all contexts.

use crate::support::random;
use crate::support::*;
use fastrand::Rng;
use hpcprof_rs::catalogue::metrics::MetricSelector;
use hpcprof_rs::catalogue::{Catalogue, Projection};
use hpcprof_rs::model::tree::TreeNode;
use hpcprof_rs::views::fold::{FoldOptions, Folded, fold};
use hpcprof_rs::views::prune::{Limits, prune};
use hpcprof_rs::views::view::View;
use hpcprof_rs::views::{bottom_up, top_down};

/// All nodes in the order of printing, with everything that a user sees.
fn nodes(view: &View) -> Vec<String> {
    let line = |(id, depth): (u32, usize)| {
        let node = view.node(id);
        let values = (view.inclusive.of(id), view.exclusive.of(id));
        let what = (node.label, node.call, node.recursion, view.spreads[id as usize]);
        format!("{depth} {what:?} {values:?}")
    };
    view.preorder().map(line).collect()
}

fn shown(mut view: View, limits: Limits, metric: MetricSelector<'_>) -> Vec<String> {
    view.sort(metric);
    let mut lines = nodes(&prune(view, limits, None, metric));
    lines.push("end".to_owned());
    lines
}

#[test]
fn what_is_read_lazily_is_what_is_read_whole() {
    let mut random = Rng::with_seed(7);
    let (mut compared, mut left_out) = ([0; 2], 0);
    for seed in 1..=12 {
        let threads = 4 * seed as u32 % 13 + 1;
        let run = random::run(seed, threads, [150, 700][seed as usize % 2]);
        let database = database(&run);
        let catalogue = Catalogue::open(&database).expect("the database");
        let tree = catalogue.contexts(Projection::Logical).expect("contexts");
        let Folded { tree, of } = fold(&tree, &catalogue.code, FoldOptions::STORED);
        let parents: Vec<Option<u32>> = tree.nodes.iter().map(|node| node.parent).collect();
        let spreads = catalogue.work_spreads(&of, &parents).expect("spreads");
        let totals = tree.exclusive.totals();
        let ready = catalogue.folded().expect("the folded tree");
        assert_eq!(ready.exclusive, tree.exclusive);
        for (ready, folded) in ready.nodes.iter().zip(&tree.nodes) {
            let of = |node: &TreeNode| (node.parent, node.label, node.call, node.recursion);
            assert_eq!(of(ready), of(folded));
        }
        let expressions = ["samples", "idleness/work", "work-idleness"];
        let expressions = expressions.map(|text| catalogue.metric(text).expect("a metric"));
        let [samples, quotient, difference] = expressions.each_ref();
        for metric in [
            MetricSelector::Effort,
            MetricSelector::Metric(0),
            MetricSelector::Metric(1),
            MetricSelector::Metric(catalogue.metrics.len() - 1),
            MetricSelector::Derived(samples),
            MetricSelector::Derived(quotient),
            MetricSelector::Derived(difference),
        ] {
            for _ in 0..6 {
                let limits = Limits {
                    depth: random.bool().then(|| random.usize(1..9)),
                    threshold: random.bool().then(|| f64::from(random.u8(..40)) / 4.0),
                };
                let what = format!("seed {seed}, {limits:?}, {metric:?}");
                let check = |part: View, whole: View| {
                    assert_eq!(part.totals, whole.totals);
                    let (part, whole) = (shown(part, limits, metric), shown(whole, limits, metric));
                    assert_eq!(part, whole, "{what}");
                    whole.len()
                };
                if metric.or_effort(&totals).is_amount() {
                    let part = top_down::read(&catalogue, limits, metric, true).expect("a view");
                    let mut whole = top_down::arrange(&tree).0;
                    whole.spreads.clone_from(&spreads);
                    compared[0] += check(part, whole);
                }
                let part = bottom_up::arrange(&tree, limits, metric).0;
                let all = Limits { threshold: None, ..limits };
                let whole = bottom_up::arrange(&tree, all, metric).0;
                left_out += whole.nodes.len() - part.nodes.len();
                compared[1] += check(part, whole);
            }
        }
    }
    assert!(compared.iter().min() > Some(&2000), "{compared:?} nodes");
    assert!(left_out > 1000, "{left_out} nodes that are left out");
}
