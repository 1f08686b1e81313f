//! Which names and files are overhead: marks in the code, and rules.

pub(crate) mod marks;
pub(crate) mod rules;
