//! Joins the products of all units, symbols and unwind entries into one structure.
//!
//! Input: products in the order of the units. Invariants: spans are sorted and never overlap;
//! where two procedures claim the same code (folded functions) the one that starts first keeps
//! it, then the one of the earlier unit; the result is the same whatever the number of threads.

use crate::dwarf::Debug;
use crate::frames::{Frame, Frames};
use crate::names;
use crate::product::{Function, Inputs, Piece, Product};
use crate::strings::Strings;
use hpc_formats::structure::{
    Origin, Procedure, ProcedureId, Scope, ScopeId, ScopeKind, SourceLine, Span, StringId,
    Structure,
};
use std::collections::HashMap;
use std::ops::Range;

/// Joins everything; `notes`, `module` and `complete` are left to the caller.
pub(crate) fn assemble(
    inputs: &Inputs<'_, '_>,
    products: &[Product],
    unwind: &[Range<u64>],
) -> Structure {
    let mut assembly = Assembly {
        strings: Strings::default(),
        procedures: Vec::new(),
        scopes: Vec::new(),
        spans: Vec::new(),
        by_linkage: HashMap::new(),
    };
    assembly.add_functions(products);
    assembly.add_gaps(inputs, products, unwind);
    Structure {
        strings: assembly.strings.into_list(),
        procedures: assembly.procedures,
        scopes: assembly.scopes,
        spans: assembly.spans,
        ..Structure::default()
    }
}

struct Assembly {
    strings: Strings,
    procedures: Vec<Procedure>,
    scopes: Vec<Scope>,
    spans: Vec<Span>,
    /// First procedure of each linkage name, for cold parts that only a symbol names.
    by_linkage: HashMap<StringId, ProcedureId>,
}

/// A contiguous run of a function's pieces.
struct Block {
    start: u64,
    product: usize,
    function: usize,
    pieces: Range<usize>,
}

/// Translates a product's string ids, on first use.
struct Translation<'p> {
    from: &'p [String],
    to: Vec<Option<StringId>>,
}

impl Translation<'_> {
    fn id(&mut self, strings: &mut Strings, id: StringId) -> StringId {
        let at = id.0 as usize;
        match self.to.get(at).copied().flatten() {
            Some(known) => known,
            None => {
                let new = strings.id(self.from.get(at).map_or("", String::as_str));
                if let Some(slot) = self.to.get_mut(at) {
                    *slot = Some(new);
                }
                new
            }
        }
    }

    fn line(&mut self, strings: &mut Strings, line: Option<SourceLine>) -> Option<SourceLine> {
        line.map(|l| SourceLine {
            file: self.id(strings, l.file),
            line: l.line,
        })
    }
}

fn blocks(products: &[Product]) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (p, product) in products.iter().enumerate() {
        for (f, function) in product.functions.iter().enumerate() {
            let pieces = &function.pieces;
            let mut from = 0;
            for i in 1..=pieces.len() {
                if i == pieces.len() || pieces[i].start != pieces[i - 1].end {
                    blocks.push(Block {
                        start: pieces[from].start,
                        product: p,
                        function: f,
                        pieces: from..i,
                    });
                    from = i;
                }
            }
        }
    }
    blocks.sort_by_key(|b| (b.start, b.product, b.function));
    blocks
}

impl Assembly {
    fn add_functions(&mut self, products: &[Product]) {
        let mut translations: Vec<Translation<'_>> = products
            .iter()
            .map(|p| Translation {
                from: &p.strings,
                to: vec![None; p.strings.len()],
            })
            .collect();
        let mut numbers: HashMap<(usize, usize), (ProcedureId, u32)> = HashMap::new();
        let mut free_from = 0;
        for block in blocks(products) {
            let Some(function) = products[block.product].functions.get(block.function) else {
                continue;
            };
            let pieces = &function.pieces[block.pieces];
            if pieces.last().is_none_or(|p| p.end <= free_from) {
                continue;
            }
            let translation = &mut translations[block.product];
            let (procedure, first_scope) = *numbers
                .entry((block.product, block.function))
                .or_insert_with(|| self.add_function(function, translation));
            for piece in pieces {
                let start = piece.start.max(free_from);
                if start >= piece.end {
                    continue;
                }
                free_from = piece.end;
                self.spans.push(Span {
                    start,
                    end: piece.end,
                    procedure,
                    scope: piece.scope.map(|s| ScopeId(first_scope + s)),
                    line: translation.line(&mut self.strings, piece.line),
                    tag: piece.tag.map(|t| translation.id(&mut self.strings, t)),
                });
            }
        }
    }

    /// Adds a procedure with its scopes; returns its id and the id of its first scope.
    fn add_function(
        &mut self,
        function: &Function,
        translation: &mut Translation<'_>,
    ) -> (ProcedureId, u32) {
        let procedure = self.add_procedure(&function.frame, translation);
        let first = self.scopes.len() as u32;
        for scope in &function.scopes {
            let strings = &mut self.strings;
            self.scopes.push(Scope {
                kind: ScopeKind::Inlined,
                procedure,
                parent: scope.parent.map(|p| ScopeId(first + p)),
                name: translation.id(strings, scope.frame.name),
                declared: translation.line(strings, scope.frame.declared),
                site: translation.line(strings, scope.site),
                origin: scope.frame.origin,
            });
        }
        (procedure, first)
    }

    fn add_procedure(&mut self, frame: &Frame, translation: &mut Translation<'_>) -> ProcedureId {
        let id = ProcedureId(self.procedures.len() as u32);
        let strings = &mut self.strings;
        let linkage_name = translation.id(strings, frame.linkage);
        self.procedures.push(Procedure {
            name: translation.id(strings, frame.name),
            linkage_name,
            declared: translation.line(strings, frame.declared),
            origin: frame.origin,
            tag: frame.tag.map(|t| translation.id(strings, t)),
        });
        self.by_linkage.entry(linkage_name).or_insert(id);
        id
    }

    /// Fills what debug information leaves open: by symbols, then by unwind entries, then by
    /// linkage-table sections.
    fn add_gaps(&mut self, inputs: &Inputs<'_, '_>, products: &[Product], unwind: &[Range<u64>]) {
        let mut filler = Filler::new(self, inputs, products);
        // Cold parts come second: they belong to the procedure of their stem.
        for cold in [false, true] {
            for symbol in &inputs.symbols.sorted {
                let range = symbol.start..symbol.end;
                let name = String::from_utf8_lossy(symbol.name);
                if names::stem(&name).is_cold_part == cold && inputs.wanted.hits(&range) {
                    filler.fill(range, Some(&name));
                }
            }
            filler.close();
        }
        for range in unwind {
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
    }
}

/// Adds procedures for code that no span covers yet.
struct Filler<'a, 'd> {
    assembly: &'a mut Assembly,
    inputs: &'a Inputs<'a, 'd>,
    frames: Frames<'a, 'd>,
    /// The frames' strings that the structure has already.
    translated: Vec<Option<StringId>>,
    /// Lines of code without procedure entries: sorted, disjoint, with full string ids.
    loose: Vec<Piece>,
    /// New spans of the current pass, sorted.
    added: Vec<Span>,
    free_from: u64,
}

impl<'a, 'd> Filler<'a, 'd> {
    fn new(assembly: &'a mut Assembly, inputs: &'a Inputs<'a, 'd>, products: &[Product]) -> Self {
        let debug: &'a Debug<'d> = inputs.debug;
        let mut loose = Vec::new();
        for product in products {
            let mut translation = Translation {
                from: &product.strings,
                to: vec![None; product.strings.len()],
            };
            for piece in &product.loose {
                loose.push(Piece {
                    line: translation.line(&mut assembly.strings, piece.line),
                    tag: piece.tag.map(|t| translation.id(&mut assembly.strings, t)),
                    ..*piece
                });
            }
        }
        loose.sort_by_key(|p| p.start);
        Filler {
            frames: Frames::new(debug, None, inputs.rules, inputs.module),
            translated: Vec::new(),
            assembly,
            inputs,
            loose,
            added: Vec::new(),
            free_from: 0,
        }
    }

    /// Covers the free parts of `range`. A tail of a procedure that is already known there goes
    /// to that procedure.
    fn fill(&mut self, range: Range<u64>, symbol: Option<&str>) {
        let range = range.start.max(self.free_from)..range.end;
        let mut owner = self.owner_before(&range);
        let mut at = range.start;
        let spans = &self.assembly.spans;
        let mut next = spans.partition_point(|s| s.end <= at);
        let mut free = Vec::new();
        while at < range.end {
            match spans.get(next).filter(|s| s.start < range.end) {
                Some(span) => {
                    if at < span.start {
                        free.push(at..span.start);
                    }
                    at = span.end;
                    next += 1;
                }
                None => {
                    free.push(at..range.end);
                    at = range.end;
                }
            }
        }
        for part in free {
            let procedure = match owner {
                Some(owner) => owner,
                None => self.procedure(&range, symbol),
            };
            owner = Some(procedure);
            self.cover(part, procedure);
        }
        self.free_from = self.free_from.max(range.end);
    }

    /// The procedure whose span covers the first address of `range`.
    fn owner_before(&self, range: &Range<u64>) -> Option<ProcedureId> {
        let spans = &self.assembly.spans;
        let span = spans.get(spans.partition_point(|s| s.end <= range.start))?;
        (span.start <= range.start).then_some(span.procedure)
    }

    fn procedure(&mut self, range: &Range<u64>, symbol: Option<&str>) -> ProcedureId {
        let frame = match symbol {
            Some(symbol) => {
                let stem = names::stem(symbol);
                if stem.is_cold_part {
                    let id = self.assembly.strings.id(stem.name);
                    if let Some(whole) = self.assembly.by_linkage.get(&id) {
                        return *whole;
                    }
                    self.frames.of_symbol(stem.name)
                } else {
                    self.frames.of_symbol(symbol)
                }
            }
            None => {
                let section = self.inputs.image.code_at(range.start);
                match section {
                    Some((_, name)) if name.starts_with(".plt") => {
                        // All linkage-table sections make one procedure.
                        let id = self.assembly.strings.id("[plt]");
                        if let Some(known) = self.assembly.by_linkage.get(&id) {
                            return *known;
                        }
                        let mut frame = self.frames.of_symbol("[plt]");
                        frame.origin = Origin::System;
                        frame
                    }
                    _ => self.frames.of_symbol(&format!("?{:#x}", range.start)),
                }
            }
        };
        let strings = self.frames.strings.list();
        let mut to = std::mem::take(&mut self.translated);
        to.resize(strings.len(), None);
        let mut translation = Translation { from: strings, to };
        let id = self.assembly.add_procedure(&frame, &mut translation);
        self.translated = translation.to;
        id
    }

    /// Adds spans for `part`, with lines where there are any.
    fn cover(&mut self, part: Range<u64>, procedure: ProcedureId) {
        let tag = self.assembly.procedures[procedure.0 as usize].tag;
        let module = self.inputs.module.category.as_deref();
        let tag = tag.or_else(|| module.map(|c| self.assembly.strings.id(c)));
        let mut at = part.start;
        let mut next = self.loose.partition_point(|p| p.end <= at);
        while at < part.end {
            let found = self.loose.get(next).filter(|p| p.start < part.end);
            let (end, line, line_tag) = match found {
                Some(row) if row.start <= at => {
                    next += 1;
                    (row.end.min(part.end), row.line, row.tag)
                }
                Some(row) => (row.start, None, None),
                None => (part.end, None, None),
            };
            if end > at {
                self.added.push(Span {
                    start: at,
                    end,
                    procedure,
                    scope: None,
                    line,
                    tag: line_tag.or(tag),
                });
                at = end;
            }
        }
    }

    /// Merges the spans of this pass into the structure.
    fn close(&mut self) {
        self.assembly.spans.append(&mut self.added);
        // Two sorted runs: the sort merges them in one pass.
        self.assembly.spans.sort_by_key(|s| s.start);
        self.free_from = 0;
    }
}
