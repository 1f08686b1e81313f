//! Tells parallel loops of one source line apart: finds the columns of the calls that begin them.
//!
//! Input: the parts of a structure, the calls that the machine code makes, debug information. Calls of
//! one procedure of the library of parallel iterators from one line are looked at a second time, as
//! neither scopes nor spans keep columns. Invariants: of such calls all get their columns or none
//! does, and none where all are equal: a loop that is alone on its line has no column.

use crate::assemble::Part;
use crate::claims::Claims;
use crate::code::Call;
use crate::dwarf::Debug;
use crate::facts::Facts;
use crate::product::Inputs;
use crate::strings::Map;
use hpc_formats::structure::{
    Columns, Origin, ProcedureId, Scope, ScopeId, ScopeKind, SourceLine, StringId,
};
use std::ops::Range;

/// Whether a task runtime's procedure of this name is one of the library of parallel iterators.
pub fn is_of_parallel_iterators(name: &str) -> bool {
    let bare = name.trim_start_matches(['<', '&']);
    bare.starts_with("rayon::") || name.contains(" as rayon::")
}

/// By procedure, whether it is the library's, which a call may begin a loop with; empty where none is.
pub(crate) fn entries(claims: &Claims, facts: &Facts<'_>) -> Vec<bool> {
    let procedures = claims.procedures.iter();
    let is_entry = |frame: &crate::frames::Frame| {
        frame.origin == Origin::Runtime && facts.strings.with(frame.name, is_of_parallel_iterators)
    };
    let entries: Vec<bool> = procedures.map(|p| is_entry(&p.frame)).collect();
    if entries.contains(&true) {
        entries
    } else {
        Vec::new()
    }
}

/// Procedure and line of a call.
type Key = (StringId, SourceLine);

/// A call that begins a parallel loop.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    key: Key,
    /// An address in the code of the call, which lies in `depth` inlined calls besides.
    address: u64,
    depth: usize,
    /// What it is in the structure.
    place: Place,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Scope(ScopeId),
    /// A call out of line, by its last byte.
    Call(u64),
}

/// The columns of a structure that is made of `parts`; `calls` are those of [`entries`].
pub(crate) fn find(
    inputs: &Inputs<'_, '_>,
    parts: &[Part],
    claims: &Claims,
    calls: &[Call],
) -> Columns {
    let mut found = Vec::new();
    let mut first = 0;
    for part in parts {
        inlined(inputs.facts, part, first, &mut found);
        first += part.scopes.len() as u32;
    }
    out_of_line(parts, claims, calls, &mut found);
    let mut by_key: Map<Key, Vec<Beginning>> = Map::default();
    for beginning in found {
        by_key.entry(beginning.key).or_default().push(beginning);
    }
    by_key.retain(|_, calls| calls.len() > 1);
    let mut columns = Columns::default();
    if by_key.is_empty() {
        return columns;
    }
    let addresses = by_key.values().flatten().map(|b| b.address);
    let mut places = Places::new(inputs.debug, addresses.collect());
    places.read();
    for beginnings in by_key.values() {
        let of = |b: &Beginning| places.column(b);
        let Some(known) = beginnings.iter().map(of).collect::<Option<Vec<u32>>>() else {
            continue;
        };
        if known.iter().all(|column| *column == known[0]) {
            continue;
        }
        for (beginning, column) in beginnings.iter().zip(known) {
            match beginning.place {
                Place::Scope(scope) => columns.scopes.push((scope, column)),
                Place::Call(last) => columns.calls.push((last, column)),
            }
        }
    }
    columns.scopes.sort_unstable();
    columns.calls.sort_unstable();
    columns
}

/// The scopes of a part that begin loops; the part's first scope has number `first`.
fn inlined(facts: &Facts<'_>, part: &Part, first: u32, out: &mut Vec<Beginning>) {
    let scope = |index: u32| &part.scopes[index as usize];
    let begins = |index: &u32| {
        let own: &Scope = scope(*index);
        let around = own.parent.map(|parent| parent.0);
        let origin = origin_of(part, own.procedure, around);
        origin != Origin::Runtime && facts.strings.with(own.name, is_of_parallel_iterators)
    };
    let beginning: Vec<u32> = part.of_runtimes.iter().copied().filter(begins).collect();
    if beginning.is_empty() {
        return;
    }
    let mut addresses: Map<u32, u64> = Map::default();
    for piece in &part.pieces {
        let own = piece.scope();
        let around = own.iter().flat_map(|own| inlined_around(part, *own));
        for scope in own.into_iter().chain(around) {
            addresses.entry(scope).or_insert(piece.start);
        }
    }
    out.extend(beginning.into_iter().filter_map(|index| {
        let own = scope(index);
        Some(Beginning {
            key: (own.name, own.site?),
            address: *addresses.get(&index)?,
            depth: inlined_around(part, index).count(),
            place: Place::Scope(ScopeId(first + index)),
        })
    }));
}

/// The inlined scopes around a scope, innermost first.
fn inlined_around(part: &Part, index: u32) -> impl Iterator<Item = u32> + '_ {
    let around = move |index: &u32| part.scopes[*index as usize].parent.map(|p| p.0);
    let is_inlined = |index: &u32| part.scopes[*index as usize].kind == ScopeKind::Inlined;
    std::iter::successors(around(&index), around).filter(is_inlined)
}

/// The calls out of line that begin loops.
fn out_of_line(parts: &[Part], claims: &Claims, calls: &[Call], out: &mut Vec<Beginning>) {
    if calls.is_empty() {
        return;
    }
    let mut by_address = calls.to_vec();
    by_address.sort_unstable_by_key(|call| call.last);
    for part in parts {
        for segment in &part.segments {
            let pieces = &part.pieces[segment.pieces.start as usize..segment.pieces.end as usize];
            let end = pieces.last().map_or(segment.start, |piece| piece.end);
            let from = by_address.partition_point(|call| call.last < segment.start);
            for call in by_address[from..].iter().take_while(|c| c.last < end) {
                let after = pieces.partition_point(|piece| piece.end <= call.last);
                if let Some((piece, line)) = pieces.get(after).and_then(|p| Some((p, p.line()?))) {
                    if origin_of(part, segment.procedure, piece.scope()) != Origin::Runtime {
                        out.push(Beginning {
                            key: (claims.procedures[call.callee as usize].frame.name, line),
                            address: call.last,
                            depth: 0,
                            place: Place::Call(call.last),
                        });
                    }
                }
            }
        }
    }
}

/// Whose code a scope of a procedure of this part is, loops aside.
fn origin_of(part: &Part, procedure: ProcedureId, scope: Option<u32>) -> Origin {
    let kind = |index: u32| part.scopes[index as usize].kind;
    let around = || scope.and_then(|scope| inlined_around(part, scope).next());
    match scope
        .filter(|own| kind(*own) == ScopeKind::Inlined)
        .or_else(around)
    {
        Some(scope) => part.scopes[scope as usize].origin,
        None => part.procedures[(procedure.0 - part.first_procedure) as usize].origin,
    }
}

/// Line and column; 0 = unknown.
type LineColumn = (u32, u32);

/// What debug information says of some addresses.
struct Places<'a, 'd> {
    debug: &'a Debug<'d>,
    /// Ascending.
    addresses: Vec<u64>,
    /// By address the inlined calls that it lies in, outermost first.
    chains: Vec<Vec<LineColumn>>,
    /// By address its row of the line table.
    rows: Vec<LineColumn>,
}

impl<'a, 'd> Places<'a, 'd> {
    fn new(debug: &'a Debug<'d>, mut addresses: Vec<u64>) -> Self {
        addresses.sort_unstable();
        addresses.dedup();
        Places {
            debug,
            chains: vec![Vec::new(); addresses.len()],
            rows: vec![(0, 0); addresses.len()],
            addresses,
        }
    }

    /// The column of a call; `None` where debug information does not have it.
    fn column(&self, call: &Beginning) -> Option<u32> {
        let index = self.addresses.binary_search(&call.address).ok()?;
        let (line, column) = match call.place {
            Place::Scope(_) => *self.chains[index].get(call.depth)?,
            Place::Call(_) => self.rows[index],
        };
        (line == call.key.1.line && column > 0).then_some(column)
    }

    /// Indices of the addresses in a range.
    fn within(&self, range: &Range<u64>) -> Range<usize> {
        let from = self.addresses.partition_point(|a| *a < range.start);
        from..self.addresses.partition_point(|a| *a < range.end).max(from)
    }

    /// Looks at the units that have the addresses. What cannot be read is not known.
    fn read(&mut self) {
        for unit in self.debug.compilation_units().collect::<Vec<u32>>() {
            let ranges = self.debug.unit_ranges(unit).unwrap_or_default();
            if ranges.iter().any(|r| !self.within(r).is_empty()) {
                let _ = self.read_entries(self.debug.entries_of(unit));
                let _ = self.read_lines(self.debug.lines_of(unit));
            }
        }
    }

    fn read_entries(&mut self, number: u32) -> gimli::Result<()> {
        let debug = self.debug;
        let unit = debug.units.get(number as usize);
        let (Some(unit), Some(dwarf)) = (unit, debug.dwarf(number)) else {
            return Ok(());
        };
        let mut entries = unit.entries();
        while let Some((_, entry)) = entries.next_dfs()? {
            let is_procedure = entry.tag() == gimli::DW_TAG_subprogram;
            if !is_procedure && entry.tag() != gimli::DW_TAG_inlined_subroutine {
                continue;
            }
            let small = |name| {
                let value = entry.attr_value(name).ok().flatten();
                let number = value.and_then(|v| v.udata_value());
                number.and_then(|n| u32::try_from(n).ok()).unwrap_or(0)
            };
            let mut ranges = dwarf.die_ranges(unit, entry)?;
            while let Some(range) = ranges.next()? {
                for index in self.within(&(range.begin..range.end)) {
                    let chain = &mut self.chains[index];
                    if is_procedure {
                        // A nested procedure has scopes of its own.
                        chain.clear();
                    } else {
                        let line = small(gimli::DW_AT_call_line);
                        chain.push((line, small(gimli::DW_AT_call_column)));
                    }
                }
            }
        }
        Ok(())
    }

    fn read_lines(&mut self, number: u32) -> gimli::Result<()> {
        let unit = self.debug.units.get(number as usize);
        let Some(program) = unit.and_then(|u| u.line_program.clone()) else {
            return Ok(());
        };
        let mut rows = program.rows();
        let mut before: Option<(u64, LineColumn)> = None;
        while let Some((_, row)) = rows.next_row()? {
            if let Some((start, place)) = before {
                for index in self.within(&(start..row.address())) {
                    self.rows[index] = place;
                }
            }
            let line = row.line().map_or(0, |line| line.get());
            let column = match row.column() {
                gimli::ColumnType::LeftEdge => 0,
                gimli::ColumnType::Column(column) => column.get(),
            };
            let small = |number| u32::try_from(number).unwrap_or(0);
            let place = (small(line), small(column));
            before = (!row.end_sequence()).then_some((row.address(), place));
        }
        Ok(())
    }
}
