//! Program structure of one load module: what hpcstruct-rs recovers and hpcprof-rs applies.
//!
//! The model is a forest: a [`Procedure`] contains [`Scope`]s (inlined calls, loops),
//! and every [`Span`] of code belongs to one innermost scope, one source line, and at most one
//! overhead category. All names are indices into one string table.
//!
//! In a file: a header of [`HEADER_SIZE`] bytes, then one checksummed payload. Fixed-width
//! integers are little-endian; `v` is an unsigned LEB128 number; `s` is `v length, bytes`;
//! `o` is a `v` that is 0 for none, else the value plus one; `line` is `o file`, followed by
//! `v line` when the file is there.
//!
//! | header offset | field |
//! |---|---|
//! | 0 | magic `HPCRSSTR` |
//! | 8 | u16 major, u16 minor version |
//! | 12 | u32 flags: bit 0 = complete |
//! | 16 | u64 payload bytes |
//! | 24 | u64 FNV-1a (64 bits) of the payload |
//!
//! | payload, in this order | fields |
//! |---|---|
//! | identity | s module, s build id, v count, s note … |
//! | strings | v count, s … |
//! | procedures | v count, then each: v name, v linkage name, line declared, v origin, o tag |
//! | scopes | v count, then each: v kind, v procedure, o parent, v name, line declared, line site, v origin |
//! | spans | v count, then each: v start minus the end of the span before, v length, v procedure, o scope, line, o tag |

use crate::bytes::ByteReader;
use std::fmt;

/// First bytes of every structure file.
pub const MAGIC: [u8; 8] = *b"HPCRSSTR";
/// Readers refuse another major version.
pub const VERSION_MAJOR: u16 = 1;
/// Readers accept any minor version; a newer one appends to the payload.
pub const VERSION_MINOR: u16 = 0;
/// Bytes before the payload.
pub const HEADER_SIZE: usize = 32;

const FLAG_COMPLETE: u32 = 1;

/// Index into [`Structure::strings`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StringId(pub u32);

/// Index into [`Structure::procedures`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ProcedureId(pub u32);

/// Index into [`Structure::scopes`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ScopeId(pub u32);

/// Whose code a procedure or an inlined scope is; decides folding and what a tagged call covers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Origin {
    /// The user's, or a library that no rule names.
    User = 0,
    /// A task runtime (work-stealing-rt, rayon-core, …): folded in the logical projection.
    Runtime = 1,
    /// libc, the vdso, Rust's std/core/alloc, the C++ runtime, the kernel: covered by a tagged
    /// call (ARCHITECTURE.md: terms).
    System = 2,
}

/// A source position.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SourceLine {
    /// Path of the source file.
    pub file: StringId,
    /// Line, from 1; 0 when unknown.
    pub line: u32,
}

/// A procedure with its own machine code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Procedure {
    /// Readable (demangled) name.
    pub name: StringId,
    /// Name in the symbol table.
    pub linkage_name: StringId,
    /// Where it is declared.
    pub declared: Option<SourceLine>,
    /// Whose code it is.
    pub origin: Origin,
    /// Overhead category of the whole procedure, by a rule or its file.
    pub tag: Option<StringId>,
}

/// What kind of static scope lies within a procedure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum ScopeKind {
    /// The body of a procedure inlined at [`Scope::site`].
    Inlined = 1,
    /// A loop that is named by the line [`Scope::site`].
    Loop = 2,
}

/// A static scope within a procedure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scope {
    /// Its kind.
    pub kind: ScopeKind,
    /// The procedure that has its code.
    pub procedure: ProcedureId,
    /// Enclosing scope; `None` directly in the procedure. Always smaller than its own index.
    pub parent: Option<ScopeId>,
    /// Readable name of the inlined procedure, or of the loop.
    pub name: StringId,
    /// Where the inlined procedure is declared.
    pub declared: Option<SourceLine>,
    /// Call site, or the line that names the loop.
    pub site: Option<SourceLine>,
    /// Whose code it is.
    pub origin: Origin,
}

/// A range of code with one meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// First address, as the module states it.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Its procedure.
    pub procedure: ProcedureId,
    /// Innermost scope; `None` directly in the procedure.
    pub scope: Option<ScopeId>,
    /// Line of the code itself (within the innermost inlined procedure).
    pub line: Option<SourceLine>,
    /// Overhead category (innermost tag wins), decided by hpcstruct-rs.
    pub tag: Option<StringId>,
}

/// What is known of one load module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Structure {
    /// Path of the analysed file.
    pub module: String,
    /// GNU build id, empty when there is none.
    pub build_id: Vec<u8>,
    /// Whether every procedure was analysed; otherwise only those that hold the sampled addresses.
    pub complete: bool,
    /// What the reader should know: stripped, no debug information, separate file not found …
    pub notes: Vec<String>,
    /// The string table.
    pub strings: Vec<String>,
    /// Procedures.
    pub procedures: Vec<Procedure>,
    /// Scopes; a parent comes before its children.
    pub scopes: Vec<Scope>,
    /// Spans, sorted by `start`, not overlapping.
    pub spans: Vec<Span>,
}

impl Structure {
    /// The text of a string id; empty for an id out of range.
    pub fn string(&self, id: StringId) -> &str {
        self.strings.get(id.0 as usize).map_or("", String::as_str)
    }

    /// The span that holds `address` (as the module states it).
    pub fn span_at(&self, address: u64) -> Option<&Span> {
        let after = self.spans.partition_point(|s| s.start <= address);
        let span = self.spans.get(after.checked_sub(1)?)?;
        (address < span.end).then_some(span)
    }

    /// The scopes around a span, outermost first.
    pub fn scope_chain(&self, span: &Span) -> Vec<ScopeId> {
        let mut chain = Vec::new();
        let mut next = span.scope;
        while let Some(id) = next {
            chain.push(id);
            next = self
                .scopes
                .get(id.0 as usize)
                .and_then(|s| s.parent)
                .filter(|parent| *parent < id);
        }
        chain.reverse();
        chain
    }
}

/// Why a file is not a readable structure file.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StructureError {
    /// The first bytes are not [`MAGIC`].
    NotAStructure,
    /// Written by an incompatible version.
    Version {
        /// Major version found.
        major: u16,
        /// Minor version found.
        minor: u16,
    },
    /// Fewer payload bytes than the header states.
    Truncated {
        /// Bytes found.
        found: u64,
        /// Bytes stated.
        expected: u64,
    },
    /// The payload's checksum differs.
    Checksum,
    /// A field has an impossible value.
    Corrupt(&'static str),
}

impl fmt::Display for StructureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StructureError::NotAStructure => {
                write!(f, "not a structure file: wrong first bytes")
            }
            StructureError::Version { major, minor } => write!(
                f,
                "structure file version {major}.{minor} is not readable by this version ({VERSION_MAJOR}.x): delete it and run hpcstruct-rs again"
            ),
            StructureError::Truncated { found, expected } => write!(
                f,
                "structure file truncated: {found} of {expected} bytes: delete it and run hpcstruct-rs again"
            ),
            StructureError::Checksum => write!(
                f,
                "structure file damaged (wrong checksum): delete it and run hpcstruct-rs again"
            ),
            StructureError::Corrupt(what) => write!(
                f,
                "structure file damaged ({what}): delete it and run hpcstruct-rs again"
            ),
        }
    }
}

impl std::error::Error for StructureError {}

fn checksum(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Appends the payload's elements.
#[derive(Default)]
struct Encoder {
    data: Vec<u8>,
}

impl Encoder {
    fn number(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.data.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.data.push(v as u8);
    }

    fn bytes(&mut self, v: &[u8]) {
        self.number(v.len() as u64);
        self.data.extend_from_slice(v);
    }

    fn option(&mut self, v: Option<u32>) {
        self.number(v.map_or(0, |v| u64::from(v) + 1));
    }

    fn line(&mut self, v: Option<SourceLine>) {
        self.option(v.map(|l| l.file.0));
        if let Some(l) = v {
            self.number(u64::from(l.line));
        }
    }
}

/// Reads the payload's elements; every method returns `None` past the end or out of range.
struct Decoder<'a> {
    data: &'a [u8],
}

impl<'a> Decoder<'a> {
    fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.data.split_first()?;
            self.data = rest;
            let bits = u64::from(byte & 0x7f);
            if bits.checked_shl(shift)? >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A number of elements of at least one byte each: bounds what may be reserved.
    fn count(&mut self) -> Option<usize> {
        let n = usize::try_from(self.number()?).ok()?;
        (n <= self.data.len()).then_some(n)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = self.count()?;
        let (out, rest) = self.data.split_at(n);
        self.data = rest;
        Some(out)
    }

    fn string(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    /// An index below `limit`.
    fn index(&mut self, limit: usize) -> Option<u32> {
        let v = u32::try_from(self.number()?).ok()?;
        ((v as usize) < limit).then_some(v)
    }

    /// An optional index below `limit`.
    fn option(&mut self, limit: usize) -> Option<Option<u32>> {
        match self.number()? {
            0 => Some(None),
            v => {
                let v = u32::try_from(v - 1).ok()?;
                ((v as usize) < limit).then_some(Some(v))
            }
        }
    }

    fn line(&mut self, strings: usize) -> Option<Option<SourceLine>> {
        let Some(file) = self.option(strings)? else {
            return Some(None);
        };
        let line = u32::try_from(self.number()?).ok()?;
        Some(Some(SourceLine {
            file: StringId(file),
            line,
        }))
    }

    fn origin(&mut self) -> Option<Origin> {
        Some(match self.number()? {
            0 => Origin::User,
            1 => Origin::Runtime,
            2 => Origin::System,
            _ => return None,
        })
    }

    fn procedure(&mut self, strings: usize) -> Option<Procedure> {
        Some(Procedure {
            name: StringId(self.index(strings)?),
            linkage_name: StringId(self.index(strings)?),
            declared: self.line(strings)?,
            origin: self.origin()?,
            tag: self.option(strings)?.map(StringId),
        })
    }

    fn scope(&mut self, at: usize, strings: usize, procedures: usize) -> Option<Scope> {
        let kind = match self.number()? {
            1 => ScopeKind::Inlined,
            2 => ScopeKind::Loop,
            _ => return None,
        };
        Some(Scope {
            kind,
            procedure: ProcedureId(self.index(procedures)?),
            parent: self.option(at)?.map(ScopeId),
            name: StringId(self.index(strings)?),
            declared: self.line(strings)?,
            site: self.line(strings)?,
            origin: self.origin()?,
        })
    }

    fn span(&mut self, after: u64, limits: &Structure) -> Option<Span> {
        let start = after.checked_add(self.number()?)?;
        let end = start.checked_add(self.number()?)?;
        if end == start {
            return None;
        }
        Some(Span {
            start,
            end,
            procedure: ProcedureId(self.index(limits.procedures.len())?),
            scope: self.option(limits.scopes.len())?.map(ScopeId),
            line: self.line(limits.strings.len())?,
            tag: self.option(limits.strings.len())?.map(StringId),
        })
    }
}

impl Structure {
    /// The bytes of a structure file.
    pub fn encode(&self) -> Vec<u8> {
        let mut e = Encoder {
            data: Vec::with_capacity(self.likely_size()),
        };
        // The header comes last, when it is known, in place.
        e.data.resize(HEADER_SIZE, 0);
        e.bytes(self.module.as_bytes());
        e.bytes(&self.build_id);
        e.number(self.notes.len() as u64);
        for note in &self.notes {
            e.bytes(note.as_bytes());
        }
        e.number(self.strings.len() as u64);
        for string in &self.strings {
            e.bytes(string.as_bytes());
        }
        e.number(self.procedures.len() as u64);
        for p in &self.procedures {
            e.number(u64::from(p.name.0));
            e.number(u64::from(p.linkage_name.0));
            e.line(p.declared);
            e.number(p.origin as u64);
            e.option(p.tag.map(|t| t.0));
        }
        e.number(self.scopes.len() as u64);
        for s in &self.scopes {
            e.number(s.kind as u64);
            e.number(u64::from(s.procedure.0));
            e.option(s.parent.map(|p| p.0));
            e.number(u64::from(s.name.0));
            e.line(s.declared);
            e.line(s.site);
            e.number(s.origin as u64);
        }
        e.number(self.spans.len() as u64);
        let mut after = 0u64;
        for s in &self.spans {
            e.number(s.start.wrapping_sub(after));
            e.number(s.end.wrapping_sub(s.start));
            e.number(u64::from(s.procedure.0));
            e.option(s.scope.map(|s| s.0));
            e.line(s.line);
            e.option(s.tag.map(|t| t.0));
            after = s.end;
        }
        let mut out = e.data;
        let (header, payload) = out.split_at_mut(HEADER_SIZE);
        let flags = if self.complete { FLAG_COMPLETE } else { 0 };
        header[..8].copy_from_slice(&MAGIC);
        header[8..10].copy_from_slice(&VERSION_MAJOR.to_le_bytes());
        header[10..12].copy_from_slice(&VERSION_MINOR.to_le_bytes());
        header[12..16].copy_from_slice(&flags.to_le_bytes());
        header[16..24].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        header[24..32].copy_from_slice(&checksum(payload).to_le_bytes());
        out
    }

    /// About the bytes of the file; more or fewer only cost time.
    fn likely_size(&self) -> usize {
        let strings: usize = self.strings.iter().map(|s| s.len() + 2).sum();
        let elements = self.procedures.len() + self.scopes.len() + self.spans.len();
        HEADER_SIZE + strings + 14 * elements
    }

    /// Decodes a structure file. What it returns is consistent: every id is in range, spans are
    /// sorted and do not overlap, a scope's parent comes before it.
    pub fn decode(data: &[u8]) -> Result<Structure, StructureError> {
        let mut header = ByteReader::new(data);
        let magic = header.take(8);
        let (major, minor) = (header.u16(), header.u16());
        let (Some(major), Some(minor)) = (major, minor) else {
            return Err(StructureError::NotAStructure);
        };
        if magic != Some(MAGIC.as_slice()) {
            return Err(StructureError::NotAStructure);
        }
        if major != VERSION_MAJOR {
            return Err(StructureError::Version { major, minor });
        }
        let truncated = |expected| StructureError::Truncated {
            found: data.len() as u64,
            expected,
        };
        let stated = (|| Some((header.u32()?, header.u64()?, header.u64()?)))();
        let (flags, length, sum) = stated.ok_or(truncated(HEADER_SIZE as u64))?;
        let payload = usize::try_from(length)
            .ok()
            .and_then(|n| header.take(n))
            .ok_or(truncated(length.saturating_add(HEADER_SIZE as u64)))?;
        if checksum(payload) != sum {
            return Err(StructureError::Checksum);
        }
        let mut structure = Structure {
            complete: flags & FLAG_COMPLETE != 0,
            ..Structure::default()
        };
        structure.decode_payload(&mut Decoder { data: payload })?;
        Ok(structure)
    }

    fn decode_payload(&mut self, d: &mut Decoder<'_>) -> Result<(), StructureError> {
        let corrupt = StructureError::Corrupt;
        self.module = d.string().ok_or(corrupt("module"))?;
        self.build_id = d.bytes().ok_or(corrupt("build id"))?.to_vec();
        let n = d.count().ok_or(corrupt("notes"))?;
        for _ in 0..n {
            self.notes.push(d.string().ok_or(corrupt("notes"))?);
        }
        let strings = d.count().ok_or(corrupt("strings"))?;
        for _ in 0..strings {
            self.strings.push(d.string().ok_or(corrupt("strings"))?);
        }
        let procedures = d.count().ok_or(corrupt("procedures"))?;
        for _ in 0..procedures {
            let procedure = d.procedure(strings).ok_or(corrupt("procedures"))?;
            self.procedures.push(procedure);
        }
        let scopes = d.count().ok_or(corrupt("scopes"))?;
        for at in 0..scopes {
            let scope = d.scope(at, strings, procedures).ok_or(corrupt("scopes"))?;
            self.scopes.push(scope);
        }
        let spans = d.count().ok_or(corrupt("spans"))?;
        let mut after = 0;
        for _ in 0..spans {
            let span = d.span(after, self).ok_or(corrupt("spans"))?;
            after = span.end;
            self.spans.push(span);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(file: u32, line: u32) -> Option<SourceLine> {
        Some(SourceLine {
            file: StringId(file),
            line,
        })
    }

    fn sample() -> Structure {
        let scope = |parent, origin| Scope {
            kind: ScopeKind::Inlined,
            procedure: ProcedureId(0),
            parent,
            name: StringId(1),
            declared: line(2, 70_000),
            site: line(2, 0),
            origin,
        };
        let span = |start, end, scope, tag| Span {
            start,
            end,
            procedure: ProcedureId(0),
            scope,
            line: line(2, 9),
            tag,
        };
        Structure {
            module: "/bin/é".into(),
            build_id: vec![0xff, 0, 7],
            complete: true,
            notes: vec!["stripped".into()],
            strings: vec!["main".into(), "a::b".into(), "/x.rs".into(), "sync".into()],
            procedures: vec![Procedure {
                name: StringId(0),
                linkage_name: StringId(1),
                declared: None,
                origin: Origin::Runtime,
                tag: Some(StringId(3)),
            }],
            scopes: vec![
                scope(None, Origin::System),
                scope(Some(ScopeId(0)), Origin::User),
            ],
            spans: vec![
                span(0x1000, 0x1004, None, None),
                span(0x1004, 0x1005, Some(ScopeId(1)), Some(StringId(3))),
                span(u64::MAX - 8, u64::MAX, Some(ScopeId(0)), None),
            ],
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for structure in [sample(), Structure::default()] {
            assert_eq!(Structure::decode(&structure.encode()), Ok(structure));
        }
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = sample().encode();
        for n in 0..bytes.len() {
            let error = Structure::decode(&bytes[..n]).expect_err("shorter than stated");
            let expected = if n < 12 {
                StructureError::NotAStructure
            } else {
                let expected = if n < HEADER_SIZE {
                    HEADER_SIZE
                } else {
                    bytes.len()
                } as u64;
                StructureError::Truncated {
                    found: n as u64,
                    expected,
                }
            };
            assert_eq!(error, expected, "{n} bytes");
        }
    }

    #[test]
    fn every_flipped_bit_is_found_except_in_the_flags_and_minor_version() {
        let bytes = sample().encode();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let tolerated = (10..16).contains(&(bit / 8));
            assert_eq!(Structure::decode(&damaged).is_ok(), tolerated, "bit {bit}");
        }
    }

    /// A checksum protects against accidents, not against an author: every byte of the payload,
    /// changed and signed again, decodes to a consistent structure or to an error.
    #[test]
    fn a_signed_but_wrong_payload_stays_consistent() {
        let bytes = sample().encode();
        let mut refused = 0;
        for at in HEADER_SIZE..bytes.len() {
            for value in 0..=255u8 {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                let sum = checksum(&damaged[HEADER_SIZE..]);
                damaged[24..32].copy_from_slice(&sum.to_le_bytes());
                let Ok(s) = Structure::decode(&damaged) else {
                    refused += 1;
                    continue;
                };
                assert!(s.spans.windows(2).all(|w| w[0].end <= w[1].start));
                assert!(s.spans.iter().all(|span| span.start < span.end));
                for (i, scope) in s.scopes.iter().enumerate() {
                    assert!(scope.parent.is_none_or(|p| (p.0 as usize) < i));
                    assert!((scope.procedure.0 as usize) < s.procedures.len());
                }
            }
        }
        assert!(refused > 1000, "only {refused} refused");
    }

    #[test]
    fn other_versions_are_refused_by_name() {
        let mut bytes = sample().encode();
        bytes[8] = 9;
        let error = Structure::decode(&bytes).expect_err("major version 9");
        assert_eq!(error, StructureError::Version { major: 9, minor: 0 });
        assert!(error.to_string().contains("run hpcstruct-rs again"));
        assert_eq!(
            Structure::decode(b"\x7fELF and more bytes than twelve"),
            Err(StructureError::NotAStructure)
        );
    }

    #[test]
    fn addresses_find_their_span_and_scopes() {
        let s = sample();
        let span = s.span_at(0x1004).expect("inside the second span");
        assert_eq!(s.scope_chain(span), [ScopeId(0), ScopeId(1)]);
        assert_eq!(s.span_at(0xfff), None);
        assert_eq!(s.span_at(0x1005), None);
    }
}
