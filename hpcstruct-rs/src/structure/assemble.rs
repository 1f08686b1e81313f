//! Builds the structure from the analysed units, the code map and the loops.
//!
//! Procedures are built in groups, on all threads: scopes, pieces of code, uses of tags and strings.
//! [`Assembled::structure`] then puts the groups one after the other. Invariant: the groups do not
//! depend on the number of threads, except for the shared ids of strings.

use crate::base::parallel;
use crate::base::strings::{Interner, Map, Numbering, Uses};
use crate::code_map::{ByProcedure, Code, CodeMap, MappedProcedure};
use crate::loops;
use crate::loops::nesting::{Body, LoopPlace};
use crate::loops::place::{Item, Placed};
use crate::unit_analysis::classify::{OverheadTag, TagText};
use crate::unit_analysis::{Inputs, Piece, UnitAnalysis};
use hpc_formats::structure::{
    Origin, Procedure, ProcedureId, SPIN_LOOP, Scope, ScopeId, ScopeKind, SourceLine, Span, StringId,
    Structure,
};
use std::ops::Range;

/// Code that a tag covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TagUse {
    /// The category.
    pub category: String,
    /// The mark or the rule that gave it, in words.
    pub cause: String,
    /// Bytes of code.
    pub bytes: u64,
    /// Procedures that have such code.
    pub procedures: u64,
}

/// Pieces of code that make one group.
const GROUP: usize = 1 << 14;

/// Weight of a procedure beside its pieces: without debug information it has one piece, but loops.
const OWN: usize = 16;

/// Names of loops by their lines; those of loops that wait are apart.
type LoopNames = Map<(SourceLine, bool), StringId>;

/// Builds the groups, in the order of the procedures, and sums up how much code each tag covers.
pub(crate) fn assemble(
    inputs: &Inputs<'_, '_>,
    units: &[UnitAnalysis],
    code_map: &CodeMap,
    by_procedure: &ByProcedure,
    found: &loops::Found,
) -> (Vec<Part>, Vec<TagUse>) {
    let sources =
        Sources { inputs, units, code_map, by_procedure, found, tags: inputs.classifier.tag_texts() };
    let groups = groups(code_map, by_procedure);
    let parts = parallel::run_with(groups.len(), inputs.threads, Buffers::default, |buffers, g| {
        sources.build(groups[g].clone(), buffers)
    });
    let tags = tag_uses(&sources, &parts);
    (parts, tags)
}

/// Consecutive procedures, about as much code each.
fn groups(code_map: &CodeMap, by_procedure: &ByProcedure) -> Vec<Range<usize>> {
    let count = code_map.procedures.len();
    let mut groups = Vec::new();
    let (mut from, mut pieces) = (0, 0);
    for procedure in 0..count {
        pieces += OWN;
        for code_range in by_procedure.of(procedure) {
            pieces += code_map.code_ranges[*code_range as usize].code.len();
        }
        if pieces >= GROUP || procedure + 1 == count {
            groups.push(from..procedure + 1);
            (from, pieces) = (procedure + 1, 0);
        }
    }
    groups
}

/// What a group is built from.
struct Sources<'a, 'd> {
    inputs: &'a Inputs<'a, 'd>,
    units: &'a [UnitAnalysis],
    code_map: &'a CodeMap,
    by_procedure: &'a ByProcedure,
    found: &'a loops::Found,
    tags: Vec<TagText>,
}

/// Reused from group to group.
#[derive(Default)]
struct Buffers {
    pieces: Vec<Piece>,
    placed: Placed,
    names: LoopNames,
    uses: Uses,
}

/// A group of procedures; strings have their shared ids.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) first_procedure: u32,
    pub(crate) procedures: Vec<Procedure>,
    /// Their procedures are final, their parents are indices into this list.
    pub(crate) scopes: Vec<Scope>,
    /// Those of them that are inlined code of task runtimes.
    pub(crate) of_runtimes: Vec<u32>,
    /// Their scopes are indices into `scopes`.
    pub(crate) pieces: Vec<Piece>,
    pub(crate) segments: Vec<Segment>,
    /// Strings in the order of their first use.
    pub(crate) strings: Vec<StringId>,
    tags: Vec<(OverheadTag, u64, u64)>,
}

/// Consecutive code of one procedure.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) start: u64,
    pub(crate) procedure: ProcedureId,
    /// Indices into [`Part::pieces`].
    pub(crate) pieces: Range<u32>,
}

impl Sources<'_, '_> {
    fn build(&self, procedures: Range<usize>, buffers: &mut Buffers) -> Part {
        let mut part = Part {
            first_procedure: procedures.start as u32,
            procedures: Vec::with_capacity(procedures.len()),
            scopes: Vec::new(),
            of_runtimes: Vec::new(),
            pieces: Vec::new(),
            segments: Vec::with_capacity(procedures.len()),
            strings: Vec::new(),
            tags: Vec::new(),
        };
        for number in procedures {
            self.add(number, &mut part, buffers);
        }
        part.strings = buffers.uses.take();
        part
    }

    fn add(&self, number: usize, part: &mut Part, buffers: &mut Buffers) {
        let mapped = &self.code_map.procedures[number];
        self.collect(number, mapped, &mut buffers.pieces);
        Self::count_tags(&buffers.pieces, &mut part.tags);
        self.add_procedure(mapped, part, &mut buffers.uses);
        let functions = |(p, f): (u32, u32)| &self.units[p as usize].functions[f as usize];
        let body = Body {
            origin: mapped.info.origin,
            scopes: mapped.function.map_or(&[], |place| functions(place).scopes.as_slice()),
            pieces: &buffers.pieces,
        };
        match self.found.of(number) {
            None => buffers.placed.plain(body),
            Some(loops) => {
                let meaning = |p: &Piece| (p.scope(), p.line(), self.category(p.tag));
                let is_same = |a: &Piece, b: &Piece| meaning(a) == meaning(b);
                buffers.placed.with_loops(body, loops, is_same);
            }
        }
        let procedure = ProcedureId(number as u32);
        let first = part.scopes.len() as u32;
        for (parent, item) in &buffers.placed.scopes {
            let (kind, name, declared, site, origin) = match *item {
                Item::Inlined(old) => {
                    let old = &body.scopes[old as usize];
                    let kind = ScopeKind::Inlined;
                    (kind, old.name, old.declared, old.site, old.origin)
                }
                Item::Loop(place, origin, spins) => {
                    let name = self.loop_name(place, spins, &mut buffers.names);
                    (ScopeKind::Loop, name, None, place.ok(), origin)
                }
            };
            let scope = Scope {
                kind,
                procedure,
                parent: parent.map(|p| ScopeId(first + p)),
                name,
                declared,
                site,
                origin,
            };
            buffers.uses.add(scope.name);
            buffers.uses.add_line(scope.declared);
            buffers.uses.add_line(scope.site);
            if scope.origin == Origin::Runtime && scope.kind == ScopeKind::Inlined {
                part.of_runtimes.push(part.scopes.len() as u32);
            }
            part.scopes.push(scope);
        }
        let mut end = None;
        for piece in &buffers.placed.pieces {
            let at = part.pieces.len() as u32;
            match part.segments.last_mut() {
                Some(last) if end == Some(piece.start) => last.pieces.end = at + 1,
                _ => part.segments.push(Segment { start: piece.start, procedure, pieces: at..at + 1 }),
            }
            end = Some(piece.end);
            let category = self.category(piece.tag);
            buffers.uses.add_line(piece.line());
            category.into_iter().for_each(|c| buffers.uses.add(c));
            let scope = piece.scope().map(|s| first + s);
            part.pieces.push(piece.in_scope(scope));
        }
    }

    fn collect(&self, number: usize, mapped: &MappedProcedure, out: &mut Vec<Piece>) {
        out.clear();
        for code_range in self.by_procedure.of(number) {
            let code_range = &self.code_map.code_ranges[*code_range as usize];
            match (&code_range.code, mapped.function) {
                (Code::Pieces(range), Some((p, f))) => {
                    let pieces = &self.units[p as usize].functions[f as usize].pieces;
                    let first = out.len();
                    out.extend_from_slice(&pieces[range.start as usize..range.end as usize]);
                    if let Some(first) = out.get_mut(first) {
                        first.start = first.start.max(code_range.start);
                    }
                }
                (Code::Plain(line, tag), _) => {
                    out.push(Piece::new(code_range.start..code_range.end, *line, *tag));
                }
                // Only functions have pieces.
                (Code::Pieces(_), None) => {}
            }
        }
    }

    /// Adds what the tags cover in one procedure.
    fn count_tags(pieces: &[Piece], tags: &mut Vec<(OverheadTag, u64, u64)>) {
        let mut of_procedure: Vec<(OverheadTag, u64)> = Vec::new();
        for piece in pieces {
            let Some(tag) = piece.tag else { continue };
            let bytes = piece.end - piece.start;
            match of_procedure.iter_mut().find(|(known, _)| *known == tag) {
                Some((_, sum)) => *sum += bytes,
                None => of_procedure.push((tag, bytes)),
            }
        }
        for (tag, bytes) in of_procedure {
            match tags.iter_mut().find(|known| known.0 == tag) {
                Some((_, sum, procedures)) => {
                    *sum += bytes;
                    *procedures += 1;
                }
                None => tags.push((tag, bytes, 1)),
            }
        }
    }

    fn category(&self, tag: Option<OverheadTag>) -> Option<StringId> {
        tag.map(|tag| self.text(tag).category)
    }

    fn text(&self, tag: OverheadTag) -> TagText {
        self.tags[tag.index()]
    }

    fn add_procedure(&self, mapped: &MappedProcedure, part: &mut Part, uses: &mut Uses) {
        let info = &mapped.info;
        let procedure = Procedure {
            name: info.name,
            linkage_name: info.linkage.unwrap_or(info.name),
            declared: info.declared,
            origin: info.origin,
            tag: self.category(info.tag),
        };
        uses.add(procedure.name);
        uses.add(procedure.linkage_name);
        uses.add_line(procedure.declared);
        procedure.tag.into_iter().for_each(|tag| uses.add(tag));
        part.procedures.push(procedure);
    }

    fn loop_name(&self, place: LoopPlace, spins: bool, known: &mut LoopNames) -> StringId {
        let strings = &self.inputs.classifier.strings;
        let kind = if spins { SPIN_LOOP } else { "loop at" };
        match place {
            Ok(at) => *known.entry((at, spins)).or_insert_with(|| {
                let name = strings.with(at.file, |path| {
                    let base = path.rsplit('/').next().unwrap_or(path);
                    format!("{kind} {base}:{}", at.line)
                });
                strings.id(&name)
            }),
            Err(header) => strings.id(&format!("{kind} {header:#x}")),
        }
    }
}

fn tag_uses(sources: &Sources<'_, '_>, parts: &[Part]) -> Vec<TagUse> {
    let mut sums: Map<OverheadTag, (u64, u64)> = Map::default();
    for (tag, bytes, procedures) in parts.iter().flat_map(|p| &p.tags) {
        let sum = sums.entry(*tag).or_default();
        sum.0 += bytes;
        sum.1 += procedures;
    }
    let text = |id| sources.inputs.classifier.strings.with(id, str::to_owned);
    let of_tag = |(tag, (bytes, procedures)): (OverheadTag, (u64, u64))| TagUse {
        category: text(sources.text(tag).category),
        cause: text(sources.text(tag).cause),
        bytes,
        procedures,
    };
    let mut uses: Vec<TagUse> = sums.into_iter().map(of_tag).collect();
    uses.sort();
    uses
}

/// All groups of a module. Their sources can be dropped before they are put together.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) parts: Vec<Part>,
    pub(crate) strings: Interner,
    pub(crate) tag_texts: Vec<TagText>,
    /// Everything but the tables.
    pub(crate) identity: Structure,
}

impl Assembled {
    /// Puts the parts one after the other.
    pub(crate) fn structure(mut self, threads: usize) -> Structure {
        let uses = self.parts.iter().map(|p| p.strings.as_slice());
        let strings = Numbering::new(self.strings, uses, threads);
        let categories = self.tag_texts.iter().map(|t| strings.id(t.category));
        let categories: Vec<StringId> = categories.collect();
        let mut segments: Vec<(usize, u32, Segment)> = Vec::new();
        let count = self.parts.iter().map(|p| p.scopes.len()).sum();
        let mut scopes: Vec<Scope> = Vec::with_capacity(count);
        let mut procedures = Vec::new();
        for (i, part) in self.parts.iter_mut().enumerate() {
            let first = scopes.len() as u32;
            segments.extend(part.segments.drain(..).map(|s| (i, first, s)));
            scopes.extend(part.scopes.drain(..).map(|s| Scope {
                parent: s.parent.map(|p| ScopeId(first + p.0)),
                name: strings.id(s.name),
                declared: strings.line(s.declared),
                site: strings.line(s.site),
                ..s
            }));
            procedures.extend(part.procedures.drain(..).map(|p| Procedure {
                name: strings.id(p.name),
                linkage_name: strings.id(p.linkage_name),
                declared: strings.line(p.declared),
                tag: p.tag.map(|t| strings.id(t)),
                ..p
            }));
        }
        segments.sort_by_key(|(_, _, s)| s.start);
        let count = self.parts.iter().map(|p| p.pieces.len()).sum();
        let mut spans = Vec::with_capacity(count);
        for (part, first_scope, segment) in segments {
            let range = segment.pieces.start as usize..segment.pieces.end as usize;
            spans.extend(self.parts[part].pieces[range].iter().map(|piece| Span {
                start: piece.start,
                end: piece.end,
                procedure: segment.procedure,
                scope: piece.scope().map(|s| ScopeId(first_scope + s)),
                line: strings.line(piece.line()),
                tag: piece.tag.map(|tag| categories[tag.index()]),
            }));
        }
        Structure { strings: strings.texts, procedures, scopes, spans, ..self.identity }
    }
}
