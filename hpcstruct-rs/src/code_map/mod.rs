//! Which procedure has which code.
//!
//! Input: the analysed units in order, symbols, unwind entries. Invariants: ranges are sorted and do
//! not overlap; of procedures that share code (folded functions) the one that starts first keeps it,
//! then the one of the earlier unit; procedures are numbered by address, those without debug
//! information last; the result does not depend on the number of threads.

mod fill_uncovered;

use crate::base::parallel;
use crate::symbols::unwind_table::Unwind;
use crate::unit_analysis::classify::OverheadTag;
use crate::unit_analysis::function_info::FunctionInfo;
use crate::unit_analysis::{Function, Inputs, Piece, UnitAnalysis};
use hpc_formats::structure::SourceLine;
use std::ops::Range;

/// A procedure that has code.
#[derive(Debug)]
pub(crate) struct MappedProcedure {
    pub(crate) info: FunctionInfo,
    /// Where its scopes and pieces are: numbers of its unit and its function. `None` = it is
    /// known by a symbol or an unwind entry alone.
    pub(crate) function: Option<(u32, u32)>,
}

/// Consecutive code of one procedure.
#[derive(Clone, Debug)]
pub(crate) struct CodeRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) procedure: u32,
    pub(crate) code: Code,
}

/// What a range of code belongs to.
#[derive(Clone, Debug)]
pub(crate) enum Code {
    /// These pieces of the function; the first may begin before the code_range.
    Pieces(Range<u32>),
    /// Its line and its tag, in no scope.
    Plain(Option<SourceLine>, Option<OverheadTag>),
}

impl Code {
    /// Number of pieces.
    pub(crate) fn len(&self) -> usize {
        match self {
            Code::Pieces(range) => range.len(),
            Code::Plain(..) => 1,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct CodeMap {
    pub(crate) procedures: Vec<MappedProcedure>,
    pub(crate) code_ranges: Vec<CodeRange>,
}

/// Ranges by procedure.
#[derive(Debug)]
pub(crate) struct ByProcedure {
    /// Index of each procedure's first one, and one more at the end.
    first: Vec<u32>,
    /// Indices of code_ranges; of one procedure by address.
    code_ranges: Vec<u32>,
}

impl ByProcedure {
    /// Indices of the code_ranges of a procedure.
    pub(crate) fn of(&self, procedure: usize) -> &[u32] {
        &self.code_ranges[self.first[procedure] as usize..self.first[procedure + 1] as usize]
    }
}

impl CodeMap {
    /// Divides the code among the procedures.
    pub(crate) fn new(inputs: &Inputs<'_, '_>, units: &[UnitAnalysis], unwind: &Unwind) -> CodeMap {
        let mut code_map = CodeMap::default();
        code_map.add_functions(units, inputs.threads);
        let loose = units.iter().flat_map(|p| p.loose.iter().copied());
        fill_uncovered::fill(&mut code_map, inputs, loose.collect(), unwind);
        code_map
    }

    pub(crate) fn by_procedure(&self) -> ByProcedure {
        let mut first = vec![0u32; self.procedures.len() + 2];
        for code_range in &self.code_ranges {
            first[code_range.procedure as usize + 2] += 1;
        }
        for i in 2..first.len() {
            first[i] += first[i - 1];
        }
        let mut code_ranges = vec![0; self.code_ranges.len()];
        for (i, code_range) in self.code_ranges.iter().enumerate() {
            let slot = &mut first[code_range.procedure as usize + 1];
            code_ranges[*slot as usize] = i as u32;
            *slot += 1;
        }
        ByProcedure { first, code_ranges }
    }

    fn add_functions(&mut self, units: &[UnitAnalysis], threads: usize) {
        const NONE: u32 = u32::MAX;
        let mut numbers: Vec<Vec<u32>> = units.iter().map(|p| vec![NONE; p.functions.len()]).collect();
        let mut free_from = 0;
        for block in blocks(units, threads) {
            let Block { start, unit, function, pieces } = block;
            let found = &units[unit as usize].functions[function as usize];
            let of_block = &found.pieces[pieces.start as usize..pieces.end as usize];
            let Some(end) = of_block.last().map(|p| p.end).filter(|e| *e > free_from) else {
                continue;
            };
            let number = &mut numbers[unit as usize][function as usize];
            if *number == NONE {
                *number = self.add_procedure(found.info, Some((unit, function)));
            }
            let start = start.max(free_from);
            let taken = of_block.partition_point(|p| p.end <= start) as u32;
            self.code_ranges.push(CodeRange {
                start,
                end,
                procedure: *number,
                code: Code::Pieces(pieces.start + taken..pieces.end),
            });
            free_from = end;
        }
    }

    fn add_procedure(&mut self, info: FunctionInfo, function: Option<(u32, u32)>) -> u32 {
        let number = self.procedures.len() as u32;
        self.procedures.push(MappedProcedure { info, function });
        number
    }
}

/// A contiguous range of a function's pieces.
struct Block {
    start: u64,
    unit: u32,
    function: u32,
    pieces: Range<u32>,
}

/// All of them, by address, then unit.
fn blocks(units: &[UnitAnalysis], threads: usize) -> Vec<Block> {
    let found = parallel::run(units.len(), threads, |p| {
        let mut blocks = Vec::with_capacity(units[p].functions.len());
        for (f, function) in units[p].functions.iter().enumerate() {
            blocks_of(function, |pieces| {
                blocks.push(Block {
                    start: function.pieces[pieces.start].start,
                    unit: p as u32,
                    function: f as u32,
                    pieces: pieces.start as u32..pieces.end as u32,
                });
            });
        }
        // Sorted parts make the whole's sort short.
        blocks.sort_by_key(|b| b.start);
        blocks
    });
    let mut blocks: Vec<Block> = found.into_iter().flatten().collect();
    blocks.sort_by_key(|b| (b.start, b.unit, b.function));
    blocks
}

fn blocks_of(function: &Function, mut each: impl FnMut(Range<usize>)) {
    let pieces: &[Piece] = &function.pieces;
    let mut from = 0;
    for i in 1..=pieces.len() {
        if i == pieces.len() || pieces[i].start != pieces[i - 1].end {
            each(from..i);
            from = i;
        }
    }
}
