//! `hpcprof-rs advise`: prints what is worth doing, as text and as JSON (FORMATS.md).

use crate::advice::quality;
use crate::catalogue::Catalogue;
use crate::error::{Error, Result, one_line};
use crate::model::advice::{Advice, Finding};
use crate::render::names;
use crate::render::numbers::seconds;
use crate::render::style::Style;
use serde_json::{Value, json};
use std::io::{self, Write};

const SCHEMA: &str = "hpcprof-rs/advice/1";

impl Finding {
    /// `main.rs:12 solve: one thread works …; gains at most 0.280 s ±0.020`.
    pub fn line(&self) -> String {
        let about = [&self.place, &self.name].map(|part| part.as_str()).join(" ");
        let about = match about.trim() {
            "" => String::new(),
            about => format!("{about}: "),
        };
        let gain = self.most.map_or(String::new(), |(most, error)| {
            let [most, error] = [most, error].map(|time| seconds(time.round() as i64));
            let surely = self.least.map(|least| format!(", surely {} s", seconds(least.round() as i64)));
            format!("; gains at most {most} s ±{error}{}", surely.unwrap_or_default())
        });
        one_line(&format!("{about}{}{gain}", self.text))
    }

    fn object(&self) -> Value {
        let [most, error] = [0, 1].map(|at| self.most.map(|of| [of.0, of.1][at] / 1e9));
        json!({
            "cause": self.cause, "name": self.name, "place": self.place, "text": self.text,
            "most": most, "error": error, "least": self.least.map(|least| least / 1e9),
        })
    }
}

pub fn print(catalogue: &Catalogue, is_json: bool, style: Style, out: &mut impl Write) -> Result<()> {
    let found = catalogue.advice()?;
    match is_json {
        true => writeln!(out, "{}", object(catalogue, &found)),
        false => text(catalogue, &found, style, out),
    }
    .map_err(Error::output)
}

fn object(catalogue: &Catalogue, found: &Advice) -> Value {
    let run = &catalogue.statistics;
    let wall = quality::wall_of_run(run) / 1e9;
    let advice: Vec<Value> = found.iter().flatten().map(Finding::object).collect();
    json!({
        "schema": SCHEMA, "unit": "seconds", "program": run.program, "wall": wall, "cores": run.cores,
        "withheld": found.as_ref().err(), "advice": advice,
    })
}

fn text(catalogue: &Catalogue, found: &Advice, style: Style, out: &mut impl Write) -> io::Result<()> {
    let run = &catalogue.statistics;
    let wall = seconds(quality::wall_of_run(run) as i64);
    let title = format!(
        "{}: a run takes {wall} s on {}",
        one_line(&run.program),
        names::counted(u64::from(run.cores), "core")
    );
    writeln!(out, "{}", style.bold(&names::middle(&title, style.width)))?;
    match found {
        Err(why) => writeln!(out, "no advice: {}", one_line(why)),
        Ok(all) => (1..).zip(all).try_for_each(|(number, of)| {
            let lines = names::wrap(&format!("{number}. {}", of.line()), style.width.max(60));
            lines.iter().try_for_each(|line| writeln!(out, "{line}"))
        }),
    }
}
