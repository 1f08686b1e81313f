//! Prints a view as folded stacks, `outer;inner;leaf MICROSECONDS`, the input of flame graphs. What is no
//! time is in whole units.

use crate::catalogue::metrics::{MetricSelector, sum};
use crate::metrics::expression::Expression;
use crate::metrics::unit::Unit;
use crate::model::code::Code;
use crate::render::names;
use crate::views::view::View;
use std::io::{self, Write};

/// Prints the part of each node's metric that is not its children's, for every node that has
/// one. Roundings are carried along, so that the column's sum is the total to a microsecond or a unit.
pub fn print(view: &View, code: &Code, metric: MetricSelector<'_>, out: &mut impl Write) -> io::Result<()> {
    let is_time = |expression: &Expression| expression.unit() == Unit::SECONDS;
    let step = if metric.derived().is_none_or(is_time) { 1000 } else { 1 };
    let mut carried = 0_i64;
    let mut path: Vec<String> = Vec::new();
    let amount = |id: u32| metric.of(view.inclusive.of(id));
    for (id, depth) in view.preorder() {
        let node = view.node(id);
        path.truncate(depth);
        // The separator of frames is no part of a name.
        path.push(names::shown(code, node.label).replace(';', ":"));
        let below = sum(view.children[id as usize].iter().map(|c| amount(*c)));
        let own = amount(id).saturating_sub(below).saturating_add(carried);
        let steps = own.saturating_add(step / 2).div_euclid(step);
        if steps <= 0 {
            carried = own;
            continue;
        }
        carried = own.saturating_sub(steps.saturating_mul(step));
        writeln!(out, "{} {steps}", path.join(";"))?;
    }
    Ok(())
}
