//! Finds the loops of all procedures, and places them in the trees of scopes.
//!
//! [`crate::code`] finds the loops; `nesting` says in which scopes they lie, `lines` which source lines
//! name them, `place` makes the new tree. Invariant: the result does not depend on the number of threads.

mod lines;
pub(crate) mod nesting;
pub(crate) mod place;

use crate::base::parallel;
use crate::code::disasm::loaded_image::LoadedImage;
use crate::code::{self, Call, Findings, Layout, ProcedureLoops, Program};
use crate::code_map::{ByProcedure, CodeMap};
use crate::input::image::Image;
use crate::names;
use crate::symbols::Symbols;
use crate::symbols::unwind_table::Unwind;
use std::ops::Range;

/// What the loops are found with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sources<'a, 'd> {
    pub(crate) image: &'a Image<'d>,
    /// It as the code sees it.
    pub(crate) memory: &'a LoadedImage<'d>,
    pub(crate) symbols: &'a Symbols<'d>,
    pub(crate) unwind: &'a Unwind,
    pub(crate) threads: usize,
}

/// The loops of procedures, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// In parts as they were found.
    loops: Vec<Vec<ProcedureLoops>>,
    /// By procedure: its part, and the index of its loops in there; `u32::MAX` = not searched.
    places: Vec<(u32, u32)>,
    /// Calls of noted procedures, by their numbers.
    pub(crate) calls: Vec<Call>,
    /// What could not be done.
    pub(crate) note: Option<String>,
}

impl Found {
    /// The loops of a procedure, if it has any.
    pub(crate) fn of(&self, procedure: usize) -> Option<&ProcedureLoops> {
        let (part, index) = *self.places.get(procedure)?;
        let found = self.loops.get(part as usize)?.get(index as usize)?;
        (!found.loops.is_empty()).then_some(found)
    }
}

/// Finds the loops of all procedures of `code_map`, and the calls of the `noted` ones; an empty list
/// notes none. `complete`: no procedure of the module is left out.
pub(crate) fn find(
    code_map: &CodeMap,
    by_procedure: &ByProcedure,
    complete: bool,
    noted: &[bool],
    sources: &Sources<'_, '_>,
) -> Found {
    if !code::is_readable(&sources.image.file) {
        let note = Some("loops are found in x86-64 code only".to_owned());
        return Found { note, ..Found::default() };
    }
    let stubs = stubs(sources.image);
    let layouts = layouts(code_map, by_procedure, &stubs, sources);
    let mut wanted = Vec::with_capacity(code_map.procedures.len());
    let mut numbers = Vec::with_capacity(code_map.procedures.len());
    let mut left_out = 0;
    for (number, layout) in layouts.into_iter().enumerate() {
        match layout {
            ToDecode::Code(layout) => {
                wanted.push(layout);
                numbers.push(number);
            }
            ToDecode::TooLong => left_out += 1,
            ToDecode::NoCode => {}
        }
    }
    let covered = if complete { None } else { Some(code_map.code_ranges.iter().map(|r| r.start..r.end)) };
    let program = Program {
        memory: sources.memory,
        stubs: &stubs,
        handlers: &sources.unwind.handlers,
        wanted,
        others: covered.map_or(Vec::new(), |covered| others(covered, sources, &stubs)),
        named: named(sources.symbols),
        noted: match noted {
            [] => Vec::new(),
            noted => numbers.iter().map(|n| noted[*n]).collect(),
        },
        threads: sources.threads,
    };
    let Findings { loops, mut calls } = program.find();
    for call in &mut calls {
        call.callee = numbers[call.callee as usize] as u32;
    }
    let mut places = vec![(u32::MAX, 0); code_map.procedures.len()];
    let all = loops.iter().zip(0u32..);
    let all = all.flat_map(|(part, p)| (0..part.len() as u32).map(move |i| (p, i)));
    for (number, place) in numbers.into_iter().zip(all) {
        places[number] = place;
    }
    Found {
        loops,
        places,
        calls,
        note: (left_out > 0).then(|| format!("{left_out} procedures are too long to find loops in")),
    }
}

/// What is to be decoded of a procedure.
enum ToDecode {
    Code(Layout),
    NoCode,
    TooLong,
}

/// Of all procedures, in their order.
fn layouts(
    code_map: &CodeMap,
    by_procedure: &ByProcedure,
    stubs: &[Range<u64>],
    sources: &Sources<'_, '_>,
) -> Vec<ToDecode> {
    /// Procedures of one job.
    const CHUNK: usize = 1 << 12;
    let count = code_map.procedures.len();
    let layout = |procedure| {
        let ranges = ranges(code_map, by_procedure.of(procedure), stubs);
        if ranges.is_empty() {
            return ToDecode::NoCode;
        }
        let entry = entry_of(&ranges, sources.symbols);
        Layout::new(ranges, entry).map_or(ToDecode::TooLong, ToDecode::Code)
    };
    parallel::run_in_chunks(count, CHUNK, sources.threads, layout)
}

/// The loops of every procedure that a symbol or an unwind entry states.
pub(crate) fn of_image(sources: &Sources<'_, '_>) -> Vec<ProcedureLoops> {
    if !code::is_readable(&sources.image.file) {
        return Vec::new();
    }
    let stubs = stubs(sources.image);
    let ranges = others(std::iter::empty(), sources, &stubs);
    let layout = |range| Layout::new(std::iter::once(range).collect(), 0);
    let wanted = ranges.into_iter().filter_map(layout).collect();
    let program = Program {
        stubs: &stubs,
        handlers: &sources.unwind.handlers,
        named: named(sources.symbols),
        threads: sources.threads,
        ..Program::new(sources.memory, wanted)
    };
    program.find_all()
}

/// Ranges of linkage stubs.
fn stubs(image: &Image<'_>) -> Vec<Range<u64>> {
    let stubs = image.code.iter().filter(|(_, name)| code::is_stub_section(name));
    stubs.map(|(range, _)| range.clone()).collect()
}

fn named<'d>(symbols: &Symbols<'d>) -> Vec<(u64, &'d [u8])> {
    symbols.sorted.iter().map(|s| (s.start, s.name)).collect()
}

/// The code of a procedure, stubs left out.
fn ranges(code_map: &CodeMap, code_ranges: &[u32], stubs: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::with_capacity(1);
    for code_range in code_ranges.iter().map(|i| &code_map.code_ranges[*i as usize]) {
        if is_stub(stubs, code_range.start) {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if last.end == code_range.start => last.end = code_range.end,
            _ => ranges.push(code_range.start..code_range.end),
        }
    }
    ranges
}

fn is_stub(stubs: &[Range<u64>], address: u64) -> bool {
    stubs.iter().any(|s| s.contains(&address))
}

/// The range with the entry: the first with a symbol that names no cold part, else the longest.
fn entry_of(ranges: &[Range<u64>], symbols: &Symbols<'_>) -> usize {
    let named = |range: &Range<u64>| {
        let symbol = symbols.starting_at(range.start)?;
        let name = symbol.text();
        Some(!names::stem(&name).is_cold_part)
    };
    if ranges.len() == 1 {
        return 0;
    }
    let by_symbol = ranges.iter().position(|r| named(r) == Some(true));
    by_symbol.unwrap_or_else(|| {
        let longest = ranges.iter().enumerate();
        let length = |r: &Range<u64>| r.end - r.start;
        longest.max_by_key(|(i, r)| (length(r), std::cmp::Reverse(*i))).map_or(0, |(i, _)| i)
    })
}

/// Uncovered code by symbols and unwind entries: procedures whose returning may matter to callers.
fn others(
    covered: impl Iterator<Item = Range<u64>>,
    sources: &Sources<'_, '_>,
    stubs: &[Range<u64>],
) -> Vec<Range<u64>> {
    let symbols = sources.symbols.sorted.iter().map(|s| s.start..s.end);
    let mut ranges: Vec<Range<u64>> = symbols.chain(sources.unwind.ranges.iter().cloned()).collect();
    ranges.sort_by_key(|r| (r.start, std::cmp::Reverse(r.end)));
    let mut covered = covered.peekable();
    let mut free_from = 0;
    ranges.retain_mut(|range| {
        range.start = range.start.max(free_from);
        while covered.next_if(|c| c.end <= range.start).is_some() {}
        if let Some(next) = covered.peek() {
            range.end = range.end.min(next.start.max(range.start));
        }
        if is_stub(stubs, range.start) || range.start >= range.end {
            return false;
        }
        free_from = range.end;
        true
    });
    ranges
}
