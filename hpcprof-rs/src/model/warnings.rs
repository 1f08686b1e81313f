//! Warnings: one line each, with the remedy; each said once, in the order of their first use. Details are for
//! those who ask for them.

use crate::error::one_line;
use indexmap::IndexSet;

/// A collection of distinct warnings.
#[derive(Debug, Default)]
pub struct Warnings {
    lines: IndexSet<String>,
    details: IndexSet<String>,
}

impl Warnings {
    /// Adds a warning unless the same was given before.
    pub fn add(&mut self, text: impl AsRef<str>) {
        self.lines.insert(one_line(text.as_ref()));
    }

    pub fn add_detail(&mut self, text: &str) {
        self.details.insert(one_line(text));
    }

    pub fn lines(&self) -> impl ExactSizeIterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    pub fn details(&self) -> impl Iterator<Item = &str> {
        self.details.iter().map(String::as_str)
    }
}
