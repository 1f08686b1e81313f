//! Warnings: one line each, with the remedy; each said once, in the order of their first use.

use crate::error::one_line;
use std::collections::HashSet;

/// A collection of distinct warnings.
#[derive(Debug, Default)]
pub struct Warnings {
    lines: Vec<String>,
    seen: HashSet<String>,
}

impl Warnings {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a warning unless the same was given before.
    pub fn add(&mut self, text: impl AsRef<str>) {
        let line = one_line(text.as_ref());
        if self.seen.insert(line.clone()) {
            self.lines.push(line);
        }
    }

    /// All of them.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}
