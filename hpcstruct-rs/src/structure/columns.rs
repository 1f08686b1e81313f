//! Columns of the calls that begin parallel loops, where several begin on one source line.
//!
//! Neither scopes nor spans have columns, so calls of one parallel iterator procedure from one line
//! are looked up in the debug information again, with addr2line. Invariants: of such calls all get
//! their columns or none does, and none does if all columns are equal.

use crate::base::strings::Map;
use crate::code::Call;
use crate::code_map::CodeMap;
use crate::dwarf::{Debug, Reader};
use crate::known::{self, Kind};
use crate::structure::assemble::Part;
use crate::unit_analysis::Inputs;
use crate::unit_analysis::classify::Classifier;
use addr2line::{LookupContinuation as _, LookupResult};
use hpc_formats::structure::{Columns, Origin, ProcedureId, Scope, ScopeId, ScopeKind, SourceLine, StringId};

/// By procedure, whether it is one of parallel iterators; empty if none is.
pub(crate) fn entries(code_map: &CodeMap, classifier: &Classifier<'_>) -> Vec<bool> {
    let procedures = code_map.procedures.iter();
    let is_entry = |info: &crate::unit_analysis::function_info::FunctionInfo| {
        info.origin == Origin::Runtime
            && classifier.strings.with(info.name, |name| known::is(Kind::Iterators, name))
    };
    let entries: Vec<bool> = procedures.map(|p| is_entry(&p.info)).collect();
    if entries.contains(&true) { entries } else { Vec::new() }
}

/// Procedure and line of a call.
type Key = (StringId, SourceLine);

/// A call that begins a parallel loop.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    key: Key,
    /// An address in the code of the call; `depth` further inlined calls surround it.
    address: u64,
    depth: usize,
    /// What it is in the structure.
    place: Place,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Scope(ScopeId),
    /// A call that is not inlined, by its last byte.
    Call(u64),
}

/// The columns of a structure that is made of `parts`; `calls` are those of [`entries`].
pub(crate) fn find(inputs: &Inputs<'_, '_>, parts: &[Part], code_map: &CodeMap, calls: &[Call]) -> Columns {
    let mut found = Vec::new();
    let mut first = 0;
    for part in parts {
        inlined(inputs.classifier, part, first, &mut found);
        first += part.scopes.len() as u32;
    }
    out_of_line(parts, code_map, calls, &mut found);
    let mut by_key: Map<Key, Vec<Beginning>> = Map::default();
    for beginning in found {
        by_key.entry(beginning.key).or_default().push(beginning);
    }
    by_key.retain(|_, calls| calls.len() > 1);
    let mut columns = Columns::default();
    if by_key.is_empty() {
        return columns;
    }
    let Some(places) = Places::new(inputs.debug) else {
        return columns;
    };
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
fn inlined(classifier: &Classifier<'_>, part: &Part, first: u32, out: &mut Vec<Beginning>) {
    let scope = |index: u32| &part.scopes[index as usize];
    let begins = |index: &u32| {
        let own: &Scope = scope(*index);
        let around = own.parent.map(|parent| parent.0);
        let origin = origin_of(part, own.procedure, around);
        origin != Origin::Runtime
            && classifier.strings.with(own.name, |name| known::is(Kind::Iterators, name))
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

/// The calls that begin loops and are not inlined.
fn out_of_line(parts: &[Part], code_map: &CodeMap, calls: &[Call], out: &mut Vec<Beginning>) {
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
                            key: (code_map.procedures[call.callee as usize].info.name, line),
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
    match scope.filter(|own| kind(*own) == ScopeKind::Inlined).or_else(around) {
        Some(scope) => part.scopes[scope as usize].origin,
        None => part.procedures[(procedure.0 - part.first_procedure) as usize].origin,
    }
}

/// Line and column; 0 = unknown.
type LineColumn = (u32, u32);

/// Looks up single addresses in the debug information.
struct Places<'a, 'd> {
    debug: &'a Debug<'d>,
    context: addr2line::Context<Reader<'d>>,
}

impl<'a, 'd> Places<'a, 'd> {
    /// `None` where there is no debug information, or it is damaged.
    fn new(debug: &'a Debug<'d>) -> Option<Self> {
        let context = addr2line::Context::from_arc_dwarf(debug.own_dwarf()?.clone()).ok()?;
        Some(Places { debug, context })
    }

    /// The column of a call; `None` where debug information does not have it.
    fn column(&self, call: &Beginning) -> Option<u32> {
        let places = self.of(call.address)?;
        let (own, calls) = places.split_last()?;
        let (line, column) = match call.place {
            Place::Scope(_) => calls.get(call.depth)?,
            Place::Call(_) => own,
        };
        (*line == call.key.1.line && *column > 0).then_some(*column)
    }

    /// The inlined calls around an address, outermost first, then the address itself.
    fn of(&self, address: u64) -> Option<Vec<LineColumn>> {
        let mut lookup = self.context.find_frames(address);
        let mut infos = loop {
            match lookup {
                LookupResult::Output(infos) => break infos.ok()?,
                LookupResult::Load { load, continuation } => {
                    lookup = continuation.resume(self.debug.split_dwarf(load.dwo_id));
                }
            }
        };
        let mut places = Vec::new();
        while let Some(info) = infos.next().ok()? {
            let at = info.location.as_ref();
            let number = |n: Option<u32>| n.unwrap_or(0);
            places.push(at.map_or((0, 0), |at| (number(at.line), number(at.column))));
        }
        places.reverse();
        Some(places)
    }
}
