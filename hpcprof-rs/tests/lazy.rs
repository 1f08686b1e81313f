//! A view that is read from what a database has ready is the view of all contexts.

use crate::support::random;
use crate::support::*;
use fastrand::Rng;
use hpcprof_rs::advice::headline::headline;
use hpcprof_rs::catalogue::metrics::MetricSelector;
use hpcprof_rs::catalogue::{Catalogue, Projection};
use hpcprof_rs::views::fold::{FoldOptions, Folded, fold};
use hpcprof_rs::views::prune::{Limits, prune};
use hpcprof_rs::views::view::{View, ViewKind};
use hpcprof_rs::views::{bottom_up, flat, stored, top_down, user_code};

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
    let (mut compared, mut left_out) = ([0; 3], 0);
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
        let ready = catalogue.summary(ViewKind::BottomUp.name()).expect("a view");
        left_out += ready.nodes.iter().filter(|n| n.label.is_pruned()).count();
        let code = catalogue.summary(user_code::NAME).expect("a view");
        let code = [code, user_code::arrange(&tree, &catalogue.code)];
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
            let [ready, whole] =
                code.each_ref().map(|code| headline(code, &catalogue, (metric, &totals), 400));
            assert_eq!(ready, whole);
            for _ in 0..6 {
                let limits = Limits {
                    depth: random.bool().then(|| random.usize(1..9)),
                    threshold: random.bool().then(|| f64::from(random.u8(..40)) / 4.0),
                };
                let what = format!("seed {seed}, {limits:?}, {metric:?}");
                let check = |at: usize, lazy: Option<View>, whole: View, counts: &mut [usize]| {
                    let Some(lazy) = lazy else { return };
                    assert_eq!(lazy.totals, whole.totals);
                    let (lazy, whole) = (shown(lazy, limits, metric), shown(whole, limits, metric));
                    assert_eq!(lazy, whole, "{what}");
                    counts[at] += whole.len();
                };
                if stored::can_prune_by(metric, &totals) {
                    let lazy = top_down::stored(&catalogue, limits, metric, true);
                    let mut whole = top_down::arrange(&tree).0;
                    whole.spreads.clone_from(&spreads);
                    check(0, Some(lazy.expect("a view")), whole, &mut compared);
                }
                let lazy = bottom_up::stored(&catalogue, limits, metric).expect("a view");
                let whole = bottom_up::arrange(&tree, limits.depth).0;
                check(1, lazy, whole, &mut compared);
                let lazy = flat::stored(&catalogue).expect("a view");
                let whole = flat::arrange(&tree, &catalogue.code).0;
                check(2, Some(lazy), whole, &mut compared);
            }
        }
    }
    assert!(compared.iter().min() > Some(&2000), "{compared:?} nodes");
    assert!(left_out > 50, "{left_out} rows of nodes that are left out");
}
