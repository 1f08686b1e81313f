//! Callgrind's format (text): for each function its own amounts by line, and its calls by line and callee
//! with their inclusive amounts. It has no calling contexts, so contexts are added up. That happens before
//! anything is written, in tables that grow with the functions and calls of the program.
//!
//! In a recursion a call of one function by another is counted where it is outermost. How often functions
//! were called is not known: every call line says once.
//!
//! Source: the manual of Valgrind, "Callgrind Format Specification".

use crate::exports::CREATOR;
use crate::exports::stacks::{Frame, Stacks, Step};
use crate::model::hash::{FastMap, NumberedMap, NumberedSet};
use crate::model::tree::Label;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// A file by its index; a line from 1, or 0.
type Place = (Option<u32>, u32);

/// Amounts by metric.
type Amounts = Vec<i64>;

/// Functions, by their numbers, with amounts.
#[derive(Default)]
struct Costs {
    /// With the file that a function is in: that of its declaration, else of the first line seen.
    functions: NumberedMap<Label, Option<u32>>,
    /// By function and place.
    own: BTreeMap<(usize, Place), Amounts>,
    /// Inclusive, by caller, place of the call and callee.
    calls: BTreeMap<(usize, Place, usize), Amounts>,
}

impl Costs {
    fn of(stacks: &Stacks<'_>) -> Costs {
        let mut costs = Costs::default();
        // How many calls of one function by another are open.
        let mut open: FastMap<(usize, usize), u32> = FastMap::default();
        for step in stacks.walk() {
            let (Step::Enter(context) | Step::Leave(context)) = step;
            let call = costs.call(stacks, context);
            match step {
                Step::Enter(_) => {
                    costs.add_own(stacks, context);
                    let Some((caller, place, callee)) = call else {
                        continue;
                    };
                    let nesting = open.entry((caller, callee)).or_default();
                    *nesting += 1;
                    let none = || vec![0; stacks.metrics.len()];
                    let known = costs.calls.entry((caller, place, callee));
                    let known = known.or_insert_with(none);
                    if *nesting == 1 {
                        add(known, stacks.inclusive(context));
                    }
                }
                Step::Leave(_) => {
                    let call = call.and_then(|(caller, _, callee)| open.get_mut(&(caller, callee)));
                    if let Some(nesting) = call {
                        *nesting -= 1;
                    }
                }
            }
        }
        costs
    }

    fn number(&mut self, stacks: &Stacks<'_>, frame: Frame) -> usize {
        let entry = self.functions.entry(frame.function.label);
        let number = entry.index();
        let declared = stacks.declared(frame.function.label).map(|at| at.file);
        let file = entry.or_insert(declared);
        *file = file.or(frame.function.file);
        number
    }

    /// Caller, place of the call and callee; `None` for a line and for an outermost context.
    fn call(&mut self, stacks: &Stacks<'_>, context: u32) -> Option<(usize, Place, usize)> {
        if stacks.is_line(context) {
            return None;
        }
        let frame = stacks.caller_frame(context)?;
        let place = (frame.function.file, frame.line);
        let caller = self.number(stacks, frame);
        Some((caller, place, self.number(stacks, stacks.frame(context))))
    }

    fn add_own(&mut self, stacks: &Stacks<'_>, context: u32) {
        let frame = match stacks.is_line(context) {
            true => stacks.caller_frame(context),
            false => Some(stacks.frame(context)),
        };
        let Some(frame) = frame.filter(|_| stacks.has_own(context)) else {
            return;
        };
        let function = self.number(stacks, frame);
        let place = (frame.function.file, frame.line);
        let none = || vec![0; stacks.metrics.len()];
        let known = self.own.entry((function, place)).or_insert_with(none);
        add(known, stacks.own(context));
    }
}

fn add(to: &mut [i64], amounts: &[i64]) {
    for (slot, amount) in to.iter_mut().zip(amounts) {
        *slot = slot.saturating_add(*amount);
    }
}

pub(super) fn write(stacks: &Stacks<'_>, out: &mut dyn Write) -> io::Result<()> {
    let costs = Costs::of(stacks);
    let events: Vec<String> = stacks.metrics.iter().map(|m| event(&m.name)).collect();
    writeln!(
        out,
        "# callgrind format\nversion: 1\ncreator: {CREATOR}\ncmd: {}\npositions: line",
        stacks.program()
    )?;
    for (event, metric) in events.iter().zip(&stacks.metrics) {
        writeln!(out, "event: {event} : {}", metric.name)?;
    }
    writeln!(out, "events: {}", events.join(" "))?;
    writeln!(out, "summary:{}", Row(&stacks.totals))?;
    let mut writer = Writer {
        stacks,
        objects: NumberedSet::default(),
        files: NumberedSet::default(),
        names: NumberedSet::default(),
        out,
    };
    for number in 0..costs.functions.len() {
        writer.function(&costs, number)?;
    }
    writeln!(out, "\ntotals:{}", Row(&stacks.totals))
}

/// A metric's name as an event's, which consists of letters, digits and underscores.
fn event(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    name.chars().map(plain).collect()
}

/// Amounts as they end a line.
struct Row<'a>(&'a [i64]);

impl std::fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|amount| write!(f, " {amount}"))
    }
}

/// Writes names, each in full once and by its number from then on.
struct Writer<'a> {
    stacks: &'a Stacks<'a>,
    objects: NumberedSet<String>,
    files: NumberedSet<String>,
    names: NumberedSet<String>,
    out: &'a mut dyn Write,
}

impl Writer<'_> {
    fn function(&mut self, costs: &Costs, number: usize) -> io::Result<()> {
        writeln!(self.out)?;
        self.identity(["ob", "fl", "fn"], costs, number)?;
        let home = costs.functions[number];
        let mut file = home;
        let own = (number, (None, 0))..(number + 1, (None, 0));
        for ((_, place), amounts) in costs.own.range(own) {
            self.switch(&mut file, place.0, home)?;
            writeln!(self.out, "{}{}", place.1, Row(amounts))?;
        }
        let calls = (number, (None, 0), 0)..(number + 1, (None, 0), 0);
        for ((_, place, callee), amounts) in costs.calls.range(calls) {
            self.switch(&mut file, place.0, home)?;
            let line = self.identity(["cob", "cfi", "cfn"], costs, *callee)?;
            writeln!(self.out, "calls=1 {line}\n{}{}", place.1, Row(amounts))?;
        }
        Ok(())
    }

    /// Object, file and name of a function; returns the line of its declaration.
    fn identity(&mut self, fields: [&str; 3], costs: &Costs, number: usize) -> io::Result<u32> {
        let Some((label, home)) = costs.functions.get_index(number) else {
            return Ok(0);
        };
        let module = self.stacks.module(*label).unwrap_or_else(unknown);
        let file = home.map_or_else(unknown, |file| self.stacks.file(file));
        let name = self.stacks.name(*label);
        write_name(fields[0], &mut self.objects, module, self.out)?;
        write_name(fields[1], &mut self.files, file, self.out)?;
        write_name(fields[2], &mut self.names, name, self.out)?;
        Ok(self.stacks.declared(*label).map_or(0, |at| at.line))
    }

    /// Says which file the next lines are of, if it is another one than before.
    fn switch(&mut self, now: &mut Option<u32>, next: Option<u32>, home: Option<u32>) -> io::Result<()> {
        if *now == next {
            return Ok(());
        }
        *now = next;
        let field = if next == home { "fe" } else { "fi" };
        let file = next.map_or_else(unknown, |file| self.stacks.file(file));
        write_name(field, &mut self.files, file, self.out)
    }
}

/// What Callgrind writes for what it does not know.
fn unknown() -> String {
    "???".to_owned()
}

fn write_name(
    field: &str,
    known: &mut NumberedSet<String>,
    name: String,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (index, is_new) = known.insert_full(name);
    match is_new {
        true => writeln!(out, "{field}=({}) {}", index + 1, known[index]),
        false => writeln!(out, "{field}=({})", index + 1),
    }
}
