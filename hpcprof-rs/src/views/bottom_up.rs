//! The bottom-up view: from where cost arises to the callers through which it came.
//!
//! A root is a procedure with the exclusive cost of all its instances. Below it are its callers,
//! each with the share of that cost that came through it, and no exclusive cost.

use crate::catalogue::metrics::MetricSelector;
use crate::model::hash::{FastMap, NumberedSet};
use crate::model::tree::{Label, Tree, TreeNode, Values};
use crate::views::prune::Limits;
use crate::views::view::{View, ViewKind};

/// Arranges a tree of contexts; says of each context with values where its walk up ends. Callers further from
/// their root than the limits say are left out: their cost stays visible in the caller before them. So may be
/// what has less of the metric.
pub fn arrange(tree: &Tree, limits: Limits, metric: MetricSelector<'_>) -> (View, Vec<Option<u32>>) {
    let totals = tree.exclusive.totals();
    let metric = metric.or_effort(&totals);
    let share = limits.threshold.filter(|_| metric.is_amount()).unwrap_or(0.0) / 100.0;
    let size = |values: &[i64]| metric.value(values).map_or(0.0, f64::abs);
    let least = size(&totals) * share;
    let (summary, ends) = summarise(tree, limits.depth, |values| size(values) >= least);
    let mut view = View::of(ViewKind::BottomUp, &summary);
    view.exclusive = Values::of_nodes(totals.len(), view.nodes.len());
    view.roots.iter().for_each(|root| view.exclusive.add(*root, view.inclusive.of(*root)));
    (view, ends)
}

/// The walk from a context with values up to its callers.
struct Walk {
    /// Where it begins: the context whose values it has.
    from: u32,
    /// The context that it has come to.
    at: u32,
    /// The group that it belongs to, by number on the level before.
    group: u32,
}

/// Walks that have come through the same callers.
#[derive(Clone, Copy)]
struct Group {
    /// Their node of the summary; [`NONE`] outside of all.
    node: u32,
    /// Whether that is theirs alone.
    is_kept: bool,
}

const NONE: u32 = u32::MAX;

/// The view, level by level; says of each context with values to which node its walk comes at last. What
/// `keeps` does not keep by its values is counted, but left out with all that is below it.
fn summarise(tree: &Tree, depth: Option<usize>, keeps: impl Fn(&[i64]) -> bool) -> (Tree, Vec<Option<u32>>) {
    let metrics = tree.exclusive.metrics();
    let mut out = Tree::new(metrics);
    let mut numbers: NumberedSet<Label> = NumberedSet::default();
    let labels = tree.nodes.iter().map(|node| numbers.insert_full(node.label.merged()).0 as u32);
    let labels: Vec<u32> = labels.collect();
    let has_values = |node: &u32| tree.exclusive.of(*node).iter().any(|v| *v != 0);
    let begin = |from: u32| Walk { from, at: procedure_of(tree, from), group: 0 };
    let mut walks: Vec<Walk> = (0..tree.nodes.len() as u32).filter(has_values).map(begin).collect();
    let mut ends = vec![None; tree.nodes.len()];
    let mut groups = vec![Group { node: NONE, is_kept: true }];
    for _ in 0..depth.unwrap_or(usize::MAX) {
        if walks.is_empty() {
            break;
        }
        let mut index: FastMap<(u32, u32), u32> = FastMap::default();
        // By new group: the group before it, and its place among those that may be kept, or [`NONE`].
        let mut found: Vec<(u32, u32)> = Vec::new();
        let mut nodes: Vec<TreeNode> = Vec::new();
        let mut values = Values::new(metrics);
        for walk in &mut walks {
            let context = &tree.nodes[walk.at as usize];
            let next = index.entry((walk.group, labels[walk.at as usize]));
            let next = *next.or_insert_with(|| {
                let mut place = NONE;
                if groups[walk.group as usize].is_kept {
                    values.push();
                    place = nodes.len() as u32;
                    nodes.push(*context);
                }
                found.push((walk.group, place));
                found.len() as u32 - 1
            });
            let place = found[next as usize].1;
            if let Some(known) = nodes.get_mut(place as usize) {
                values.add(place, tree.exclusive.of(walk.from));
                known.call = known.call.join(context.call);
                known.recursion = known.recursion.max(context.recursion);
                if let Label::Procedure(_) = context.label {
                    known.label = context.label;
                }
            }
            walk.group = next;
        }
        // By node of the level before: the node of all that is left out below it.
        let mut left_out: FastMap<Option<u32>, u32> = FastMap::default();
        let mut next = Vec::with_capacity(found.len());
        for (group, place) in found {
            let parent = Some(groups[group as usize].node).filter(|node| *node != NONE);
            let own = nodes.get(place as usize);
            let own = own.map(|context| (context, values.of(place)));
            let kept = own.filter(|(_, values)| keeps(values));
            let node = match kept {
                Some((context, _)) => out.push(TreeNode { parent, ..*context }),
                None => {
                    let add = || out.push(TreeNode::new(parent, Label::Pruned(0)));
                    let node = *left_out.entry(parent).or_insert_with(add);
                    if let Label::Pruned(contexts) = &mut out.nodes[node as usize].label {
                        *contexts += 1;
                    }
                    node
                }
            };
            if let Some((_, values)) = own {
                out.exclusive.add(node, values);
                if let Some(parent) = parent {
                    out.exclusive.subtract(parent, values);
                }
            }
            next.push(Group { node, is_kept: kept.is_some() });
        }
        groups = next;
        walks.retain_mut(|walk| {
            ends[walk.from as usize] = Some(groups[walk.group as usize].node);
            let caller = tree.nodes[walk.at as usize].parent;
            caller.is_some_and(|caller| {
                walk.at = procedure_of(tree, caller);
                true
            })
        });
    }
    (out, ends)
}

/// The context at or around a context that is no loop, if there is one: callers are procedures.
fn procedure_of(tree: &Tree, context: u32) -> u32 {
    let mut at = context;
    while let (true, Some(around)) = (tree.nodes[at as usize].label.is_loop(), tree.nodes[at as usize].parent)
    {
        at = around;
    }
    at
}
