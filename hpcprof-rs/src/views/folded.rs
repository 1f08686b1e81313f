//! Prints a view as folded stacks, `outer;inner;leaf MICROSECONDS`, the input of flame graphs.

use crate::views::load::{Database, Sort};
use crate::views::names;
use crate::views::tree::View;
use std::io::{self, Write};

/// Prints the part of each node's metric that is not its children's, for every node that has
/// one. Roundings are carried along, so that the column's sum is the total to a microsecond.
pub fn print(
    view: &View,
    database: &Database,
    metric: Sort,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut carried = 0_i64;
    let mut path: Vec<String> = Vec::new();
    let mut stack: Vec<(u32, usize)> = view.roots.iter().rev().map(|r| (*r, 0)).collect();
    while let Some((id, depth)) = stack.pop() {
        path.truncate(depth);
        let node = &view.nodes[id as usize];
        path.push(frame(&names::shown(database, &node.label)));
        stack.extend(node.children.iter().rev().map(|c| (*c, depth + 1)));
        let below: i64 = node
            .children
            .iter()
            .map(|c| metric.of(view.inclusive_of(*c)))
            .fold(0, i64::saturating_add);
        let own = metric
            .of(view.inclusive_of(id))
            .saturating_sub(below)
            .saturating_add(carried);
        let microseconds = own.saturating_add(500).div_euclid(1000);
        if microseconds <= 0 {
            carried = own;
            continue;
        }
        carried = own.saturating_sub(microseconds.saturating_mul(1000));
        writeln!(out, "{} {microseconds}", path.join(";"))?;
    }
    Ok(())
}

/// A name without the separator of frames.
fn frame(name: &str) -> String {
    name.replace(';', ":")
}
