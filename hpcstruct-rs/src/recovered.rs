//! What was recovered of a load module: the parts of a structure, not yet put one after the other.
//!
//! Input: the parts in the order of their procedures. Invariants: spans are sorted and never
//! overlap; scopes and strings are numbered in the order of the procedures; the tables are the same
//! whatever the number of threads. They are put together in memory ([`Recovered::structure`]), or
//! element by element while they are written ([`hpc_formats::structure::write`]).

use crate::assemble::{Part, Segment, TagUse};
use crate::facts::TagText;
use crate::gather;
use crate::loops::Found;
use crate::parallel;
use crate::product::Product;
use crate::reclaim;
use crate::strings::{Interner, Numbering};
use hpc_formats::structure::{
    Counts, Identity, Origin, Procedure, ProcedureId, Scope, ScopeId, ScopeKind, SourceLine, Span,
    StringId, Structure, Tables,
};
use std::ops::Range;

/// A structure in parts, and what is not part of it.
#[derive(Debug)]
pub struct Recovered {
    /// Everything but the tables.
    pub(crate) identity: Structure,
    pub(crate) tags: Vec<TagUse>,
    pub(crate) is_lasting: bool,
    parts: Vec<Part>,
    /// Where the parts' tables begin.
    procedures: Vec<usize>,
    scopes: Vec<usize>,
    /// All code by address, with the number of its part.
    segments: Vec<(u32, Segment)>,
    /// Where the segments' spans begin, and one more at the end.
    spans: Vec<usize>,
    strings: Numbering,
    /// By tag.
    categories: Vec<StringId>,
    threads: usize,
    _spent: Spent,
}

/// What the parts were made of, many small pieces of memory. It takes a while to give them back, which
/// a process that is about to end does not wait for.
#[derive(Debug)]
pub(crate) struct Spent {
    /// The units' products.
    pub(crate) products: Vec<Product>,
    /// The loops.
    pub(crate) _found: Found,
}

impl Spent {
    /// Gives back what is large: it can be as much as what comes next takes.
    fn shrink(&mut self) {
        let functions = self.products.iter().flat_map(|p| &p.functions);
        let pieces = functions.map(|f| size_of_val(f.pieces.as_slice())).sum();
        if reclaim::is_worth_it(pieces) {
            self.products = Vec::new();
            reclaim::freed_memory();
        }
    }
}

/// Where tables of these lengths begin when they follow each other, and where the last one ends.
fn starts(lengths: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut sum = 0;
    let mut out = Vec::with_capacity(lengths.size_hint().0 + 1);
    for length in lengths {
        out.push(sum);
        sum += length;
    }
    out.push(sum);
    out
}

/// Calls `each` for the tables that a range of all elements lies in, with the range in that table.
fn split(starts: &[usize], range: Range<usize>, mut each: impl FnMut(usize, Range<usize>)) {
    if range.is_empty() {
        return;
    }
    let first = starts
        .partition_point(|s| *s <= range.start)
        .saturating_sub(1);
    for (i, pair) in starts.windows(2).enumerate().skip(first) {
        if pair[0] >= range.end {
            return;
        }
        let from = range.start.max(pair[0]) - pair[0];
        each(i, from..range.end.min(pair[1]) - pair[0]);
    }
}

impl Recovered {
    /// Of parts whose strings are in `strings`, and whose tags mean `tags`. `identity` has everything but the tables.
    pub(crate) fn new(
        mut parts: Vec<Part>,
        strings: Interner,
        tags: &[TagText],
        mut spent: Spent,
        threads: usize,
        identity: Structure,
    ) -> Recovered {
        spent.shrink();
        let mut segments = Vec::with_capacity(parts.iter().map(|p| p.segments.len()).sum());
        for (part, i) in parts.iter_mut().zip(0u32..) {
            segments.extend(
                std::mem::take(&mut part.segments)
                    .into_iter()
                    .map(|s| (i, s)),
            );
        }
        let uses = || parts.iter().map(|p| p.strings.as_slice());
        let (strings, ()) = parallel::both(
            threads,
            || Numbering::new(strings, uses()),
            || segments.sort_by_key(|(_, s): &(u32, Segment)| s.start),
        );
        Recovered {
            identity,
            tags: Vec::new(),
            is_lasting: false,
            procedures: starts(parts.iter().map(|p| p.procedures.len())),
            scopes: starts(parts.iter().map(|p| p.scopes.len())),
            spans: starts(segments.iter().map(|(_, s)| s.pieces.len())),
            parts,
            segments,
            categories: tags.iter().map(|t| strings.id(t.category)).collect(),
            strings,
            threads,
            _spent: spent,
        }
    }

    /// What the reader should know.
    pub fn notes(&self) -> &[String] {
        &self.identity.notes
    }

    /// The tables in memory.
    pub fn structure(&self) -> Structure {
        let counts = self.counts();
        let threads = self.threads;
        let filler = Scope {
            kind: ScopeKind::Inlined,
            procedure: ProcedureId(0),
            parent: None,
            name: StringId(0),
            declared: None,
            site: None,
            origin: Origin::User,
        };
        let scopes = gather::concat(&lengths(&self.scopes), threads, &filler, |i| {
            self.parts[i].scopes.iter().map(move |s| self.scope(i, s))
        });
        let filler = Span {
            start: 0,
            end: 0,
            procedure: ProcedureId(0),
            scope: None,
            line: None,
            tag: None,
        };
        // Most segments are short.
        const CHUNK: usize = 1 << 10;
        let first_of_chunk = self.spans.iter().copied().step_by(CHUNK);
        let mut chunks: Vec<usize> = first_of_chunk.collect();
        if chunks.last() != Some(&counts.spans) {
            chunks.push(counts.spans);
        }
        let spans = gather::concat(&lengths(&chunks), threads, &filler, |c| {
            let end = ((c + 1) * CHUNK).min(self.segments.len());
            (c * CHUNK..end).flat_map(move |s| {
                let all = 0..self.segments[s].1.pieces.len();
                self.spans_of(s, all)
            })
        });
        let mut procedures = Vec::with_capacity(counts.procedures);
        self.procedures(0..counts.procedures, |p| procedures.push(p.clone()));
        Structure {
            strings: self.strings.texts(threads),
            procedures,
            scopes,
            spans,
            ..self.identity.clone()
        }
    }

    fn line(&self, line: Option<SourceLine>) -> Option<SourceLine> {
        line.map(|l| SourceLine {
            file: self.strings.id(l.file),
            line: l.line,
        })
    }

    /// A scope of part `part`.
    #[inline]
    fn scope(&self, part: usize, s: &Scope) -> Scope {
        let first = self.scopes[part] as u32;
        Scope {
            parent: s.parent.map(|p| ScopeId(first + p.0)),
            name: self.strings.id(s.name),
            declared: self.line(s.declared),
            site: self.line(s.site),
            ..*s
        }
    }

    /// Some spans of a segment.
    #[inline]
    fn spans_of(&self, segment: usize, range: Range<usize>) -> impl Iterator<Item = Span> + '_ {
        let (part, segment) = &self.segments[segment];
        let first = self.scopes[*part as usize] as u32;
        let start = segment.pieces.start as usize;
        let range = start + range.start..start + range.end;
        let pieces = &self.parts[*part as usize].pieces[range];
        pieces.iter().map(move |piece| Span {
            start: piece.start,
            end: piece.end,
            procedure: segment.procedure,
            scope: piece.scope().map(|s| ScopeId(first + s)),
            line: self.line(piece.line()),
            tag: piece.tag.map(|tag| self.categories[tag.index()]),
        })
    }
}

fn lengths(starts: &[usize]) -> Vec<usize> {
    starts.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

impl Tables for Recovered {
    fn identity(&self) -> Identity<'_> {
        self.identity.identity()
    }

    fn counts(&self) -> Counts {
        let total = |starts: &[usize]| starts.last().copied().unwrap_or(0);
        Counts {
            strings: self.strings.len(),
            procedures: total(&self.procedures),
            scopes: total(&self.scopes),
            spans: total(&self.spans),
        }
    }

    fn strings(&self, range: Range<usize>, each: impl FnMut(&str)) {
        self.strings.each(range, each);
    }

    fn procedures(&self, range: Range<usize>, mut each: impl FnMut(&Procedure)) {
        split(&self.procedures, range, |part, range| {
            for p in &self.parts[part].procedures[range] {
                each(&Procedure {
                    name: self.strings.id(p.name),
                    linkage_name: self.strings.id(p.linkage_name),
                    declared: self.line(p.declared),
                    tag: p.tag.map(|t| self.strings.id(t)),
                    ..*p
                });
            }
        });
    }

    fn scopes(&self, range: Range<usize>, mut each: impl FnMut(&Scope)) {
        split(&self.scopes, range, |part, range| {
            for s in &self.parts[part].scopes[range] {
                each(&self.scope(part, s));
            }
        });
    }

    fn spans(&self, range: Range<usize>, mut each: impl FnMut(&Span)) {
        split(&self.spans, range, |segment, range| {
            self.spans_of(segment, range).for_each(|span| each(&span));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_split_at_the_borders_of_tables() {
        let lengths = [3, 0, 2, 4, 0];
        let starts = starts(lengths.into_iter());
        assert_eq!(starts, [0, 3, 3, 5, 9, 9]);
        for from in 0..=9 {
            for to in from..=9 {
                let mut seen = Vec::new();
                split(&starts, from..to, |table, range| {
                    seen.extend(range.map(|i| starts[table] + i));
                });
                assert_eq!(seen, (from..to).collect::<Vec<_>>());
            }
        }
    }
}
