//! Prints a view as comma-separated values (RFC 4180): one row per node, parents first, amounts
//! in seconds.

use crate::error::one_line;
use crate::views::json::{seconds, where_is};
use crate::views::load::Database;
use crate::views::loops;
use crate::views::names;
use crate::views::tree::{Call, View, ViewNode};
use std::io::{self, Write};

/// Prints `view` to `out`. `parent` is the `id` of another row, empty for roots.
pub fn print(view: &View, database: &Database, out: &mut impl Write) -> io::Result<()> {
    let mut header = "id,parent,depth,kind,name,module,file,line,call_file,call_line".to_owned();
    for suffix in ["inclusive", "exclusive"] {
        for metric in &database.metrics {
            header.push(',');
            header.push_str(&field(&format!("{metric} ({suffix})")));
        }
    }
    header.push_str(",splits,steals,stolen,mean_task,shared_by");
    writeln!(out, "{header}")?;
    let mut stack: Vec<(u32, usize)> = view.roots.iter().rev().map(|r| (*r, 1)).collect();
    while let Some((id, depth)) = stack.pop() {
        let node = &view.nodes[id as usize];
        stack.extend(node.children.iter().rev().map(|c| (*c, depth + 1)));
        let (module, place) = where_is(node, database);
        let call = match node.call {
            Call::Unique(place) => Some(place),
            _ => None,
        };
        let parent = node.parent.map_or(String::new(), |p| p.to_string());
        let mut row = vec![
            id.to_string(),
            parent,
            depth.to_string(),
            node.kind.to_owned(),
            names::label(database, &node.label),
            module.unwrap_or_default().to_owned(),
        ];
        for place in [place, call] {
            row.push(place.map_or(String::new(), |p| database.files[p.0 as usize].clone()));
            row.push(
                place
                    .filter(|p| p.1 > 0)
                    .map_or(String::new(), |p| p.1.to_string()),
            );
        }
        for values in [view.inclusive_of(id), view.exclusive_of(id)] {
            row.extend(values.iter().map(|v| seconds(*v)));
        }
        row.extend(loop_columns(node, database));
        let fields: Vec<String> = row.iter().map(|f| field(f)).collect();
        writeln!(out, "{}", fields.join(","))?;
    }
    Ok(())
}

/// Counts of a parallel loop, times in seconds; empty for other nodes and where there are none.
fn loop_columns(node: &ViewNode, database: &Database) -> [String; 5] {
    let known = loops::of(&node.label, database);
    let counts = known.and_then(|row| row.counts.map(|c| (row, c)));
    counts.map_or(Default::default(), |(row, (splits, steals, stolen))| {
        [
            splits.to_string(),
            steals.to_string(),
            seconds(stolen),
            loops::mean_task_ns(row).map_or(String::new(), seconds),
            row.shared_by.to_string(),
        ]
    })
}

fn field(text: &str) -> String {
    let text = one_line(text);
    if text.contains([',', '"']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn quotes_what_needs_it() {
        assert_eq!(field("plain"), "plain");
        assert_eq!(field("Vec<A, B>"), "\"Vec<A, B>\"");
        assert_eq!(field("a\"b"), "\"a\"\"b\"");
    }
}
