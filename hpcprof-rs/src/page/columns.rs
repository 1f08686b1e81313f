//! The contexts of one or two databases as one tree in columns: the block `numbers` of the page.
//!
//! All numbers are LEB128: how many contexts there are; for each, callers first, by how much the nesting is
//! less than a callee of the context before would have; for each its scope; then for each database and metric
//! how many contexts have an amount, and of each of them the distance to the one before and the amount.
//! Contexts of two databases are one if the scopes from the root to them have the same kinds and names.

use crate::exports::stacks::{Metric, Stacks};
use crate::model::hash::{FastMap, NumberedMap};
use crate::model::tree::{self, Label};
use integer_encoding::VarInt as _;
use serde_json::{Value, json};

/// A context: scope, and the one that calls it.
type Key = (Option<u32>, u32);

#[derive(Debug)]
pub(super) struct Columns {
    /// Those of all databases.
    pub metrics: Vec<Metric>,
    /// What contexts are, by number: kind, name, module, file, line and whose code it is.
    pub scopes: Vec<Value>,
    pub bytes: Vec<u8>,
}

impl Columns {
    pub(super) fn of(databases: &[Stacks<'_>]) -> Columns {
        let mut scopes = NumberedMap::default();
        let mut nodes: NumberedMap<Key, ()> = NumberedMap::default();
        let mut metrics: Vec<Metric> = Vec::new();
        let mut places = Vec::new();
        for stacks in databases {
            places.push(join(stacks, &mut scopes, &mut nodes));
            let new = |of: &&Metric| !metrics.contains(of);
            let new: Vec<Metric> = stacks.metrics.iter().filter(new).cloned().collect();
            metrics.extend(new);
        }
        let nodes: Vec<Key> = nodes.into_keys().collect();
        let order = tree::preorder(nodes.iter().map(|(caller, _)| *caller));
        let (mut at, mut depths) = (vec![0; nodes.len()], vec![0_u32; nodes.len()]);
        for (number, node) in (0..).zip(&order) {
            let node = *node as usize;
            at[node] = number;
            depths[node] = nodes[node].0.map_or(0, |caller| depths[caller as usize] + 1);
        }
        let mut bytes = Vec::new();
        let mut add = |number: u64| bytes.extend(number.encode_var_vec());
        add(nodes.len() as u64);
        let mut room = 0;
        for node in &order {
            let depth = depths[*node as usize];
            add(u64::from(room - depth));
            room = depth + 1;
        }
        order.iter().for_each(|node| add(u64::from(nodes[*node as usize].1)));
        for (stacks, places) in databases.iter().zip(&places) {
            for metric in &metrics {
                let own = stacks.metrics.iter().position(|of| of == metric);
                let own = own.map(|own| amounts(stacks, own, places, &at)).unwrap_or_default();
                add(own.len() as u64);
                let mut before = 0;
                for (node, amount) in own {
                    add(u64::from(node - before));
                    add(amount);
                    before = node;
                }
            }
        }
        Columns { metrics, scopes: scopes.into_values().collect(), bytes }
    }
}

/// Adds a database's contexts to the tree; returns their numbers in it.
fn join(
    stacks: &Stacks<'_>,
    scopes: &mut NumberedMap<[String; 3], Value>,
    nodes: &mut NumberedMap<Key, ()>,
) -> Vec<u32> {
    let mut known: FastMap<Label, u32> = FastMap::default();
    let mut places: Vec<u32> = Vec::with_capacity(stacks.contexts().len());
    for context in stacks.contexts() {
        let label = stacks.label(context);
        let scope = *known.entry(label).or_insert_with(|| {
            let (name, kind) = (stacks.name(label), stacks.kind(context));
            let module = stacks.module(label).unwrap_or_default();
            let at = stacks.declared(label);
            let scope = json!([
                kind,
                name,
                module,
                at.map(|at| stacks.file(at.file)),
                at.map_or(0, |at| at.line),
                stacks.origin(label).name(),
            ]);
            let file = module.rsplit('/').next().unwrap_or_default().to_owned();
            let entry = scopes.entry([kind.to_owned(), name, file]);
            let number = entry.index() as u32;
            entry.or_insert(scope);
            number
        });
        let caller = stacks.caller(context).map(|caller| places[caller as usize]);
        places.push(nodes.insert_full((caller, scope), ()).0 as u32);
    }
    places
}

/// The contexts that have an amount of a metric, in the order of the tree.
fn amounts(stacks: &Stacks<'_>, metric: usize, places: &[u32], at: &[u32]) -> Vec<(u32, u64)> {
    let own = |context: u32| stacks.own(context)[metric].unsigned_abs();
    let place = |context: u32| at[places[context as usize] as usize];
    let some = stacks.contexts().filter(|context| own(*context) != 0);
    let mut amounts: Vec<(u32, u64)> = some.map(|of| (place(of), own(of))).collect();
    amounts.sort_unstable_by_key(|(node, _)| *node);
    amounts.dedup_by(|from, to| {
        let is_same = from.0 == to.0;
        to.1 += if is_same { from.1 } else { 0 };
        is_same
    });
    amounts
}
