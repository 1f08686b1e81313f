//! The procedures of one unit, with their scopes and spans.
//!
//! Input: the unit's entries and line table. Invariants: spans of a function are sorted and do
//! not overlap; only scopes that hold code are kept, parents before children; the result does not
//! depend on other units.

mod builder;
pub(crate) mod classify;
mod flatten_inlines;
pub(crate) mod function_info;
mod overhead_category;

use crate::dwarf::Debug;
use crate::dwarf::line_table::{self, Row};
use crate::dwarf::walk::{self, Walked};
use crate::input::address_filter::AddressFilter;
use crate::input::image::Image;
use crate::symbols::Symbols;
use crate::symbols::go_table::GoTable;
use builder::{Builder, OfFunction};
use classify::{Classifier, OverheadTag};
use function_info::{FunctionInfo, FunctionInfos};
use hpc_formats::structure::{Origin, SourceLine, StringId};
use std::ops::Range;

/// What every unit's analysis reads.
#[derive(Debug)]
pub(crate) struct Inputs<'a, 'd> {
    pub(crate) image: &'a Image<'d>,
    pub(crate) debug: &'a Debug<'d>,
    pub(crate) symbols: &'a Symbols<'d>,
    /// What names and paths tell.
    pub(crate) classifier: &'a Classifier<'a>,
    pub(crate) wanted: &'a AddressFilter,
    pub(crate) threads: usize,
}

/// A scope of a [`Function`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct InlinedScope {
    /// Index of the enclosing scope in the same function.
    pub(crate) parent: Option<u32>,
    pub(crate) name: StringId,
    /// Where that is declared.
    pub(crate) declared: Option<SourceLine>,
    pub(crate) origin: Origin,
    pub(crate) site: Option<SourceLine>,
}

/// A span of a [`Function`]. There are many: each takes 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Innermost scope, an index into [`Function::scopes`]; `u32::MAX` = none.
    scope: u32,
    /// Source file and line; line 0 = none.
    line: SourceLine,
    pub(crate) tag: Option<OverheadTag>,
}

impl Piece {
    /// Directly in a procedure.
    pub(crate) fn new(range: Range<u64>, line: Option<SourceLine>, tag: Option<OverheadTag>) -> Piece {
        let none = SourceLine { file: StringId(0), line: 0 };
        Piece { start: range.start, end: range.end, scope: u32::MAX, line: line.unwrap_or(none), tag }
    }

    /// Innermost scope, an index into [`Function::scopes`].
    pub(crate) fn scope(&self) -> Option<u32> {
        (self.scope != u32::MAX).then_some(self.scope)
    }

    /// The same in another scope.
    pub(crate) fn in_scope(self, scope: Option<u32>) -> Piece {
        Piece { scope: scope.unwrap_or(u32::MAX), ..self }
    }

    pub(crate) fn line(&self) -> Option<SourceLine> {
        (self.line.line != 0).then_some(self.line)
    }
}

/// A procedure with its own code.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) info: FunctionInfo,
    pub(crate) scopes: Vec<InlinedScope>,
    pub(crate) pieces: Vec<Piece>,
}

#[derive(Debug, Default)]
pub(crate) struct UnitAnalysis {
    pub(crate) functions: Vec<Function>,
    /// Lines of code that no procedure entry covers.
    pub(crate) loose: Vec<Piece>,
    /// What could not be read.
    pub(crate) notes: Vec<String>,
}

/// What the analysis of a unit works in; a thread reuses it from unit to unit.
#[derive(Debug, Default)]
pub(crate) struct Buffers<'d> {
    walked: Walked<'d>,
    rows: Vec<Row>,
    infos: function_info::UnitCache,
    of_function: OfFunction,
}

pub(crate) fn analyse<'d>(inputs: &Inputs<'_, 'd>, unit: u32, buffers: &mut Buffers<'d>) -> UnitAnalysis {
    let Buffers { walked, rows, infos, of_function } = buffers;
    let entries = inputs.debug.entries_of(unit);
    let begins = |address| inputs.image.code_at(address).is_some();
    walk::walk(inputs.debug, entries, inputs.wanted, &begins, walked);
    let mut notes: Vec<String> = walked.damage.iter().cloned().collect();
    let covered = disjoint(walked.covered.iter());
    if walked.functions.is_empty() && !wants_uncovered(inputs, unit, &covered) {
        return UnitAnalysis { notes, ..UnitAnalysis::default() };
    }
    let wanted = disjoint(walked.functions.iter().flat_map(|f| f.ranges.iter()));
    // Of code without a procedure entry all lines are kept; there is little of it.
    let in_wanted = |start: u64, end: u64| {
        inputs.wanted.is_all() || overlaps(&wanted, start, end) || !overlaps(&covered, start, end)
    };
    notes.extend(line_table::rows(inputs.debug, unit, begins, in_wanted, rows));
    let mut builder = Builder {
        inputs,
        unit,
        walked,
        rows,
        infos: FunctionInfos::new(inputs.debug, unit, inputs.classifier, infos),
    };
    let functions: Vec<_> = walked
        .functions
        .iter()
        .enumerate()
        .filter_map(|(i, f)| builder.function(i, f, of_function))
        .collect();
    let loose = builder.loose(&covered);
    UnitAnalysis { functions, loose, notes }
}

/// The lines of Go's functions, of which only symbols tell.
pub(crate) fn lines_of_go(inputs: &Inputs<'_, '_>, table: &GoTable<'_>) -> UnitAnalysis {
    let wanted = table.functions().filter(|function| inputs.wanted.hits(&function.range));
    let loose = wanted.flat_map(|function| table.lines(&function)).map(|(code, path, line)| {
        let file = inputs.classifier.file(&String::from_utf8_lossy(path));
        Piece::new(code, Some(SourceLine { file: file.path, line }), file.tag)
    });
    UnitAnalysis { loose: loose.collect(), ..UnitAnalysis::default() }
}

/// Whether sorted, disjoint ranges have something in common with `start..end`.
fn overlaps(ranges: &[Range<u64>], start: u64, end: u64) -> bool {
    let next = ranges.get(ranges.partition_point(|r| r.end <= start));
    next.is_some_and(|r| r.start < end)
}

/// Whether an address is wanted that no procedure entry of the unit covers.
fn wants_uncovered(inputs: &Inputs<'_, '_>, unit: u32, covered: &[Range<u64>]) -> bool {
    if covered.is_empty() {
        return true;
    }
    let Some(ranges) = inputs.debug.unit_ranges(unit) else {
        return false;
    };
    let mut wanted = ranges.iter().flat_map(|r| inputs.wanted.addresses_in(r));
    wanted.any(|a| !overlaps(covered, *a, a.saturating_add(1)))
}

/// The union of ranges, sorted and disjoint.
fn disjoint<'r>(ranges: impl Iterator<Item = &'r Range<u64>>) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = ranges.cloned().collect();
    ranges.sort_by_key(|r| r.start);
    ranges.dedup_by(|next, kept| {
        let touches = next.start <= kept.end;
        if touches {
            kept.end = kept.end.max(next.end);
        }
        touches
    });
    ranges
}
