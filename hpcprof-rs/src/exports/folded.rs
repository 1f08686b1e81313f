//! Folded stacks: `outer;inner;leaf AMOUNT`, a line for each context that has an amount, in whole
//! nanoseconds, counts or bytes, so that the amounts add up to the metric's total exactly.
//!
//! Readers split a line at `;`, and take a number after its last space for the amount, two of them for a
//! difference, and a line that begins with `# ` for a comment. Names are written so that they are names only.

use crate::catalogue::metrics::sum;
use crate::exports::Selection;
use crate::exports::stacks::Stacks;
use std::io::{self, Write};

const NO_BREAK_SPACE: &str = "\u{a0}";

pub(super) fn write(stacks: &Stacks<'_>, selection: Selection<'_>, out: &mut dyn Write) -> io::Result<()> {
    let amount = |context: u32| selection.metric.of(stacks.inclusive(context));
    // What a context has beside the callees that are shown.
    let rest = |context: Option<u32>, whole: i64| {
        let callees = stacks.callees(context).map(amount);
        whole - sum(callees.filter(|a| *a >= selection.least))
    };
    let mut stack = String::new();
    // Where contexts that the next one may be in end, and the length of the stack before each.
    let mut open: Vec<(u32, usize)> = Vec::new();
    let mut next = 0;
    while next < stacks.contexts().end {
        let context = next;
        while open.last().is_some_and(|(end, _)| *end <= context) {
            stack.truncate(open.pop().map_or(0, |(_, length)| length));
        }
        if amount(context) < selection.least.max(1) {
            next = stacks.end(context);
            continue;
        }
        next += 1;
        open.push((stacks.end(context), stack.len()));
        if !stack.is_empty() {
            stack.push(';');
        }
        stack.push_str(&frame(&stacks.name(stacks.label(context))));
        let own = rest(Some(context), amount(context));
        if own > 0 {
            writeln!(out, "{stack} {own}")?;
        }
    }
    let below = rest(None, selection.metric.of(&stacks.totals));
    match below {
        0 => Ok(()),
        below => writeln!(out, "[below the threshold] {below}"),
    }
}

pub(super) fn frame(name: &str) -> String {
    let name = name.replace(';', ":");
    let is_number = |word: &str| word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match name.rsplit_once(' ') {
        Some((first, last)) if is_number(last) => format!("{first}{NO_BREAK_SPACE}{last}"),
        _ if name.starts_with("# ") => name.replacen(' ', NO_BREAK_SPACE, 1),
        _ => name,
    }
}
