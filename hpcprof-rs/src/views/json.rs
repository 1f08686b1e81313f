//! Prints a view as JSON, schema `hpcprof-rs/view/1` (FORMATS.md).
//!
//! Amounts are seconds with all nine decimals that they have. The printer does not recurse, so
//! the depth of a tree is limited by the reader only.

use crate::error::steers;
use crate::views::fold::FoldOptions;
use crate::views::load::{Database, Projection};
use crate::views::loops;
use crate::views::names;
use crate::views::summary::Summary;
use crate::views::tree::{Call, Label, Place, View, ViewNode};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Version of the JSON of a view.
pub const SCHEMA: &str = "hpcprof-rs/view/1";

/// How nodes are arranged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A node has its children, from `roots` on.
    Nested,
    /// All `nodes` are in one array, parents first, with the ids of their parents.
    Flat,
}

/// Many readers refuse JSON that is nested deeper.
pub const MANY_LEVELS: usize = 400;

/// How deep the nested form of a view is: the document, and an array and an object for each level of the
/// view.
pub fn levels(view: &View) -> usize {
    let mut depths = vec![1_usize; view.nodes.len()];
    for (id, node) in view.nodes.iter().enumerate() {
        if let Some(parent) = node.parent {
            depths[id] = depths[parent as usize] + 1;
        }
    }
    2 + 2 * depths.into_iter().max().unwrap_or(0)
}

/// Prints `view` to `out`.
pub fn print(
    view: &View,
    database: &Database,
    options: FoldOptions,
    form: Form,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut text = String::with_capacity(1 << 16);
    head(view, database, options, &mut text);
    text.push_str(match form {
        Form::Nested => ",\n\"roots\":[",
        Form::Flat => ",\n\"nodes\":[",
    });
    // (siblings, how many of them are printed)
    let mut stack: Vec<(&[u32], usize)> = vec![(&view.roots, 0)];
    let mut is_first = true;
    while let Some((siblings, done)) = stack.last_mut() {
        if *done == siblings.len() {
            stack.pop();
            match (form, stack.is_empty()) {
                (_, true) => text.push(']'),
                (Form::Nested, false) => text.push_str("]}"),
                (Form::Flat, false) => {}
            }
            continue;
        }
        let id = siblings[*done];
        let follows = match form {
            Form::Nested => *done > 0,
            Form::Flat => !is_first,
        };
        if follows {
            text.push_str(",\n");
        }
        is_first = false;
        *done += 1;
        node(view, database, id, form, &mut text);
        stack.push((&view.nodes[id as usize].children, 0));
        if text.len() > 1 << 16 {
            out.write_all(text.as_bytes())?;
            text.clear();
        }
    }
    text.push_str("}\n");
    out.write_all(text.as_bytes())
}

/// A JSON string, in which whatever would steer a terminal is escaped.
pub fn string(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    if !json.contains(steers) {
        return json;
    }
    let escaped = |c: char| match c {
        c if steers(c) => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    json.chars().map(escaped).collect()
}

/// Whole nanoseconds as a number of seconds, exactly.
pub fn seconds(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let (whole, rest) = (
        nanoseconds.unsigned_abs() / 1_000_000_000,
        nanoseconds.unsigned_abs() % 1_000_000_000,
    );
    if rest == 0 {
        return format!("{sign}{whole}.0");
    }
    let digits = format!("{rest:09}");
    format!("{sign}{whole}.{}", digits.trim_end_matches('0'))
}

fn amounts(database: &Database, values: &[i64], text: &mut String) {
    text.push('{');
    for (index, (name, value)) in database.metrics.iter().zip(values).enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let _ = write!(text, "{comma}{}:{}", string(name), seconds(*value));
    }
    text.push('}');
}

/// What the view shows as part of something else.
fn folded(options: FoldOptions) -> String {
    let runtime = options.projection == Projection::Logical && !options.runtime_frames;
    let parts = [
        ("runtime", runtime),
        ("parallel-loop", runtime),
        ("line", !options.lines),
        ("loop", !options.loops),
        ("system-inlined", !options.std_inlined),
        ("recursion", options.recursion),
        ("start-up", options.start_up),
    ];
    let parts = parts.iter().filter(|(_, folded)| *folded);
    parts
        .map(|(name, _)| string(name))
        .collect::<Vec<_>>()
        .join(",")
}

fn head(view: &View, database: &Database, options: FoldOptions, text: &mut String) {
    let run = Summary::of(database);
    let metrics: Vec<String> = database.metrics.iter().map(|m| string(m)).collect();
    let _ = write!(
        text,
        "{{\"schema\":{},\"view\":{},\"projection\":{},\"unit\":\"seconds\",\"program\":{},\
         \"cores\":{},\"threads\":{},\"wall_seconds\":{},\"period_seconds\":{},\"folded\":[{}],\"metrics\":[{}],\"totals\":",
        string(SCHEMA),
        string(view.name),
        string(options.projection.name()),
        string(&run.program),
        run.cores,
        run.threads,
        seconds(run.wall_ns),
        seconds(run.period_ns),
        folded(options),
        metrics.join(",")
    );
    amounts(database, &view.totals, text);
    text.push_str(",\"quality\":");
    quality(&run, text);
}

fn quality(run: &Summary, text: &mut String) {
    let counts = |counts: &BTreeMap<String, i64>| {
        let counts = counts.iter().map(|(key, n)| format!("{}:{n}", string(key)));
        counts.collect::<Vec<_>>().join(",")
    };
    let missing = run.missing.iter().map(|(what, ns)| {
        let (what, seconds) = (string(what), seconds(*ns));
        format!("{{\"what\":{what},\"seconds\":{seconds}}}")
    });
    let unprofiled = run.unprofiled.iter().map(|row| {
        let (program, reason) = (string(&row.program), string(&row.reason));
        let times = row.times;
        format!("{{\"program\":{program},\"reason\":{reason},\"times\":{times}}}")
    });
    let _ = write!(
        text,
        "{{\"samples\":{},\"rooted\":{},\"lost\":{{{}}},\"missing\":[{}],\"unprofiled\":[{}],\
         \"spawnerless\":{},\"spawnerless_by\":{{{}}},\"cpu_seconds\":{},\"spinning_seconds\":{},\
         \"estimated_wait_seconds\":{},\"unattributed_wait_seconds\":{}}}",
        run.samples,
        run.rooted,
        counts(&run.lost),
        missing.collect::<Vec<_>>().join(","),
        unprofiled.collect::<Vec<_>>().join(","),
        run.spawnerless_samples(),
        counts(&run.spawnerless),
        seconds(run.cpu_ns),
        seconds(run.spinning_ns),
        seconds(run.estimated_wait_ns),
        seconds(run.wait_ns),
    );
}

fn node(view: &View, database: &Database, id: u32, form: Form, text: &mut String) {
    let node = &view.nodes[id as usize];
    let (module, place) = where_is(node, database);
    let module = module.map_or("null".to_owned(), string);
    let (file, line) = place_fields(database, place);
    let (call_file, call_line) = place_fields(
        database,
        match node.call {
            Call::Unique(place) => Some(place),
            _ => None,
        },
    );
    text.push('{');
    if form == Form::Flat {
        let parent = node.parent.map_or("null".to_owned(), |p| p.to_string());
        let _ = write!(text, "\"id\":{id},\"parent\":{parent},");
    }
    let _ = write!(
        text,
        "\"kind\":{},\"name\":{},\"module\":{module},\"file\":{file},\"line\":{line},\
         \"call_file\":{call_file},\"call_line\":{call_line},\"inclusive\":",
        string(node.kind),
        string(&names::label(database, &node.label)),
    );
    amounts(database, view.inclusive_of(id), text);
    if let Some(row) = loops::of(&node.label, database) {
        let _ = write!(text, ",\"parallel_loop\":{}", loops::json(row, database));
    }
    text.push_str(",\"exclusive\":");
    amounts(database, view.exclusive_of(id), text);
    text.push_str(match form {
        Form::Nested => ",\"children\":[",
        Form::Flat => "}",
    });
}

/// The module and the source place of a node.
pub fn where_is<'a>(node: &ViewNode, database: &'a Database) -> (Option<&'a str>, Option<Place>) {
    match &node.label {
        Label::Procedure(p) => {
            let row = &database.procedures[*p as usize];
            let module = row.module.map(|m| database.modules[m as usize].as_str());
            (module, row.declared)
        }
        Label::Line(place) => (None, Some(*place)),
        Label::Module(m) => (m.map(|m| database.modules[m as usize].as_str()), None),
        Label::File(f) => (None, f.map(|f| (f, 0))),
        Label::ParallelLoop(l) => {
            let row = &database.loops[*l as usize];
            let module = database.procedures[row.entry as usize].module;
            (
                module.map(|m| database.modules[m as usize].as_str()),
                row.call,
            )
        }
        Label::Pruned(_) => (None, None),
    }
}

fn place_fields(database: &Database, place: Option<Place>) -> (String, String) {
    let Some((file, line)) = place else {
        return ("null".to_owned(), "null".to_owned());
    };
    let line = if line == 0 {
        "null".to_owned()
    } else {
        line.to_string()
    };
    (string(&database.files[file as usize]), line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        assert_eq!(seconds(0), "0.0");
        assert_eq!(seconds(5_000_000), "0.005");
        assert_eq!(seconds(12_345_678_901), "12.345678901");
        assert_eq!(seconds(-1), "-0.000000001");
        assert_eq!(seconds(i64::MIN), "-9223372036.854775808");
    }
}
