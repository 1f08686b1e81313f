//! Program structure of one load module: what hpcstruct-rs recovers and hpcprof-rs applies.
//!
//! The model is a forest. A [`Procedure`] contains [`Scope`]s (inlined calls, loops). A [`Span`] of code
//! belongs to one innermost scope, one source line, and at most one overhead category. Names are indices into
//! one string table.
//!
//! In a file: a header ([`sealed`](crate::sealed)), then one checksummed payload, of which FORMATS.md has the
//! table.

mod columns;
mod decode;
mod encode;

use crate::error::Kind;
use crate::numbered;

pub use columns::Columns;

pub static KIND: Kind = Kind {
    name: "structure file",
    magic: *b"HPCRSSTR",
    major: 2,
    minor: 1,
    remedy: "delete it and run hpcstruct-rs again",
};

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

numbered! {
    /// Whose code a procedure or an inlined scope is; decides folding and what a tagged call covers.
    Origin {
        /// The user's, or a library that no rule names.
        User = 0, "user";
        /// A task runtime (work-stealing-rt, rayon-core, …): folded in the logical projection.
        Runtime = 1, "runtime";
        /// libc, the vdso, Rust's std/core/alloc, the C++ runtime, the kernel: covered by a tagged
        /// call (ARCHITECTURE.md: terms).
        System = 2, "system";
    }
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
    pub declared: Option<SourceLine>,
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

/// How the name of a loop begins that only waits for what another thread writes.
pub const SPIN_LOOP: &str = "spin loop at";

/// A static scope within a procedure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scope {
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
    pub origin: Origin,
}

/// A range of code with one meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// First address, as the module states it.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
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
    /// Whether every procedure was analysed, or only those that hold sampled addresses.
    pub complete: bool,
    /// What the reader should know: stripped, no debug information, separate file not found …
    pub notes: Vec<String>,
    pub strings: Vec<String>,
    pub procedures: Vec<Procedure>,
    /// Scopes; a parent comes before its children.
    pub scopes: Vec<Scope>,
    /// Spans, sorted by `start`, not overlapping.
    pub spans: Vec<Span>,
    /// What tells calls of one line apart.
    pub columns: Columns,
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
            next = self.scopes.get(id.0 as usize).and_then(|s| s.parent).filter(|parent| *parent < id);
        }
        chain.reverse();
        chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sealed::HEADER_SIZE;
    use crate::sealed::tests::{check_reader, signed};

    fn line(file: u32, line: u32) -> Option<SourceLine> {
        Some(SourceLine { file: StringId(file), line })
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
            scopes: vec![scope(None, Origin::System), scope(Some(ScopeId(0)), Origin::User)],
            spans: vec![
                span(0x1000, 0x1004, None, None),
                span(0x1004, 0x1005, Some(ScopeId(1)), Some(StringId(3))),
                span(u64::MAX - 8, u64::MAX, Some(ScopeId(0)), None),
            ],
            columns: Columns {
                scopes: vec![(ScopeId(0), 39), (ScopeId(1), 300)],
                calls: vec![(0x1003, 5), (u64::MAX - 1, 70_000)],
            },
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for structure in [sample(), Structure::default()] {
            assert_eq!(Structure::decode(&structure.encode()), Ok(structure));
        }
    }

    #[test]
    fn damage_is_found() {
        check_reader(&KIND, &sample().encode(), Structure::decode);
    }

    /// A checksum protects against accidents, not against an author. With a right checksum, a changed
    /// payload decodes to a consistent structure or to an error.
    #[test]
    fn a_signed_but_wrong_payload_stays_consistent() {
        let bytes = sample().encode();
        let mut refused = 0;
        for at in HEADER_SIZE..bytes.len() {
            for value in 0..=255u8 {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                let damaged = signed(&bytes, &damaged[HEADER_SIZE..]);
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
    fn columns_are_found_and_an_older_file_has_none() {
        let structure = sample();
        let Columns { scopes, calls } = &structure.columns;
        for (scope, column) in scopes {
            assert_eq!(structure.columns.of_scope(*scope), Some(*column));
        }
        for (address, column) in calls {
            assert_eq!(structure.columns.of_call(*address), Some(*column));
        }
        assert_eq!(structure.columns.of_call(0x1004), None);
        assert_eq!(structure.columns.of_scope(ScopeId(2)), None);
        // A file without columns ends before them; an older reader stops there.
        let plain = Structure { columns: Columns::default(), ..structure };
        let mut older = plain.encode();
        older[10..12].copy_from_slice(&0u16.to_le_bytes());
        let older = signed(&older, &older[HEADER_SIZE..older.len() - 2]);
        assert_eq!(Structure::decode(&older), Ok(plain));
    }
}
