//! Gives code without debug information to procedures: by symbols, then by unwind entries, then by
//! linkage-table sections.
//!
//! Invariants: only uncovered code is given; a symbol or unwind entry that begins in a known
//! procedure adds to that procedure; the result is sorted.

use super::{Code, CodeMap, CodeRange, MappedProcedure};
use crate::base::parallel;
use crate::base::strings::Map;
use crate::names;
use crate::symbols::unwind_table::Unwind;
use crate::unit_analysis::classify::FileFacts;
use crate::unit_analysis::function_info::{self, FunctionInfo};
use crate::unit_analysis::{Inputs, Piece};
use hpc_formats::structure::{Origin, StringId};
use std::ops::Range;

/// Symbols that one job names.
const CHUNK: usize = 512;

/// The procedure of all linkage-table sections.
const STUBS: &str = "[plt]";

/// What C libraries call the code to which a signal handler returns. Its unwind entry begins a byte before
/// its symbol, for unwinders look up the byte before a return address.
const TRAMPOLINE: &str = "__restore_rt";

/// Covers all wanted code that is still free. `loose`: lines of code without procedure entries.
pub(super) fn fill<'f>(
    code_map: &'f mut CodeMap,
    inputs: &'f Inputs<'_, '_>,
    mut loose: Vec<Piece>,
    unwind: &'f Unwind,
) {
    loose.sort_by_key(|p| p.start);
    // Units may overlap (folded functions): the first one keeps the code.
    let mut free_from = 0;
    loose.retain(|p| {
        let keep = p.start >= free_from;
        free_from = if keep { p.end } else { free_from };
        keep
    });
    let free = free_of(&code_map.code_ranges);
    let named = name_symbols(inputs, &free, &loose);
    let cold = named.iter().flatten().filter(|n| n.is_cold_part);
    let asked = cold.map(Named::linkage).chain([inputs.classifier.strings.id(STUBS)]);
    let by_linkage = by_linkage(&code_map.procedures, asked);
    let mut filler = Filler {
        code_map,
        by_linkage,
        inputs,
        trampolines: &unwind.trampolines,
        loose,
        free,
        added: Vec::new(),
        fresh: Vec::new(),
        free_from: 0,
    };
    // Cold parts come second: they belong to the procedure of their stem.
    for cold in [false, true] {
        for (symbol, info) in inputs.symbols.sorted.iter().zip(&named) {
            let Some(named) = info.as_ref().filter(|n| n.is_cold_part == cold) else {
                continue;
            };
            filler.fill(symbol.start..symbol.end, Some(named));
        }
        filler.close();
    }
    for range in &unwind.ranges {
        if inputs.wanted.hits(range) {
            filler.fill(range.clone(), None);
        }
    }
    filler.close();
    for (range, name) in &inputs.image.code {
        if name.starts_with(".plt") && inputs.wanted.hits(range) {
            filler.fill(range.clone(), None);
        }
    }
    filler.close();
    filler.finish();
}

/// The code between the covered ranges, before and after them.
fn free_of(code_ranges: &[CodeRange]) -> Vec<Range<u64>> {
    let mut free = Vec::new();
    let mut at = 0;
    for code_range in code_ranges {
        if at < code_range.start {
            free.push(at..code_range.start);
        }
        at = code_range.end;
    }
    if at < u64::MAX {
        free.push(at..u64::MAX);
    }
    free
}

/// The first procedure of each of these linkage names; `None` = none so far.
fn by_linkage(
    procedures: &[MappedProcedure],
    names: impl Iterator<Item = StringId>,
) -> Map<StringId, Option<u32>> {
    let mut first: Map<StringId, Option<u32>> = names.map(|name| (name, None)).collect();
    for (procedure, number) in procedures.iter().zip(0..) {
        note(&mut first, &procedure.info, number);
    }
    first
}

/// Records a procedure under its linkage name, if that name is requested.
fn note(first: &mut Map<StringId, Option<u32>>, info: &FunctionInfo, number: u32) {
    if let Some(known) = first.get_mut(&info.linkage.unwrap_or(info.name)) {
        known.get_or_insert(number);
    }
}

/// A symbol that may name free code.
struct Named {
    is_cold_part: bool,
    info: FunctionInfo,
}

impl Named {
    /// The linkage name; of a cold part, that of the procedure to which it belongs.
    fn linkage(&self) -> StringId {
        self.info.linkage.unwrap_or(self.info.name)
    }
}

/// Names the wanted symbols that reach into free code, on all threads: most of the work for a module
/// without debug information. The result has the order of the symbols.
fn name_symbols(inputs: &Inputs<'_, '_>, free: &[Range<u64>], loose: &[Piece]) -> Vec<Option<Named>> {
    let symbols = &inputs.symbols.sorted;
    let name = |i: usize| {
        let symbol = symbols.get(i)?;
        let range = symbol.start..symbol.end;
        let next = free.get(free.partition_point(|f| f.end <= range.start))?;
        if next.start >= range.end || !inputs.wanted.hits(&range) {
            return None;
        }
        let name = symbol.text();
        let stem = names::stem(&name);
        let whole = if stem.is_cold_part { stem.name } else { &name };
        Some(Named {
            is_cold_part: stem.is_cold_part,
            info: function_info::of_symbol(inputs.classifier, whole, file_at(inputs, loose, symbol.start)),
        })
    };
    parallel::run_in_chunks(symbols.len(), CHUNK, inputs.threads, name)
}

/// The file of the line at an address.
fn file_at(inputs: &Inputs<'_, '_>, loose: &[Piece], address: u64) -> Option<FileFacts> {
    let piece = loose.get(loose.partition_point(|p| p.end <= address))?;
    let line = piece.line().filter(|_| piece.start <= address)?;
    let path = inputs.classifier.strings.with(line.file, str::to_owned);
    Some(inputs.classifier.file(&path))
}

struct Filler<'f, 'd> {
    code_map: &'f mut CodeMap,
    /// First procedure of each requested linkage name: those of cold parts, and [`STUBS`].
    by_linkage: Map<StringId, Option<u32>>,
    inputs: &'f Inputs<'f, 'd>,
    /// [`Unwind::trampolines`].
    trampolines: &'f [u64],
    /// Lines of code without procedure entries: sorted.
    loose: Vec<Piece>,
    /// Code that no earlier pass covered: sorted, disjoint.
    free: Vec<Range<u64>>,
    /// New code_ranges of earlier passes, sorted.
    added: Vec<CodeRange>,
    /// New code_ranges of this pass, sorted.
    fresh: Vec<CodeRange>,
    free_from: u64,
}

impl Filler<'_, '_> {
    /// Covers the free parts of `range`.
    fn fill(&mut self, range: Range<u64>, symbol: Option<&Named>) {
        let range = range.start.max(self.free_from)..range.end;
        let mut next = self.free.partition_point(|f| f.end <= range.start);
        let mut owner = None;
        while let Some(free) = self.free.get(next).filter(|f| f.start < range.end) {
            let part = free.start.max(range.start)..free.end.min(range.end);
            let procedure =
                owner.or_else(|| self.owner_before(&range)).unwrap_or_else(|| self.procedure(&range, symbol));
            owner = Some(procedure);
            self.cover(part, procedure);
            next += 1;
        }
        self.free_from = self.free_from.max(range.end);
    }

    /// The procedure whose code_range covers the first address of `range`.
    fn owner_before(&self, range: &Range<u64>) -> Option<u32> {
        let at = |code_ranges: &[CodeRange]| {
            let code_range = code_ranges.get(code_ranges.partition_point(|r| r.end <= range.start))?;
            (code_range.start <= range.start).then_some(code_range.procedure)
        };
        at(&self.code_map.code_ranges).or_else(|| at(&self.added))
    }

    fn procedure(&mut self, range: &Range<u64>, symbol: Option<&Named>) -> u32 {
        let classifier = self.inputs.classifier;
        let info = match symbol {
            Some(named) => {
                if named.is_cold_part {
                    if let Some(Some(whole)) = self.by_linkage.get(&named.linkage()) {
                        return *whole;
                    }
                }
                named.info
            }
            None => match self.inputs.image.code_at(range.start) {
                Some((_, name)) if name.starts_with(".plt") => {
                    let mut info = function_info::of_symbol(classifier, STUBS, None);
                    // All linkage-table sections make one procedure.
                    if let Some(Some(known)) = self.by_linkage.get(&info.name) {
                        return *known;
                    }
                    info.origin = Origin::System;
                    info
                }
                _ if self.trampolines.contains(&range.start) => {
                    function_info::of_symbol(classifier, TRAMPOLINE, None)
                }
                _ => function_info::of_symbol(classifier, &format!("?{:#x}", range.start), None),
            },
        };
        let number = self.code_map.add_procedure(info, None);
        note(&mut self.by_linkage, &info, number);
        number
    }

    /// Adds code_ranges for `part`, with lines where there are any.
    fn cover(&mut self, part: Range<u64>, procedure: u32) {
        let of_procedure = self.code_map.procedures[procedure as usize].info.tag;
        let tag = of_procedure.or(self.inputs.classifier.module.tag);
        let mut at = part.start;
        let mut next = self.loose.partition_point(|p| p.end <= at);
        while at < part.end {
            let found = self.loose.get(next).filter(|p| p.start < part.end);
            let (end, line, line_tag) = match found {
                Some(row) if row.start <= at => {
                    next += 1;
                    (row.end.min(part.end), row.line(), row.tag)
                }
                Some(row) => (row.start, None, None),
                None => (part.end, None, None),
            };
            if end > at {
                self.fresh.push(CodeRange {
                    start: at,
                    end,
                    procedure,
                    code: Code::Plain(line, line_tag.or(tag)),
                });
                at = end;
            }
        }
    }

    /// Ends a pass: what it covered is free no more.
    fn close(&mut self) {
        self.free_from = 0;
        if self.fresh.is_empty() {
            return;
        }
        self.added.append(&mut self.fresh);
        // Two sorted lists: the sort merges them in one pass.
        self.added.sort_by_key(|s| s.start);
        let before = std::mem::take(&mut self.free);
        let mut next = 0;
        for range in before {
            let mut at = range.start;
            while let Some(code_range) = self.added.get(next).filter(|r| r.start < range.end) {
                if at < code_range.start {
                    self.free.push(at..code_range.start);
                }
                at = at.max(code_range.end);
                next += 1;
            }
            if at < range.end {
                self.free.push(at..range.end);
            }
        }
    }

    fn finish(self) {
        let code_ranges = &mut self.code_map.code_ranges;
        if code_ranges.is_empty() {
            // Sorted already.
            *code_ranges = self.added;
            return;
        }
        code_ranges.extend(self.added);
        code_ranges.sort_by_key(|r| r.start);
    }
}
