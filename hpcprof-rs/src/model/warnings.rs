//! Warnings: one line each, with the remedy; each said once, in the order of their first use.

use crate::error::one_line;
use indexmap::IndexSet;

/// A collection of distinct warnings.
#[derive(Debug, Default)]
pub struct Warnings(IndexSet<String>);

impl Warnings {
    /// Adds a warning unless the same was given before.
    pub fn add(&mut self, text: impl AsRef<str>) {
        self.0.insert(one_line(text.as_ref()));
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn lines(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}
