//! Prints a comparison of two databases as a tree of text that has what is more than chance, as JSON
//! (`hpcprof-rs/diff/1`, FORMATS.md) and as comma-separated values, which have all that differs.

use crate::catalogue::Catalogue;
use crate::catalogue::metrics::WORK;
use crate::error::one_line;
use crate::model::advice::{Finding, Tested};
use crate::model::tree::SourceLocation;
use crate::render::csv::write_to;
use crate::render::names;
use crate::render::numbers::{exact_seconds, seconds};
use crate::render::style::Style;
use crate::render::table::Table;
use crate::views::diff::{Amounts, CHANCE, Compared, Diff, METRICS, Node};
use hpc_formats::json::{OrNull, Text, array, list, map, members, object};
use std::cmp::Reverse;
use std::io::{self, Write};

const SCHEMA: &str = "hpcprof-rs/diff/1";
/// Columns that a name keeps.
const LEAST_NAME: usize = 24;
/// What a loop's difference is off by where it is nearly that of what is around it: a share of that.
const NEARLY: f64 = 0.2;
/// Names of the two databases.
const SIDES: [&str; 2] = ["a", "b"];

#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    pub diff: &'a Diff,
    pub databases: [&'a Catalogue; 2],
    /// What a run of each takes, nanoseconds.
    pub walls: [f64; 2],
    /// In which of that others had the cores.
    pub others: [f64; 2],
    /// The advice for the first.
    pub advice: &'a [Tested],
    /// How many contexts and procedures that differ are left out.
    pub more: [usize; 2],
}

impl Comparison<'_> {
    /// Prints text about a metric, with at most `most` contexts.
    pub fn text(&self, metric: usize, most: usize, style: Style, out: &mut impl Write) -> io::Result<()> {
        let Diff { runs, variation, total, nodes, procedures } = self.diff;
        let databases = [0, 1].map(|side| {
            let path = self.databases[side].path.display().to_string();
            let runs = if runs[side] == 1 { "1 run".to_owned() } else { format!("{} runs", runs[side]) };
            format!("{} ({runs})", one_line(&path))
        });
        writeln!(out, "diff of {} and {}", databases[0], databases[1])?;
        if let Some(variation) = variation {
            writeln!(
                out,
                "single runs are taken to differ by {:.0} %: more runs of each show smaller differences",
                variation * 100.0
            )?;
        }
        let columns = [("a", 10), ("b", 10), ("difference", 12), ("±", 9)];
        let mut table = Table::begin(out, style, &columns, METRICS[metric])?;
        let cells = |of: &Compared| {
            let [a, b] = of.values.map(|values| seconds(whole(values[metric])));
            let difference = seconds(whole(of.difference(metric)));
            let sign = if difference.starts_with('-') { "" } else { "+" };
            [a, b, format!("{sign}{difference}"), seconds(whole(of.error[metric]))]
        };
        table.named(cells(total), "all contexts", LEAST_NAME)?;
        let shown = self.shown(metric);
        for (at, depth) in shown.iter().take(most) {
            let node = &nodes[*at];
            let only = match node.is_in {
                [true, false] => " (only in a)",
                [false, true] => " (only in b)",
                _ => "",
            };
            let code = &self.databases[node.names].code;
            let place = self.place(node).filter(|_| !node.label.is_loop());
            let place = place.map_or(String::new(), |at| format!("  {}", names::location(code, at)));
            let name = names::shown(code, node.label);
            let name = format!("{}{name}{only}{place}", "  ".repeat(*depth));
            table.named(cells(&node.compared), &name, LEAST_NAME)?;
        }
        let mut own: Vec<&Node> = procedures.iter().collect();
        own.retain(|node| node.compared.is_significant);
        own.sort_by_key(|node| Reverse(whole(node.compared.difference(metric)).abs()));
        if !shown.is_empty() {
            let title = "procedures, without what they call, whoever calls them:";
            table.title(title)?;
        }
        for node in own.into_iter().take(most) {
            let name = names::shown(&self.databases[node.names].code, node.label);
            table.named(cells(&node.compared), &name, LEAST_NAME)?;
        }
        let line = match (shown.len(), shown.len().saturating_sub(most)) {
            (0, _) => "no difference of a context is more than chance".to_owned(),
            (_, 0) => {
                format!("all others may be chance; of these at most {} % are", CHANCE * 100.0)
            }
            (_, more) => format!("{more} more: --rows has them"),
        };
        table.remark(&line)?;
        self.tested(style, out)
    }

    /// What was predicted for the first database, beside what was gained.
    fn tested(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        if self.advice.is_empty() {
            return Ok(());
        }
        let [a, b] = self.walls.map(|wall| seconds(whole(wall)));
        let gain = seconds(whole(self.walls[0] - self.walls[1]));
        let [others_a, others_b] = self.others.map(|time| seconds(whole(time)));
        let less_work = seconds(whole(-self.diff.total.difference(WORK)));
        let line = format!(
            "the advice for a; a run takes {a} s in a and {b} s in b, which gains {gain} s; others had the \
             cores for {others_a} s of a and {others_b} s of b; the work itself takes {less_work} s of CPU \
             time less, which no advice foresees"
        );
        writeln!(out, "\n{}", names::wrap(&line, style.width.max(60)).join("\n"))?;
        let columns = [("at most", 10), ("surely", 10), ("left in b", 10)];
        let mut table = Table::begin(out, style, &columns, "gain in s")?;
        let shown = |time: Option<f64>| time.map_or("-".to_owned(), |time| seconds(whole(time)));
        for Tested { finding: of, left } in self.advice {
            let cells = [of.most.map(|(most, _)| most), of.least, *left].map(shown);
            let about = format!("{} {} {}", cause(of).trim_matches('"'), of.place, of.name);
            table.named(cells, one_line(&about).trim(), LEAST_NAME)?;
        }
        Ok(())
    }

    /// The contexts whose difference is more than chance, below those around them, the largest first; each
    /// with the number of those around it. A loop that has nearly the difference of what is around it says
    /// nothing more.
    fn shown(&self, metric: usize) -> Vec<(usize, usize)> {
        let nodes = &self.diff.nodes;
        // The nearest at or around each node.
        let mut nearest: Vec<Option<usize>> = Vec::with_capacity(nodes.len());
        let mut below: Vec<Vec<usize>> = vec![Vec::new(); nodes.len() + 1];
        for (at, node) in nodes.iter().enumerate() {
            let outer = node.parent.and_then(|parent| nearest[parent]);
            let repeats = |outer: usize| {
                let [own, all] = [at, outer].map(|at| nodes[at].compared.difference(metric));
                node.label.is_loop() && (own - all).abs() < all.abs() * NEARLY
            };
            let is_shown = node.compared.is_significant && !outer.is_some_and(repeats);
            if is_shown {
                below[outer.map_or(0, |outer| outer + 1)].push(at);
            }
            nearest.push(if is_shown { Some(at) } else { outer });
        }
        let size = |at: &usize| whole(nodes[*at].compared.difference(metric)).abs();
        for siblings in &mut below {
            siblings.sort_by_key(|at| Reverse(size(at)));
        }
        let mut shown = Vec::new();
        let mut stack: Vec<(usize, usize)> = below[0].iter().rev().map(|at| (*at, 0)).collect();
        while let Some((at, depth)) = stack.pop() {
            shown.push((at, depth));
            stack.extend(below[at + 1].iter().rev().map(|at| (*at, depth + 1)));
        }
        shown
    }

    /// The contexts that are not equal in all metrics.
    fn different(&self) -> impl Iterator<Item = &Node> {
        self.diff.nodes.iter().filter(|node| !is_equal(node))
    }

    fn place(&self, node: &Node) -> Option<SourceLocation> {
        node.label.location(&self.databases[node.names].code)
    }

    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        let Diff { runs, variation, total, .. } = self.diff;
        let amounts = |of: Amounts| map(METRICS.iter().zip(of.map(exact)));
        let compared = |of: &Compared| {
            let [a, b] = of.values.map(amounts);
            let mut difference = Amounts::default();
            for (metric, slot) in difference.iter_mut().enumerate() {
                *slot = of.difference(metric);
            }
            members(&[
                (SIDES[0], &a),
                (SIDES[1], &b),
                ("difference", &amounts(difference)),
                ("error", &amounts(of.error)),
                ("significant", &of.is_significant),
            ])
        };
        let database = |side: usize| {
            let program = Text(&self.databases[side].statistics.program);
            object!("runs": runs[side], "program": program)
        };
        let totals = METRICS.iter().enumerate().map(|(metric, name)| {
            let [a, b] = total.values.map(|values| exact(values[metric]));
            let difference = exact(total.difference(metric));
            let error = exact(total.error[metric]);
            (name, map([(SIDES[0], a), (SIDES[1], b), ("difference", difference), ("error", error)]))
        });
        let object_of = |node: &Node| {
            let code = &self.databases[node.names].code;
            let place = self.place(node);
            let parent = node.parent.map(|parent| key(&self.diff.nodes[parent]));
            let line = place.map(|at| at.line).filter(|line| *line > 0);
            let own = members!(
                "key": Text(&key(node)), "parent": OrNull(parent.as_deref().map(Text)),
                "kind": Text(node.label.kind().name()), "name": Text(&names::label(code, node.label)),
                "file": OrNull(place.map(|at| Text(code.file(at.file)))), "line": OrNull(line)
            );
            format!("{{{own},{},\"in\":\"{}\"}}", compared(&node.compared), is_in(node))
        };
        let procedures = self.diff.procedures.iter().filter(|node| !is_equal(node));
        let tested = |Tested { finding: of, left }: &Tested| {
            let [most, least, left] =
                [of.most.map(|(most, _)| most), of.least, *left].map(|t| OrNull(t.map(exact)));
            let cause = cause(of);
            object!(
                "cause": cause, "name": Text(&of.name), "place": Text(&of.place), "most": most,
                "least": least, "left": left
            )
        };
        let report = object(&[
            ("schema", &Text(SCHEMA)),
            ("unit", &Text("seconds")),
            ("metrics", &array(METRICS.map(Text))),
            (SIDES[0], &database(0)),
            (SIDES[1], &database(1)),
            ("variation", &OrNull(*variation)),
            ("false_discovery_rate", &CHANCE),
            ("totals", &map(totals)),
            ("nodes", &list(self.different().map(object_of))),
            ("procedures", &list(procedures.map(object_of))),
            ("more", &object!("nodes": self.more[0], "procedures": self.more[1])),
            ("walls", &array(self.walls.map(exact))),
            ("others", &array(self.others.map(exact))),
            ("advice", &list(self.advice.iter().map(tested))),
        ]);
        writeln!(out, "{report}")
    }

    /// Prints comma-separated values, a context a row.
    pub fn csv(&self, out: &mut impl Write) -> io::Result<()> {
        write_to(out, |out| {
            for name in "key,parent,kind,name,file,line,in,significant".split(',') {
                out.write_field(name)?;
            }
            let columns = ["a", "b", "difference", "error"];
            let of_metric = |metric| columns.map(|column| format!("{metric} ({column})"));
            out.write_record(METRICS.into_iter().flat_map(of_metric))?;
            for node in self.different() {
                let code = &self.databases[node.names].code;
                let place = self.place(node);
                let parent = node.parent.map(|parent| key(&self.diff.nodes[parent]));
                out.write_field(key(node))?;
                out.write_field(parent.unwrap_or_default())?;
                out.write_field(node.label.kind().name())?;
                out.write_field(names::shown(code, node.label))?;
                out.write_field(place.map_or(String::new(), |at| one_line(code.file(at.file))))?;
                out.write_field(place.map_or(String::new(), |at| at.line.to_string()))?;
                out.write_field(is_in(node))?;
                out.write_field(node.compared.is_significant.to_string())?;
                let of = &node.compared;
                out.write_record((0..METRICS.len()).flat_map(|metric| {
                    let [a, b] = of.values.map(|values| values[metric]);
                    [a, b, of.difference(metric), of.error[metric]].map(exact)
                }))?;
            }
            out.flush()?;
            Ok(())
        })
    }
}

/// In quotes.
fn cause(of: &Finding) -> String {
    serde_json::to_string(&of.cause).unwrap_or_default()
}

fn is_equal(node: &Node) -> bool {
    node.compared.values[0] == node.compared.values[1]
}

fn whole(nanoseconds: f64) -> i64 {
    nanoseconds.round() as i64
}

fn exact(nanoseconds: f64) -> String {
    exact_seconds(whole(nanoseconds))
}

fn key(node: &Node) -> String {
    format!("{:016x}", node.key)
}

fn is_in(node: &Node) -> &'static str {
    match node.is_in {
        [true, false] => SIDES[0],
        [false, true] => SIDES[1],
        _ => "both",
    }
}
