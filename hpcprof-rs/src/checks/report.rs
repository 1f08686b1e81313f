//! Prints the answers to conditions: text, JSON (FORMATS.md), annotations of GitHub's, and JUnit's XML.

use crate::checks::answer::{Answer, CHANCE, Outcome};
use crate::error::{one_line, xml};
use crate::metrics::unit::Unit;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Formats of a check's answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum CheckFormat {
    /// A line for each condition
    Text,
    /// Everything, for scripts
    Json,
    /// Annotations of a workflow on GitHub
    Github,
    /// XML that CI servers read
    Junit,
}

const SCHEMA: &str = "hpcprof-rs/check/1";

pub fn print(answers: &[Answer], format: CheckFormat, out: &mut impl Write) -> io::Result<()> {
    match format {
        CheckFormat::Text => answers.iter().try_for_each(|of| writeln!(out, "{}", line(of))),
        CheckFormat::Json => {
            let checks: Vec<Value> = answers.iter().map(object).collect();
            let confidence = 1.0 - CHANCE;
            writeln!(out, "{}", json!({"schema": SCHEMA, "confidence": confidence, "checks": checks}))
        }
        CheckFormat::Github => answers.iter().try_for_each(|of| {
            let level = match of.outcome {
                Outcome::Holds => "notice",
                Outcome::Withheld => "warning",
                Outcome::Fails => "error",
            };
            let text = line(of).replace('%', "%25");
            writeln!(out, "::{level} title=hpcprof-rs check::{text}")
        }),
        CheckFormat::Junit => junit(answers, out),
    }
}

/// `fails     idleness/effort <= 0.2: 0.251 ±0.012, the limit is 0.200`.
fn line(of: &Answer) -> String {
    let unit = match of.unit {
        Unit::RATIO => String::new(),
        Unit::SECONDS => " s".to_owned(),
        unit => format!(" {unit}"),
    };
    let shown = |value: Option<f64>| value.map_or("undefined".to_owned(), |value| format!("{value:.3}"));
    let why = of.why.as_ref().map_or(String::new(), |why| format!("; {why}"));
    let (value, limit) = (shown(of.value), shown(of.limit));
    let text = format!(
        "{:<9} {}: {value} ±{:.3}{unit}, the limit is {limit}{unit}{why}",
        of.outcome.told().0,
        of.condition,
        of.interval
    );
    one_line(&text)
}

fn object(of: &Answer) -> Value {
    json!({
        "condition": of.condition, "outcome": of.outcome.told().0, "unit": of.unit.to_string(),
        "value": of.value, "limit": of.limit, "interval": of.interval, "why": of.why,
    })
}

fn junit(answers: &[Answer], out: &mut impl Write) -> io::Result<()> {
    let number = |outcome: Outcome| answers.iter().filter(|of| of.outcome == outcome).count();
    let (failures, skipped) = (number(Outcome::Fails), number(Outcome::Withheld));
    let tests = answers.len();
    writeln!(out, r#"<?xml version="1.0" encoding="UTF-8"?>"#)?;
    writeln!(
        out,
        r#"<testsuite name="hpcprof-rs check" tests="{tests}" failures="{failures}" skipped="{skipped}">"#
    )?;
    for of in answers {
        let (name, text) = (xml(&of.condition), xml(&line(of)));
        let inner = match of.outcome {
            Outcome::Holds => format!("<system-out>{text}</system-out>"),
            Outcome::Withheld => format!(r#"<skipped message="{text}"/>"#),
            Outcome::Fails => format!(r#"<failure message="{text}"/>"#),
        };
        writeln!(out, r#"  <testcase classname="hpcprof-rs.check" name="{name}">{inner}</testcase>"#)?;
    }
    writeln!(out, "</testsuite>")
}
