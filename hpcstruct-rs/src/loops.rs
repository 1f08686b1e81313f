//! Adds the loops of the machine code to a structure: names them, places them in the tree of
//! scopes, and splits spans at their borders.
//!
//! Input: a structure whose spans tell which procedure has which code. A loop lies in the
//! innermost scope that all its code has in common: the longest common prefix of the chains of
//! inlined scopes. It is named by a line of the nearest scope from there outwards whose code is not
//! the system's (code that the compiler gives to no line has no say in this): the line of the call
//! where that scope inlines the system's code, else the smallest line of the branches that leave or
//! repeat the loop, else, where it is smaller, the first line of its body. An irreducible loop that shares its line with the loop
//! around it is one with it. Invariants: the sum and the order of spans stay; parents come before
//! children; the result does not depend on the number of threads.

use crate::code::memory::Memory;
use crate::code::{Architecture, Layout, ProcedureLoops, Program};
use crate::image::Image;
use crate::names;
use crate::parallel;
use crate::symbols::Symbols;
use crate::unwind::Unwind;
use hpc_formats::structure::{
    Origin, Procedure, ProcedureId, Scope, ScopeId, ScopeKind, SourceLine, Span, StringId,
    Structure,
};
use std::collections::HashMap;
use std::ops::Range;

/// What the loops are found with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sources<'a, 'd> {
    /// The load module.
    pub(crate) image: &'a Image<'d>,
    /// Its symbols.
    pub(crate) symbols: &'a Symbols<'d>,
    /// Its unwind entries.
    pub(crate) unwind: &'a Unwind,
    /// Threads to use.
    pub(crate) threads: usize,
}

/// A procedure's code: its number, and its spans.
struct Body {
    procedure: ProcedureId,
    layout: Layout,
    /// Indices of its spans, one range for each range of the layout.
    spans: Vec<Range<usize>>,
}

/// Adds loops to `structure`, which has none yet. Returns a note when the code cannot be read.
pub(crate) fn add(structure: &mut Structure, sources: &Sources<'_, '_>) -> Option<String> {
    let Some(architecture) = Architecture::of(&sources.image.file) else {
        return Some("loops are found in x86-64 and AArch64 code only".to_owned());
    };
    let memory = Memory::new(&sources.image.file);
    let stubs = stubs(sources.image);
    let (bodies, left_out) = bodies(structure, sources.symbols, &stubs);
    let program = Program {
        architecture,
        memory: &memory,
        stubs: &stubs,
        handlers: &sources.unwind.handlers,
        wanted: bodies.iter().map(|b| b.layout.clone()).collect(),
        others: others(structure, sources, &stubs),
        named: named(sources.symbols),
        threads: sources.threads,
    };
    let loops = program.loops();
    place_all(structure, &bodies, &loops, sources.threads);
    (left_out > 0).then(|| format!("{left_out} procedures are too long to find loops in"))
}

/// The loops of every procedure that a symbol or an unwind entry states.
pub(crate) fn of_image(sources: &Sources<'_, '_>) -> Vec<ProcedureLoops> {
    let Some(architecture) = Architecture::of(&sources.image.file) else {
        return Vec::new();
    };
    let memory = Memory::new(&sources.image.file);
    let stubs = stubs(sources.image);
    let ranges = others(&Structure::default(), sources, &stubs);
    let layout = |range| Layout::new(std::iter::once(range).collect(), 0);
    let program = Program {
        architecture,
        memory: &memory,
        stubs: &stubs,
        handlers: &sources.unwind.handlers,
        wanted: ranges.into_iter().filter_map(layout).collect(),
        others: Vec::new(),
        named: named(sources.symbols),
        threads: sources.threads,
    };
    program.loops()
}

/// Ranges of linkage stubs.
fn stubs(image: &Image<'_>) -> Vec<Range<u64>> {
    let is_stub = |name: &str| name.starts_with(".plt") || name == ".iplt";
    let stubs = image.code.iter().filter(|(_, name)| is_stub(name));
    stubs.map(|(range, _)| range.clone()).collect()
}

/// Names of procedures by address.
fn named<'d>(symbols: &Symbols<'d>) -> Vec<(u64, &'d [u8])> {
    symbols.sorted.iter().map(|s| (s.start, s.name)).collect()
}

/// The code of every procedure, and the number of procedures that are too long.
fn bodies(
    structure: &Structure,
    symbols: &Symbols<'_>,
    stubs: &[Range<u64>],
) -> (Vec<Body>, usize) {
    let spans = &structure.spans;
    let mut runs: Vec<(ProcedureId, Range<usize>)> = Vec::new();
    for (i, span) in spans.iter().enumerate() {
        if stubs.iter().any(|s| s.contains(&span.start)) {
            continue;
        }
        match runs.last_mut() {
            Some((procedure, run))
                if *procedure == span.procedure
                    && run.end == i
                    && spans[i - 1].end == span.start =>
            {
                run.end = i + 1;
            }
            _ => runs.push((span.procedure, i..i + 1)),
        }
    }
    runs.sort_by_key(|(procedure, run)| (*procedure, run.start));
    let mut bodies = Vec::new();
    let mut left_out = 0;
    for group in runs.chunk_by(|a, b| a.0 == b.0) {
        let address = |run: &Range<usize>| spans[run.start].start..spans[run.end - 1].end;
        let ranges: Vec<Range<u64>> = group.iter().map(|(_, run)| address(run)).collect();
        let entry = entry_of(&ranges, symbols);
        match Layout::new(ranges, entry) {
            Some(layout) => bodies.push(Body {
                procedure: group[0].0,
                layout,
                spans: group.iter().map(|(_, run)| run.clone()).collect(),
            }),
            None => left_out += 1,
        }
    }
    (bodies, left_out)
}

/// The range that a procedure is entered at: the one with a symbol of its own that names no cold
/// part, else the longest.
fn entry_of(ranges: &[Range<u64>], symbols: &Symbols<'_>) -> usize {
    let named = |range: &Range<u64>| {
        let symbol = symbols.starting_at(range.start)?;
        let name = String::from_utf8_lossy(symbol.name);
        Some(!names::stem(&name).is_cold_part)
    };
    if ranges.len() == 1 {
        return 0;
    }
    let by_symbol = ranges.iter().position(|r| named(r) == Some(true));
    by_symbol.unwrap_or_else(|| {
        let longest = ranges.iter().enumerate();
        let length = |r: &Range<u64>| r.end - r.start;
        longest
            .max_by_key(|(i, r)| (length(r), std::cmp::Reverse(*i)))
            .map_or(0, |(i, _)| i)
    })
}

/// Code that no span covers, by symbols and unwind entries: procedures that nobody asked for, but
/// that may tell whether those who call them get control back.
fn others(
    structure: &Structure,
    sources: &Sources<'_, '_>,
    stubs: &[Range<u64>],
) -> Vec<Range<u64>> {
    if structure.complete {
        return Vec::new();
    }
    let symbols = sources.symbols.sorted.iter().map(|s| s.start..s.end);
    let mut ranges: Vec<Range<u64>> = symbols
        .chain(sources.unwind.ranges.iter().cloned())
        .collect();
    ranges.sort_by_key(|r| (r.start, std::cmp::Reverse(r.end)));
    let mut spans = structure.spans.iter().peekable();
    let mut free_from = 0;
    ranges.retain_mut(|range| {
        range.start = range.start.max(free_from);
        while spans.next_if(|s| s.end <= range.start).is_some() {}
        if let Some(span) = spans.peek() {
            range.end = range.end.min(span.start.max(range.start));
        }
        if stubs.iter().any(|s| s.contains(&range.start)) || range.start >= range.end {
            return false;
        }
        free_from = range.end;
        true
    });
    ranges
}

/// A scope of a procedure with loops.
enum Item {
    /// A scope that was there before.
    Old(ScopeId),
    /// A loop: its place in the source, or its header where none is known.
    Loop(Result<SourceLine, u64>, Origin),
}

/// The new scopes and spans of one procedure.
struct Placed {
    /// Parents come before children.
    scopes: Vec<(Option<u32>, Item)>,
    /// Spans; their scopes are indices into `scopes`.
    spans: Vec<Span>,
}

/// Replaces scopes and spans of procedures that have loops.
fn place_all(structure: &mut Structure, bodies: &[Body], loops: &[ProcedureLoops], threads: usize) {
    let with_loops: Vec<usize> = (0..bodies.len())
        .filter(|i| loops.get(*i).is_some_and(|l| !l.loops.is_empty()))
        .collect();
    const CHUNK: usize = 64;
    let chunks: Vec<&[usize]> = with_loops.chunks(CHUNK).collect();
    let old: &Structure = structure;
    let placed = parallel::run(chunks.len(), threads, |c| {
        let place = |i: &usize| Placer::new(old, &bodies[*i], &loops[*i]).place();
        chunks[c].iter().map(place).collect::<Vec<_>>()
    });
    let mut merge = Merge::new(structure);
    for (i, placed) in with_loops.iter().zip(placed.into_iter().flatten()) {
        merge.add(&bodies[*i], placed);
    }
    merge.finish();
}

/// Puts the new parts into the structure.
struct Merge<'s> {
    structure: &'s mut Structure,
    /// Names of loops by their place, which no other string is equal to.
    names: HashMap<Result<SourceLine, u64>, StringId>,
    scopes: Vec<Scope>,
    spans: Vec<Span>,
    /// Spans that were replaced, as bits.
    replaced: Vec<bool>,
}

impl<'s> Merge<'s> {
    fn new(structure: &'s mut Structure) -> Self {
        Merge {
            names: HashMap::new(),
            scopes: Vec::new(),
            spans: Vec::new(),
            replaced: vec![false; structure.spans.len()],
            structure,
        }
    }

    fn add(&mut self, body: &Body, placed: Placed) {
        let first = self.scopes.len() as u32;
        for (parent, item) in placed.scopes {
            let parent = parent.map(|p| ScopeId(first + p));
            let scope = match item {
                Item::Old(id) => Scope {
                    parent,
                    ..self.structure.scopes[id.0 as usize].clone()
                },
                Item::Loop(place, origin) => Scope {
                    kind: ScopeKind::Loop,
                    procedure: body.procedure,
                    parent,
                    name: self.loop_name(place),
                    declared: None,
                    site: place.ok(),
                    origin,
                },
            };
            self.scopes.push(scope);
        }
        for run in &body.spans {
            self.replaced[run.clone()].fill(true);
        }
        self.spans.extend(placed.spans.into_iter().map(|span| Span {
            scope: span.scope.map(|s| ScopeId(first + s.0)),
            ..span
        }));
    }

    fn loop_name(&mut self, place: Result<SourceLine, u64>) -> StringId {
        let strings = &mut self.structure.strings;
        let new = StringId(u32::try_from(strings.len()).unwrap_or(u32::MAX));
        let id = *self.names.entry(place).or_insert(new);
        if id == new {
            strings.push(match place {
                Ok(at) => {
                    let path = strings.get(at.file.0 as usize).map_or("", String::as_str);
                    let base = path.rsplit('/').next().unwrap_or(path);
                    format!("loop at {base}:{}", at.line)
                }
                Err(header) => format!("loop at {header:#x}"),
            });
        }
        id
    }

    /// Scopes of the other procedures follow, as far as their spans use them.
    fn finish(mut self) {
        let old = std::mem::take(&mut self.structure.spans);
        let mut number: Vec<Option<ScopeId>> = vec![None; self.structure.scopes.len()];
        for (span, replaced) in old.into_iter().zip(&self.replaced) {
            if *replaced {
                continue;
            }
            let scope = span
                .scope
                .map(|s| renumber(&mut self.scopes, &self.structure.scopes, &mut number, s));
            self.spans.push(Span { scope, ..span });
        }
        self.spans.sort_unstable_by_key(|s| s.start);
        self.structure.spans = self.spans;
        self.structure.scopes = self.scopes;
    }
}

/// The new number of a scope that stays as it is; scopes around it get theirs first.
fn renumber(
    scopes: &mut Vec<Scope>,
    old: &[Scope],
    number: &mut [Option<ScopeId>],
    scope: ScopeId,
) -> ScopeId {
    let mut path = Vec::new();
    let mut parent = None;
    let mut next = Some(scope);
    while let Some(id) = next {
        if let Some(known) = number[id.0 as usize] {
            parent = Some(known);
            break;
        }
        path.push(id);
        next = old[id.0 as usize].parent;
    }
    for id in path.into_iter().rev() {
        let new = ScopeId(scopes.len() as u32);
        scopes.push(Scope {
            parent,
            ..old[id.0 as usize].clone()
        });
        number[id.0 as usize] = Some(new);
        parent = Some(new);
    }
    parent.unwrap_or(scope)
}

/// A part of a span in one innermost loop.
struct Piece {
    start: u64,
    end: u64,
    /// Index of its span in the structure.
    span: usize,
    /// Its innermost loop.
    inner: Option<u32>,
}

/// Places the loops of one procedure.
struct Placer<'a> {
    structure: &'a Structure,
    procedure: &'a Procedure,
    loops: &'a ProcedureLoops,
    pieces: Vec<Piece>,
    /// Scope that each loop lies in; `None` = directly in the procedure.
    homes: Vec<Option<ScopeId>>,
    /// The same by code with lines only: the scope whose line names the loop.
    levels: Vec<Option<ScopeId>>,
    /// Place and origin of each loop.
    names: Vec<(Result<SourceLine, u64>, Origin)>,
    /// The loop that each loop is shown as: itself, or one around it.
    shown: Vec<u32>,
    out: Placed,
    /// Index in `out` of a scope (old scope, or none) within a loop (or none).
    known: HashMap<(Option<ScopeId>, Option<u32>), Option<u32>>,
}

impl<'a> Placer<'a> {
    fn new(structure: &'a Structure, body: &Body, loops: &'a ProcedureLoops) -> Self {
        Placer {
            structure,
            procedure: &structure.procedures[body.procedure.0 as usize],
            loops,
            pieces: pieces(structure, body, loops),
            homes: Vec::new(),
            levels: Vec::new(),
            names: Vec::new(),
            shown: Vec::new(),
            out: Placed {
                scopes: Vec::new(),
                spans: Vec::new(),
            },
            known: HashMap::new(),
        }
    }

    fn place(mut self) -> Placed {
        self.find_homes();
        self.find_names();
        self.merge_irreducible();
        let pieces = std::mem::take(&mut self.pieces);
        for piece in &pieces {
            let span = &self.structure.spans[piece.span];
            let inner = piece.inner.map(|l| self.shown[l as usize]);
            let scope = self.number(span.scope, inner).map(ScopeId);
            let new = Span {
                start: piece.start,
                end: piece.end,
                scope,
                ..*span
            };
            match self.out.spans.last_mut() {
                Some(last)
                    if last.end == new.start
                        && (last.scope, last.line, last.tag) == (new.scope, new.line, new.tag) =>
                {
                    last.end = new.end;
                }
                _ => self.out.spans.push(new),
            }
        }
        self.out
    }

    fn scope(&self, id: ScopeId) -> &'a Scope {
        &self.structure.scopes[id.0 as usize]
    }

    /// The innermost scope around both; a parent's number is smaller than its children's.
    fn common(&self, mut a: Option<ScopeId>, mut b: Option<ScopeId>) -> Option<ScopeId> {
        while a != b {
            if a > b {
                a = self.scope(a?).parent;
            } else {
                b = self.scope(b?).parent;
            }
        }
        a
    }

    /// The innermost scope that the code of each loop has in common: all of it, and that with
    /// lines.
    fn find_homes(&mut self) {
        let count = self.loops.loops.len();
        let mut homes: [Vec<Option<Option<ScopeId>>>; 2] = [vec![None; count], vec![None; count]];
        for piece in &self.pieces {
            let Some(inner) = piece.inner else { continue };
            let span = &self.structure.spans[piece.span];
            let kinds = if span.line.is_some() { 0..2 } else { 0..1 };
            for kind in kinds {
                let home = &mut homes[kind][inner as usize];
                *home = Some(home.map_or(span.scope, |known| self.common(known, span.scope)));
            }
        }
        for i in (0..count).rev() {
            let Some(parent) = self.loops.loops[i].parent else {
                continue;
            };
            for homes in &mut homes {
                if let Some(own) = homes[i] {
                    let known = homes[parent as usize].unwrap_or(own);
                    homes[parent as usize] = Some(self.common(known, own));
                }
            }
        }
        let [all, lined] = homes;
        self.homes = all.iter().map(|home| home.flatten()).collect();
        let level = |(lined, all): (Option<Option<ScopeId>>, &Option<Option<ScopeId>>)| {
            lined.or(*all).flatten()
        };
        self.levels = lined.into_iter().zip(&all).map(level).collect();
    }

    fn find_names(&mut self) {
        let count = self.loops.loops.len();
        let branches: Vec<_> = (0..count).map(|i| self.line_of_branches(i)).collect();
        let mut headers: Vec<_> = (0..count).map(|i| self.line_of_header(i)).collect();
        self.keep_lines_of_bodies(&branches, &mut headers);
        for (i, found) in self.loops.loops.iter().enumerate() {
            let mut level = self.levels[i];
            // The call by which the code lies in a scope of the system.
            let mut site = None;
            let mut origin = self.origin(level);
            while let (Origin::System, Some(scope)) = (origin, level) {
                site = self.scope(scope).site;
                level = self.scope(scope).parent;
                origin = self.origin(level);
            }
            let own = headers[i].or(branches[i]).or_else(|| self.any_line(i));
            // A loop of the system in the system's procedure is the system's.
            let place = site.filter(|_| origin != Origin::System).or(own);
            self.names.push((place.ok_or(found.header), origin));
        }
    }

    /// Keeps a header's line where it is smaller than that of the branches, and the line of no
    /// code outside of the loop: then it is the first of the body. Otherwise it may be anything
    /// that the compiler moved there.
    fn keep_lines_of_bodies(
        &self,
        branches: &[Option<SourceLine>],
        headers: &mut [Option<SourceLine>],
    ) {
        // The innermost loop around all code of the line; none yet at first.
        let mut around: HashMap<(Option<ScopeId>, SourceLine), Option<Option<u32>>> =
            HashMap::new();
        for (i, header) in headers.iter_mut().enumerate() {
            if let (Some(line), Some(branch)) = (*header, branches[i]) {
                if line.file == branch.file && line.line < branch.line {
                    around.insert((self.levels[i], line), None);
                } else {
                    *header = None;
                }
            }
        }
        if around.is_empty() {
            return;
        }
        for piece in &self.pieces {
            let span = &self.structure.spans[piece.span];
            let Some(line) = span.line else { continue };
            if let Some(known) = around.get_mut(&(span.scope, line)) {
                *known = Some(match *known {
                    None => piece.inner,
                    Some(other) => self.common_loop(other, piece.inner),
                });
            }
        }
        for (i, header) in headers.iter_mut().enumerate() {
            let key = header.map(|line| (self.levels[i], line));
            if let Some(Some(found)) = key.and_then(|k| around.get(&k)) {
                if self.common_loop(*found, Some(i as u32)) != Some(i as u32) {
                    *header = branches[i];
                }
            }
        }
    }

    /// The innermost loop around both; a loop comes after the one around it.
    fn common_loop(&self, mut a: Option<u32>, mut b: Option<u32>) -> Option<u32> {
        while a != b {
            if a > b {
                a = self.loops.loops[a? as usize].parent;
            } else {
                b = self.loops.loops[b? as usize].parent;
            }
        }
        a
    }

    fn origin(&self, scope: Option<ScopeId>) -> Origin {
        scope.map_or(self.procedure.origin, |s| self.scope(s).origin)
    }

    /// The smallest line of the branches that leave or repeat a loop, as its level sees them.
    fn line_of_branches(&self, index: usize) -> Option<SourceLine> {
        let branches = self.loops.loops[index].controls.iter();
        let mut lines =
            branches.filter_map(|a| self.line_in(self.levels[index], self.pieces_from(*a).next()?));
        let first = lines.next()?;
        // Lines of one file can be compared.
        let others = lines.filter(|l| l.file == first.file);
        Some(others.fold(first, |a, b| if b.line < a.line { b } else { a }))
    }

    /// The first line of a loop's header.
    fn line_of_header(&self, index: usize) -> Option<SourceLine> {
        let found = &self.loops.loops[index];
        self.pieces_from(found.header)
            .take_while(|p| p.inner == Some(index as u32))
            .find_map(|p| self.line_in(self.levels[index], p))
    }

    /// Any line of a loop whose header and branches have none.
    fn any_line(&self, index: usize) -> Option<SourceLine> {
        let found = &self.loops.loops[index];
        const PIECES: usize = 1024;
        let inside = self.pieces_from(found.header).take(PIECES);
        inside
            .filter(|p| p.inner == Some(index as u32))
            .find_map(|p| self.line_in(self.levels[index], p))
    }

    fn pieces_from(&self, address: u64) -> impl Iterator<Item = &Piece> {
        let first = self.pieces.partition_point(|p| p.end <= address);
        self.pieces[first..].iter()
    }

    /// The line of code as the scope `level` sees it: its own, or that of the call into which the
    /// code was inlined.
    fn line_in(&self, level: Option<ScopeId>, piece: &Piece) -> Option<SourceLine> {
        let span = &self.structure.spans[piece.span];
        let mut line = span.line;
        let mut at = span.scope;
        while at > level {
            let scope = self.scope(at?);
            line = scope.site;
            at = scope.parent;
        }
        line.filter(|_| at == level)
    }

    fn merge_irreducible(&mut self) {
        for (i, found) in self.loops.loops.iter().enumerate() {
            let around = found.parent.filter(|parent| {
                let outer = &self.loops.loops[*parent as usize];
                let same = self.names[i].0 == self.names[*parent as usize].0;
                same && (found.irreducible || outer.irreducible)
            });
            let shown = around.map_or(i as u32, |parent| self.shown[parent as usize]);
            self.shown.push(shown);
        }
    }

    /// The number of `scope` within the loop `inner`, whose home is around it or is it.
    fn number(&mut self, scope: Option<ScopeId>, inner: Option<u32>) -> Option<u32> {
        let mut path = Vec::new();
        let mut at = (scope, inner);
        let mut parent = loop {
            if let Some(known) = self.known.get(&at) {
                break *known;
            }
            match at {
                (None, None) => break None,
                (scope, Some(l)) if scope == self.homes[l as usize] => {
                    path.push((
                        at,
                        Item::Loop(self.names[l as usize].0, self.names[l as usize].1),
                    ));
                    let around = self.loops.loops[l as usize].parent;
                    at.1 = around.map(|p| self.shown[p as usize]);
                }
                (Some(s), _) => {
                    path.push((at, Item::Old(s)));
                    at.0 = self.scope(s).parent;
                }
                // Unreachable: a home is around what is within.
                (None, Some(_)) => at.1 = None,
            }
        };
        for (key, item) in path.into_iter().rev() {
            self.out.scopes.push((parent, item));
            parent = Some(self.out.scopes.len() as u32 - 1);
            self.known.insert(key, parent);
        }
        parent
    }
}

/// Cuts the spans of a procedure at the borders of loops.
fn pieces(structure: &Structure, body: &Body, loops: &ProcedureLoops) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut regions = loops.regions.iter().peekable();
    for run in &body.spans {
        for span in run.clone() {
            let Span { start, end, .. } = structure.spans[span];
            let mut at = start;
            while at < end {
                while regions.next_if(|r| r.range.end <= at).is_some() {}
                let (to, inner) = match regions.peek() {
                    Some(r) if r.range.start <= at => (r.range.end.min(end), Some(r.inner)),
                    Some(r) => (r.range.start.min(end), None),
                    None => (end, None),
                };
                pieces.push(Piece {
                    start: at,
                    end: to,
                    span,
                    inner,
                });
                at = to;
            }
        }
    }
    pieces
}
