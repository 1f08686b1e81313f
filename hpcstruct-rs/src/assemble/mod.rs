//! Joins the products of all units, symbols and unwind entries into one structure.
//!
//! Input: products in the order of the units. Invariants: spans are sorted and never overlap;
//! where two procedures claim the same code (folded functions) the one that starts first keeps
//! it, then the one of the earlier unit; the result is the same whatever the number of threads.

mod gaps;

use crate::facts::{Facts, Tag, TagText};
use crate::frames::Frame;
use crate::product::{Function, Inputs, Product};
use crate::strings::{Map, Ordered};
use hpc_formats::structure::{
    Procedure, ProcedureId, Scope, ScopeId, ScopeKind, SourceLine, Span, StringId, Structure,
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

/// Joins everything; `notes`, `module` and `complete` are left to the caller.
pub(crate) fn assemble(
    inputs: &Inputs<'_, '_>,
    products: Vec<Product>,
    unwind: &[Range<u64>],
) -> (Structure, Vec<TagUse>) {
    let mut assembly = Assembly {
        strings: Ordered::new(&inputs.facts.strings),
        facts: inputs.facts,
        procedures: Vec::new(),
        scopes: Vec::new(),
        spans: Vec::new(),
        by_linkage: Map::default(),
        whole_tags: Vec::new(),
        tags: Map::default(),
    };
    assembly.add_functions(&products);
    let loose = products.iter().flat_map(|p| p.loose.iter().copied());
    let loose = loose.collect();
    // They can be as large as the result: gone before the gaps are filled.
    drop(products);
    gaps::fill(&mut assembly, inputs, loose, unwind);
    let tags = assembly.tag_uses();
    let structure = Structure {
        strings: assembly.strings.into_list(),
        procedures: assembly.procedures,
        scopes: assembly.scopes,
        spans: assembly.spans,
        ..Structure::default()
    };
    (structure, tags)
}

struct Assembly<'a> {
    strings: Ordered<'a>,
    procedures: Vec<Procedure>,
    scopes: Vec<Scope>,
    spans: Vec<Span>,
    /// First procedure of each linkage name (a shared id), for cold parts that only a symbol
    /// names.
    by_linkage: Map<StringId, ProcedureId>,
    /// Tags of whole procedures, by procedure.
    whole_tags: Vec<Option<Tag>>,
    facts: &'a Facts<'a>,
    /// The tags that code has.
    tags: Map<Tag, Tagged>,
}

/// Code with one tag.
struct Tagged {
    text: TagText,
    bytes: u64,
    procedures: u64,
    /// The last procedure with such code.
    last: ProcedureId,
}

/// A contiguous run of a function's pieces.
struct Block {
    start: u64,
    product: usize,
    function: usize,
    pieces: Range<usize>,
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

impl Assembly<'_> {
    fn add_functions(&mut self, products: &[Product]) {
        let mut numbers: Map<(usize, usize), (ProcedureId, u32)> = Map::default();
        let pieces = products.iter().flat_map(|p| &p.functions);
        self.spans.reserve(pieces.map(|f| f.pieces.len()).sum());
        let mut free_from = 0;
        for block in blocks(products) {
            let Some(function) = products[block.product].functions.get(block.function) else {
                continue;
            };
            let pieces = &function.pieces[block.pieces];
            if pieces.last().is_none_or(|p| p.end <= free_from) {
                continue;
            }
            let (procedure, first_scope) = *numbers
                .entry((block.product, block.function))
                .or_insert_with(|| self.add_function(function));
            for piece in pieces {
                let start = piece.start.max(free_from);
                if start >= piece.end {
                    continue;
                }
                free_from = piece.end;
                let span = Span {
                    start,
                    end: piece.end,
                    procedure,
                    scope: piece.scope().map(|s| ScopeId(first_scope + s)),
                    line: self.line(piece.line()),
                    tag: self.tag(piece.tag, procedure, piece.end - start),
                };
                self.spans.push(span);
            }
        }
    }

    fn line(&mut self, line: Option<SourceLine>) -> Option<SourceLine> {
        line.map(|l| SourceLine {
            file: self.strings.id(l.file),
            line: l.line,
        })
    }

    /// Counts a tag of `bytes` of code; returns its category.
    fn tag(&mut self, tag: Option<Tag>, procedure: ProcedureId, bytes: u64) -> Option<StringId> {
        let tag = tag?;
        let new = || Tagged {
            text: self.facts.tag_text(tag),
            bytes: 0,
            procedures: 1,
            last: procedure,
        };
        let tagged = self.tags.entry(tag).or_insert_with(new);
        tagged.bytes += bytes;
        tagged.procedures += u64::from(tagged.last != procedure);
        tagged.last = procedure;
        Some(self.strings.id(tagged.text.category))
    }

    fn tag_uses(&self) -> Vec<TagUse> {
        let text = |id| self.strings.shared(id);
        let mut uses: Vec<TagUse> = self
            .tags
            .values()
            .map(|tagged| TagUse {
                category: text(tagged.text.category),
                cause: text(tagged.text.cause),
                bytes: tagged.bytes,
                procedures: tagged.procedures,
            })
            .collect();
        uses.sort();
        uses
    }

    /// Adds a procedure with its scopes; returns its id and the id of its first scope.
    fn add_function(&mut self, function: &Function) -> (ProcedureId, u32) {
        let procedure = self.add_procedure(&function.frame);
        let first = self.scopes.len() as u32;
        for scope in &function.scopes {
            let scope = Scope {
                kind: ScopeKind::Inlined,
                procedure,
                parent: scope.parent.map(|p| ScopeId(first + p)),
                name: self.strings.id(scope.name),
                declared: self.line(scope.declared),
                site: self.line(scope.site),
                origin: scope.origin,
            };
            self.scopes.push(scope);
        }
        (procedure, first)
    }

    fn add_procedure(&mut self, frame: &Frame) -> ProcedureId {
        let id = ProcedureId(self.procedures.len() as u32);
        let linkage = frame.linkage.unwrap_or(frame.name);
        let procedure = Procedure {
            name: self.strings.id(frame.name),
            linkage_name: self.strings.id(linkage),
            declared: self.line(frame.declared),
            origin: frame.origin,
            tag: frame
                .tag
                .map(|t| self.strings.id(self.facts.tag_text(t).category)),
        };
        self.procedures.push(procedure);
        self.whole_tags.push(frame.tag);
        self.by_linkage.entry(linkage).or_insert(id);
        id
    }
}
