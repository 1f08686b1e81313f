//! Prints a sweep as text and as JSON (FORMATS.md).

use crate::catalogue::Catalogue;
use crate::catalogue::metrics::{IDLENESS, OVERHEAD, WORK};
use crate::error::one_line;
use crate::render::names;
use crate::render::numbers::seconds;
use crate::render::style::Style;
use crate::render::table::Table;
use crate::sweep::{Step, effort};
use crate::views::diff::Node;
use serde_json::{Value, json};
use std::io::{self, Write};

const SCHEMA: &str = "hpcprof-rs/sweep/1";
/// Places that text lists for each number of workers.
const PLACES: usize = 5;
const COLUMNS: [(&str, usize); 11] = [
    ("workers", 8),
    ("runs", 9),
    ("wall s", 9),
    ("predicted", 10),
    ("speed-up", 9),
    ("efficiency", 11),
    ("core s lost", 12),
    ("idleness", 9),
    ("overhead", 9),
    ("more work", 10),
    ("nobody", 9),
];
const PLACE_COLUMNS: [(&str, usize); 5] =
    [("core s", 10), ("±", 9), ("idleness", 10), ("overhead", 10), ("more work", 10)];

#[derive(Clone, Copy, Debug)]
pub struct Sweep<'a> {
    /// By number of workers.
    pub steps: &'a [Step],
    pub databases: &'a [Catalogue],
}

impl Sweep<'_> {
    pub(super) fn program(&self) -> String {
        self.databases.last().map_or(String::new(), |of| one_line(&of.statistics.program))
    }

    pub fn text(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let program = names::middle(&self.program(), style.width);
        writeln!(out, "{}", style.bold(&program))?;
        let mut table = Table::begin(out, style, &COLUMNS, "")?;
        for step in self.steps {
            let lost = |time: f64| if step.diff.is_some() { shown(time) } else { "-".to_owned() };
            let of = &step.losses;
            let cells = [
                step.workers.to_string(),
                step.runs.to_string(),
                shown(step.wall),
                step.predicted.map_or("-".to_owned(), shown),
                format!("{:.2}", step.speed_up),
                format!("{:.1} %", step.efficiency() * 100.0),
                lost(of.total),
                lost(of.idleness),
                lost(of.overhead),
                lost(of.work),
                lost(of.waiting),
            ];
            table.row(cells, |_| String::new())?;
        }
        for step in self.steps {
            if let Some(doubt) = &step.doubt {
                writeln!(out, "{} workers: {doubt}", step.workers)?;
            }
            let places = step.places();
            if places.is_empty() {
                continue;
            }
            writeln!(out)?;
            let title = format!("lost on {} workers, without callees", step.workers);
            let mut table = Table::begin(out, style, &PLACE_COLUMNS, &title)?;
            for node in places.iter().take(PLACES) {
                let of = |metric| shown(node.compared.difference(metric));
                let error = shown(node.compared.error[effort()]);
                let cells = [of(effort()), error, of(IDLENESS), of(OVERHEAD), of(WORK)];
                let (name, place) = self.named(step, node);
                table.named(cells, format!("{name}  {place}").trim_end(), 24)?;
            }
        }
        let ends = [self.databases.first(), self.databases.last()].into_iter().flatten();
        let ends: Vec<String> = ends.map(|of| one_line(&of.path.display().to_string())).collect();
        writeln!(out, "\nnext, with all contexts: hpcprof-rs diff {}", ends.join(" "))
    }

    fn named(&self, step: &Step, node: &Node) -> (String, String) {
        let at = self.steps.iter().position(|of| of.workers == step.workers).unwrap_or(0);
        let code = &self.databases[if node.names == 0 { 0 } else { at }].code;
        let place = node.label.location(code);
        let place = place.map_or(String::new(), |at| names::location(code, at));
        (names::shown(code, node.label), place)
    }

    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        let second = |time: f64| time.round() / 1e9;
        let steps: Vec<Value> =
            self.steps
                .iter()
                .map(|step| {
                    let of = &step.losses;
                    let places: Vec<Value> = step.places().into_iter().map(|node| {
                let lost = |metric| second(node.compared.difference(metric));
                let (name, place) = self.named(step, node);
                json!({
                    "name": name, "place": place, "total": lost(effort()), "idleness": lost(IDLENESS),
                    "overhead": lost(OVERHEAD), "work": lost(WORK),
                    "error": second(node.compared.error[effort()]),
                                "significant": node.compared.is_significant,
                })
            }).collect();
                    json!({
                        "workers": step.workers, "runs": step.runs, "wall": second(step.wall),
                        "predicted": step.predicted.map(second), "speed_up": step.speed_up,
                        "efficiency": step.efficiency(), "doubt": step.doubt,
                        "lost": {
                            "total": second(of.total), "idleness": second(of.idleness),
                            "overhead": second(of.overhead), "work": second(of.work),
                            "waiting": second(of.waiting),
                        },
                        "places": places,
                    })
                })
                .collect();
        let all = json!({"schema": SCHEMA, "unit": "seconds", "program": self.program(), "steps": steps});
        writeln!(out, "{all}")
    }
}

fn shown(nanoseconds: f64) -> String {
    seconds(nanoseconds.round() as i64)
}
