//! Program structure of one load module: what hpcstruct-rs recovers and hpcprof-rs applies.
//!
//! The model is a forest: a [`Procedure`] contains [`Scope`]s (inlined calls today, loops next),
//! and every [`Span`] of code belongs to one innermost scope, one source line, and at most one
//! overhead category. All names are indices into one string table.

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
    /// call (MODEL: overhead tags).
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
    /// A loop whose header is at [`Scope::site`].
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
    /// Call site, or loop header.
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
