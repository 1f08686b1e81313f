//! The tables that a structure file is written from.
//!
//! A [`Structure`] has them in memory. Another program can produce their elements on demand, and writes the
//! same file without building them.

use super::{Columns, Procedure, Scope, Span, Structure};
use std::ops::Range;

/// Which module a structure describes, with the small tables.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// As [`Structure::module`].
    pub module: &'a str,
    /// As [`Structure::build_id`].
    pub build_id: &'a [u8],
    /// As [`Structure::complete`].
    pub complete: bool,
    /// As [`Structure::notes`].
    pub notes: &'a [String],
    /// As [`Structure::columns`].
    pub columns: &'a Columns,
}

/// Numbers of elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Strings.
    pub strings: usize,
    /// Procedures.
    pub procedures: usize,
    /// Scopes.
    pub scopes: usize,
    /// Spans.
    pub spans: usize,
}

/// The tables of a structure, with the meaning and order of those of a [`Structure`]. Several threads ask for
/// ranges at once. A call passes the elements of a range, which lies within the table, to `each`.
pub trait Tables: Sync {
    /// Which module it is, with the small tables.
    fn identity(&self) -> Identity<'_>;
    /// The lengths of the tables.
    fn counts(&self) -> Counts;
    /// Strings.
    fn strings(&self, range: Range<usize>, each: impl FnMut(&str));
    /// Procedures.
    fn procedures(&self, range: Range<usize>, each: impl FnMut(&Procedure));
    /// Scopes.
    fn scopes(&self, range: Range<usize>, each: impl FnMut(&Scope));
    /// Spans.
    fn spans(&self, range: Range<usize>, each: impl FnMut(&Span));
}

impl Tables for Structure {
    fn identity(&self) -> Identity<'_> {
        Identity {
            module: &self.module,
            build_id: &self.build_id,
            complete: self.complete,
            notes: &self.notes,
            columns: &self.columns,
        }
    }

    fn counts(&self) -> Counts {
        Counts {
            strings: self.strings.len(),
            procedures: self.procedures.len(),
            scopes: self.scopes.len(),
            spans: self.spans.len(),
        }
    }

    fn strings(&self, range: Range<usize>, mut each: impl FnMut(&str)) {
        self.strings[range].iter().for_each(|string| each(string));
    }

    fn procedures(&self, range: Range<usize>, each: impl FnMut(&Procedure)) {
        self.procedures[range].iter().for_each(each);
    }

    fn scopes(&self, range: Range<usize>, each: impl FnMut(&Scope)) {
        self.scopes[range].iter().for_each(each);
    }

    fn spans(&self, range: Range<usize>, each: impl FnMut(&Span)) {
        self.spans[range].iter().for_each(each);
    }
}
