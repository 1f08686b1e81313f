//! Writes structure files, on several threads.
//!
//! The tables are cut into parts. A part knows the element before it, to which differences are taken, so
//! threads encode parts independently.
//!
//! Invariant: the bytes do not depend on the number of threads.

use super::{Columns, FLAG_COMPLETE, KIND, Procedure, Scope, SourceLine, Span, Structure};
use crc32fast::Hasher;
use std::io::{Result, Write};
use std::ops::Range;
use std::panic::resume_unwind;

/// Elements of a table that make one part.
const PART: usize = 1 << 14;

/// Usual bytes of an element.
const USUAL: usize = 16;

/// Most bytes of an element without strings.
const MOST: usize = 64;

/// Encodes one element in place, then appends it.
struct Element {
    bytes: [u8; MOST],
    length: usize,
}

impl Element {
    fn new() -> Element {
        Element { bytes: [0; MOST], length: 0 }
    }

    fn number(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.byte(v as u8 | 0x80);
            v >>= 7;
        }
        self.byte(v as u8);
    }

    fn byte(&mut self, byte: u8) {
        // The mask removes the bounds check; no element is that long.
        self.bytes[self.length % MOST] = byte;
        self.length += 1;
    }

    fn id(&mut self, v: u32) {
        self.number(u64::from(v));
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

    fn append_to(&mut self, out: &mut Vec<u8>) {
        debug_assert!(self.length <= MOST);
        // A copy of a fixed size takes a few instructions; one of a variable size is a call.
        let end = out.len() + self.length.min(MOST);
        out.extend_from_slice(&self.bytes);
        out.truncate(end);
        self.length = 0;
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
}

/// `to - from`, such that small numbers of either sign take few bytes.
fn difference(to: u32, from: u32) -> u64 {
    let n = i64::from(to) - i64::from(from);
    ((n << 1) ^ (n >> 63)) as u64
}

fn bytes(out: &mut Vec<u8>, v: &[u8]) {
    count(out, v.len());
    out.extend_from_slice(v);
}

fn count(out: &mut Vec<u8>, v: usize) {
    let mut element = Element::new();
    element.number(v as u64);
    element.append_to(out);
}

/// A table, or the identity.
#[derive(Clone, Copy)]
enum Table {
    Identity,
    Strings,
    Procedures,
    Scopes,
    Spans,
    Columns,
}

impl Structure {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        // Writing to memory does not fail.
        let _ = self.write(&mut out, 1);
        out
    }

    /// Writes a structure file, encoded on up to `threads` threads.
    ///
    /// # Errors
    /// An error of `out`, which may then hold a part of the file.
    pub fn write(&self, out: &mut impl Write, threads: usize) -> Result<()> {
        let parts = parts(self);
        let encode = &|share: &[(Table, Range<usize>)]| {
            let elements: usize = share.iter().map(|(_, range)| range.len()).sum();
            let mut data = Vec::with_capacity(elements * USUAL);
            share.iter().for_each(|(table, range)| encode_part(self, *table, range, &mut data));
            data
        };
        let each = parts.len().div_ceil(threads.max(1));
        let encoded: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let (own, others) = parts.split_at(each);
            let others = others.chunks(each).map(|share| scope.spawn(move || encode(share)));
            let others: Vec<_> = others.collect();
            let own = std::iter::once(encode(own));
            own.chain(others.into_iter().map(|t| t.join().unwrap_or_else(|p| resume_unwind(p)))).collect()
        });
        let mut sum = Hasher::new();
        encoded.iter().for_each(|data| sum.update(data));
        let length = encoded.iter().map(|data| data.len() as u64).sum();
        let flags = if self.complete { FLAG_COMPLETE } else { 0 };
        out.write_all(&KIND.header(flags, length, sum.finalize()))?;
        encoded.iter().try_for_each(|data| out.write_all(data))
    }
}

/// The parts of the payload, in order. Every table has at least one: its first part has its count.
fn parts(structure: &Structure) -> Vec<(Table, Range<usize>)> {
    let mut parts = vec![(Table::Identity, 0..0)];
    for (table, length) in [
        (Table::Strings, structure.strings.len()),
        (Table::Procedures, structure.procedures.len()),
        (Table::Scopes, structure.scopes.len()),
        (Table::Spans, structure.spans.len()),
    ] {
        parts.push((table, 0..length.min(PART)));
        let further = (PART..length).step_by(PART);
        parts.extend(further.map(|i| (table, i..length.min(i + PART))));
    }
    parts.push((Table::Columns, 0..0));
    parts
}

/// Appends a part of the payload.
fn encode_part(structure: &Structure, table: Table, range: &Range<usize>, out: &mut Vec<u8>) {
    let length = match table {
        Table::Identity => return identity(structure, out),
        Table::Columns => return columns(structure, out),
        Table::Strings => structure.strings.len(),
        Table::Procedures => structure.procedures.len(),
        Table::Scopes => structure.scopes.len(),
        Table::Spans => structure.spans.len(),
    };
    if range.start == 0 {
        count(out, length);
    }
    let mut element = Element::new();
    match table {
        Table::Identity | Table::Columns => {}
        Table::Strings => {
            let strings = structure.strings[range.clone()].iter();
            strings.for_each(|string| bytes(out, string.as_bytes()));
        }
        Table::Procedures => {
            for procedure in &structure.procedures[range.clone()] {
                element.procedure(procedure);
                element.append_to(out);
            }
        }
        Table::Scopes => {
            for own in range.clone() {
                let before = own.checked_sub(1);
                let before = before.map_or(0, |b| structure.scopes[b].procedure.0);
                element.scope(own, &structure.scopes[own], before);
                element.append_to(out);
            }
        }
        Table::Spans => {
            for own in range.clone() {
                let before = own.checked_sub(1).map(|b| &structure.spans[b]);
                element.span(&structure.spans[own], before);
                element.append_to(out);
            }
        }
    }
}

fn identity(structure: &Structure, out: &mut Vec<u8>) {
    bytes(out, structure.module.as_bytes());
    bytes(out, &structure.build_id);
    count(out, structure.notes.len());
    let notes = structure.notes.iter();
    notes.for_each(|note| bytes(out, note.as_bytes()));
}

fn columns(structure: &Structure, out: &mut Vec<u8>) {
    let Columns { scopes, calls } = &structure.columns;
    let scopes = scopes.iter().map(|(s, c)| (u64::from(s.0), *c));
    list(scopes, out);
    list(calls.iter().copied(), out);
}

/// A list of columns: ascending keys, each with its column.
fn list(elements: impl ExactSizeIterator<Item = (u64, u32)>, out: &mut Vec<u8>) {
    count(out, elements.len());
    let mut element = Element::new();
    let mut before = 0;
    for (key, value) in elements {
        element.number(key.wrapping_sub(before));
        element.id(value);
        element.append_to(out);
        before = key;
    }
}
