//! Writes structure files.

use super::{Columns, FLAG_COMPLETE, KIND, Procedure, Scope, SourceLine, Span, Structure};
use crate::bytes::difference;
use crate::sealed::HEADER_SIZE;

/// Usual bytes of a span.
const USUAL: usize = 16;

/// The payload's elements, one after the other.
struct Encoder(Vec<u8>);

impl Encoder {
    fn number(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.0.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.0.push(v as u8);
    }

    fn id(&mut self, v: u32) {
        self.number(u64::from(v));
    }

    fn bytes(&mut self, v: &[u8]) {
        self.number(v.len() as u64);
        self.0.extend_from_slice(v);
    }

    fn option(&mut self, v: Option<u32>) {
        self.number(v.map_or(0, |v| u64::from(v) + 1));
    }

    fn line(&mut self, v: Option<SourceLine>) {
        self.option(v.map(|l| l.file.0));
        if let Some(l) = v {
            self.id(l.line);
        }
    }

    /// How many elements there are, and each of them.
    fn list<T>(&mut self, all: impl ExactSizeIterator<Item = T>, mut each: impl FnMut(&mut Self, T)) {
        self.number(all.len() as u64);
        all.for_each(|element| each(self, element));
    }

    fn procedure(&mut self, p: &Procedure) {
        self.id(p.name.0);
        self.id(p.linkage_name.0);
        self.line(p.declared);
        self.number(p.origin as u64);
        self.option(p.tag.map(|t| t.0));
    }

    /// The scope with index `own`; the one before it is in procedure `before`.
    fn scope(&mut self, own: usize, s: &Scope, before: u32) {
        self.number(s.kind as u64 + 4 * s.origin as u64);
        self.number(difference(s.procedure.0, before));
        let parent = s.parent.map_or(0, |p| (own as u64).wrapping_sub(u64::from(p.0)));
        self.number(parent);
        self.id(s.name.0);
        self.line(s.declared);
        self.line(s.site);
    }

    fn span(&mut self, s: &Span, before: Option<&Span>) {
        self.number(s.start.wrapping_sub(before.map_or(0, |b| b.end)));
        self.number(s.end.wrapping_sub(s.start));
        let procedure = before.map_or(0, |b| b.procedure.0);
        self.number(difference(s.procedure.0, procedure));
        let scope = before.and_then(|b| b.scope).map_or(0, |s| s.0);
        self.number(s.scope.map_or(0, |s| difference(s.0, scope) + 1));
        self.line(s.line);
        self.option(s.tag.map(|t| t.0));
    }

    /// Ascending keys, each with its column.
    fn columns(&mut self, all: impl ExactSizeIterator<Item = (u64, u32)>) {
        let mut before = 0;
        self.list(all, |out, (key, column)| {
            out.number(key.wrapping_sub(before));
            out.id(column);
            before = key;
        });
    }
}

impl Structure {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder(Vec::with_capacity(HEADER_SIZE + self.spans.len() * USUAL));
        out.0.resize(HEADER_SIZE, 0);
        out.bytes(self.module.as_bytes());
        out.bytes(&self.build_id);
        out.list(self.notes.iter(), |out, note| out.bytes(note.as_bytes()));
        out.list(self.strings.iter(), |out, string| out.bytes(string.as_bytes()));
        out.list(self.procedures.iter(), Encoder::procedure);
        let mut before = 0;
        out.list(self.scopes.iter().enumerate(), |out, (own, scope)| {
            out.scope(own, scope, before);
            before = scope.procedure.0;
        });
        let mut before = None;
        out.list(self.spans.iter(), |out, span| {
            out.span(span, before);
            before = Some(span);
        });
        let Columns { scopes, calls } = &self.columns;
        out.columns(scopes.iter().map(|(scope, column)| (u64::from(scope.0), *column)));
        out.columns(calls.iter().copied());
        let payload = &out.0[HEADER_SIZE..];
        let flags = if self.complete { FLAG_COMPLETE } else { 0 };
        let header = KIND.header(flags, payload.len() as u64, crc32fast::hash(payload));
        out.0[..HEADER_SIZE].copy_from_slice(&header);
        out.0
    }
}
