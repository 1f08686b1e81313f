//! speedscope's own format (JSON): the frames, then for each metric a profile of events. A context opens its
//! frame, takes the time of its own amount, lets its callees follow, and closes. So a context is two events,
//! however deep it lies.

use crate::exports::stacks::{Stacks, Step};
use crate::exports::{CREATOR, json};
use crate::model::hash::NumberedSet;
use crate::model::tree::Label;
use hpc_formats::profile::Unit;
use std::io::{self, Write};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

pub(super) fn write(stacks: &Stacks<'_>, out: &mut dyn Write) -> io::Result<()> {
    let frames: NumberedSet<Label> = stacks.contexts().map(|c| stacks.label(c)).collect();
    write!(
        out,
        "{{\"$schema\":{},\"exporter\":{},\"name\":{},\n\"shared\":{{\"frames\":[",
        json(SCHEMA),
        json(CREATOR),
        json(&stacks.program())
    )?;
    for (index, label) in frames.iter().enumerate() {
        let comma = if index > 0 { ",\n" } else { "" };
        write!(out, "{comma}{{\"name\":{}", json(&stacks.name(*label)))?;
        if let Some(at) = stacks.declared(*label) {
            write!(out, ",\"file\":{}", json(&stacks.file(at.file)))?;
            if at.line > 0 {
                write!(out, ",\"line\":{}", at.line)?;
            }
        }
        write!(out, "}}")?;
    }
    write!(out, "]}},\n\"profiles\":[")?;
    // A profile of nothing shows nothing; a file has one all the same.
    let metrics = (0..stacks.metrics.len()).filter(|m| *m == 0 || stacks.totals[*m] > 0);
    for metric in metrics {
        let comma = if metric > 0 { ",\n" } else { "" };
        write!(out, "{comma}")?;
        write_profile(stacks, metric, &frames, out)?;
    }
    writeln!(out, "]}}")
}

fn write_profile(
    stacks: &Stacks<'_>,
    metric: usize,
    frames: &NumberedSet<Label>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let unit = match stacks.metrics[metric].unit {
        Unit::Seconds => "nanoseconds",
        Unit::Count | Unit::Ratio | Unit::SquareSeconds => "none",
        Unit::Bytes => "bytes",
    };
    write!(
        out,
        "{{\"type\":\"evented\",\"name\":{},\"unit\":{},\"startValue\":0,\"endValue\":{},\"events\":[",
        json(&stacks.metrics[metric].name),
        json(unit),
        stacks.totals[metric]
    )?;
    let mut at = 0;
    let mut comma = "";
    let mut walk = stacks.walk();
    while let Some(step) = walk.next() {
        let (kind, context) = match step {
            Step::Enter(context) if stacks.inclusive(context)[metric] == 0 => {
                walk.skip_context();
                continue;
            }
            Step::Enter(context) => ("O", context),
            Step::Leave(context) => ("C", context),
        };
        let frame = frames.get_index_of(&stacks.label(context)).unwrap_or(0);
        write!(out, "{comma}{{\"type\":\"{kind}\",\"frame\":{frame},\"at\":{at}}}")?;
        comma = ",\n";
        if kind == "O" {
            at += stacks.own(context)[metric];
        }
    }
    write!(out, "]}}")
}
