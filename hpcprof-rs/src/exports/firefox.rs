//! The Firefox Profiler's processed format (JSON), version 60, the first with one table of stacks for all
//! threads; profiler.firefox.com brings older versions up to its own. Each metric is a thread whose samples
//! have the metric's amounts as weights, laid one after the other along the time axis.
//!
//! Tables are arrays by column, so they are written column by column from the contexts. A stack is a caller's
//! frame at the line of a call, or the innermost frame of a context that has amounts.

use crate::exports::stacks::{Frame, Function, Stacks};
use crate::exports::{CREATOR, json};
use crate::model::hash::NumberedSet;
use crate::render::names::base_name;
use hpc_formats::json::OrNull;
use hpc_formats::profile::Unit;
use hpc_formats::structure::Origin;
use std::fmt::Display;
use std::io::{self, Write};

/// Name and colour of each category.
const CATEGORIES: [(&str, &str); 3] = [("User", "yellow"), ("Task runtime", "purple"), ("System", "orange")];

/// The stacks of contexts, by context.
struct Table {
    /// The caller's frame at the call.
    caller: Vec<Option<u32>>,
    /// The stack of its samples.
    own: Vec<Option<u32>>,
    frames: NumberedSet<Frame>,
}

/// A row of the table of stacks: the stack below it, and its frame by number.
type Row = (Option<u32>, usize);

impl Table {
    fn new(stacks: &Stacks<'_>) -> Table {
        let mut table = Table { caller: Vec::new(), own: Vec::new(), frames: NumberedSet::default() };
        let mut rows = 0..;
        for context in stacks.contexts() {
            let caller = stacks.caller_frame(context).and_then(|frame| {
                table.frames.insert(frame);
                rows.next()
            });
            let own = match stacks.has_own(context) {
                true if stacks.is_line(context) => caller,
                true => {
                    table.frames.insert(stacks.frame(context));
                    rows.next()
                }
                false => None,
            };
            table.caller.push(caller);
            table.own.push(own);
        }
        table
    }

    /// The rows, by number.
    fn rows(&self, stacks: &Stacks<'_>) -> impl Iterator<Item = Row> {
        let number = |frame: Frame| self.frames.get_index_of(&frame).unwrap_or(0);
        stacks.contexts().flat_map(move |context| {
            let below = |c: Option<u32>| c.and_then(|c| self.caller[c as usize]);
            let caller =
                stacks.caller_frame(context).map(|frame| (below(stacks.caller(context)), number(frame)));
            let has_own = stacks.has_own(context) && !stacks.is_line(context);
            let own = has_own.then(|| (below(Some(context)), number(stacks.frame(context))));
            caller.into_iter().chain(own)
        })
    }
}

pub(super) fn write(stacks: &Stacks<'_>, out: &mut dyn Write) -> io::Result<()> {
    let table = Table::new(stacks);
    let categories = CATEGORIES.map(|(name, colour)| {
        format!("{{\"name\":\"{name}\",\"color\":\"{colour}\",\"subcategories\":[\"Other\"]}}")
    });
    let program = json(&stacks.program());
    write!(
        out,
        "{{\"meta\":{{\"preprocessedProfileVersion\":60,\"version\":24,\"interval\":{},\"startTime\":0,\
         \"processType\":0,\"product\":{program},\"importedFrom\":{},\"stackwalk\":1,\"debug\":false,\
         \"symbolicated\":true,\"usesOnlyOneStackType\":true,\"sourceCodeIsNotOnSearchfox\":true,\
         \"categories\":[{}],\"markerSchema\":[]}},\n\"pages\":[],\n\"threads\":[",
        stacks.period_ns() as f64 / 1e6,
        json(CREATOR),
        categories.join(",")
    )?;
    let metrics = (0..stacks.metrics.len()).filter(|m| *m == 0 || stacks.totals[*m] > 0);
    for metric in metrics {
        write_thread(stacks, &table, metric, out)?;
    }
    write!(out, "],\n\"shared\":{{\"stackTable\":{{")?;
    column("prefix", table.rows(stacks).map(|(below, _)| OrNull(below)), out)?;
    column("frame", table.rows(stacks).map(|(_, frame)| frame), out)?;
    let length = table.rows(stacks).count();
    writeln!(out, "\"length\":{length}}},")?;
    write_code(stacks, &table.frames, out)?;
    writeln!(out, "}}")
}

/// A column of a table, with the comma after it.
fn column(name: &str, values: impl Iterator<Item = impl Display>, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "\"{name}\":[")?;
    for (index, value) in values.enumerate() {
        let comma = if index > 0 { "," } else { "" };
        write!(out, "{comma}{value}")?;
    }
    write!(out, "],")
}

fn write_thread(stacks: &Stacks<'_>, table: &Table, metric: usize, out: &mut dyn Write) -> io::Result<()> {
    let (weight_type, scale) = match stacks.metrics[metric].unit {
        Unit::Seconds => ("tracing-ms", 1e6),
        Unit::Count | Unit::Ratio | Unit::SquareSeconds => ("samples", 1.0),
        Unit::Bytes => ("bytes", 1.0),
    };
    let amount = |context: u32| stacks.own(context)[metric];
    let samples = || stacks.contexts().filter(|c| amount(*c) > 0);
    let mut until = 0;
    let begins = samples().map(|context| {
        let begin = until;
        until += amount(context);
        begin as f64 / scale
    });
    let comma = if metric > 0 { ",\n" } else { "" };
    write!(
        out,
        "{comma}{{\"name\":{},\"isMainThread\":true,\"pid\":\"{metric}\",\"tid\":{metric},\
         \"processType\":\"default\",\"processName\":{},\"processStartupTime\":0,\
         \"processShutdownTime\":null,\"registerTime\":0,\"unregisterTime\":null,\"pausedRanges\":[],\
         \"markers\":{{\"data\":[],\"name\":[],\"startTime\":[],\"endTime\":[],\"phase\":[],\
         \"category\":[],\"length\":0}},\n\"samples\":{{\"weightType\":\"{weight_type}\",",
        json(&stacks.metrics[metric].name),
        json(&stacks.metrics[metric].name),
    )?;
    column("stack", samples().map(|c| OrNull(table.own[c as usize])), out)?;
    column("time", begins, out)?;
    column("weight", samples().map(|c| amount(c) as f64 / scale), out)?;
    write!(out, "\"length\":{}}}}}", samples().count())
}

/// The tables of frames, functions, files and texts, which end `shared`, and the modules.
fn write_code(stacks: &Stacks<'_>, frames: &NumberedSet<Frame>, out: &mut dyn Write) -> io::Result<()> {
    let mut texts: NumberedSet<String> = NumberedSet::default();
    let functions: NumberedSet<Function> = frames.iter().map(|f| f.function).collect();
    let files: NumberedSet<u32> = functions.iter().filter_map(|f| f.file).collect();
    let modules = functions.iter().filter_map(|f| stacks.module(f.label));
    let modules: NumberedSet<String> = modules.collect();
    let mut text = |text: String| texts.insert_full(text).0;

    write!(out, "\"frameTable\":{{")?;
    let category = |f: &Frame| match stacks.origin(f.function.label) {
        Origin::User => 0,
        Origin::Runtime => 1,
        Origin::System => 2,
    };
    let function = |f: &Frame| functions.get_index_of(&f.function).unwrap_or(0);
    column("func", frames.iter().map(function), out)?;
    column("category", frames.iter().map(category), out)?;
    column("line", frames.iter().map(|f| line(f.line)), out)?;
    for (name, value) in [
        ("address", "-1"),
        ("inlineDepth", "0"),
        ("subcategory", "0"),
        ("nativeSymbol", "null"),
        ("innerWindowID", "0"),
        ("column", "null"),
    ] {
        column(name, frames.iter().map(|_| value), out)?;
    }
    write!(out, "\"length\":{}}},\n\"funcTable\":{{", frames.len())?;

    let resource = |f: &Function| {
        let module = stacks.module(f.label);
        module.map_or(-1, |m| modules.get_index_of(&m).map_or(-1, |index| index as i64))
    };
    let source = |f: &Function| OrNull(f.file.and_then(|file| files.get_index_of(&file)));
    let names = functions.iter().map(|f| text(stacks.name(f.label)));
    column("name", names, out)?;
    column("resource", functions.iter().map(resource), out)?;
    column("source", functions.iter().map(source), out)?;
    let declared = functions.iter().map(|f| line(stacks.declared_line(*f)));
    column("lineNumber", declared, out)?;
    for (name, value) in [("isJS", "false"), ("relevantForJS", "false"), ("columnNumber", "null")] {
        column(name, functions.iter().map(|_| value), out)?;
    }
    write!(out, "\"length\":{}}},\n\"sources\":{{", functions.len())?;

    column("id", files.iter().map(|_| "null"), out)?;
    let paths = files.iter().map(|file| text(stacks.file(*file)));
    column("filename", paths, out)?;
    write!(out, "\"length\":{}}},\n\"resourceTable\":{{", files.len())?;

    // Resources of type 1 are libraries, which `libs` describes.
    column("type", modules.iter().map(|_| 1), out)?;
    column("lib", 0..modules.len(), out)?;
    let bases = modules.iter().map(|path| text(base_name(path).to_owned()));
    column("name", bases, out)?;
    column("host", modules.iter().map(|_| "null"), out)?;
    write!(
        out,
        "\"length\":{}}},\n\"nativeSymbols\":{{\"libIndex\":[],\"address\":[],\"name\":[],\
         \"functionSize\":[],\"length\":0}},\n",
        modules.len()
    )?;
    write!(out, "\"stringArray\":[")?;
    for (index, text) in texts.iter().enumerate() {
        let comma = if index > 0 { ",\n" } else { "" };
        write!(out, "{comma}{}", json(text))?;
    }
    write!(out, "]}},\n\"libs\":[")?;
    for (index, path) in modules.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let (name, path) = (json(base_name(path)), json(path));
        write!(
            out,
            "{comma}{{\"name\":{name},\"path\":{path},\"debugName\":{name},\"debugPath\":{path},\
             \"breakpadId\":\"\",\"codeId\":null,\"arch\":null}}"
        )?;
    }
    write!(out, "]")
}

/// A line number, unless it is unknown.
fn line(number: u32) -> OrNull<u32> {
    OrNull(Some(number).filter(|n| *n > 0))
}
