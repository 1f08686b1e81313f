//! Writes structure files, on several threads.
//!
//! The tables are cut into parts. A part knows the element before it, to which differences are taken, so
//! threads encode parts independently; parts are written in order. The header comes last, when length and
//! checksum are known.
//!
//! Invariant: the bytes do not depend on the number of threads.

use super::{Columns, FLAG_COMPLETE, KIND, Procedure, Scope, SourceLine, Span, Structure};
use crate::sealed::HEADER_SIZE;
use crc32fast::Hasher;
use std::io::{Cursor, Result, Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};

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
    /// The bytes of a structure file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Cursor::new(Vec::new());
        // Writing to memory does not fail.
        let _ = self.write(&mut out, 1);
        out.into_inner()
    }

    /// Writes a structure file at the current position of `out`, encoded on up to `threads` threads.
    /// Afterwards the position is behind the file.
    ///
    /// # Errors
    /// An error of `out`, which may then hold a part of the file.
    pub fn write(&self, out: &mut (impl Write + Seek), threads: usize) -> Result<()> {
        let start = out.stream_position()?;
        out.write_all(&[0; HEADER_SIZE])?;
        let parts = parts(self);
        let next = AtomicUsize::new(0);
        // Encodes a part that no other thread has taken.
        let encode_next = &|| {
            std::iter::from_fn(|| {
                // Relaxed: the counter hands out numbers and publishes nothing.
                let number = next.fetch_add(1, Ordering::Relaxed);
                let (table, range) = parts.get(number)?;
                let mut data = Vec::with_capacity(range.len() * USUAL);
                encode_part(self, *table, range.clone(), &mut data);
                let mut sum = Hasher::new();
                sum.update(&data);
                Some(Encoded { number, data, sum })
            })
        };
        let (length, sum) = std::thread::scope(|scope| {
            let (send, encoded) = mpsc::channel();
            for _ in 1..threads.clamp(1, parts.len()) {
                let send = send.clone();
                // Nobody receives after an error of the output.
                scope.spawn(move || encode_next().try_for_each(|part| send.send(part)));
            }
            drop(send);
            write_in_order(out, encode_next(), &encoded, parts.len())
        })?;
        out.seek(SeekFrom::Start(start))?;
        let flags = if self.complete { FLAG_COMPLETE } else { 0 };
        out.write_all(&KIND.header(flags, length, sum))?;
        out.seek(SeekFrom::Start(start + HEADER_SIZE as u64 + length))?;
        Ok(())
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
fn encode_part(structure: &Structure, table: Table, range: Range<usize>, out: &mut Vec<u8>) {
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
            let strings = structure.strings[range].iter();
            strings.for_each(|string| bytes(out, string.as_bytes()));
        }
        Table::Procedures => {
            for procedure in &structure.procedures[range] {
                element.procedure(procedure);
                element.append_to(out);
            }
        }
        Table::Scopes => {
            for own in range {
                let before = own.checked_sub(1);
                let before = before.map_or(0, |b| structure.scopes[b].procedure.0);
                element.scope(own, &structure.scopes[own], before);
                element.append_to(out);
            }
        }
        Table::Spans => {
            for own in range {
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

/// A part of the payload.
struct Encoded {
    number: usize,
    data: Vec<u8>,
    sum: Hasher,
}

/// Writes `count` parts that other threads encode and, meanwhile, this one; their length and checksum. Where
/// `out` is slow, nearly all may wait in memory, which is still less than the tables take.
fn write_in_order(
    out: &mut impl Write,
    mut own: impl Iterator<Item = Encoded>,
    others: &Receiver<Encoded>,
    count: usize,
) -> Result<(u64, u32)> {
    let mut waiting: Vec<Option<Encoded>> = (0..count).map(|_| None).collect();
    let (mut turn, mut length, mut sum) = (0, 0, Hasher::new());
    while let Some(part) = own.next().or_else(|| others.recv().ok()) {
        for part in std::iter::once(part).chain(others.try_iter()) {
            let number = part.number;
            waiting[number] = Some(part);
        }
        while let Some(part) = waiting.get_mut(turn).and_then(Option::take) {
            out.write_all(&part.data)?;
            length += part.data.len() as u64;
            sum.combine(&part.sum);
            turn += 1;
        }
    }
    Ok((length, sum.finalize()))
}
